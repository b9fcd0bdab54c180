// SPDX-License-Identifier: MIT
// Makes C of the table of functions and the table of constants. A program of the build, not of the library.
//
//   generate header functions.txt constants.txt mpi.h.in    mpi.h
//   generate library functions.txt constants.txt            the exported functions, and tables of names
//   generate front functions.txt constants.txt              the same functions, for front ends
//   generate names functions.txt constants.txt              the names that the library exports
//   generate calls functions.txt constants.txt              for tests: each function with what its parameters are
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "generate_table.hpp"

namespace {

using namespace table;

// ---------------------------------------------------------------- mpi.h

std::string header_constants(const std::vector<Constant>& constants) {
  std::ostringstream out;
  for (const Constant& constant : constants) {
    if (!constant.title.empty()) out << "\n/* " << constant.title << " */\n";
    out << "#define " << constant.name << ' ';
    if (constant.value[0] == 'M') {
      out << constant.value;
    } else if (constant.type == "number" || constant.type == "class") {
      out << (constant.value[0] == '-' ? "(" + constant.value + ")" : constant.value);
    } else {
      out << "((" << constant.type << ")" << constant.value << ")";
    }
    out << '\n';
  }
  return out.str();
}

std::string header_prototypes(const FunctionTable& table, bool removed) {
  std::ostringstream out;
  for (const char* prefix : {"MPI_", "PMPI_"}) {
    for (const Function& function : table.functions) {
      if (function.is_removed != removed) continue;
      out << prototype(prefix, function, false) << ";\n";
      if (is_large(function)) out << prototype(prefix, function, true) << ";\n";
    }
    out << '\n';
  }
  return out.str();
}

/// MPI_X_c2f and MPI_X_f2c of each kind of handle, and their PMPI names.
std::string header_conversions(const FunctionTable& table) {
  std::ostringstream out;
  for (const Function& function : table.functions) {
    if (function.implementation != "to_int") continue;
    const std::string type = function.parameters[0].kind->type;
    for (const char* prefix : {"MPI_", "PMPI_"}) {
      const std::string name = prefix + function.name.substr(0, function.name.size() - 5);  // without "toint"
      out << "static __inline__ MPI_Fint " << name << "c2f(" << type << " handle) { return " << name
          << "toint(handle); }\n"
          << "static __inline__ " << type << " " << name << "f2c(MPI_Fint handle) { return " << name
          << "fromint(handle); }\n";
    }
  }
  return out.str();
}

void write_header(const FunctionTable& table, const std::vector<Constant>& constants, const std::string& frame) {
  const std::map<std::string, std::string> parts = {{"@constants@", header_constants(constants)},
                                                    {"@functions@", header_prototypes(table, false)},
                                                    {"@removed@", header_prototypes(table, true)},
                                                    {"@conversions@", header_conversions(table)}};
  std::ifstream file(frame);
  if (!file) fail(frame, "cannot be read");
  for (std::string line; std::getline(file, line);) {
    const std::size_t end = line.size() > 1 && line[0] == '@' ? line.find('@', 1) : std::string::npos;
    if (end == std::string::npos) {
      std::cout << line << '\n';
      continue;
    }
    const auto part = parts.find(line.substr(0, end + 1));
    if (part == parts.end()) fail(frame, "there is no part " + line);
    std::cout << part->second << line.substr(end + 1) << '\n';
  }
}

// ---------------------------------------------------------------- the library's functions

/// The function's first communicator.
const std::string& comm_of(const Function& function) {
  for (const Parameter& parameter : function.parameters) {
    if (parameter.kind->name == "comm") return parameter.name;
  }
  fail(function.name, "it has no communicator");
}

/// The object that errors of the function are raised on: its first communicator, window, file or session.
std::string raised_on(const Function& function) {
  if (function.is_of_files) return ", MPI_FILE_NULL";
  for (const Parameter& parameter : function.parameters) {
    const std::string& kind = parameter.kind->name;
    if (!parameter.is_out && !parameter.is_array &&
        (kind == "comm" || kind == "win" || kind == "file" || kind == "session")) {
      return ", " + parameter.name;
    }
  }
  return "";
}

bool has_parameter(const Function& function, const std::string& name) {
  for (const Parameter& parameter : function.parameters) {
    if (parameter.name == name && !parameter.is_out) return true;
  }
  return false;
}

bool is_object(const Parameter& parameter) {
  return parameter.kind->is_object && !parameter.is_out && !parameter.is_array && !parameter.is_raw;
}

/// A number that the implementation wants wider than this variant of the function has it.
bool is_widened(const Parameter& parameter, bool large) {
  return !large && !parameter.kind->large_type.empty() && !is_pointer(parameter.kind->type);
}

/// The parameter's type in the implementation.
std::string implementation_type(const Parameter& parameter) {
  if (is_object(parameter)) return parameter.kind->name == "hints" ? "Info*" : "auto:" + parameter.kind->name;
  if (parameter.is_array && !parameter.is_out && !parameter.kind->large_type.empty()) return "Numbers";
  std::string text = declaration(parameter, true);
  return text;
}

/// What stands in the call of the implementation.
std::string argument(const Parameter& parameter, bool large) {
  if (parameter.only_large && !large) {
    return parameter.is_array ? "nullptr" : parameter.is_out ? "&" + parameter.name + "_" : "0";
  }
  if (is_object(parameter)) return parameter.name + "_";
  if (parameter.is_array && !parameter.is_out && !parameter.kind->large_type.empty()) {
    return "Numbers(" + parameter.name + ")";
  }
  if (parameter.is_out && !parameter.is_array && is_widened(parameter, large)) return "&" + parameter.name + "_";
  // A function of the program: the implementation knows by Call::is_large() which one it is.
  if (!large && !parameter.kind->large_type.empty() && is_pointer(parameter.kind->type)) {
    return "(" + parameter.kind->large_type + ")(void (*)())" + parameter.name;
  }
  return parameter.name;
}

// Handles come first, because other checks may need their objects.
void write_checks(const Function& function, bool large) {
  for (const Parameter& parameter : function.parameters) {
    if (!is_object(parameter)) continue;
    std::cout << "    auto&& " << parameter.name << "_ = " << parameter.kind->name << "_of(call, \"" << parameter.name
              << "\", " << parameter.name << ");\n";
  }
  for (const Parameter& parameter : function.parameters) {
    if (parameter.only_large && !large) continue;
    const std::string quoted = "\"" + parameter.name + "\"";
    const bool is_place = parameter.is_out && !parameter.is_array && !is_pointer(parameter.kind->type);
    const bool is_row = parameter.is_array && !is_pointer(parameter.kind->type);
    if (parameter.is_raw) continue;
    if (is_place) {
      std::cout << "    check_place(call, " << quoted << ", " << parameter.name << ");\n";
    } else if (is_row && parameter.kind->name != "status" && has_parameter(function, parameter.length)) {
      std::cout << "    check_array(call, " << quoted << ", " << parameter.name << ", " << parameter.length << ");\n";
    } else if (parameter.kind->is_checked && (!parameter.is_out || is_pointer(parameter.kind->type)) && !is_row) {
      std::cout << "    check_" << parameter.kind->name << "(call, " << quoted << ", " << parameter.name << ");\n";
    }
  }
}

/// How many bytes a brief call has, for its Plan.
std::string bytes_of(const Function& function) {
  if (!function.is_brief) return "";
  for (const Parameter& parameter : function.parameters) {
    if (parameter.kind->name == "datatype") return ", data_bytes(count, " + parameter.name + "_)";
  }
  return ", 0";
}

/// The blocking call, to be carried out later: with hints by a persistent request.
void write_later(const Function& function, bool large) {
  std::string kept;
  std::string captured;
  std::string arguments = "later";
  bool is_persistent = false;
  for (const Parameter& parameter : function.parameters) {
    const std::string& kind = parameter.kind->name;
    if (kind == "request") continue;
    if (kind == "hints") {
      is_persistent = true;
      std::cout << "    static_cast<void>(" << parameter.name << "_);\n";
    } else if (kind == "comm") {
      arguments += ", aside";
    } else {
      arguments += ", " + argument(parameter, large);
      if (!is_object(parameter)) continue;
      kept += (kept.empty() ? "&" : ", &") + parameter.name + "_";
      captured += ", &" + parameter.name + "_";
    }
  }
  const std::string call = function.implementation + "(" + arguments + ");\n";
  std::cout << "    const Plan plan([=" << captured << "](const Call& later, Comm& aside) {\n";
  if (function.differs_between_groups) std::cout << "      if (aside.is_inter()) return mpi::inter::" << call;
  std::cout << "      mpi::" << call << "    }" << bytes_of(function)
            << ");\n    PendingCall::" << (is_persistent ? "make" : "begin") << "(call, " << comm_of(function)
            << "_, request, {" << kept << "}, plan);\n    return MPI_SUCCESS;\n";
}

void write_body(const Function& function, bool large) {
  const std::string name = "\"MPI_" + function.name + (large ? "_c" : "") + "\"";
  std::cout << "  mpi::Failure* failure = nullptr;\n  try {\n";
  if (function.has_plain_way) {
    std::cout << "    if (plain::" << function.implementation << "(" << name;
    for (const Parameter& parameter : function.parameters) std::cout << ", " << parameter.name;
    std::cout << ")) [[likely]]\n      return MPI_SUCCESS;\n";
  }
  std::cout << "    const Call call(" << name << ", Call::" << function.when << (large ? ", true" : "") << ");\n";
  write_checks(function, large);
  if (function.is_of_one_group)
    std::cout << "    check_intra(\"" << comm_of(function) << "\", " << comm_of(function) << "_);\n";
  std::string arguments = "call";
  std::string before;
  std::string after;
  for (const Parameter& parameter : function.parameters) {
    if (parameter.kind->type == "...") continue;
    arguments += ", " + argument(parameter, large);
    if (!parameter.is_out || parameter.is_array || !is_widened(parameter, large)) continue;
    const bool is_absent = parameter.only_large;
    before += "    " + parameter.kind->large_type + " " + parameter.name +
              "_ = " + (parameter.is_inout ? "*" + parameter.name : "0") + ";\n";
    if (!is_absent) after += "    narrow(" + parameter.name + ", " + parameter.name + "_);\n";
  }
  const std::string call = function.implementation + "(" + arguments + ")";
  if (function.is_later) {
    write_later(function, large);
  } else if (function.result.empty()) {
    std::cout << before;
    if (function.differs_between_groups) {
      std::cout << "    if (" << comm_of(function) << "_.is_inter()) [[unlikely]]\n      mpi::inter::" << call
                << ";\n    else\n  ";
    }
    std::cout << "    mpi::" << call << ";\n" << after << "    return MPI_SUCCESS;\n";
  } else {
    std::cout << "    return (" << function.result << ")mpi::" << call << ";\n";
  }
  // Raised outside of the handler: the error handler of the program may jump.
  std::cout << "  } catch (...) {\n    failure = caught();\n  }\n";
  const std::string raise =
      function.is_tool ? "tool_code(failure)" : "raise(" + name + ", failure" + raised_on(function) + ")";
  if (function.result.empty()) {
    std::cout << "  return " << raise << ";\n";
  } else {
    std::cout << "  " << raise << ";\n  return (" << function.result << ")0;\n";
  }
}

void write_function(const Function& function, bool large) {
  const std::string name = function.name + (large ? "_c" : "");
  std::cout << prototype("PMPI_", function, large) << " {\n";
  if (!function.only_result.empty()) {
    std::cout << "  return tool_answer(\"MPI_" << name << "\", " << function.only_result << ");\n";
  } else if (function.is_there) {
    write_body(function, large);
  } else {
    std::cout << "  return missing(\"MPI_" << name << '"' << raised_on(function) << ");\n";
  }
  std::cout << "}\n"
            << prototype("MPI_", function, large) << " __attribute__((weak, alias(\"PMPI_" << name << "\")));\n\n";
}

/// Declares the implementations, and the functions that find objects.
void write_declarations(const FunctionTable& table) {
  const std::map<std::string, std::string> classes = {{"comm", "Comm"},
                                                      {"group", "Group"},
                                                      {"datatype", "TypeHandle"},
                                                      {"op", "OpHandle"},
                                                      {"request", "Request"},
                                                      {"message", "MatchedMessage"},
                                                      {"errhandler", "Errhandler"},
                                                      {"info", "Info"},
                                                      {"hints", "Info"},
                                                      {"win", "Win"},
                                                      {"file", "File"},
                                                      {"session", "Session"}};
  std::map<std::string, std::string> finders;
  std::map<std::string, bool> declared;
  std::ostringstream out;
  for (const Function& function : table.functions) {
    if (!function.is_there || function.is_later || !function.only_result.empty()) continue;
    std::string text = (function.result.empty()                 ? "void"
                        : function.implementation == "from_int" ? "void*"
                                                                : function.result) +
                       " " + function.implementation + "(const Call& call";
    for (const Parameter& parameter : function.parameters) {
      if (parameter.kind->type == "...") continue;
      std::string type = implementation_type(parameter);
      if (is_object(parameter)) {
        const std::string& name = classes.at(parameter.kind->name);
        const bool optional = parameter.kind->name == "hints";
        type = name + (optional ? "*" : "&");
        finders[parameter.kind->name] = "struct " + name + ";\n" + type + " " + parameter.kind->name +
                                        "_of(const Call& call, const char* parameter, " + parameter.kind->type +
                                        " handle);\n";
        type += " " + parameter.name;
      } else if (type == "Numbers") {
        type += " " + parameter.name;
      } else if (function.implementation == "to_int") {
        type = "const void* handle";
      }
      text += ", " + type;
    }
    if (!declared.emplace(text, true).second) continue;
    out << text << ");\n";
    if (function.differs_between_groups) out << "namespace inter {\n" << text << ");\n}\n";
  }
  for (const auto& [kind, text] : finders) std::cout << text;
  std::cout << out.str();
}

void write_tables(const std::vector<Constant>& constants) {
  std::cout << "const Name error_classes[] = {\n";
  for (const Constant& constant : constants) {
    if (constant.type == "class") {
      std::cout << "    {" << constant.value << ", \"" << constant.name << "\", \"" << constant.text << "\"},\n";
    }
  }
  std::cout << "    {0, nullptr, nullptr}};\nconst Name predefined_handles[] = {\n";
  for (const Constant& constant : constants) {
    if (constant.type.rfind("MPI_", 0) == 0 && constant.value.rfind("0x", 0) == 0) {
      std::cout << "    {" << constant.value << ", \"" << constant.name << "\", \"" << constant.type << "\"},\n";
    }
  }
  std::cout << "    {0, nullptr, nullptr}};\n";
}

/// Without MPI_, with the _c doubles.
Words names_of(const FunctionTable& table) {
  Words names;
  for (const Function& function : table.functions) {
    names.push_back(function.name);
    if (is_large(function)) names.push_back(function.name + "_c");
  }
  return names;
}

void write_library(const FunctionTable& table, const std::vector<Constant>& constants) {
  std::cout << "// Made by generate.cpp from functions.txt and constants.txt.\n"
               "#include <aplib_mpi_functions.hpp>\n#include \"mpi/comm.hpp\"\n#include \"mpi/op.hpp\"\n"
               "#include \"mpi/pending_call.hpp\"\n"
               "#include \"mpi/plain_window.hpp\"\n\nnamespace aplib::mpi {\n\n";
  write_declarations(table);
  write_tables(constants);
  std::cout << "\n}  // namespace aplib::mpi\n\nusing namespace aplib;\nusing namespace aplib::mpi;\n\n"
               "extern \"C\" {\n#pragma GCC visibility push(default)\n#pragma GCC diagnostic ignored "
               "\"-Wunused-parameter\"\n\n";
  for (const Function& function : table.functions) {
    write_function(function, false);
    if (is_large(function)) write_function(function, true);
  }
  // Aliases, which no other library's functions of these names take the place of.
  for (const std::string& name : names_of(table)) {
    std::cout << "static decltype(PMPI_" << name << ") own_" << name << " __attribute__((alias(\"PMPI_" << name
              << "\")));\n";
  }
  std::cout << "const AplibMpiFunctions aplib_mpi_functions = {\n";
  for (const std::string& name : names_of(table)) std::cout << "    own_" << name << ",\n";
  std::cout << "};\n#pragma GCC visibility pop\n}\n";
}

/// For libraries that export functions of the same names.
/// Without the function's declaration, which front ends do not have: theirs has other types.
void write_pointer(const Function& function, bool large) {
  std::string text = prototype("", function, large);
  const std::string name = function.name + (large ? "_c" : "");
  text.replace(text.find(name + "("), name.size(), "(*" + name + ")");
  std::cout << "  " << text << ";\n";
}

void write_front(const FunctionTable& table) {
  std::cout << "// Made by generate.cpp from functions.txt.\n#pragma once\n\n#include <mpi.h>\n\nextern \"C\" {\n"
               "#pragma GCC visibility push(default)\n/// The functions of libmpi_abi.\n"
               "extern const struct AplibMpiFunctions {\n";
  for (const Function& function : table.functions) {
    write_pointer(function, false);
    if (is_large(function)) write_pointer(function, true);
  }
  std::cout << "} aplib_mpi_functions;\n#pragma GCC visibility pop\n}\n";
}

void write_names(const FunctionTable& table) {
  for (const Function& function : table.functions) {
    for (const char* prefix : {"MPI_", "PMPI_"}) {
      const char* const extra = function.is_removed ? " removed" : "";
      std::cout << prefix << function.name << extra << '\n';
      if (is_large(function)) std::cout << prefix << function.name << "_c\n";
    }
  }
}

// ---------------------------------------------------------------- for tests

/// The type of an element of an array, or of what the parameter points to, or of itself.
std::string value_type(const Parameter& parameter, bool large) {
  return type_of(parameter, large) + parameter.kind->rows;
}

/// The parameter's type, for a cast.
std::string cast_type(const Parameter& parameter, bool large) {
  const std::string& type = type_of(parameter, large);
  if (is_pointer(type)) return parameter.kind->is_const && !parameter.is_out ? "const " + type : type;
  if (parameter.is_array && !parameter.kind->rows.empty()) return type + "(*)" + parameter.kind->rows;
  if (parameter.is_array && !parameter.is_out) return "const " + type + "*";
  return parameter.is_array || parameter.is_out ? type + "*" : type;
}

/// {"MPI_X", {{"kind", "name", bytes of a value, is_array, is_out, is_inout}, ...}, a function that calls it}: for all
/// that are there and return an error code.
void write_call(const Function& function, bool large) {
  const std::string name = "MPI_" + function.name + (large ? "_c" : "");
  std::string parameters;
  std::string words;
  int next = 0;
  for (const Parameter& parameter : function.parameters) {
    if (parameter.only_large && !large) continue;
    const auto flag = [](bool value) { return value ? ", true" : ", false"; };
    parameters += (next == 0 ? "" : ", ") + ("{\"" + parameter.kind->name) + "\", \"" + parameter.name + "\", sizeof(" +
                  value_type(parameter, large) + ")" + flag(parameter.is_array) + flag(parameter.is_out) +
                  flag(parameter.is_inout) + "}";
    words += (next == 0 ? "(" : ", (") + cast_type(parameter, large) + ")words[" + std::to_string(next) + "]";
    ++next;
  }
  std::cout << "{\"" << name << "\", {" << parameters << "},\n [](const Word*" << (next == 0 ? "" : " words")
            << ") { return " << name << "(" << words << "); }},\n";
}

void write_calls(const FunctionTable& table) {
  std::cout << "// Made by generate.cpp from functions.txt.\n";
  for (const Function& function : table.functions) {
    bool has_rest = false;
    for (const Parameter& parameter : function.parameters) has_rest = has_rest || parameter.kind->type == "...";
    if (!function.is_there || function.is_tool || !function.result.empty() || has_rest) continue;
    write_call(function, false);
    if (is_large(function)) write_call(function, true);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const Words arguments(argv + 1, argv + argc);
  if (arguments.size() < 3)
    fail("usage", "generate header|library|front|names|calls functions.txt constants.txt [mpi.h.in]");
  const FunctionTable table(arguments[1]);
  const std::vector<Constant> constants = read_constants(arguments[2]);
  if (arguments[0] == "header" && arguments.size() == 4) {
    write_header(table, constants, arguments[3]);
  } else if (arguments[0] == "library") {
    write_library(table, constants);
  } else if (arguments[0] == "front") {
    write_front(table);
  } else if (arguments[0] == "names") {
    write_names(table);
  } else if (arguments[0] == "calls") {
    write_calls(table);
  } else {
    fail("usage", "there is no output " + arguments[0]);
  }
  return 0;
}
