// SPDX-License-Identifier: MIT
#include "gridrpc/draft.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <string_view>
#include <vector>

#include "aplib/error.hpp"
#include "calls/debug_types.hpp"
#include "gridrpc/stub.hpp"

namespace aplib::gridrpc {
namespace {

using calls::DebugFunction;
using calls::DebugType;
using Kind = DebugType::Kind;

constexpr std::string_view open_size = "SIZE_OF_";

class Draft {
 public:
  Draft(const std::string& library, Sizes sizes) : library_(library), sizes_(sizes) {}

  void add(const std::string& name) {
    const std::vector<DebugFunction> found = calls::debug_functions(library_, name);
    if (found.empty())
      refuse(name, "no types of such a function are known", "name one, and compile with -g; or write an IDL file");
    if (found.size() > 1) {
      std::string symbols;
      for (const DebugFunction& each : found) symbols += (symbols.empty() ? "" : ", ") + each.symbol;
      refuse(name, "there are several", "name one by its symbol: " + symbols);
    }
    add(found.front());
  }

  [[nodiscard]] std::string text() const {
    std::string module = std::filesystem::path(library_).stem().string();
    for (char& each : module)
      if (std::isalnum(static_cast<unsigned char>(each)) == 0) each = '_';
    if (std::isdigit(static_cast<unsigned char>(module.front())) != 0) module.insert(0, "m");
    const auto path = std::filesystem::absolute(library_).lexically_normal();
    return fmt::format("Module {};\nLibrary \"-Wl,-rpath,{} {}\";\nGlobals {{\n#include <string.h>\n{}}}\n{}", module,
                       shell_word(path.parent_path().string()), shell_word(path.string()), declarations_, definitions_);
  }

 private:
  [[noreturn]] void refuse(const std::string& function, const std::string& cause, const std::string& remedy) const {
    throw Error(Errc::bad_option, fmt::format("{}: {}: {}: {}", library_, function, cause, remedy));
  }

  void add(const DebugFunction& function) {
    std::string parameters;
    std::string types;
    std::string arguments;
    const auto name_of_result = [&] {
      std::string name = "result";
      while (std::ranges::find(function.arguments, name, &DebugFunction::Argument::name) != function.arguments.end())
        name += '_';
      return name;
    }();
    const auto append = [](std::string& list, const std::string& text) { list += (list.empty() ? "" : ", ") + text; };
    for (std::size_t i = 0; i < function.arguments.size(); ++i) {
      const DebugFunction::Argument& each = function.arguments[i];
      const std::string name = each.name.empty() ? fmt::format("argument_{}", i + 1) : each.name;
      append(parameters, parameter(function, each, name));
      append(types, c_type(each.type));
      append(arguments, name);
    }
    const DebugType& result = function.result;
    std::string body = fmt::format("{}({});", function.symbol, arguments);
    if (result.kind == Kind::text) {
      append(parameters, fmt::format("OUT string {}", name_of_result));
      body = fmt::format("const char *aplib_text = {} *{} = aplib_text ? strdup(aplib_text) : NULL;", body,
                         name_of_result);
    } else if (result.kind == Kind::value && result.type) {
      append(parameters, fmt::format("OUT {} *{}", calls::name_of(*result.type), name_of_result));
      body = fmt::format("*{} = {}", name_of_result, body);
    } else if (result.kind != Kind::nothing) {
      refuse(function.name, fmt::format("it returns {}", result.text), "write an IDL file with what is to return");
    }
    declarations_ +=
        fmt::format("extern {} {}({});\n", c_type(result), function.symbol, types.empty() ? "void" : types);
    definitions_ += fmt::format("Define {}({})\n  \"{}\"\n  {{ {} }}\n", function.name, parameters,
                                calls::print_function(function), body);
  }

  [[nodiscard]] std::string parameter(const DebugFunction& function, const DebugFunction::Argument& argument,
                                      const std::string& name) const {
    auto parameter = calls::parameter_of(argument);
    if (!parameter) {
      refuse(function.name, fmt::format("parameter {} is {}, which cannot travel", name, argument.type.text),
             "write an IDL file with what it is made of");
    }
    parameter->name = name;
    const bool is_open = argument.type.kind == Kind::address;
    if (is_open && sizes_ == Sizes::refused) {
      refuse(function.name, fmt::format("how many elements {} has is not known", calls::print_argument(argument)),
             "write the IDL file with --idl, and the sizes into it");
    }
    return calls::print_parameter({}, *parameter) + (is_open ? fmt::format("[{}{}]", open_size, name) : "");
  }

  static std::string c_type(const DebugType& type) {
    if (type.kind == Kind::nothing) return "void";
    if (type.kind == Kind::text) return "char *";
    const std::string element(calls::c_name_of(*type.type));
    return type.is_address() ? element + " *" : element;
  }

  const std::string& library_;
  Sizes sizes_;
  std::string declarations_;
  std::string definitions_;
};

}  // namespace

std::string draft_interface(const std::string& library, std::span<const std::string> names, Sizes sizes) {
  Draft draft(library, sizes);
  for (const std::string& each : names) draft.add(each);
  return draft.text();
}

}  // namespace aplib::gridrpc
