// SPDX-License-Identifier: MIT
// TypedCall: a call of a function by its signature, with arguments that are text: "solve(int,double)->int" with 300 and
// 1e-8. It believes the signature.
//
// A text is for a parameter that is IN or INOUT; a filename is a name, so that it has one in every mode. An array's
// text is its elements, row after row, with commas or blanks between them, or @FILE, a file with such a text; that of a
// char array is what it begins with, the rest is 0. What does not travel of a range, and what is OUT or WORK, is 0 when
// the function is called.
//
// Errors are Error(bad_option), worded for the user who wrote the signature on a command line.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "calls/extents.hpp"
#include "calls/interface.hpp"

namespace aplib::calls {

/// What a function returned, as people write it: a number, "true", "1+2i", a text. A null char const* is "(null)".
struct TypedResult {
  std::optional<std::string> value;    ///< Nothing: void.
  std::optional<std::int32_t> number;  ///< Of int alone.

  struct Argument {
    std::string name;  ///< Of the parameter; else its number, as in "#2".
    std::string value;
  };
  std::vector<Argument> arguments{};  ///< OUT and INOUT, in their order. Arrays have commas between their elements.
};

/// How many texts a call takes.
[[nodiscard]] std::size_t texts_of(const Function& signature);

class TypedCall {
 public:
  /// Converts `texts` to the types of the signature, and reads the files that they name. Throws Error(bad_option): too
  /// many or few, not of the type, out of its range, not as many elements as the signature says.
  TypedCall(Function signature, std::span<const std::string> texts) : TypedCall(std::move(signature), texts, true) {}
  /// With arguments of its own.
  TypedCall(const TypedCall& other) : TypedCall(other.signature_, other.texts_, false) {}
  TypedCall& operator=(const TypedCall&) = delete;
  ~TypedCall();

  [[nodiscard]] const Function& signature() const noexcept { return signature_; }

  /// Calls. What the function gets addresses of is this object's: the function may write to it, and use it while the
  /// object lives. Exceptions pass through. Switches tasks: as the function does. Leaves nothing behind on its own
  /// frame, so the function may also jump out of it.
  TypedResult call(void* function);

 private:
  struct Interface;  // keeps libffi out of the header
  struct Argument;

  TypedCall(Function signature, std::span<const std::string> texts, bool reads_files);
  void read_file(std::size_t number);
  void convert(const Parameter& parameter, Argument& argument, const std::string* text);
  void convert_array(const Parameter& parameter, Argument& argument, const Extent& extent, const std::string* text);
  void prepare();
  [[nodiscard]] std::string place(const std::string* text) const;
  [[noreturn]] void refuse(const std::string& text) const;

  Function signature_;
  std::vector<std::string> texts_;
  std::vector<Argument> arguments_;  // by parameter
  Extents extents_;
  std::unique_ptr<Interface> interface_;
};

}  // namespace aplib::calls
