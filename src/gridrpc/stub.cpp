// SPDX-License-Identifier: MIT
#include "gridrpc/stub.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <sstream>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "aplib/error.hpp"

namespace aplib::gridrpc {
namespace {

std::string c_string(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + "\"";
}

/// "double *", "char *": of the variable that a function sees.
std::string variable_type(const Parameter& parameter) {
  std::string type(c_name_of(parameter.type));
  if (!parameter.is_by_value()) type += type.ends_with('*') ? "*" : " *";
  return type;
}

class StubWriter {
 public:
  StubWriter(const Interface& interface, const std::string& idl_file, const std::string& stub_file)
      : interface_(interface), idl_file_(idl_file), stub_file_(stub_file) {}

  std::string write() {
    out_ = fmt::format("/* Made by apgen of {}: change that. */\n#include <aplib/gridrpc_server.h>\n", idl_file_);
    for (const CText& each : interface_.globals) {
      c_text(each);
      note_words(each.text);
    }
    for (const Function& each : interface_.functions) function(each);
    for (const ObjectClass& each : interface_.classes) {
      if (each.state.line != 0) c_text(each.state);
      for (const Function& method : each.methods) function(method);
    }
    out_ += "\nstatic const char aplib_idl[] =";
    std::string_view text = text_ = print_interface(interface_);
    while (!text.empty()) {
      const std::size_t end = text.find('\n');
      std::string line = c_string(text.substr(0, end));
      line.insert(line.size() - 1, "\\n");
      out_ += "\n    " + line;
      text.remove_prefix(end + 1);
    }
    out_ += ";\nstatic const grpc_server_function_np aplib_functions[] = {";
    for (std::uint32_t i = 0; i < count_; ++i) out_ += fmt::format("{}aplib_run_{}", i == 0 ? "" : ", ", i);
    out_ += fmt::format(
        "}};\n\nint main(int argc, char **argv) {{\n"
        "  return grpc_server_main_np(argc, argv, aplib_idl, aplib_functions, {});\n}}\n",
        count_);
    return std::move(out_);
  }

 private:
  /// Errors in it are those of the IDL file.
  void c_text(const CText& each) {
    out_ += fmt::format("#line {} {}\n{}\n", each.line, c_string(idl_file_), each.text);
    lines_ += std::ranges::count(std::string_view(out_).substr(std::exchange(counted_, out_.size())), '\n');
    out_ += fmt::format("#line {} {}\n", lines_ + 2, c_string(stub_file_));
  }

  /// Notes what may be a name in it.
  void note_words(std::string_view text) {
    includes_ = includes_ || text.find("#include") != text.npos;
    const auto is_part = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
    for (auto begin = text.begin(); begin != text.end();) {
      const auto end = std::find_if_not(begin, text.end(), is_part);
      if (end != begin) words_.emplace(begin, end);
      begin = std::find_if(end, text.end(), is_part);
    }
  }

  void function(const Function& each) {
    out_ += "\n";
    if (each.body.line == 0) declaration(each);
    out_ += fmt::format("static void aplib_run_{}(void **aplib_argument) {{\n", count_++);
    if (each.parameters.empty()) out_ += "  (void)aplib_argument;\n";
    for (std::size_t i = 0; i < each.parameters.size(); ++i) {
      const Parameter& parameter = each.parameters[i];
      const std::string type = variable_type(parameter);
      const std::string_view gap = type.ends_with('*') ? "" : " ";
      if (parameter.is_by_value())
        out_ += fmt::format("  {}{}{} = *({}{}*)aplib_argument[{}];\n", type, gap, parameter.name, type, gap, i);
      else
        out_ += fmt::format("  {}{}{} = ({})aplib_argument[{}];\n", type, gap, parameter.name, type, i);
      out_ += fmt::format("  (void){};\n", parameter.name);
    }
    if (each.body.line != 0) {
      out_ += "  {\n";
      c_text(each.body);
      out_ += "  }\n";
    } else {
      out_ += fmt::format("  {}({});\n", called_name(each), arguments(each));
    }
    out_ += "}\n";
  }

  [[nodiscard]] std::string called_name(const Function& each) const {
    if (each.language != "Fortran") return each.calls;
    std::string name = interface_.fortran_format;
    return name.replace(name.find("%s"), 2, each.calls);
  }

  static std::string arguments(const Function& each) {
    std::string text;
    for (const std::uint32_t which : each.call_arguments) {
      const Parameter& parameter = each.parameters[which];
      if (!text.empty()) text += ", ";
      if (each.language == "Fortran" && parameter.is_by_value()) text += '&';
      text += parameter.name;
    }
    return text;
  }

  /// Of a function that the file does not declare, as far as can be seen.
  void declaration(const Function& each) {
    if (each.language == "Fortran") {
      for (const std::uint32_t which : each.call_arguments) {
        if (!is_text(each.parameters[which].type)) continue;
        throw Error(Errc::bad_option,
                    fmt::format("{}: {}: {} {}: texts cannot be passed to Fortran: pass IN char {}[n]", idl_file_,
                                each.name, name_of(each.parameters[which].type), each.parameters[which].name,
                                each.parameters[which].name));
      }
    } else if (includes_ || words_.contains(each.calls)) {
      return;
    }
    out_ += fmt::format("extern void {}(", called_name(each));
    for (const std::uint32_t which : each.call_arguments) {
      const Parameter& parameter = each.parameters[which];
      const std::string type = variable_type(parameter);
      out_ += (which == each.call_arguments.front() ? "" : ", ") + type;
      if (each.language == "Fortran" && parameter.is_by_value()) out_ += " *";
    }
    out_ += each.call_arguments.empty() ? "void);\n" : ");\n";
  }

  const Interface& interface_;
  const std::string& idl_file_;
  const std::string& stub_file_;
  std::string out_;
  std::string text_;
  std::uint32_t count_ = 0;
  std::ptrdiff_t lines_ = 0;               // of out_,
  std::size_t counted_ = 0;                // as far as this
  std::unordered_set<std::string> words_;  // of the IDL's own C
  bool includes_ = false;
};

}  // namespace

std::string shell_word(const std::string& word) {
  constexpr std::string_view safe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./,:@%+=-";
  if (!word.empty() && word.find_first_not_of(safe) == word.npos) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

std::string write_stub(const Interface& interface, const std::string& idl_file, const std::string& stub_file) {
  return StubWriter(interface, idl_file, stub_file).write();
}

std::string build_command(const Interface& interface, const std::string& stub_file, const std::string& program) {
  // A text of the IDL is cut at blanks, and says nothing else to a shell.
  std::vector<std::string> words;
  std::unordered_set<std::string> known;
  const auto add = [&](const std::string& text, bool once) {
    std::istringstream parts(text);
    if (once && !known.insert(text).second) return;
    for (std::string part; parts >> part;) words.push_back(part);
  };
  add(interface.compiler.empty() ? "cc" : interface.compiler, false);
  for (const std::string& each : interface.compile_options) add(each, false);
  words.insert(words.end(), {"-o", program, stub_file});
  known.insert(interface.compile_options.begin(), interface.compile_options.end());
  const auto add_all = [&](const std::vector<std::string>& required) {
    for (const std::string& each : required) add(each, true);
  };
  for (const Function& each : interface.functions) add_all(each.required);
  for (const ObjectClass& each : interface.classes) add_all(each.required);
  add_all(interface.libraries);
  std::string command;
  for (const std::string& each : words) command += shell_word(each) + " ";
  return command + "$(pkg-config --cflags --libs aplib-gridrpc)";
}

}  // namespace aplib::gridrpc
