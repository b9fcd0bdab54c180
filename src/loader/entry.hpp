// SPDX-License-Identifier: MIT
// Entry: where a program begins, and how it is called there.
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

  /// The entry of `program` by `role`, or the one that `signature` names (calls::read_signature), which gets
  /// `arguments` (calls::TypedCall). A C++ function is found by its name as people write it, without mangling. Without
  /// types, "main" and its relatives are called in their own way, and another function has the types that the file's
  /// debug information says; where it says none, it takes nothing. Types that differ from those are refused. Throws
  /// Error(bad_option), with the names that the file offers. Only reads the file. Call from: any thread.
  static Entry choose(const Program& program, Role role, std::string_view signature = {},
                      std::span<const std::string> arguments = {});

  /// The file is a host program.
  [[nodiscard]] static bool has_host(const Program& program) noexcept { return bool(program.find("host_main")); }

  /// For people: "main(argc, argv)", "solve(int n, double eps) -> int".
  [[nodiscard]] const std::string& text() const noexcept { return text_; }

  /// What Instance::run() takes; returns the program's status: what main or host_main or a function with result int
  /// returned, else 0. A result of another type, and each argument that is OUT or INOUT, is printed on the instance's
  /// stdout, "x = 1,2,3". One for each instance: it owns the values of the arguments. It may be left by a jump.
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

}  // namespace aplib::loader
