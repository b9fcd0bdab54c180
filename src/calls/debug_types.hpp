// SPDX-License-Identifier: MIT
// Types of functions by the debug information of the file that has them (DWARF, cc -g). Source: elfutils' libdw, which
// is loaded when it is first needed. Without its headers when APlib is built, or the library later, no types are known.
// Files that keep their debug information elsewhere have none here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "calls/interface.hpp"

namespace aplib::calls {

struct DebugType {
  enum class Kind : std::uint8_t {
    nothing,    ///< void
    value,      ///< Of `type`.
    text,       ///< char *, const or not.
    address,    ///< A pointer, or an array of Fortran: how many elements there are is not known.
    reference,  ///< The address of one, of C++ or Fortran.
    other,      ///< Of a kind that cannot be passed.
  };
  Kind kind = Kind::nothing;
  std::optional<Type> type{};  ///< Of a value; of what is at the address: nothing if it is none that can be passed.
  bool is_const = false;       ///< What is at the address is only read.
  std::string text = "void";   ///< As in C, for people: "double const *".

  [[nodiscard]] bool is_address() const noexcept {
    return kind == Kind::text || kind == Kind::address || kind == Kind::reference;
  }
};

struct DebugFunction {
  struct Argument {
    std::string name;
    DebugType type;
  };
  std::string name;    ///< As it is written, without namespaces.
  std::string symbol;  ///< What the linker calls it.
  std::vector<Argument> arguments;
  DebugType result;
  bool takes_more = false;  ///< "..."
  std::string place{};      ///< "FILE:LINE"
};

/// Call from: any thread; reads the file. Nothing: no types are known of a function that begins at that address of the
/// file.
[[nodiscard]] std::optional<DebugFunction> debug_function(const std::string& file, std::uint64_t address);
/// All that other files can call by that name, or symbol.
[[nodiscard]] std::vector<DebugFunction> debug_functions(const std::string& file, std::string_view name);

/// "double const *x"
[[nodiscard]] std::string print_argument(const DebugFunction::Argument& argument);
/// "solve(int n, double const *x) -> int"
[[nodiscard]] std::string print_function(const DebugFunction& function);

/// How a call passes it: one element at an address, also of an array, whose size is not known. Nothing: it cannot.
[[nodiscard]] std::optional<Parameter> parameter_of(const DebugFunction::Argument& argument);
/// How to call it, as `name`: values and references. Throws Error(bad_option): it takes addresses of arrays, whose
/// sizes nobody says, or what cannot be passed; with what to write instead.
[[nodiscard]] Function signature_of(const DebugFunction& function, const std::string& name);
/// Throws Error(bad_option): a call by that signature would pass something else than the function takes. That includes
/// another size, but not another sign.
void check_signature(const Function& signature, const DebugFunction& function);

}  // namespace aplib::calls
