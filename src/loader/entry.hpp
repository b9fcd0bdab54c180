// SPDX-License-Identifier: MIT
// Entry: where a program begins, and how it is called there.
//
// TypedCall: a call of a function by the types in its signature, with arguments that are text:
// "solve(int,double)->int" with 300 and 1e-8. It believes the types, because nothing in a program file tells whether a
// C function has them.
//
// Errors are Error(bad_option), worded for the user who wrote the signature on a command line.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "loader/program.hpp"

namespace aplib::loader {

class Instance;

class Entry {
 public:
  enum class Role : std::uint8_t {
    cell,  ///< cell_main, else main, else MAIN__
    host,  ///< host_main
  };

  /// The entry of `program` by `role`, or the one that `signature` names (parse_signature), which gets `arguments`. A
  /// C++ function is found by its name as people write it, without mangling. Without types, "main" and its relatives
  /// are called in their own way. Throws Error(bad_option), with the names that the file offers. Only reads the file.
  /// Call from: any thread.
  static Entry choose(const Program& program, Role role, std::string_view signature = {},
                      std::span<const std::string> arguments = {});

  /// The file is a host program.
  [[nodiscard]] static bool has_host(const Program& program) noexcept { return bool(program.find("host_main")); }

  /// For people: "main(argc, argv)", "solve(int, double) -> int".
  [[nodiscard]] const std::string& text() const noexcept { return text_; }

  /// What Instance::run() takes; returns the program's status: what main or host_main or a function with result int
  /// returned, else 0. A result of another type is printed on the instance's stdout. One for each instance: it owns
  /// the values of the arguments. It may be left by a jump.
  [[nodiscard]] std::function<int(Instance&)> function() const { return make_(); }

 private:
  std::string text_;
  std::function<std::function<int(Instance&)>()> make_;
};

/// Which of `functions` (symbols; those of C++ mangled) is meant by `name`: that symbol, else the C++ function of
/// that qualified name. Throws Error(bad_option): there is none, then with what the file offers, the nearest first;
/// or several. `file` is for the message.
[[nodiscard]] std::string_view find_function(std::string_view name, std::span<const std::string_view> functions,
                                             std::string_view file);

// ---------------------------------------------------------------- calls by types

/// What can be passed and returned.
enum class ValueType : std::uint8_t {
  none,  ///< void, as a result only
  boolean,
  character,
  int8,
  uint8,
  int16,
  uint16,
  int32,
  uint32,
  int64,
  uint64,
  float32,
  float64,
  text,  ///< char const*: zero-terminated
};

/// A function's name with its types.
struct Signature {
  std::string name;
  std::vector<ValueType> parameters;
  ValueType result = ValueType::none;
};

/// "name(type,...)->type". Without "->" the result is void; a name alone takes nothing. Types are C's (in any order of
/// their words), those of <stdint.h>, size_t and its relatives, and string for char const*. Throws Error(bad_option).
[[nodiscard]] Signature parse_signature(std::string_view text);

/// As parse_signature() reads it: "solve(int, double) -> int".
[[nodiscard]] std::string print_signature(const Signature& signature);

/// What a function returned.
struct TypedResult {
  ValueType type = ValueType::none;
  std::int32_t number = 0;  ///< int32 only
  std::string text;         ///< As people write it; empty: void. A null char const* is "(null)".
};

class TypedCall {
 public:
  /// Converts `arguments` to the types of the signature. Throws Error(bad_option): too many or few, not of the
  /// type, out of its range.
  TypedCall(Signature signature, std::span<const std::string> arguments);
  TypedCall(const TypedCall& other);
  TypedCall& operator=(const TypedCall&) = delete;
  ~TypedCall();

  [[nodiscard]] const Signature& signature() const noexcept { return signature_; }

  /// Calls. Strings passed as char* are this object's: the function may write to them, and use them while the
  /// object lives. Exceptions pass through. Switches tasks: as the function does. Leaves nothing behind on its own
  /// frame, so the function may also jump out of it.
  TypedResult call(void* function);

 private:
  struct Interface;  // keeps libffi out of the header
  union Value {
    std::uint64_t bits;
    bool boolean;
    char character;
    std::int8_t int8;
    std::uint8_t uint8;
    std::int16_t int16;
    std::uint16_t uint16;
    std::int32_t int32;
    std::uint32_t uint32;
    std::int64_t int64;
    std::uint64_t uint64;
    float float32;
    double float64;
    char* text;
  };

  Value convert(std::size_t place, const std::string& text);
  void prepare();

  Signature signature_;
  std::vector<std::string> texts_;  // one place per parameter, so that none moves
  std::vector<Value> values_;
  std::unique_ptr<Interface> interface_;
};

}  // namespace aplib::loader
