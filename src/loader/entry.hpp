// SPDX-License-Identifier: MIT
// Entry: where a program begins, and how it is called there.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "loader/program.hpp"

namespace aplib::loader {

class Instance;

class Entry {
 public:
  enum class Role : std::uint8_t {
    cell,  ///< cell_main, else main, else MAIN__
    host,  ///< host_main
  };

  /// The entry of `program` by `role`, or the one that `signature` names (typed_call.hpp), which gets `arguments`.
  /// A C++ function is found by its name without namespaces' mangling, as people write it; "main" and the like are
  /// called in their own way when no types are given. Throws Error(bad_option), with the names that the file
  /// offers. Reads the file only; call from any thread.
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

}  // namespace aplib::loader
