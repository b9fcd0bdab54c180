// SPDX-License-Identifier: MIT
// Makes another MPI's binary interface of the table of functions, the table of constants and the table of what differs,
// as openmpi.txt. A program of the build.
//
//   generate functions TABLES    the functions that programs call, but for those made by hand, and predefined handles
//   generate values TABLES       numbers in one form and the other
// TABLES: functions.txt constants.txt openmpi.txt
#include <algorithm>
#include <iostream>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "../generate_table.hpp"

namespace {

using namespace table;

/// Functions that need more than a conversion of each argument: convert.cpp, callbacks.cpp.
const std::set<std::string> by_hand = {
    "Abi_get_version",
    "Abort",
    "Attr_get",
    "Buffer_attach",
    "Buffer_detach",
    "Comm_attach_buffer",
    "Comm_detach_buffer",
    "Comm_get_attr",
    "Win_get_attr",
    "Comm_create_keyval",
    "Type_create_keyval",
    "Win_create_keyval",
    "Keyval_create",
    "Op_create",
    "Comm_create_errhandler",
    "Errhandler_create",
    "File_create_errhandler",
    "Session_create_errhandler",
    "Win_create_errhandler",
    "Comm_set_errhandler",
    "Errhandler_set",
    "File_set_errhandler",
    "Win_set_errhandler",
    "Comm_spawn_multiple",
    "Group_translate_ranks",
    "Grequest_start",
    "Pcontrol",
    "Register_datarep",
    "Type_create_darray",
    "Type_get_contents",
};

/// Programs of another MPI have numbers of handles by other names (write_conversions()).
bool is_exported(const Function& function) {
  return function.implementation != "to_int" && function.implementation != "from_int";
}

class Tables {
 public:
  explicit Tables(const Words& paths) : functions(paths[0]) {
    for (const Constant& each : read_constants(paths[1])) {
      const std::string& value = each.value;
      standard_[each.name] = value[0] == 'M' ? standard_.at(value) : std::stol(value, nullptr, 0);
      types_[each.name] = each.type;
    }
    abi = paths[2].substr(paths[2].rfind('/') + 1);
    abi.resize(abi.rfind('.'));
    foreign = read_constants(paths[2]);
    for (const Constant& each : foreign) {
      const std::size_t space = each.type.find(' ');
      if (space != std::string::npos && each.type.rfind("objects ", 0) != 0) kinds_.insert(each.type.substr(space + 1));
      if (each.type == "lengths") lengths_.insert(each.name);
    }
  }

  /// Of a name in the standard ABI.
  [[nodiscard]] long standard(const std::string& name) const {
    const auto found = standard_.find(name);
    if (found == standard_.end()) fail("front", "constants.txt has no " + name);
    return found->second;
  }
  /// As in C: MPI_Comm.
  [[nodiscard]] const std::string& type(const std::string& name) const { return types_.at(name); }
  [[nodiscard]] const std::set<std::string>& kinds() const { return kinds_; }
  /// The kind of values of a parameter, which differ; empty: they do not.
  [[nodiscard]] std::string values_of(const Parameter& parameter) const {
    const std::string& kind = parameter.kind->name;
    if (kind == "source" || kind == "dest" || kind == "root") return "rank";
    return kinds_.count(kind) != 0 ? kind : "";
  }
  [[nodiscard]] bool is_shorter(const std::string& length) const { return lengths_.count(length) != 0; }

  FunctionTable functions;
  std::string abi;  ///< The name of the other one, as in files.
  std::vector<Constant> foreign;

 private:
  std::map<std::string, long> standard_;
  std::map<std::string, std::string> types_;
  std::set<std::string> kinds_;
  std::set<std::string> lengths_;
};

// ---------------------------------------------------------------- values

using Pairs = std::vector<std::pair<long, long>>;

/// From this pair on, numbers follow each other in both forms; none: nowhere.
using From = std::optional<std::pair<long, long>>;

/// What a switch makes of each value; others stay.
void write_switch(const std::string& name, const Pairs& pairs, const From& from) {
  std::cout << "constexpr long " << name << "(long value) noexcept {\n  switch (value) {\n";
  for (const auto& [value, result] : pairs) std::cout << "    case " << value << ":\n      return " << result << ";\n";
  std::cout << "    default:\n      return ";
  if (from) std::cout << "value >= " << from->first << " ? value + " << from->second - from->first << "L : ";
  std::cout << "value;\n  }\n}\n";
}

/// What is a value in the standard ABI alone stays invalid: it becomes one that is none there.
void add_strangers(Pairs& to_standard) {
  std::map<long, long> foreign_of;
  std::set<long> known;
  for (const auto& [foreign, standard] : to_standard) {
    foreign_of.emplace(standard, foreign);
    known.insert(foreign);
  }
  for (const auto& [standard, foreign] : foreign_of) {
    if (known.count(standard) != 0) continue;
    long none = foreign;
    while (foreign_of.count(none) != 0) none = foreign_of.at(none);
    to_standard.emplace_back(standard, none);
  }
}

void write_bits(const std::string& name, const Pairs& pairs) {
  long known = 0;
  std::cout << "constexpr long " << name << "(long value) noexcept {\n  long result = 0;\n";
  for (const auto& [from, to] : pairs) {
    known |= from;
    std::cout << "  if ((value & " << from << ") != 0) result |= " << to << ";\n";
  }
  // A bit that is none stays none, and so does a negative number.
  std::cout << "  return (value & ~" << known << "L) != 0 ? result | 1 << 30 : result;\n}\n";
}

void write_kind(const Tables& tables, const std::string& kind) {
  Pairs to_standard;
  Pairs to_foreign;
  From from_foreign;
  From from_standard;
  bool is_bits = false;
  for (const Constant& each : tables.foreign) {
    const std::string what = each.type.substr(0, each.type.find(' '));
    if (each.type != what + " " + kind) continue;
    const long value = std::stol(each.value, nullptr, 0);
    const long standard = tables.standard(each.name);
    if (what == "from") {
      from_foreign.emplace(value, standard);
      from_standard.emplace(standard, value);
      continue;
    }
    is_bits = what == "bits";
    to_standard.emplace_back(value, standard);
    to_foreign.emplace_back(standard, value);
  }
  if (is_bits) {
    write_bits("standard_" + kind, to_standard);
    write_bits("foreign_" + kind, to_foreign);
  } else {
    add_strangers(to_standard);
    write_switch("standard_" + kind, to_standard, from_foreign);
    write_switch("foreign_" + kind, to_foreign, from_standard);
  }
}

/// Handles that are other numbers in Fortran: both ways.
void write_fortran_handles(const Tables& tables) {
  std::map<std::string, std::map<long, long>> standard_of;  // by type and number
  std::map<long, long> number_of;
  for (const Constant& each : tables.foreign) {
    if (each.type != "fortran") continue;
    const long number = std::stol(each.value);
    const long standard = tables.standard(each.name);
    standard_of[tables.type(each.name)].emplace(number, standard);
    number_of.emplace(standard, number);
  }
  if (number_of.empty()) return;
  std::cout << "\n/// Predefined handles by their numbers in Fortran; no_handle: there is none.\n"
               "template <class Handle>\ninline constexpr std::array<std::uintptr_t, 0> fortran_handles{};\n";
  for (const auto& [type, handles] : standard_of) {
    const long end = handles.rbegin()->first + 1;
    std::cout << "template <>\ninline constexpr std::array<std::uintptr_t, " << end << "> fortran_handles<" << type
              << ">{";
    for (long i = 0; i < end; ++i) {
      const auto found = handles.find(i);
      std::cout << (found == handles.end() ? "no_handle" : std::to_string(found->second)) << ", ";
    }
    std::cout << "};\n";
  }
  std::cout << "/// By the standard's handle; -1: Fortran has none.\n"
               "inline constexpr std::array<short, handles_end> fortran_numbers{";
  for (long i = 0; i <= number_of.rbegin()->first; ++i) {
    const auto found = number_of.find(i);
    std::cout << (found == number_of.end() ? -1 : found->second) << ", ";
  }
  std::cout << "};\n";
}

void write_values(const Tables& tables) {
  std::cout << "// Made by generate.cpp from constants.txt and " << tables.abi
            << ".txt.\n#pragma once\n\n#include <array>\n#include <cstdint>\n\nnamespace aplib::mpi::front {\n\n"
            << "inline constexpr std::uintptr_t predefined_end = 4096;\n"
               "/// Beyond the predefined handles that there are.\n"
               "inline constexpr std::uintptr_t handles_end = 0x300;\n"
               "/// No handle's value.\n"
               "inline constexpr std::uintptr_t no_handle = predefined_end - 1;\n\n";
  for (const std::string& kind : tables.kinds()) write_kind(tables, kind);
  write_fortran_handles(tables);
  std::string numbers;
  for (const Constant& each : tables.foreign) {
    if (each.type == "lengths")
      std::cout << "inline constexpr int foreign_" << each.name << " = " << each.value << ";\n";
    if (each.type == "numbers")
      numbers +=
          "    {" + each.value + ", " + std::to_string(tables.standard(each.name)) + "},  // " + each.name + "\n";
  }
  if (!numbers.empty()) {
    std::cout
        << "\n/// Predefined handles.\ninline constexpr struct {\n  unsigned number;\n  unsigned short standard;\n"
           "} predefined_numbers[] = {\n"
        << numbers << "};\n";
  }
  std::cout << "\n}  // namespace aplib::mpi::front\n";
}

// ---------------------------------------------------------------- predefined handles

void write_objects(const Tables& tables) {
  std::map<long, std::string> shown;
  const auto is_object = [](const Constant& each) { return each.type.rfind("objects ", 0) == 0; };
  if (std::none_of(tables.foreign.begin(), tables.foreign.end(), is_object)) return;
  std::cout << "extern \"C\" {\n#pragma GCC visibility push(default)\n";
  for (const Constant& each : tables.foreign) {
    if (!is_object(each)) continue;
    const std::string type = "const Predefined<" + each.type.substr(8) + ">";
    const bool is_handle = each.name != "none";
    const long handle = is_handle ? tables.standard(each.name) : 0;
    std::cout << "extern " << type << " " << each.value << ";\n"
              << type << " " << each.value << "{" << (is_handle ? std::to_string(handle) : "no_handle") << "};\n";
    if (is_handle) shown.emplace(handle, each.value);
  }
  std::cout << "#pragma GCC visibility pop\n}\n\nnamespace aplib::mpi::front {\n"
               "const std::array<const void*, handles_end> objects = {\n";
  long last = 0;
  for (const auto& [handle, object] : shown) {
    for (; last < handle; ++last) std::cout << "nullptr, ";
    std::cout << "&" << object << ",\n";
    ++last;
  }
  std::cout << "};\n}  // namespace aplib::mpi::front\n\n";
}

// ---------------------------------------------------------------- the functions

struct Argument {
  std::string before;
  std::string value;
  std::string after;     ///< Also after an error,
  std::string if_given;  ///< and not.
};

/// How many elements an array has.
std::string length_of(const Function& function, const Parameter& parameter) {
  for (const Parameter& each : function.parameters) {
    if (each.name == parameter.length && each.is_out) return "(" + each.name + " == nullptr ? 0 : *" + each.name + ")";
  }
  if (!parameter.length.empty()) return parameter.length;
  if (parameter.kind->name == "status") {
    for (const Parameter& each : function.parameters) {
      if (each.kind->name == "entries") return each.name;
    }
  }
  const bool sends = parameter.name == "sendtypes";
  if (function.name.find("eighbor") != std::string::npos)
    return std::string(sends ? "destinations" : "sources") + "_of(comm)";
  return sends ? "peers_of(comm, buffer_at(sendbuf))" : "peers_of(comm)";
}

/// After the call, which only begins it.
bool goes_on(const Function& function) {
  return std::any_of(function.parameters.begin(), function.parameters.end(),
                     [](const Parameter& each) { return each.kind->name == "request" && each.is_out; });
}

Argument handle_argument(const Function& function, const Parameter& parameter) {
  const std::string& name = parameter.name;
  const std::string length = parameter.is_array ? ", " + length_of(function, parameter) : "";
  if (parameter.is_out) {
    return {std::string(parameter.is_array ? "MadeArray<" : "Made<") + parameter.kind->type +
                (parameter.is_inout ? ", true> " : ", false> ") + name + "_(" + name + length + ");",
            name + "_.data()", name + "_.give();", ""};
  }
  if (!parameter.is_array) return {"", "standard(" + name + ")", "", ""};
  if (parameter.kind->name == "datatype" && goes_on(function))
    return {"", "kept_datatypes(" + name + length + ")", "", ""};
  return {"const Handles<" + parameter.kind->type + "> " + name + "_(" + name + length + ");", name + "_.data()", "",
          ""};
}

Argument argument_of(const Tables& tables, const Function& function, const Parameter& parameter) {
  const std::string& name = parameter.name;
  const std::string& kind = parameter.kind->name;
  if (parameter.kind->is_object) return handle_argument(function, parameter);
  if (kind == "status") {
    const std::string length = parameter.is_array ? ", " + length_of(function, parameter) : "";
    const std::string type =
        std::string(parameter.is_array ? "Statuses" : "Status") + (!parameter.is_out    ? "<true, false>"
                                                                   : parameter.is_inout ? "<true, true>"
                                                                                        : "<false, true>");
    return {type + " " + name + "_(" + name + length + ");", name + "_.data()",
            parameter.is_out ? name + "_.give();" : "", ""};
  }
  if (kind == "string" && parameter.is_out && tables.is_shorter(parameter.length)) {
    const bool has_length = function.parameters.back().name == "resultlen";
    return {"Text<" + parameter.length + ", foreign_" + parameter.length + "> " + name + "_(" + name +
                (has_length ? ", resultlen" : "") + ");",
            name + "_.data()", "", name + "_.give();"};
  }
  if (kind == "buffer" && parameter.name != "location") return {"", "buffer_at(" + name + ")", "", ""};
  if (kind == "weights") return {"", "weights_at(" + name + ")", "", ""};
  const std::string values = tables.values_of(parameter);
  if (values.empty() || parameter.is_array) return {"", name, "", ""};
  const auto converted = [&](const std::string& to, const std::string& what) {
    return "(" + parameter.kind->type + ")" + to + "_" + values + "(" + what + ")";
  };
  if (!parameter.is_out) return {"", converted("standard", name), "", ""};
  const std::string place = "*" + name;
  const std::string shows = place + " = " + converted("foreign", place) + ";";
  if (!parameter.is_inout) return {"", name, "", shows};
  return {"if (" + name + " != nullptr) " + place + " = " + converted("standard", place) + ";", name,
          "if (" + name + " != nullptr) " + shows, ""};
}

/// The function as programs of the other MPI call it.
std::string foreign_prototype(const std::string& prefix, const Function& function, bool large) {
  static std::map<std::string, Kind> kinds;
  Function foreign = function;
  for (Parameter& parameter : foreign.parameters) {
    if (!parameter.kind->is_object && parameter.kind->name != "status") continue;
    const auto [kind, is_new] = kinds.emplace(parameter.kind->name, *parameter.kind);
    if (is_new)
      kind->second.type = parameter.kind->is_object ? "Foreign<" + parameter.kind->type + ">" : "ForeignStatus*";
    parameter.kind = &kind->second;
  }
  return prototype(prefix, foreign, large);
}

/// MPI_X, which is PMPI_X unless a tool defines it, and of persistent collective calls also MPIX_X.
void write_aliases(const Function& function, bool large) {
  const std::string alias = " __attribute__((weak, alias(\"PMPI_" + function.name + (large ? "_c" : "") + "\")));\n";
  std::cout << foreign_prototype("MPI_", function, large) << alias;
  if (function.is_later && function.name.size() > 5 && function.name.substr(function.name.size() - 5) == "_init") {
    std::cout << foreign_prototype("MPIX_", function, large) << alias << foreign_prototype("PMPIX_", function, large)
              << alias;
  }
  std::cout << '\n';
}

void write_function(const Tables& tables, const Function& function, bool large) {
  std::string before;
  std::string values;
  std::string after;
  std::string if_given;
  for (const Parameter& parameter : function.parameters) {
    if (parameter.only_large && !large) continue;
    const Argument argument = argument_of(tables, function, parameter);
    if (!argument.before.empty()) before += "  " + argument.before + "\n";
    if (!argument.after.empty()) after += "  " + argument.after + "\n";
    if (!argument.if_given.empty()) if_given += "    " + argument.if_given + "\n";
    values += (values.empty() ? "" : ", ") + argument.value;
  }
  if (!if_given.empty()) if_given = "  if (error_ == MPI_SUCCESS) {\n" + if_given + "  }\n";
  const std::string call = "aplib_mpi_functions." + function.name + (large ? "_c(" : "(") + values + ")";
  std::cout << foreign_prototype("PMPI_", function, large) << " {\n" << before;
  if (!function.result.empty()) {
    std::cout << "  return " << call << ";\n";
  } else if (after.empty() && if_given.empty()) {
    std::cout << "  return returned(" << call << ");\n";
  } else {
    std::cout << "  const int error_ = " << call << ";\n" << after << if_given << "  return returned(error_);\n";
  }
  std::cout << "}\n";
  write_aliases(function, large);
}

/// Handles as Fortran has them.
void write_conversions(const Function& function) {
  const std::string& type = function.parameters[0].kind->type;
  const std::string foreign = "Foreign<" + type + ">";
  const std::string name = function.name.substr(0, function.name.size() - 5);  // without "toint"
  const auto write = [&](const std::string& what, const std::string& result, const std::string& parameter,
                         const std::string& value) {
    std::cout << result << " PMPI_" << name << what << "(" << parameter << ") { return " << value << "; }\n"
              << result << " MPI_" << name << what << "(" << parameter << ") __attribute__((weak, alias(\"PMPI_" << name
              << what << "\")));\n";
  };
  const std::string call = "aplib_mpi_functions." + name;
  for (const char* const to : {"c2f", "toint"})
    write(to, "MPI_Fint", foreign + " handle", "number_of(handle, " + call + "toint)");
  for (const char* const from : {"f2c", "fromint"})
    write(from, foreign, "MPI_Fint number", "handle_of<" + type + ">(number, " + call + "fromint)");
}

void write_functions(const Tables& tables) {
  std::cout << "// Made by generate.cpp from functions.txt, constants.txt and " << tables.abi
            << ".txt.\n#include \"mpi/front/convert.hpp\"\n\nusing namespace aplib::mpi::front;\n\n";
  write_objects(tables);
  std::cout << "extern \"C\" {\n#pragma GCC visibility push(default)\n"
               "#pragma GCC diagnostic ignored \"-Wunused-parameter\"\n\n";
  for (const Function& function : tables.functions.functions) {
    if (!is_exported(function) || by_hand.count(function.name) != 0) continue;
    write_function(tables, function, false);
    if (is_large(function)) write_function(tables, function, true);
  }
  for (const Function& function : tables.functions.functions) {
    if (function.implementation == "to_int") write_conversions(function);
  }
  std::cout << "#pragma GCC visibility pop\n}\n";
}

}  // namespace

int main(int argc, char** argv) {
  const Words arguments(argv + 1, argv + argc);
  if (arguments.size() != 4) fail("usage", "generate functions|values functions.txt constants.txt openmpi.txt");
  const Tables tables(Words(arguments.begin() + 1, arguments.end()));
  if (arguments[0] == "functions") {
    write_functions(tables);
  } else if (arguments[0] == "values") {
    write_values(tables);
  } else {
    fail("usage", "there is no output " + arguments[0]);
  }
  return 0;
}
