// SPDX-License-Identifier: MIT
// Makes Open MPI's side of MPI of the table of functions, the table of constants and abi.txt. A program of the build.
//
//   generate functions TABLES    the functions that programs call, but for those made by hand, and predefined handles
//   generate values TABLES       numbers in one form and the other
//   generate names TABLES        the functions that the library exports for both
// TABLES: functions.txt constants.txt abi.txt
#include <algorithm>
#include <iostream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "../generate_table.hpp"

namespace {

using namespace table;

/// Functions that need more than a conversion of each argument: convert.cpp, callbacks.cpp.
const std::set<std::string> by_hand = {
    "Abort",
    "Attr_get",
    "Buffer_attach",
    "Buffer_detach",
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
    "Comm_spawn_multiple",
    "Group_translate_ranks",
    "Grequest_start",
    "Pcontrol",
    "Register_datarep",
    "Type_create_darray",
    "Type_get_contents",
};

/// Not the standard ABI's questions about itself, and not events of tools, which Open MPI 4 lacks.
bool is_exported(const Function& function) {
  return function.implementation != "to_int" && function.implementation != "from_int" &&
         function.name.rfind("Abi_", 0) != 0 && function.name.rfind("T_event_", 0) != 0 &&
         function.name.rfind("T_source_", 0) != 0;
}

class Tables {
 public:
  explicit Tables(const Words& paths) : functions(paths[0]) {
    for (const Constant& each : read_constants(paths[1])) {
      const std::string& value = each.value;
      standard_[each.name] = value[0] == 'M' ? standard_.at(value) : std::stol(value, nullptr, 0);
    }
    foreign = read_constants(paths[2]);
    for (const Constant& each : foreign) {
      const std::size_t space = each.type.find(' ');
      if (space != std::string::npos && each.type.rfind("objects", 0) != 0) kinds_.insert(each.type.substr(space + 1));
      if (each.type == "lengths") lengths_.insert(each.name);
    }
  }

  /// Of a name in the standard ABI.
  [[nodiscard]] long standard(const std::string& name) const {
    const auto found = standard_.find(name);
    if (found == standard_.end()) fail("abi.txt", "constants.txt has no " + name);
    return found->second;
  }
  [[nodiscard]] const std::set<std::string>& kinds() const { return kinds_; }
  /// The kind in abi.txt of a parameter whose values differ; empty: they do not.
  [[nodiscard]] std::string values_of(const Parameter& parameter) const {
    const std::string& kind = parameter.kind->name;
    if (kind == "source" || kind == "dest" || kind == "root") return "rank";
    return kinds_.count(kind) != 0 ? kind : "";
  }
  [[nodiscard]] bool is_shorter(const std::string& length) const { return lengths_.count(length) != 0; }

  FunctionTable functions;
  std::vector<Constant> foreign;

 private:
  std::map<std::string, long> standard_;
  std::set<std::string> kinds_;
  std::set<std::string> lengths_;
};

// ---------------------------------------------------------------- values

/// What a switch makes of each value; others stay.
void write_switch(const std::string& name, const std::vector<std::pair<long, long>>& pairs) {
  std::cout << "constexpr long " << name << "(long value) noexcept {\n  switch (value) {\n";
  for (const auto& [from, to] : pairs) std::cout << "    case " << from << ":\n      return " << to << ";\n";
  std::cout << "    default:\n      return value;\n  }\n}\n";
}

/// What is a value in the standard ABI alone stays invalid: it takes the place of what it means.
void add_strangers(std::vector<std::pair<long, long>>& pairs) {
  std::set<long> known;
  for (const auto& [from, to] : pairs) known.insert(from);
  for (std::size_t i = pairs.size(); i-- > 0;) {
    if (known.insert(pairs[i].second).second) pairs.emplace_back(pairs[i].second, pairs[i].first);
  }
}

void write_bits(const std::string& name, const std::vector<std::pair<long, long>>& pairs) {
  long known = 0;
  std::cout << "constexpr long " << name << "(long value) noexcept {\n  long result = 0;\n";
  for (const auto& [from, to] : pairs) {
    known |= from;
    std::cout << "  if ((value & " << from << ") != 0) result |= " << to << ";\n";
  }
  // A bit that is none stays none, and so does a negative number.
  std::cout << "  return (value & ~" << known << "L) != 0 ? result | 1 << 30 : result;\n}\n";
}

void write_values(const Tables& tables) {
  std::cout << "// Made by generate.cpp from constants.txt and abi.txt.\n#pragma once\n\n"
               "namespace aplib::mpi::openmpi {\n\n";
  for (const std::string& kind : tables.kinds()) {
    std::vector<std::pair<long, long>> to_standard;
    std::vector<std::pair<long, long>> to_foreign;
    bool is_bits = false;
    for (const Constant& each : tables.foreign) {
      const std::string what = each.type.substr(0, each.type.find(' '));
      if (each.type != what + " " + kind) continue;
      is_bits = what == "bits";
      const std::pair<long, long> pair(std::stol(each.value), tables.standard(each.name));
      if (what != "shown") to_standard.push_back(pair);
      to_foreign.emplace_back(pair.second, pair.first);
    }
    const auto write = is_bits ? write_bits : write_switch;
    if (!is_bits) add_strangers(to_standard);
    write("standard_" + kind, to_standard);
    write("foreign_" + kind, to_foreign);
  }
  for (const Constant& each : tables.foreign) {
    if (each.type == "lengths")
      std::cout << "inline constexpr int foreign_" << each.name << " = " << each.value << ";\n";
  }
  std::cout << "\n}  // namespace aplib::mpi::openmpi\n";
}

// ---------------------------------------------------------------- predefined handles

void write_objects(const Tables& tables) {
  std::map<long, std::string> shown;
  std::cout << "extern \"C\" {\n#pragma GCC visibility push(default)\n";
  for (const Constant& each : tables.foreign) {
    if (each.type.rfind("objects ", 0) != 0) continue;
    const std::string type = "const Predefined<" + each.type.substr(8) + ">";
    const bool is_handle = each.name != "none";
    const long handle = is_handle ? tables.standard(each.name) : 0;
    std::cout << "extern " << type << " " << each.value << ";\n"
              << type << " " << each.value << "{" << (is_handle ? std::to_string(handle) : "no_handle") << "};\n";
    if (is_handle) shown.emplace(handle, each.value);
  }
  std::cout << "#pragma GCC visibility pop\n}\n\nnamespace aplib::mpi::openmpi {\n"
               "const std::array<const void*, objects_end> objects = {\n";
  long last = 0;
  for (const auto& [handle, object] : shown) {
    for (; last < handle; ++last) std::cout << "nullptr, ";
    std::cout << "&" << object << ",\n";
    ++last;
  }
  std::cout << "};\n}  // namespace aplib::mpi::openmpi\n\n";
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
  if (!parameter.length.empty()) return parameter.length;
  if (parameter.kind->name == "status") {
    for (const Parameter& each : function.parameters) {
      if (each.kind->name == "entries") return each.name;
    }
  }
  const bool sends = parameter.name == "sendtypes";
  if (function.name.find("eighbor") != std::string::npos)
    return std::string(sends ? "destinations" : "sources") + "_of(comm)";
  return sends ? "peers_of(comm, sendbuf)" : "peers_of(comm)";
}

/// After the call, which only begins it.
bool goes_on(const Function& function) {
  return std::any_of(function.parameters.begin(), function.parameters.end(),
                     [](const Parameter& each) { return each.kind->name == "request" && each.is_out; });
}

Argument handle_argument(const Function& function, const Parameter& parameter) {
  const std::string& name = parameter.name;
  const std::string length = parameter.is_array ? ", " + length_of(function, parameter) : "";
  if (parameter.is_out)
    return {parameter.is_inout ? "take(" + name + length + ");" : "", name, "show(" + name + length + ");", ""};
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

/// MPI_X, which is PMPI_X unless a tool defines it, and of persistent collective calls also MPIX_X.
void write_aliases(const Function& function, bool large) {
  const std::string alias = " __attribute__((weak, alias(\"PMPI_" + function.name + (large ? "_c" : "") + "\")));\n";
  std::cout << prototype("MPI_", function, large) << alias;
  if (function.is_later && function.name.size() > 5 && function.name.substr(function.name.size() - 5) == "_init") {
    std::cout << prototype("MPIX_", function, large) << alias << prototype("PMPIX_", function, large) << alias;
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
  std::cout << prototype("PMPI_", function, large) << " {\n" << before;
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

/// The _c double of a function made by hand. Without it, programs would find the standard's.
void write_missing(const Function& function) {
  std::cout << prototype("PMPI_", function, true) << " {\n  return returned(aplib_mpi_raise(\"MPI_" << function.name
            << "_c\", MPI_ERR_UNSUPPORTED_OPERATION, \"this version of APlib does not have this function yet for "
               "programs of Open MPI\"));\n}\n";
  write_aliases(function, true);
}

/// Handles as Fortran has them.
void write_conversions(const Function& function) {
  const std::string& type = function.parameters[0].kind->type;
  const std::string name = function.name.substr(0, function.name.size() - 5);  // without "toint"
  const auto write = [&](const std::string& what, const std::string& result, const std::string& parameter,
                         const std::string& value) {
    std::cout << result << " PMPI_" << name << what << "(" << parameter << ") { return " << value << "; }\n"
              << result << " MPI_" << name << what << "(" << parameter << ") __attribute__((weak, alias(\"PMPI_" << name
              << what << "\")));\n";
  };
  const std::string call = "aplib_mpi_functions." + name;
  for (const char* const to : {"c2f", "toint"})
    write(to, "MPI_Fint", type + " handle", call + "toint(standard(handle))");
  for (const char* const from : {"f2c", "fromint"})
    write(from, type, "MPI_Fint number", "foreign(" + call + "fromint(number))");
}

void write_functions(const Tables& tables) {
  std::cout << "// Made by generate.cpp from functions.txt, constants.txt and abi.txt.\n"
               "#include \"mpi/openmpi/convert.hpp\"\n\nusing namespace "
               "aplib::mpi::openmpi;\n\n";
  write_objects(tables);
  std::cout << "extern \"C\" {\n#pragma GCC visibility push(default)\n"
               "#pragma GCC diagnostic ignored \"-Wunused-parameter\"\n\n";
  for (const Function& function : tables.functions.functions) {
    if (!is_exported(function)) continue;
    const bool is_by_hand = by_hand.count(function.name) != 0;
    if (!is_by_hand) write_function(tables, function, false);
    if (is_large(function) && !is_by_hand) write_function(tables, function, true);
    if (is_large(function) && is_by_hand) write_missing(function);
  }
  for (const Function& function : tables.functions.functions) {
    if (function.implementation == "to_int") write_conversions(function);
  }
  std::cout << "#pragma GCC visibility pop\n}\n";
}

void write_names(const Tables& tables) {
  for (const Function& function : tables.functions.functions) {
    if (is_exported(function)) std::cout << "MPI_" << function.name << "\nPMPI_" << function.name << '\n';
  }
}

}  // namespace

int main(int argc, char** argv) {
  const Words arguments(argv + 1, argv + argc);
  if (arguments.size() != 4) fail("usage", "generate functions|values|names functions.txt constants.txt abi.txt");
  const Tables tables(Words(arguments.begin() + 1, arguments.end()));
  if (arguments[0] == "functions") {
    write_functions(tables);
  } else if (arguments[0] == "values") {
    write_values(tables);
  } else if (arguments[0] == "names") {
    write_names(tables);
  } else {
    fail("usage", "there is no output " + arguments[0]);
  }
  return 0;
}
