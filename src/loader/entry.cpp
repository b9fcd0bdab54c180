// SPDX-License-Identifier: MIT
#include "loader/entry.hpp"

#include <cxxabi.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "aplib/error.hpp"
#include "base/text.hpp"
#include "calls/debug_types.hpp"
#include "calls/idl.hpp"
#include "calls/typed_call.hpp"
#include "loader/instance.hpp"
#include "loader/libc/end.hpp"

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
  calls::Function function = calls::read_signature(signature);
  const std::vector<std::string_view> functions = program.functions();
  const Definition definition = program.find(find_function(function.name, functions, program.path()));
  if (const calls::DebugFunction* const known = program.types_of(definition)) {
    const bool has_types = signature.find('(') != signature.npos;
    if (has_types)
      calls::check_signature(function, *known);
    else
      function = calls::signature_of(*known, function.name);
  }
  entry.text_ = calls::print_signature(function);
  entry.make_ = [call = std::make_shared<const calls::TypedCall>(std::move(function), arguments), definition] {
    // A copy for each instance: the function may change what it gets.
    return [own = std::make_shared<calls::TypedCall>(*call), definition](Instance& instance) {
      const calls::TypedResult result = own->call(instance.address_of(definition));
      for (const auto& each : result.arguments) print_result(instance, each.name, each.value);
      if (result.number) return static_cast<int>(*result.number);
      if (result.value) print_result(instance, own->signature().name, *result.value);
      return 0;
    };
  };
  return entry;
}

}  // namespace aplib::loader
