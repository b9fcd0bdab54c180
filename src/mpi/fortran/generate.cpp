// SPDX-License-Identifier: MIT
// Makes Fortran's side of MPI of the table of functions and the table of constants. A program of the build.
//
//   generate functions functions.txt constants.txt    the functions that Fortran calls, but for those made by hand
//   generate include functions.txt constants.txt      mpif.h, valid in fixed and in free form
//   generate module functions.txt constants.txt       the module mpi
//   generate names functions.txt constants.txt        the names that the library exports for both
#include <algorithm>
#include <iostream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "../generate_table.hpp"

namespace {

using namespace table;

/// Functions whose parameters mean something else in Fortran, or that are no subroutines: convert.cpp, callbacks.cpp.
const std::set<std::string> by_hand = {
    "Init",
    "Init_thread",
    "Pcontrol",
    "Wtime",
    "Wtick",
    "Aint_add",
    "Aint_diff",
    "Info_create_env",
    "Info_get_string",
    "Session_get_nth_pset",
    "Comm_spawn",
    "Comm_spawn_multiple",
    "Address",
    "Type_extent",
    "Type_hindexed",
    "Type_hvector",
    "Type_lb",
    "Type_struct",
    "Type_ub",
    "Attr_get",
    "Attr_put",
    "Comm_get_attr",
    "Comm_set_attr",
    "Type_get_attr",
    "Type_set_attr",
    "Win_get_attr",
    "Win_set_attr",
    "Keyval_create",
    "Comm_create_keyval",
    "Type_create_keyval",
    "Win_create_keyval",
    "Op_create",
    "Errhandler_create",
    "Comm_create_errhandler",
    "File_create_errhandler",
    "Session_create_errhandler",
    "Win_create_errhandler",
    "Grequest_start",
    "Register_datarep",
};

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

bool has_fortran(const Function& function) {
  const bool is_of_c = function.implementation == "to_int" || function.implementation == "from_int" ||
                       ends_with(function.name, "_c") || function.name.find("fortran_booleans") != std::string::npos;
  return !is_of_c && function.name.rfind("T_", 0) != 0;
}

/// Those that Fortran's function has: not the command line of C's main, and not those of the _c double.
std::vector<Parameter> parameters_of(const Function& function) {
  std::vector<Parameter> result;
  const auto has_argc = [&] {
    return std::any_of(function.parameters.begin(), function.parameters.end(),
                       [](const Parameter& each) { return each.name == "argc"; });
  };
  for (const Parameter& each : function.parameters) {
    const bool is_of_main = (each.name == "argc" || each.name == "argv") && has_argc();
    if (!is_of_main && !each.only_large && each.kind->type != "...") result.push_back(each);
  }
  return result;
}

/// An address, which the module mpi gives as an integer or as a C pointer.
bool gives_memory(const Function& function) {
  return std::any_of(function.parameters.begin(), function.parameters.end(),
                     [](const Parameter& each) { return each.name == "baseptr"; });
}

bool is_callback(const Parameter& parameter) {
  return ends_with(parameter.kind->name, "_fn") && parameter.kind->type.find("function*") != std::string::npos;
}

// ---------------------------------------------------------------- the functions

struct Argument {
  std::string declaration;  ///< As the program passes it.
  std::string object;       ///< What converts it before the call; empty: nothing need.
  std::string value;        ///< For C's function.
  bool is_given = false;    ///< The object gives something to the program.
};

/// How many elements an array of handles has.
std::string length_of(const Function& function, const Parameter& parameter) {
  if (!parameter.length.empty()) return "*" + parameter.length;
  const bool sends = parameter.name == "sendtypes";
  if (function.name.find("eighbor") != std::string::npos)
    return std::string(sends ? "destinations" : "sources") + "_of(*comm)";
  return sends ? "peers_of(*comm, sendbuf)" : "peers_of(*comm)";
}

/// After the call, which only begins it.
bool goes_on(const Function& function) {
  return std::any_of(function.parameters.begin(), function.parameters.end(),
                     [](const Parameter& each) { return each.kind->name == "request" && each.is_out; });
}

std::string room_of(const Parameter& parameter) {
  if (parameter.length.empty()) return "MPI_MAX_DATAREP_STRING";
  return parameter.length.rfind("MPI_", 0) == 0 ? parameter.length : "*" + parameter.length + " + 1L";
}

Argument argument_of(const Function& function, const Parameter& parameter) {
  const std::string& name = parameter.name;
  const std::string& kind = parameter.kind->name;
  const std::string& type = parameter.kind->type;
  const std::string in = parameter.is_out ? "" : "const ";
  if (parameter.kind->is_object) {
    if (!parameter.is_array && !parameter.is_out)
      return {"const int* " + name, "", "handle_of<" + type + ">(*" + name + ")"};
    if (parameter.length.empty() && parameter.is_array && goes_on(function)) {
      return {"const int* " + name, "", "kept_datatypes(" + name + ", " + length_of(function, parameter) + ")"};
    }
    const std::string reads = !parameter.is_out || parameter.is_inout ? "true" : "false";
    const std::string writes = parameter.is_out ? "true" : "false";
    return {in + "int* " + name,
            "Handles<" + type + ", " + reads + ", " + writes + "> " + name + "_(" + name + ", " +
                (parameter.is_array ? length_of(function, parameter) : "1") + ");",
            name + "_.data()", parameter.is_out};
  }
  if (kind == "buffer") return {in + "void* " + name, "", "buffer_at(" + name + ")"};
  if (kind == "status") return {in + "MPI_Status* " + name, "", "status_at(" + name + ")"};
  if (kind == "string" && parameter.is_out)
    return {"char* " + name, "Room " + name + "_(" + name + ", " + name + "_length, " + room_of(parameter) + ");",
            name + "_.data()", true};
  if (kind == "string") {
    const bool is_of_info = function.name.rfind("Info_", 0) == 0;
    return {"const char* " + name,
            "const Text " + name + "_(" + name + ", " + name + "_length" + (is_of_info ? ", true" : "") + ");",
            name + "_.data()"};
  }
  // MPI_Buffer_detach and its kin: Fortran has no use for the address.
  if (kind == "pointer" && name == "buffer_addr") return {"void*", "void* " + name + "_ = nullptr;", "&" + name + "_"};
  if (kind == "pointer") return {"void* " + name, "", name};
  if (name == "indx" && parameter.is_out && !parameter.is_array)
    return {"int* " + name, "Index " + name + "_(" + name + ");", name + "_.data()", true};
  if (name == "array_of_indices" && parameter.is_out)
    return {"int* " + name, "const Indices " + name + "_(" + name + ", outcount);", name, true};
  if (name.find("weights") != std::string::npos) return {in + "int* " + name, "", "weights_at(" + name + ")"};
  if (!parameter.kind->rows.empty()) return {type + " (*" + name + ")" + parameter.kind->rows, "", name};
  return {in + type + "* " + name, "", (parameter.is_out || parameter.is_array ? "" : "*") + name};
}

void write_function(const Function& function) {
  std::string declarations;
  std::string lengths;
  std::string objects;
  std::string values;
  std::string given;
  for (const Parameter& parameter : parameters_of(function)) {
    const Argument argument = argument_of(function, parameter);
    declarations += argument.declaration + ", ";
    if (parameter.kind->name == "string") lengths += ", Length " + parameter.name + "_length";
    if (!argument.object.empty()) objects += "  " + argument.object + "\n";
    if (argument.is_given) given += "  " + parameter.name + "_.give();\n";
    values += (values.empty() ? "" : ", ") + argument.value;
  }
  const std::string list = "(" + declarations + "int* ierror" + lengths + ")";
  std::cout << "APLIB_SUBROUTINE(" << lower(function.name) << ", " << list << ") {\n"
            << objects << "  *ierror = PMPI_" << function.name << "(" << values << ");\n"
            << given << "}\n";
  if (gives_memory(function)) {
    std::cout << "[[gnu::alias(\"pmpi_" << lower(function.name) << "_\")]] void mpi_" << lower(function.name)
              << "_cptr_" << list << ";\n";
  }
  if (function.is_later && ends_with(function.name, "_init"))
    std::cout << "APLIB_PERSISTENT(" << lower(function.name) << ", " << list << ")\n";
  std::cout << '\n';
}

void write_functions(const FunctionTable& table) {
  std::cout << "// Made by generate.cpp from functions.txt.\n#include \"mpi/fortran/convert.hpp\"\n\n"
               "using namespace aplib::mpi::fortran;\n\nextern \"C\" {\n"
               "#pragma GCC visibility push(default)\n\n";
  for (const Function& function : table.functions) {
    if (has_fortran(function) && by_hand.count(function.name) == 0) write_function(function);
  }
  std::cout << "#pragma GCC visibility pop\n}\n";
}

void write_names(const FunctionTable& table) {
  for (const Function& function : table.functions) {
    if (!has_fortran(function)) continue;
    const std::string name = lower("mpi_" + function.name) + "_";
    std::cout << name << "\np" << name << '\n';
  }
}

// ---------------------------------------------------------------- constants

struct Value {
  std::string name;
  std::string value;
};

/// All that Fortran has, as integers of four bytes.
std::vector<Value> integers_of(const std::vector<Constant>& constants) {
  std::map<std::string, long> known;
  std::vector<Value> values = {{"MPI_VERSION", "5"},        {"MPI_SUBVERSION", "0"},   {"MPI_ABI_VERSION", "1"},
                               {"MPI_ABI_SUBVERSION", "0"}, {"MPI_ADDRESS_KIND", "8"}, {"MPI_COUNT_KIND", "8"},
                               {"MPI_INTEGER_KIND", "4"},   {"MPI_OFFSET_KIND", "8"},  {"MPI_STATUS_SIZE", "8"},
                               {"MPI_SOURCE", "1"},         {"MPI_TAG", "2"},          {"MPI_ERROR", "3"}};
  for (const Constant& constant : constants) {
    const bool is_handle = constant.type.rfind("MPI_", 0) == 0 && constant.type.find('*') == std::string::npos &&
                           constant.type != "MPI_Offset";
    const bool is_of_c = constant.name.rfind("MPI_T_", 0) == 0 || constant.name.rfind("MPI_F_", 0) == 0;
    if ((!is_handle && constant.type != "number" && constant.type != "class") || is_of_c) continue;
    long value = constant.value[0] == 'M' ? known.at(constant.value) : std::stol(constant.value, nullptr, 0);
    known[constant.name] = value;
    if (constant.name.rfind("MPI_MAX_", 0) == 0) --value;  // Fortran's strings end without a zero
    values.push_back({constant.name, std::to_string(value)});
  }
  return values;
}

// Callbacks that are there already.
const std::vector<std::string> callbacks = {"MPI_NULL_COPY_FN",      "MPI_NULL_DELETE_FN",      "MPI_DUP_FN",
                                            "MPI_COMM_NULL_COPY_FN", "MPI_COMM_NULL_DELETE_FN", "MPI_COMM_DUP_FN",
                                            "MPI_TYPE_NULL_COPY_FN", "MPI_TYPE_NULL_DELETE_FN", "MPI_TYPE_DUP_FN",
                                            "MPI_WIN_NULL_COPY_FN",  "MPI_WIN_NULL_DELETE_FN",  "MPI_WIN_DUP_FN",
                                            "MPI_CONVERSION_FN_NULL"};

/// What convert.hpp has as Absent and AbsentText, in lines that fixed and free form understand.
constexpr const char* absent = R"(      INTEGER(KIND=4) MPI_BOTTOM, MPI_IN_PLACE, MPI_BUFFER_AUTOMATIC
      INTEGER(KIND=4) MPI_ERRCODES_IGNORE(1), MPI_UNWEIGHTED(1)
      INTEGER(KIND=4) MPI_WEIGHTS_EMPTY(1), MPI_STATUS_IGNORE(8)
      INTEGER(KIND=4) MPI_STATUSES_IGNORE(8,1)
      COMMON /APLIB_MPI/ MPI_BOTTOM, MPI_IN_PLACE
      COMMON /APLIB_MPI/ MPI_BUFFER_AUTOMATIC, MPI_ERRCODES_IGNORE
      COMMON /APLIB_MPI/ MPI_UNWEIGHTED, MPI_WEIGHTS_EMPTY
      COMMON /APLIB_MPI/ MPI_STATUS_IGNORE, MPI_STATUSES_IGNORE
      SAVE /APLIB_MPI/
      CHARACTER(LEN=1) MPI_ARGV_NULL(1), MPI_ARGVS_NULL(1,1)
      COMMON /APLIB_MPI_TEXT/ MPI_ARGV_NULL, MPI_ARGVS_NULL
      SAVE /APLIB_MPI_TEXT/
)";

void write_constants(const std::vector<Constant>& constants) {
  for (const Value& each : integers_of(constants)) {
    std::cout << "      INTEGER(KIND=4) " << each.name << "\n      PARAMETER (" << each.name << "=" << each.value
              << ")\n";
  }
  std::cout << "      INTEGER(KIND=8) MPI_DISPLACEMENT_CURRENT\n"
               "      PARAMETER (MPI_DISPLACEMENT_CURRENT=-1_8)\n"
               "      LOGICAL(KIND=4) MPI_SUBARRAYS_SUPPORTED\n"
               "      PARAMETER (MPI_SUBARRAYS_SUPPORTED=.FALSE.)\n"
               "      LOGICAL(KIND=4) MPI_ASYNC_PROTECTS_NONBLOCKING\n"
               "      PARAMETER (MPI_ASYNC_PROTECTS_NONBLOCKING=.FALSE.)\n"
            << absent;
  for (const std::string& each : callbacks) std::cout << "      EXTERNAL " << each << '\n';
}

void write_include(const std::vector<Constant>& constants) {
  std::cout << "! mpif.h of APlib: MPI-5.0 for gfortran, in fixed and in free form.\n"
               "! Made by generate.cpp from functions.txt and constants.txt.\n";
  write_constants(constants);
  for (const char* prefix : {"MPI", "PMPI"}) {
    std::cout << "      REAL(KIND=8) " << prefix << "_WTIME, " << prefix << "_WTICK\n"
              << "      EXTERNAL " << prefix << "_WTIME, " << prefix << "_WTICK\n"
              << "      INTEGER(KIND=8) " << prefix << "_AINT_ADD, " << prefix << "_AINT_DIFF\n"
              << "      EXTERNAL " << prefix << "_AINT_ADD, " << prefix << "_AINT_DIFF\n";
  }
}

// ---------------------------------------------------------------- the module

/// An integer of Fortran that is C's `type`.
std::string integer(const std::string& type) {
  return type == "MPI_Aint" || type == "MPI_Count" || type == "MPI_Offset" ? "integer(kind=8)" : "integer";
}

/// Deprecated functions have addresses as plain integers.
bool is_old(const Function& function) { return function.is_removed; }

std::string dummy(const Function& function, const Parameter& parameter) {
  const std::string& name = parameter.name;
  const std::string& kind = parameter.kind->name;
  const std::string intent = parameter.is_inout ? ", intent(inout)"
                             : parameter.is_out ? ", intent(out)"
                                                : ", intent(in)";
  if (kind == "buffer" || name == "buffer_addr")
    return "    !GCC$ ATTRIBUTES NO_ARG_CHECK :: " + name + "\n    type(*), dimension(*) :: " + name;
  if (is_callback(parameter)) return "    external :: " + name;
  std::string suffix = parameter.is_array ? "(*)" : "";
  std::string type = integer(parameter.kind->type);
  if (kind == "status") {
    type = "integer";
    suffix = parameter.is_array ? "(8,*)" : "(8)";
  } else if (kind == "logical") {
    type = "logical";
  } else if (kind == "string") {
    type = "character(len=*)";
    suffix.clear();
  } else if (kind == "strings" || kind == "string_lists") {
    type = "character(len=*)";
    suffix = kind == "strings" ? "(*)" : "(count,*)";
  } else if (kind == "pointer") {
    type = is_old(function) ? "integer" : "integer(kind=8)";
  } else if (is_old(function)) {
    type = "integer";
  } else if (!parameter.kind->rows.empty()) {
    suffix = "(3,*)";
  }
  // The callbacks may change their state, which is the library's copy.
  return "    " + type + intent + " :: " + name + suffix;
}

/// Words of a list, in lines of 100 characters.
std::string wrapped(const std::vector<std::string>& words) {
  std::string text;
  std::size_t column = 60;
  for (const std::string& word : words) {
    if (!text.empty()) text += ", ";
    if (column + word.size() > 95) {
      text += "&\n      ";
      column = 8;
    }
    text += word;
    column += word.size() + 2;
  }
  return text;
}

void write_interface(const Function& function, const std::string& name, bool with_pointer) {
  std::vector<std::string> names;
  std::string dummies;
  for (const Parameter& parameter : parameters_of(function)) {
    names.push_back(parameter.name);
    const bool is_pointer = with_pointer && parameter.kind->name == "pointer";
    dummies += (is_pointer ? "    type(c_ptr), intent(out) :: " + parameter.name : dummy(function, parameter)) + "\n";
  }
  if (function.name != "Pcontrol") {
    names.emplace_back("ierror");
    dummies += "    integer, intent(out) :: ierror\n";
  }
  std::cout << "  subroutine " << name << "(" << wrapped(names) << ")\n"
            << (with_pointer ? "    use, intrinsic :: iso_c_binding, only: c_ptr\n" : "    implicit none\n")
            << (with_pointer ? "    implicit none\n" : "") << dummies << "  end subroutine\n";
}

/// A function with a result other than an error code.
void write_result(const Function& function, const std::string& name) {
  std::vector<std::string> names;
  std::string dummies;
  for (const Parameter& parameter : parameters_of(function)) {
    names.push_back(parameter.name);
    dummies += dummy(function, parameter) + "\n";
  }
  const bool is_real = function.result == "double";
  std::cout << "  function " << name << "(" << wrapped(names) << ")\n    implicit none\n"
            << dummies << (is_real ? "    real" : "    integer") << "(kind=8) :: " << name << "\n  end function\n";
}

void write_interfaces(const Function& function) {
  const std::string name = "MPI_" + function.name;
  const auto parameters = parameters_of(function);
  const bool gives_memory =
      std::any_of(parameters.begin(), parameters.end(), [](const Parameter& each) { return each.name == "baseptr"; });
  if (!gives_memory) {
    std::cout << "  interface\n";
    write_interface(function, name, false);
    std::cout << "  end interface\n";
    return;
  }
  std::cout << "  interface " << name << '\n';
  write_interface(function, name, false);
  write_interface(function, name + "_cptr", true);
  std::cout << "  end interface\n";
}

/// MPI_Sizeof of each type that has numbers: a function of the library for each size.
void write_sizes() {
  std::cout << "  interface MPI_Sizeof\n";
  const std::vector<std::pair<std::string, std::vector<int>>> types = {{"integer", {1, 2, 4, 8, 16}},
                                                                       {"real", {4, 8, 10, 16}},
                                                                       {"complex", {4, 8, 10, 16}},
                                                                       {"logical", {1, 2, 4, 8, 16}},
                                                                       {"character", {1}}};
  for (const auto& [type, kinds] : types) {
    for (const int kind : kinds) {
      const std::string name = "APLIB_MPI_sizeof_" + type + std::to_string(kind);
      std::cout << "  subroutine " << name << "(x, size, ierror)\n    implicit none\n    " << type << "(kind=" << kind
                << "), dimension(..) :: x\n    integer, intent(out) :: size, ierror\n  end subroutine\n";
    }
  }
  std::cout << "  end interface\n";
}

void write_module(const FunctionTable& table, const std::vector<Constant>& constants) {
  std::cout << "! The module mpi of APlib: MPI-5.0 for gfortran.\n"
               "! Made by generate.cpp from functions.txt and constants.txt.\nmodule mpi\n  implicit none\n  public\n";
  write_constants(constants);
  for (const char* prefix : {"MPI_", "PMPI_"}) {
    std::cout << "  interface\n";
    for (const Function& function : table.functions) {
      if (has_fortran(function) && !function.result.empty()) write_result(function, prefix + function.name);
    }
    std::cout << "  end interface\n";
  }
  std::cout << "  interface\n  subroutine MPI_F_sync_reg(buf)\n    !GCC$ ATTRIBUTES NO_ARG_CHECK :: buf\n"
               "    type(*), dimension(*) :: buf\n  end subroutine\n  end interface\n";
  write_sizes();
  for (const Function& function : table.functions) {
    if (has_fortran(function) && function.result.empty()) write_interfaces(function);
  }
  std::cout << "end module\n";
}

}  // namespace

int main(int argc, char** argv) {
  const Words arguments(argv + 1, argv + argc);
  if (arguments.size() != 3) fail("usage", "generate functions|include|module|names functions.txt constants.txt");
  const FunctionTable table(arguments[1]);
  const std::vector<Constant> constants = read_constants(arguments[2]);
  if (arguments[0] == "functions") {
    write_functions(table);
  } else if (arguments[0] == "include") {
    write_include(constants);
  } else if (arguments[0] == "module") {
    write_module(table, constants);
  } else if (arguments[0] == "names") {
    write_names(table);
  } else {
    fail("usage", "there is no output " + arguments[0]);
  }
  return 0;
}
