// SPDX-License-Identifier: MIT
#include "loader/entry.hpp"

#include <cxxabi.h>
#include <ffi.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "aplib/error.hpp"
#include "base/text.hpp"
#include "loader/instance.hpp"
#include "loader/libc/start.hpp"

namespace aplib::loader {

namespace {

using Definition = Program::Definition;

/// Ways to call the entries that are known by name.
enum class Convention : std::uint8_t {
  start,  ///< of an executable: leads to its main
  main,   ///< int (argc, argv, envp)
  /// void (argc, argv): CellOS's take nothing, those that a historical header renamed from main may look at both
  cell,
  fortran,
};

struct KnownEntry {
  std::string_view name;
  Entry::Role role;
  Convention convention;
  std::string_view text;
};

// In the order in which they are looked for.
constexpr std::array known_entries{
    KnownEntry{"host_main", Entry::Role::host, Convention::main, "host_main(argc, argv)"},
    KnownEntry{"cell_main", Entry::Role::cell, Convention::cell, "cell_main()"},
    KnownEntry{"main", Entry::Role::cell, Convention::main, "main(argc, argv, envp)"},
    KnownEntry{"MAIN__", Entry::Role::cell, Convention::fortran, "MAIN__()"},
    KnownEntry{"main", Entry::Role::cell, Convention::start, "main(argc, argv, envp)"},
};

Definition find(const Program& program, const KnownEntry& known) {
  return known.convention == Convention::start ? program.start() : program.find(known.name);
}

template <class Function>
Function* function_at(Instance& instance, Definition definition) {
  return reinterpret_cast<Function*>(instance.address_of(definition));
}

/// Fortran's main program reads the command line from its library, which gfortran's main() tells before.
void tell_fortran_library(Instance& instance) {
  for (const LoadedImage& image : instance.images()) {
    const Symbol* setter = image.file != nullptr ? image.file->find("_gfortran_set_args") : nullptr;
    if (setter == nullptr || !setter->defined) continue;
    reinterpret_cast<void (*)(int, char**)>(image.base + setter->value)(instance.argc(), instance.argv());
    return;
  }
}

int call_known(Instance& instance, Convention convention, Definition definition) {
  switch (convention) {
    case Convention::start:
      return libc::main_of(instance, definition)(instance.argc(), instance.argv(), *instance.libc().environ);
    case Convention::main:
      return function_at<int(int, char**, char**)>(instance, definition)(instance.argc(), instance.argv(),
                                                                         *instance.libc().environ);
    case Convention::cell:
      function_at<void(int, char**)>(instance, definition)(instance.argc(), instance.argv());
      return 0;
    case Convention::fortran:
      tell_fortran_library(instance);
      function_at<void()>(instance, definition)();
      return 0;
  }
  return 0;
}

/// On the program's own stream, behind what it has written there itself.
void print_result(Instance& instance, const std::string& name, const std::string& result) {
  const std::string line = fmt::format("{} = {}\n", name, result);
  if (*instance.libc().out != nullptr) {
    std::fputs(line.c_str(), *instance.libc().out);
  } else {
    instance.services().write(Stream::out, line);
  }
}

/// "ns::solve(int, double)", or nothing where `symbol` is no C++ function.
std::string demangled(std::string_view symbol) {
  if (!symbol.starts_with("_Z")) return {};
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(std::string(symbol).c_str(), nullptr, nullptr, &status), std::free);
  return status == 0 && text != nullptr ? std::string(text.get()) : std::string{};
}

/// As people write it: without parameters.
std::string plain_name(std::string_view symbol) {
  const std::string whole = demangled(symbol);
  return whole.empty() ? std::string(symbol) : whole.substr(0, whole.find('('));
}

/// "a, b, c and 12 more", the ones most like `name` first.
std::string offers(std::string_view name, std::span<const std::string_view> functions) {
  constexpr std::size_t shown = 20;
  std::vector<std::string> names;
  for (const std::string_view symbol : functions) {
    if (symbol != "_init" && symbol != "_fini") names.push_back(plain_name(symbol));
  }
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  if (names.empty()) return "no functions at all";
  std::ranges::stable_sort(names, {}, [&](const std::string& each) { return text::edit_distance(name, each); });
  std::string text = fmt::format("{}", fmt::join(names.begin(), names.begin() + std::min(names.size(), shown), ", "));
  if (names.size() > shown) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

}  // namespace

std::string_view find_function(std::string_view name, std::span<const std::string_view> functions,
                               std::string_view file) {
  if (std::ranges::find(functions, name) != functions.end()) return *std::ranges::find(functions, name);
  std::vector<std::string_view> matches;
  for (const std::string_view symbol : functions) {
    if (symbol.starts_with("_Z") && plain_name(symbol) == name) matches.push_back(symbol);
  }
  if (matches.size() == 1) return matches.front();
  if (matches.size() > 1) {
    std::vector<std::string> texts;
    for (const std::string_view symbol : matches) texts.push_back(fmt::format("{} ({})", demangled(symbol), symbol));
    throw Error(Errc::bad_option, fmt::format("{} has several functions {}: {}; name one by its symbol, in parentheses",
                                              file, name, fmt::join(texts, ", ")));
  }
  std::vector<std::string> names;
  for (const std::string_view symbol : functions) names.push_back(plain_name(symbol));
  const std::vector<std::string_view> views(names.begin(), names.end());
  const auto meant = text::nearest(name, views);
  throw Error(Errc::bad_option,
              fmt::format("{} has no function {}{}; it offers {}", file, name,
                          meant ? fmt::format(" (did you mean {}?)", *meant) : std::string{}, offers(name, functions)));
}

Entry Entry::choose(const Program& program, Role role, std::string_view signature,
                    std::span<const std::string> arguments) {
  Entry entry;
  const auto use = [&](const KnownEntry& known) {
    entry.text_ = known.text;
    entry.make_ = [convention = known.convention, definition = find(program, known)] {
      return [=](Instance& instance) { return call_known(instance, convention, definition); };
    };
    return entry;
  };
  if (signature.empty()) {
    if (!arguments.empty())
      throw Error(Errc::bad_option, "--args are the arguments of a function named by --entry, which is missing");
    for (const KnownEntry& known : known_entries) {
      if (known.role == role && find(program, known)) return use(known);
    }
    const std::string wanted = role == Role::host ? "host_main" : "cell_main, main or MAIN__";
    throw Error(Errc::bad_option,
                fmt::format("{} has no {} to start with; it offers {}{}", program.path(), wanted,
                            offers("main", program.functions()),
                            role == Role::cell ? "; name one by --entry, or link the file with apcc" : ""));
  }
  for (const KnownEntry& known : known_entries) {
    if (known.name != signature || !find(program, known)) continue;
    if (!arguments.empty()) {
      throw Error(Errc::bad_option,
                  fmt::format("--args are not for {}: its arguments follow the program's name", known.name));
    }
    return use(known);
  }
  Signature parsed = parse_signature(signature);
  const std::vector<std::string_view> functions = program.functions();
  const Definition definition = program.find(find_function(parsed.name, functions, program.path()));
  entry.text_ = print_signature(parsed);
  entry.make_ = [call = std::make_shared<const TypedCall>(std::move(parsed), arguments), definition] {
    // A copy for each instance: the function may change the strings it gets.
    return [own = std::make_shared<TypedCall>(*call), definition](Instance& instance) {
      const TypedResult result = own->call(instance.address_of(definition));
      if (result.type == ValueType::int32) return static_cast<int>(result.number);
      if (result.type != ValueType::none) print_result(instance, own->signature().name, result.text);
      return 0;
    };
  };
  return entry;
}

// ---------------------------------------------------------------- calls by types

namespace {

struct TypeName {
  std::string_view name;
  ValueType type;
};

template <class T>
constexpr ValueType integer_type() {
  constexpr std::array signed_types{ValueType::int8, ValueType::int16, ValueType::int32, ValueType::int64};
  constexpr std::array unsigned_types{ValueType::uint8, ValueType::uint16, ValueType::uint32, ValueType::uint64};
  constexpr std::size_t size = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
  return std::numeric_limits<T>::is_signed ? signed_types[size] : unsigned_types[size];
}

// Types of one word that are no keywords which others can qualify.
constexpr std::array single_names{
    TypeName{"void", ValueType::none},
    TypeName{"bool", ValueType::boolean},
    TypeName{"_Bool", ValueType::boolean},
    TypeName{"int8_t", ValueType::int8},
    TypeName{"uint8_t", ValueType::uint8},
    TypeName{"int16_t", ValueType::int16},
    TypeName{"uint16_t", ValueType::uint16},
    TypeName{"int32_t", ValueType::int32},
    TypeName{"uint32_t", ValueType::uint32},
    TypeName{"int64_t", ValueType::int64},
    TypeName{"uint64_t", ValueType::uint64},
    TypeName{"size_t", integer_type<std::size_t>()},
    TypeName{"ssize_t", integer_type<std::ptrdiff_t>()},
    TypeName{"ptrdiff_t", integer_type<std::ptrdiff_t>()},
    TypeName{"intptr_t", integer_type<std::intptr_t>()},
    TypeName{"uintptr_t", integer_type<std::uintptr_t>()},
    TypeName{"float", ValueType::float32},
    TypeName{"double", ValueType::float64},
    TypeName{"string", ValueType::text},
};

constexpr std::string_view known_types =
    "bool, char, the integers from signed char to unsigned long long, int8_t to uint64_t, size_t, float, double, "
    "char const* (or string), and void as a result";

std::string_view name_of(ValueType type) {
  constexpr std::array<std::string_view, 14> names{
      "void", "bool",         "char", "int8_t",        "uint8_t", "short",  "unsigned short",
      "int",  "unsigned int", "long", "unsigned long", "float",   "double", "char const*"};
  return names[static_cast<std::size_t>(type)];
}

bool is_word_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == ':' ||
         c == '$' || c == '.' || c == '~';
}

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

/// How often each keyword of C's arithmetic types occurs in a type.
struct Keywords {
  int is_signed = 0, is_unsigned = 0, chars = 0, shorts = 0, ints = 0, longs = 0;

  /// False: not one of them.
  bool count(std::string_view word) {
    const std::array<std::pair<std::string_view, int*>, 6> all{{{"signed", &is_signed},
                                                                {"unsigned", &is_unsigned},
                                                                {"char", &chars},
                                                                {"short", &shorts},
                                                                {"int", &ints},
                                                                {"long", &longs}}};
    for (const auto& [name, counter] : all) {
      if (name == word) return ++*counter, true;
    }
    return false;
  }
  [[nodiscard]] bool any() const { return is_signed + is_unsigned + chars + shorts + ints + longs > 0; }
  [[nodiscard]] std::optional<ValueType> type() const {
    if (is_signed + is_unsigned > 1 || chars > 1 || shorts > 1 || ints > 1 || longs > 2) return std::nullopt;
    if (chars + (shorts > 0 ? 1 : 0) + (longs > 0 ? 1 : 0) > 1 || (chars > 0 && ints > 0)) return std::nullopt;
    const bool plus = is_unsigned > 0;
    if (chars > 0) return plus ? ValueType::uint8 : is_signed > 0 ? ValueType::int8 : ValueType::character;
    if (shorts > 0) return plus ? ValueType::uint16 : ValueType::int16;
    if (longs > 0) return plus ? integer_type<unsigned long>() : integer_type<long>();
    return plus ? ValueType::uint32 : ValueType::int32;
  }
};

/// Nothing when it is no type that can be passed.
std::optional<ValueType> parse_type(std::string_view text) {
  Keywords keywords;
  std::optional<ValueType> single;
  int pointers = 0;
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] == ' ' || text[at] == '\t') {
      ++at;
    } else if (text[at] == '*') {
      ++pointers;
      ++at;
    } else {
      std::size_t end = at;
      while (end < text.size() && is_word_character(text[end])) ++end;
      if (end == at) return std::nullopt;
      std::string_view word = text.substr(at, end - at);
      at = end;
      if (word == "const") continue;
      if (pointers > 0) return std::nullopt;
      if (keywords.count(word)) continue;
      // std::size_t is size_t, but std::string is no char const*.
      if (word.starts_with("std::") && word != "std::string") word.remove_prefix(5);
      const auto* row = std::ranges::find(single_names, word, &TypeName::name);
      if (row == single_names.end() || single) return std::nullopt;
      single = row->type;
    }
  }
  if (single && keywords.any()) return std::nullopt;
  const auto type = single ? single : keywords.any() ? keywords.type() : std::nullopt;
  if (pointers == 0) return type;
  return pointers == 1 && type == ValueType::character ? std::optional(ValueType::text) : std::nullopt;
}

[[noreturn]] void fail(const std::string& text) { throw Error(Errc::bad_option, text); }

ValueType type_or_fail(std::string_view signature, std::string_view text) {
  if (const auto type = parse_type(text)) return *type;
  fail(fmt::format("entry \"{}\": \"{}\" is not a type that can be passed: use {}", signature, text, known_types));
}

ffi_type* ffi_type_of(ValueType type) {
  switch (type) {
    case ValueType::none:
      return &ffi_type_void;
    case ValueType::boolean:
    case ValueType::uint8:
      return &ffi_type_uint8;
    case ValueType::character:
      return std::numeric_limits<char>::is_signed ? &ffi_type_sint8 : &ffi_type_uint8;
    case ValueType::int8:
      return &ffi_type_sint8;
    case ValueType::int16:
      return &ffi_type_sint16;
    case ValueType::uint16:
      return &ffi_type_uint16;
    case ValueType::int32:
      return &ffi_type_sint32;
    case ValueType::uint32:
      return &ffi_type_uint32;
    case ValueType::int64:
      return &ffi_type_sint64;
    case ValueType::uint64:
      return &ffi_type_uint64;
    case ValueType::float32:
      return &ffi_type_float;
    case ValueType::float64:
      return &ffi_type_double;
    case ValueType::text:
      return &ffi_type_pointer;
  }
  return &ffi_type_void;
}

/// Why a text is no value; empty: it is one.
using Problem = std::string;

template <class T>
Problem read_integer(std::string_view text, T& into) {
  const bool negative = text.starts_with('-');
  std::string_view digits = text.substr(negative || text.starts_with('+') ? 1 : 0);
  int base = 10;
  if (digits.starts_with("0x") || digits.starts_with("0X")) {
    base = 16;
    digits.remove_prefix(2);
  }
  std::uint64_t size = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, size, base);
  if (stop != end || error == std::errc::invalid_argument) return "is not a whole number";
  using Limits = std::numeric_limits<T>;
  const std::uint64_t most = negative ? std::uint64_t{0} - static_cast<std::uint64_t>(Limits::min())
                                      : static_cast<std::uint64_t>(Limits::max());
  if (error != std::errc{} || size > most)
    return fmt::format("is out of range: use {} .. {}", +Limits::min(), +Limits::max());
  into = static_cast<T>(negative ? std::uint64_t{0} - size : size);
  return {};
}

template <class T>
Problem read_real(std::string_view text, T& into) {
  const std::string_view digits = text.substr(text.starts_with('+') ? 1 : 0);
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, into);
  if (stop != end || error == std::errc::invalid_argument) return "is not a number";
  if (error == std::errc{}) return {};
  return fmt::format("is out of range: use 0 or {:g} .. {:g} of either sign", std::numeric_limits<T>::denorm_min(),
                     std::numeric_limits<T>::max());
}

}  // namespace

Signature parse_signature(std::string_view text) {
  constexpr std::string_view form = "write name(type,...)->type, for example solve(int,double)->int";
  const std::string_view whole = trimmed(text);
  const std::size_t open = std::min(whole.find('('), whole.size());
  Signature signature;
  signature.name = trimmed(whole.substr(0, open));
  if (signature.name.empty() || !std::ranges::all_of(signature.name, is_word_character))
    fail(fmt::format("entry \"{}\" does not begin with the name of a function: {}", text, form));
  if (open == whole.size()) return signature;

  const std::size_t close = whole.find(')', open);
  if (close == whole.npos) fail(fmt::format("entry \"{}\" lacks a closing parenthesis: {}", text, form));
  std::string_view list = trimmed(whole.substr(open + 1, close - open - 1));
  if (!list.empty() && list != "void") {
    for (std::size_t at = 0; at <= list.size();) {
      const std::size_t comma = std::min(list.find(',', at), list.size());
      const std::string_view word = trimmed(list.substr(at, comma - at));
      const ValueType type = type_or_fail(text, word);
      if (type == ValueType::none) fail(fmt::format("entry \"{}\": void is the type of a result only: {}", text, form));
      signature.parameters.push_back(type);
      at = comma + 1;
    }
  }
  std::string_view rest = trimmed(whole.substr(close + 1));
  if (rest.empty()) return signature;
  if (!rest.starts_with("->"))
    fail(fmt::format("entry \"{}\": \"{}\" after the parameters is not understood: {}", text, rest, form));
  signature.result = type_or_fail(text, trimmed(rest.substr(2)));
  return signature;
}

std::string print_signature(const Signature& signature) {
  std::string text = signature.name + "(";
  for (std::size_t i = 0; i < signature.parameters.size(); ++i) {
    if (i > 0) text += ", ";
    text += name_of(signature.parameters[i]);
  }
  return fmt::format("{}) -> {}", text, name_of(signature.result));
}

struct TypedCall::Interface {
  ffi_cif cif{};
  std::vector<ffi_type*> types;
  std::vector<void*> addresses;
};

TypedCall::TypedCall(Signature signature, std::span<const std::string> arguments)
    : signature_(std::move(signature)), texts_(arguments.begin(), arguments.end()) {
  const std::size_t wanted = signature_.parameters.size();
  if (texts_.size() != wanted) {
    fail(fmt::format("entry {} takes {} argument{}, but {} {} given: --args {}", print_signature(signature_), wanted,
                     wanted == 1 ? "" : "s", texts_.size(), texts_.size() == 1 ? "is" : "are", fmt::join(texts_, " ")));
  }
  for (std::size_t i = 0; i < wanted; ++i) values_.push_back(convert(i, texts_[i]));
  prepare();
}

TypedCall::TypedCall(const TypedCall& other)
    : signature_(other.signature_), texts_(other.texts_), values_(other.values_) {
  for (std::size_t i = 0; i < texts_.size(); ++i) {
    if (signature_.parameters[i] == ValueType::text) values_[i].text = texts_[i].data();
  }
  prepare();
}

TypedCall::~TypedCall() = default;

TypedCall::Value TypedCall::convert(std::size_t place, const std::string& text) {
  Value value{.bits = 0};
  Problem problem;
  const ValueType type = signature_.parameters[place];
  switch (type) {
    case ValueType::none:
      break;
    case ValueType::boolean:
      if (const auto on = text::parse_switch(text)) {
        value.boolean = *on;
      } else {
        problem = "is neither true nor false";
      }
      break;
    case ValueType::character:
      if (text.size() == 1) {
        value.character = text.front();
      } else {
        problem = "is not one character";
      }
      break;
    case ValueType::int8:
      problem = read_integer(text, value.int8);
      break;
    case ValueType::uint8:
      problem = read_integer(text, value.uint8);
      break;
    case ValueType::int16:
      problem = read_integer(text, value.int16);
      break;
    case ValueType::uint16:
      problem = read_integer(text, value.uint16);
      break;
    case ValueType::int32:
      problem = read_integer(text, value.int32);
      break;
    case ValueType::uint32:
      problem = read_integer(text, value.uint32);
      break;
    case ValueType::int64:
      problem = read_integer(text, value.int64);
      break;
    case ValueType::uint64:
      problem = read_integer(text, value.uint64);
      break;
    case ValueType::float32:
      problem = read_real(text, value.float32);
      break;
    case ValueType::float64:
      problem = read_real(text, value.float64);
      break;
    case ValueType::text:
      value.text = texts_[place].data();
      break;
  }
  if (!problem.empty()) {
    fail(fmt::format("entry {}: argument {}, \"{}\", {} (type {})", print_signature(signature_), place + 1, text,
                     problem, name_of(type)));
  }
  return value;
}

void TypedCall::prepare() {
  interface_ = std::make_unique<Interface>();
  for (std::size_t i = 0; i < values_.size(); ++i) {
    interface_->types.push_back(ffi_type_of(signature_.parameters[i]));
    interface_->addresses.push_back(&values_[i]);
  }
  if (ffi_prep_cif(&interface_->cif, FFI_DEFAULT_ABI, static_cast<unsigned>(values_.size()),
                   ffi_type_of(signature_.result), interface_->types.data()) != FFI_OK) {
    fail(fmt::format("entry {}: libffi cannot call a function of these types", print_signature(signature_)));
  }
}

TypedResult TypedCall::call(void* function) {
  // Results shorter than a register arrive as a whole one.
  union {
    ffi_arg whole;
    ffi_sarg whole_signed;
    float float32;
    double float64;
    const char* text;
    std::uint64_t room[2];
  } raw{};
  ffi_call(&interface_->cif, reinterpret_cast<void (*)()>(function), &raw, interface_->addresses.data());
  TypedResult result{.type = signature_.result, .number = 0, .text = {}};
  switch (result.type) {
    case ValueType::none:
      break;
    case ValueType::boolean:
      result.text = (raw.whole & 0xff) != 0 ? "true" : "false";
      break;
    case ValueType::character:
      result.text = std::string(1, static_cast<char>(raw.whole));
      break;
    case ValueType::int8:
    case ValueType::int16:
    case ValueType::int64:
      result.text = fmt::format("{}", raw.whole_signed);
      break;
    case ValueType::int32:
      result.number = static_cast<std::int32_t>(raw.whole_signed);
      result.text = fmt::format("{}", result.number);
      break;
    case ValueType::uint8:
    case ValueType::uint16:
    case ValueType::uint32:
    case ValueType::uint64:
      result.text = fmt::format("{}", raw.whole);
      break;
    case ValueType::float32:
      result.text = fmt::format("{}", raw.float32);
      break;
    case ValueType::float64:
      result.text = fmt::format("{}", raw.float64);
      break;
    case ValueType::text:
      result.text = raw.text != nullptr ? raw.text : "(null)";
      break;
  }
  return result;
}

}  // namespace aplib::loader
