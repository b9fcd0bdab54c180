// SPDX-License-Identifier: MIT
#include "calls/interface.hpp"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "aplib/error.hpp"

namespace aplib::calls {
namespace {

struct TypeRow {
  std::string_view name;
  std::string_view c_name;
  std::uint8_t bytes;
  bool integer;
};

// In the order of Type. All systems that APlib knows have these sizes.
constexpr std::array type_rows{
    TypeRow{"char", "char", 1, true},
    TypeRow{"bool", "_Bool", 1, false},
    TypeRow{"signed char", "signed char", 1, true},
    TypeRow{"short", "short", 2, true},
    TypeRow{"int", "int", 4, true},
    TypeRow{"long", "long", 8, true},
    TypeRow{"unsigned char", "unsigned char", 1, true},
    TypeRow{"unsigned short", "unsigned short", 2, true},
    TypeRow{"unsigned int", "unsigned int", 4, true},
    TypeRow{"unsigned long", "unsigned long", 8, true},
    TypeRow{"float", "float", 4, false},
    TypeRow{"double", "double", 8, false},
    TypeRow{"scomplex", "float _Complex", 8, false},
    TypeRow{"dcomplex", "double _Complex", 16, false},
    TypeRow{"string", "char *", 8, false},
    TypeRow{"filename", "char *", 8, false},
};
static_assert(type_rows.size() == static_cast<std::size_t>(Type::filename) + 1 && sizeof(long) == 8);

const TypeRow& row_of(Type type) { return type_rows[static_cast<std::size_t>(type)]; }

using Kind = Expression::Kind;

[[noreturn]] void refuse_value(const char* cause) { throw Error(Errc::bad_argument, cause); }

std::int64_t power(std::int64_t base, std::int64_t exponent) {
  if (exponent < 0) refuse_value("it raises a number to a negative power");
  std::int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) refuse_value("it has no room in 64 bits");
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) refuse_value("it has no room in 64 bits");
  }
  return result;
}

std::int64_t divide(std::int64_t a, std::int64_t b, bool remainder) {
  if (b == 0) refuse_value("it divides by 0");
  if (b == -1) {  // the smallest number has no opposite
    std::int64_t negative = 0;
    if (remainder) return 0;
    if (__builtin_sub_overflow(std::int64_t{0}, a, &negative)) refuse_value("it has no room in 64 bits");
    return negative;
  }
  return remainder ? a % b : a / b;
}

std::int64_t combine(Kind kind, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  bool overflow = false;
  switch (kind) {
    case Kind::add:
      overflow = __builtin_add_overflow(a, b, &result);
      break;
    case Kind::subtract:
      overflow = __builtin_sub_overflow(a, b, &result);
      break;
    case Kind::multiply:
      overflow = __builtin_mul_overflow(a, b, &result);
      break;
    case Kind::divide:
    case Kind::modulo:
      return divide(a, b, kind == Kind::modulo);
    case Kind::power:
      return power(a, b);
    case Kind::less:
      return a < b ? 1 : 0;
    case Kind::greater:
      return a > b ? 1 : 0;
    case Kind::less_equal:
      return a <= b ? 1 : 0;
    case Kind::greater_equal:
      return a >= b ? 1 : 0;
    case Kind::equal:
      return a == b ? 1 : 0;
    default:
      return a != b ? 1 : 0;
  }
  if (overflow) refuse_value("it has no room in 64 bits");
  return result;
}

std::int64_t value_of(const Expression& expression, std::uint32_t at, std::span<const std::int64_t> values) {
  const Expression::Node& node = expression.nodes[at];
  switch (node.kind) {
    case Kind::number:
      return node.number;
    case Kind::parameter:
      return values[static_cast<std::size_t>(node.number)];
    case Kind::negate:
      return combine(Kind::subtract, 0, value_of(expression, node.first, values));
    case Kind::choose:
      return value_of(expression, value_of(expression, node.first, values) != 0 ? node.second : node.third, values);
    default:
      return combine(node.kind, value_of(expression, node.first, values), value_of(expression, node.second, values));
  }
}

std::string_view sign_of(Kind kind) {
  constexpr std::array<std::string_view, 15> signs{"",  "",  "-", "+",  "-",  "*",  "/", "%",
                                                   "^", "<", ">", "<=", ">=", "==", "!="};
  return signs[static_cast<std::size_t>(kind)];
}

/// With parentheses around all that has parts, so that nobody needs to know what binds more.
std::string print_node(const Expression& expression, std::uint32_t at, const Function& function) {
  const Expression::Node& node = expression.nodes[at];
  const auto part = [&](std::uint32_t which) {
    const Kind kind = expression.nodes[which].kind;
    const std::string text = print_node(expression, which, function);
    return kind == Kind::number || kind == Kind::parameter ? text : "(" + text + ")";
  };
  switch (node.kind) {
    case Kind::number:
      return fmt::format("{}", node.number);
    case Kind::parameter:
      return function.parameters[static_cast<std::size_t>(node.number)].name;
    case Kind::negate:
      return "-" + part(node.first);
    case Kind::choose:
      return part(node.first) + " ? " + part(node.second) + " : " + part(node.third);
    default:
      return part(node.first) + std::string(sign_of(node.kind)) + part(node.second);
  }
}

std::string print_dimension(const Dimension& dimension, const Function& function) {
  const auto print = [&](const Expression& each) {
    return print_node(each, static_cast<std::uint32_t>(each.nodes.size() - 1), function);
  };
  std::string text = "[" + print(dimension.size);
  if (dimension.high) {
    text += ":";
    if (dimension.low) text += print(*dimension.low) + ",";
    text += print(*dimension.high);
    if (dimension.stride) text += "," + print(*dimension.stride);
  }
  return text + "]";
}

/// Without its mode: "double A[n][n]", "int".
std::string print_declaration(const Function& function, const Parameter& parameter) {
  std::string text(name_of(parameter.type));
  if (parameter.pointer || !parameter.name.empty()) text += ' ';
  if (parameter.pointer) text += '*';
  text += parameter.name;
  for (const Dimension& dimension : parameter.dimensions) text += print_dimension(dimension, function);
  return text;
}

}  // namespace

std::string_view name_of(Mode mode) {
  constexpr std::array<std::string_view, 4> names{"IN", "OUT", "INOUT", "WORK"};
  return names[static_cast<std::size_t>(mode)];
}

std::string_view name_of(Type type) { return row_of(type).name; }
std::string_view c_name_of(Type type) { return row_of(type).c_name; }
std::size_t bytes_of(Type type) { return row_of(type).bytes; }
bool is_integer(Type type) { return row_of(type).integer; }
bool is_text(Type type) { return type == Type::string || type == Type::filename; }

std::int64_t Expression::value(std::span<const std::int64_t> values) const {
  return value_of(*this, static_cast<std::uint32_t>(nodes.size() - 1), values);
}

std::string print_parameter(const Function& function, const Parameter& parameter) {
  return fmt::format("{} {}", name_of(parameter.mode), print_declaration(function, parameter));
}

std::string print_function(const Function& function) {
  std::string text = function.name + "(";
  for (const Parameter& each : function.parameters) {
    if (&each != function.parameters.data()) text += ", ";
    text += print_parameter(function, each);
  }
  return text + ")";
}

std::string print_signature(const Function& function) {
  std::string text = function.name + "(";
  for (const Parameter& each : function.parameters) {
    if (&each != function.parameters.data()) text += ", ";
    text += each.mode == Mode::in ? print_declaration(function, each) : print_parameter(function, each);
  }
  return fmt::format("{}) -> {}", text, function.result ? name_of(*function.result) : "void");
}

std::vector<const Function*> functions_of(const Interface& interface) {
  std::vector<const Function*> functions;
  for (const Function& each : interface.functions) functions.push_back(&each);
  for (const ObjectClass& each : interface.classes)
    for (const Function& method : each.methods) functions.push_back(&method);
  return functions;
}

std::string print_interface(const Interface& interface) {
  std::string text = "Module " + interface.name + ";\n";
  const auto describe = [&](const std::string& description) {
    if (!description.empty()) text += " \"" + description + "\"";
  };
  for (const Function& function : interface.functions) {
    text += "Define " + print_function(function);
    describe(function.description);
    text += ";\n";
  }
  for (const ObjectClass& each : interface.classes) {
    text += "DefClass " + each.name;
    describe(each.description);
    text += " {\n";
    for (const Function& method : each.methods) {
      text += "  DefMethod " + print_function(method);
      describe(method.description);
      text += ";\n";
    }
    text += "}\n";
  }
  return text;
}

}  // namespace aplib::calls
