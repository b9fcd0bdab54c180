// SPDX-License-Identifier: MIT
#include "calls/typed_call.hpp"

#include <ffi.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string_view>
#include <type_traits>
#include <utility>

#include "aplib/error.hpp"
#include "base/os/descriptor.hpp"
#include "base/text.hpp"

namespace aplib::calls {
namespace {

constexpr std::size_t quoted_bytes_max = 60;
constexpr std::string_view blanks = " \t\r\n";

// --- Values as text ---

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

/// "1", "2i", "1-2i"
template <class T>
Problem read_complex(std::string_view text, std::complex<T>& into) {
  T real = 0;
  T imaginary = 0;
  if (!text.ends_with('i')) {
    if (Problem problem = read_real(text, real); !problem.empty()) return problem;
  } else {
    const std::string_view digits = text.substr(0, text.size() - 1);
    std::size_t sign = digits.find_last_of("+-");
    while (sign != digits.npos && sign > 0 && (digits[sign - 1] == 'e' || digits[sign - 1] == 'E'))
      sign = digits.find_last_of("+-", sign - 1);
    if (sign == digits.npos) sign = 0;
    if (sign > 0)
      if (Problem problem = read_real(digits.substr(0, sign), real); !problem.empty()) return problem;
    if (Problem problem = read_real(digits.substr(sign), imaginary); !problem.empty()) return problem;
  }
  into = {real, imaginary};
  return {};
}

template <class T>
std::string print_complex(std::complex<T> value) {
  return fmt::format("{}{:+}i", value.real(), value.imag());
}

Problem read(std::string_view text, bool& into) {
  const auto on = text::parse_switch(text);
  if (!on) return "is neither true nor false";
  into = *on;
  return {};
}

Problem read(std::string_view text, char& into) {
  if (text.size() != 1) return "is not one character";
  into = text.front();
  return {};
}

template <class T>
Problem read(std::string_view text, T& into) {
  if constexpr (std::numeric_limits<T>::is_integer)
    return read_integer(text, into);
  else
    return read_real(text, into);
}

template <class T>
Problem read(std::string_view text, std::complex<T>& into) {
  return read_complex(text, into);
}

Problem read(std::string_view /*text*/, const char*& /*into*/) { return "is not a number"; }

std::string print(bool value) { return value ? "true" : "false"; }
std::string print(char value) { return std::string(1, value); }
std::string print(const char* value) { return value != nullptr ? value : "(null)"; }
template <class T>
std::string print(std::complex<T> value) {
  return print_complex(value);
}
template <class T>
std::string print(T value) {
  return fmt::format("{}", value);
}

/// Stores what `text` says at `into`, which has room for the type; it is no text.
Problem read_value(Type type, std::string_view text, void* into) {
  return with_type(type, [&](auto value) {
    Problem problem = read(text, value);
    if (problem.empty()) std::memcpy(into, &value, sizeof value);
    return problem;
  });
}

/// Floating-point numbers have as many digits as tell them from all others.
std::string print_value(Type type, const void* value) {
  return with_type(type, [&](auto copy) {
    std::memcpy(&copy, value, sizeof copy);
    return print(copy);
  });
}

// --- Calls ---

template <class T>
ffi_type* ffi_type_of() {
  if constexpr (std::is_pointer_v<T>) return &ffi_type_pointer;
  if constexpr (std::is_same_v<T, float>) return &ffi_type_float;
  if constexpr (std::is_same_v<T, double>) return &ffi_type_double;
  if constexpr (std::is_same_v<T, std::complex<float>>) return &ffi_type_complex_float;
  if constexpr (std::is_same_v<T, std::complex<double>>) return &ffi_type_complex_double;
  constexpr bool is_signed = std::is_signed_v<T>;
  if constexpr (sizeof(T) == 1) return is_signed ? &ffi_type_sint8 : &ffi_type_uint8;
  if constexpr (sizeof(T) == 2) return is_signed ? &ffi_type_sint16 : &ffi_type_uint16;
  if constexpr (sizeof(T) == 4) return is_signed ? &ffi_type_sint32 : &ffi_type_uint32;
  return is_signed ? &ffi_type_sint64 : &ffi_type_uint64;
}

ffi_type* ffi_type_of(Type type) {
  return with_type(type, [](auto value) { return ffi_type_of<decltype(value)>(); });
}

bool has_text(const Parameter& parameter) { return parameter.goes_in() || parameter.type == Type::filename; }

std::string in_quotes(std::string_view text) {
  return text.size() > quoted_bytes_max ? fmt::format("\"{}...\"", text.substr(0, quoted_bytes_max))
                                        : fmt::format("\"{}\"", text);
}

/// What stands between `separators` and blanks that are some; a comma stands behind each but the last.
std::vector<std::string_view> elements_of(std::string_view text, std::string_view separators) {
  std::vector<std::string_view> elements;
  const auto skip_blanks = [&] {
    const std::size_t first = text.find_first_not_of(blanks);
    text.remove_prefix(std::min(first, text.size()));
  };
  const bool by_blanks = separators.size() > 1;
  if (by_blanks) skip_blanks();
  while (!text.empty()) {
    const std::size_t end = std::min(text.find_first_of(separators), text.size());
    elements.push_back(text.substr(0, end));
    text.remove_prefix(end);
    if (by_blanks) skip_blanks();
    if (text.starts_with(',')) text.remove_prefix(1);
    if (by_blanks) skip_blanks();
  }
  return elements;
}

struct Free {
  void operator()(void* memory) const noexcept { std::free(memory); }
};

}  // namespace

/// One argument as the function gets it. It does not move once `address` is set.
struct TypedCall::Argument {
  alignas(16) std::byte value[16]{};            ///< A scalar; of a text, where it is.
  void* address = value;                        ///< Passed, unless it is by value.
  std::unique_ptr<std::byte, Free> array = {};  ///< An array's elements.
  std::vector<std::string> texts = {};          ///< What its strings are.
};

struct TypedCall::Interface {
  ffi_cif cif{};
  std::vector<ffi_type*> types;
  std::vector<void*> addresses;
};

std::size_t texts_of(const Function& signature) {
  return static_cast<std::size_t>(std::ranges::count_if(signature.parameters, has_text));
}

TypedCall::TypedCall(Function signature, std::span<const std::string> texts, bool reads_files)
    : signature_(std::move(signature)), texts_(texts.begin(), texts.end()), arguments_(signature_.parameters.size()) {
  const std::size_t wanted = texts_of(signature_);
  if (texts_.size() != wanted) {
    throw Error(
        Errc::bad_option,
        fmt::format("entry {} takes {} argument{}, but {} {} given: --args {}", print_signature(signature_), wanted,
                    wanted == 1 ? "" : "s", texts_.size(), texts_.size() == 1 ? "is" : "are", fmt::join(texts_, " ")));
  }
  // Sizes of arrays are made of scalars.
  std::vector<const std::string*> text_of;
  std::vector<void*> addresses;
  std::size_t number = 0;
  for (std::size_t i = 0; i < arguments_.size(); ++i) {
    const Parameter& parameter = signature_.parameters[i];
    const bool takes = has_text(parameter);
    if (takes && parameter.is_array() && reads_files) read_file(number);
    text_of.push_back(takes ? &texts_[number++] : nullptr);
    addresses.push_back(arguments_[i].value);
    if (!parameter.is_array()) convert(parameter, arguments_[i], text_of.back());
  }
  try {
    extents_.measure(signature_, addresses);
  } catch (const Error& error) {
    throw Error(Errc::bad_option, fmt::format("entry {}", error.what()));
  }
  for (std::size_t i = 0; i < arguments_.size(); ++i) {
    const Parameter& parameter = signature_.parameters[i];
    if (parameter.is_array()) convert_array(parameter, arguments_[i], extents_[i], text_of[i]);
  }
  prepare();
}

TypedCall::~TypedCall() = default;

void TypedCall::refuse(const std::string& text) const {
  throw Error(Errc::bad_option, fmt::format("entry {}: {}", print_signature(signature_), text));
}

std::string TypedCall::place(const std::string* text) const {
  return fmt::format("argument {}", text - texts_.data() + 1);
}

void TypedCall::read_file(std::size_t number) {
  std::string& text = texts_[number];
  if (!text.starts_with('@')) return;
  const auto contents = os::read_file(text.substr(1));
  if (!contents) refuse(fmt::format("{}, {}, cannot be read: {}", place(&text), in_quotes(text), std::strerror(errno)));
  text = *contents;
}

void TypedCall::convert(const Parameter& parameter, Argument& argument, const std::string* text) {
  if (text == nullptr) return;
  if (is_text(parameter.type)) {
    argument.texts.push_back(*text);
    char* const first = argument.texts.front().data();
    std::memcpy(argument.value, &first, sizeof first);
  } else if (const std::string problem = read_value(parameter.type, *text, argument.value); !problem.empty()) {
    refuse(fmt::format("{}, {}, {} (type {})", place(text), in_quotes(*text), problem, name_of(parameter.type)));
  }
}

void TypedCall::convert_array(const Parameter& parameter, Argument& argument, const Extent& extent,
                              const std::string* text) {
  const std::size_t each = bytes_of(parameter.type);
  // Of much memory, what nobody writes to is never there.
  argument.array.reset(static_cast<std::byte*>(std::calloc(std::max<std::uint64_t>(extent.elements, 1), each)));
  argument.address = argument.array.get();
  const auto declaration = [&] { return print_parameter(signature_, parameter); };
  if (argument.address == nullptr) refuse(fmt::format("{}: no memory for {} bytes", declaration(), extent.bytes));
  if (text == nullptr) return;
  if (parameter.type == Type::character) {
    if (text->size() > extent.elements) {
      refuse(fmt::format("{}, {}, has {} bytes, more than the {} of {}", place(text), in_quotes(*text), text->size(),
                         extent.elements, declaration()));
    }
    std::memcpy(argument.address, text->data(), text->size());
    return;
  }
  const auto elements = elements_of(*text, is_text(parameter.type) ? "," : ", \t\r\n");
  if (elements.size() != extent.moved) {
    refuse(fmt::format("{}, {}, has {} element{}, but {} takes {}", place(text), in_quotes(*text), elements.size(),
                       elements.size() == 1 ? "" : "s", declaration(), extent.moved));
  }
  argument.texts.assign(is_text(parameter.type) ? elements.begin() : elements.end(), elements.end());
  std::size_t next = 0;
  for_each_run(extent, [&](std::uint64_t offset, std::uint64_t count) {
    for (std::uint64_t k = offset; k < offset + count; ++k, ++next) {
      std::byte* const into = argument.array.get() + k * each;
      if (is_text(parameter.type)) {
        char* const first = argument.texts[next].data();
        std::memcpy(into, &first, sizeof first);
      } else if (const std::string problem = read_value(parameter.type, elements[next], into); !problem.empty()) {
        refuse(fmt::format("{}, element {}, {}, {} (type {})", place(text), next + 1, in_quotes(elements[next]),
                           problem, name_of(parameter.type)));
      }
    }
  });
}

void TypedCall::prepare() {
  interface_ = std::make_unique<Interface>();
  for (std::size_t i = 0; i < arguments_.size(); ++i) {
    const Parameter& parameter = signature_.parameters[i];
    const bool by_value = parameter.is_by_value();
    interface_->types.push_back(by_value ? ffi_type_of(parameter.type) : &ffi_type_pointer);
    interface_->addresses.push_back(by_value ? static_cast<void*>(arguments_[i].value) : &arguments_[i].address);
  }
  if (ffi_prep_cif(&interface_->cif, FFI_DEFAULT_ABI, static_cast<unsigned>(arguments_.size()),
                   signature_.result ? ffi_type_of(*signature_.result) : &ffi_type_void,
                   interface_->types.data()) != FFI_OK)
    refuse("libffi cannot call a function of these types");
}

TypedResult TypedCall::call(void* function) {
  // Results shorter than a register arrive as a whole one, whose first bytes they are.
  alignas(16) std::byte raw[32]{};
  ffi_call(&interface_->cif, reinterpret_cast<void (*)()>(function), raw, interface_->addresses.data());
  TypedResult result;
  if (signature_.result) result.value = print_value(*signature_.result, raw);
  if (signature_.result == Type::integer) std::memcpy(&result.number.emplace(), raw, sizeof(std::int32_t));
  for (std::size_t i = 0; i < arguments_.size(); ++i) {
    const Parameter& parameter = signature_.parameters[i];
    if (!parameter.comes_out() || parameter.type == Type::filename) continue;
    const auto* const first = static_cast<const std::byte*>(arguments_[i].address);
    std::string value;
    bool follows = false;
    if (parameter.type == Type::character && parameter.is_array()) {
      const auto* const text = reinterpret_cast<const char*>(first);
      value.assign(text, ::strnlen(text, extents_[i].elements));
    } else {
      for_each_run(extents_[i], [&](std::uint64_t offset, std::uint64_t count) {
        for (std::uint64_t k = offset; k < offset + count; ++k) {
          if (std::exchange(follows, true)) value += ',';
          value += print_value(parameter.type, first + k * bytes_of(parameter.type));
        }
      });
    }
    result.arguments.push_back(
        {.name = parameter.name.empty() ? fmt::format("#{}", i + 1) : parameter.name, .value = std::move(value)});
  }
  return result;
}

}  // namespace aplib::calls
