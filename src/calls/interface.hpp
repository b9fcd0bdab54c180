// SPDX-License-Identifier: MIT
// Interface: functions and classes that can be called by description, and what their parameters are: what an IDL text
// or a signature says. How large arrays are stands in expressions over the scalar parameters.
#pragma once

#include <complex>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace aplib::calls {

enum class Mode : std::uint8_t { in, out, inout, work };

enum class Type : std::uint8_t {
  character,
  boolean,
  signed_character,
  short_integer,
  integer,
  long_integer,
  unsigned_character,
  unsigned_short,
  unsigned_integer,
  unsigned_long,
  single_real,
  double_real,
  single_complex,
  double_complex,
  string,
  filename,
};

/// As in IDL: "IN", "unsigned int".
[[nodiscard]] std::string_view name_of(Mode mode);
[[nodiscard]] std::string_view name_of(Type type);
/// In C: "float _Complex", "char *".
[[nodiscard]] std::string_view c_name_of(Type type);
/// Of an element in memory: a string's or file's is a pointer to its text.
[[nodiscard]] std::size_t bytes_of(Type type);
[[nodiscard]] bool is_integer(Type type);
/// A string or filename: elements are pointers, and what they point to travels.
[[nodiscard]] bool is_text(Type type);

/// Calls what(T{}) for the type that `type` is in C++: a text is a char const*.
template <class What>
auto with_type(Type type, What what) {
  switch (type) {
    case Type::character:
      return what(char{});
    case Type::boolean:
      return what(bool{});
    case Type::signed_character:
      return what(std::int8_t{});
    case Type::short_integer:
      return what(std::int16_t{});
    case Type::integer:
      return what(std::int32_t{});
    case Type::long_integer:
      return what(std::int64_t{});
    case Type::unsigned_character:
      return what(std::uint8_t{});
    case Type::unsigned_short:
      return what(std::uint16_t{});
    case Type::unsigned_integer:
      return what(std::uint32_t{});
    case Type::unsigned_long:
      return what(std::uint64_t{});
    case Type::single_real:
      return what(float{});
    case Type::double_real:
      return what(double{});
    case Type::single_complex:
      return what(std::complex<float>{});
    case Type::double_complex:
      return what(std::complex<double>{});
    case Type::string:
    case Type::filename:
      break;
  }
  return what(static_cast<const char*>(nullptr));
}

/// A place in an IDL text: both numbers count from 1.
struct Place {
  int line = 1;
  int column = 1;
  bool operator==(const Place&) const noexcept = default;
};

/// A size: what it is made of stands in a list, the parts of each element before it.
struct Expression {
  enum class Kind : std::uint8_t {
    number,
    parameter,
    negate,
    add,
    subtract,
    multiply,
    divide,
    modulo,
    power,
    less,
    greater,
    less_equal,
    greater_equal,
    equal,
    unequal,
    choose,  ///< first ? second : third
  };
  struct Node {
    Kind kind = Kind::number;
    std::int64_t number = 0;  ///< Of a number; of a parameter: which one of the function.
    std::uint32_t first = 0;
    std::uint32_t second = 0;
    std::uint32_t third = 0;
    bool operator==(const Node&) const noexcept = default;
  };
  std::vector<Node> nodes;  ///< The last one is the whole.

  /// `values` has the value of each integer scalar. Throws Error(bad_argument): "..." where there is no such number.
  [[nodiscard]] std::int64_t value(std::span<const std::int64_t> values) const;
  bool operator==(const Expression&) const = default;
};

/// [size], [size:high], [size:low,high], [size:low,high,stride]: of `size` elements, those from low up to before high
/// travel, each stride-th.
struct Dimension {
  Expression size;
  std::optional<Expression> low;
  std::optional<Expression> high;
  std::optional<Expression> stride;
  bool operator==(const Dimension&) const = default;
};

inline constexpr std::size_t dimensions_max = 15;

struct Parameter {
  Mode mode = Mode::in;
  Type type = Type::integer;
  std::string name;      ///< Of a signature: may be empty.
  bool pointer = false;  ///< "*name": one element, passed by its address also when it is IN.
  std::vector<Dimension> dimensions;

  [[nodiscard]] bool is_array() const noexcept { return pointer || !dimensions.empty(); }
  [[nodiscard]] bool is_scalar() const noexcept { return !is_array() && !is_text(type); }
  /// The function gets the value itself, not the address of its first element.
  [[nodiscard]] bool is_by_value() const noexcept {
    return !is_array() && (mode == Mode::in || type == Type::filename);
  }
  [[nodiscard]] bool goes_in() const noexcept { return mode == Mode::in || mode == Mode::inout; }
  [[nodiscard]] bool comes_out() const noexcept { return mode == Mode::out || mode == Mode::inout; }
  bool operator==(const Parameter&) const = default;
};

/// C text of an IDL file, for the stub.
struct CText {
  std::string text;
  int line = 0;  ///< 0: there is none.
};

struct Function {
  std::string name;
  std::string description;
  std::vector<Parameter> parameters;
  std::vector<std::string> required;  ///< Object files and libraries.
  std::optional<Type> result;         ///< Of a signature alone: functions of an IDL return nothing.

  // What the stub does: `calls`, or the text.
  std::string language;  ///< "C" or "Fortran"
  std::string calls;
  std::vector<std::uint32_t> call_arguments;  ///< Which parameters.
  CText body;
};

struct ObjectClass {
  std::string name;
  std::string description;
  std::vector<std::string> required;
  CText state;
  std::vector<Function> methods;
};

struct Interface {
  std::string name;  ///< Of the module.
  std::vector<Function> functions;
  std::vector<ObjectClass> classes;

  // For the stub and its makefile.
  std::vector<CText> globals;
  std::vector<std::string> compile_options;
  std::vector<std::string> libraries;
  std::string compiler;
  std::string linker;
  std::string fortran_format = "%s_";
};

/// The functions, then the methods of the classes: a call has the number of one here.
[[nodiscard]] std::vector<const Function*> functions_of(const Interface& interface);

/// What a client needs of it, as an IDL text: read_interface() makes the same of it, without C text.
[[nodiscard]] std::string print_interface(const Interface& interface);
/// "IN double A[n][n]"
[[nodiscard]] std::string print_parameter(const Function& function, const Parameter& parameter);
/// "dmmul(IN int n, IN double A[n][n])"
[[nodiscard]] std::string print_function(const Function& function);
/// "solve(int n, OUT double x[n]) -> int", as read_signature() reads it.
[[nodiscard]] std::string print_signature(const Function& function);

}  // namespace aplib::calls
