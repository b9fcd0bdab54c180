// SPDX-License-Identifier: MIT
// The table of functions and the table of constants, as the programs of the build see them that make sources of them.
// functions.txt and constants.txt explain their own form.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace table {

using Words = std::vector<std::string>;

/// Says what is wrong with `place`, and ends the program.
[[noreturn]] void fail(const std::string& place, const std::string& text);
/// In small letters.
std::string lower(std::string text);

struct Kind {
  std::string name;
  std::string type;        // in C
  std::string large_type;  // in the _c double; empty: the same
  std::string rows;        // "[3]" of int[3]
  bool is_object = false;
  bool is_checked = false;
  bool is_const = false;
};

struct Parameter {
  const Kind* kind = nullptr;
  std::string name;
  std::string length;  // of an array, where the standard names it
  bool is_array = false;
  bool is_out = false;  // or inout
  bool is_inout = false;
  bool only_large = false;
  bool is_raw = false;
};

struct Function {
  std::string name;
  std::string implementation;
  std::string result;  // empty: an error code
  bool is_there = true;
  std::string when = "initialized";  // or "any_time", "pure"
  bool is_removed = false;
  bool differs_between_groups = false;  // on an intercommunicator
  bool is_of_one_group = false;         // an intercommunicator is wrong
  bool is_of_files = false;             // its errors go to MPI_FILE_NULL
  bool has_plain_way = false;
  bool is_later = false;    // its implementation is a blocking call, which goes on while the program does
  bool is_brief = false;    // and needs no stack of its own if its data are few
  bool is_tool = false;     // its errors are its result
  std::string only_result;  // it has no implementation, and always has this one
  std::vector<Parameter> parameters;
};

struct Constant {
  std::string type;
  std::string name;
  std::string value;
  std::string text;
  std::string title;  // of the section that it begins
};

class FunctionTable {
 public:
  explicit FunctionTable(const std::string& path);
  FunctionTable(const FunctionTable&) = delete;
  FunctionTable& operator=(const FunctionTable&) = delete;

  std::vector<Function> functions;

 private:
  void add_kind(const std::string& place, const std::string& line);
  void add_function(const std::string& place, const std::string& line);
  [[nodiscard]] Parameter parameter(const std::string& place, const std::string& text) const;

  std::map<std::string, Kind> kinds_;
};

std::vector<Constant> read_constants(const std::string& path);

/// It has a _c double.
bool is_large(const Function& function);
/// In C; of an array, that of an element.
const std::string& type_of(const Parameter& parameter, bool large);
/// A pointer already, so that a place for one needs no star more.
bool is_pointer(const std::string& type);
/// "const void* buf"
std::string declaration(const Parameter& parameter, bool large);
/// "int MPI_Send(const void* buf, ...)", without a semicolon.
std::string prototype(const std::string& prefix, const Function& function, bool large);

}  // namespace table
