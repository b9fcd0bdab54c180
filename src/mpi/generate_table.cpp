// SPDX-License-Identifier: MIT
#include "generate_table.hpp"

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>
#include <utility>

namespace table {

void fail(const std::string& place, const std::string& text) {
  std::cerr << "generate: " << place << ": " << text << '\n';
  std::exit(1);
}

std::string lower(std::string text) {
  for (char& letter : text) {
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  }
  return text;
}

namespace {

std::string trimmed(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

Words split(const std::string& text, char at) {
  Words words;
  std::istringstream stream(text);
  for (std::string word; std::getline(stream, word, at);) {
    if (!trimmed(word).empty()) words.push_back(trimmed(word));
  }
  return words;
}

/// Lines without comments, each joined with those that continue it (they are indented), and its place.
std::vector<std::pair<std::string, std::string>> read_lines(const std::string& path) {
  std::ifstream file(path);
  if (!file) fail(path, "cannot be read");
  std::vector<std::pair<std::string, std::string>> lines;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (line.empty() || line[0] == '#') continue;
    if (line[0] == ' ' && !lines.empty()) {
      lines.back().second += " " + trimmed(line);
    } else {
      lines.emplace_back(path + ":" + std::to_string(number), line);
    }
  }
  return lines;
}

}  // namespace

FunctionTable::FunctionTable(const std::string& path) {
  for (const auto& [place, line] : read_lines(path)) {
    if (line.rfind("kind ", 0) == 0) {
      add_kind(place, line.substr(5));
    } else {
      add_function(place, line);
    }
  }
}

void FunctionTable::add_kind(const std::string& place, const std::string& line) {
  Kind kind;
  Words words = split(line, ' ');
  if (words.size() < 2) fail(place, "a kind is: kind NAME TYPE [| TYPE] [words]");
  kind.name = words[0];
  kind.type = words[1];
  std::size_t next = 2;
  if (next + 1 < words.size() && words[next] == "|") {
    kind.large_type = words[next + 1];
    next += 2;
  }
  for (; next < words.size(); ++next) {
    if (words[next] == "object") {
      kind.is_object = true;
    } else if (words[next] == "check") {
      kind.is_checked = true;
    } else if (words[next] == "const") {
      kind.is_const = true;
    } else {
      fail(place, "a kind has no word " + words[next]);
    }
  }
  if (const std::size_t at = kind.type.find('['); at != std::string::npos) {
    kind.rows = kind.type.substr(at);
    kind.type.resize(at);
  }
  const std::string name = kind.name;
  if (!kinds_.emplace(name, std::move(kind)).second) fail(place, "the kind " + name + " stands here twice");
}

void FunctionTable::add_function(const std::string& place, const std::string& line) {
  const std::size_t colon = line.find(':');
  if (colon == std::string::npos) fail(place, "a function is: [-] NAME [words]: parameters");
  Words words = split(line.substr(0, colon), ' ');
  Function function;
  if (!words.empty() && words[0] == "-") {
    function.is_there = false;
    words.erase(words.begin());
  }
  if (words.empty()) fail(place, "the function has no name");
  function.name = words[0];
  function.implementation = lower(function.name);
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (words[i] == "as" && i + 1 < words.size()) {
      function.implementation = words[++i];
    } else if (words[i] == "->" && i + 1 < words.size()) {
      function.result = words[++i];
    } else if (words[i] == "any") {
      function.when = "any_time";
    } else if (words[i] == "pure" || words[i] == "anywhere") {
      function.when = words[i];
    } else if (words[i] == "inter") {
      function.differs_between_groups = true;
    } else if (words[i] == "intra") {
      function.is_of_one_group = true;
    } else if (words[i] == "files") {
      function.is_of_files = true;
    } else if (words[i] == "plain") {
      function.has_plain_way = true;
    } else if (words[i] == "later" && i + 1 < words.size()) {
      function.is_later = true;
      function.implementation = words[++i];
    } else if (words[i] == "tool") {
      function.is_tool = true;
      function.when = "any_time";
    } else if (words[i] == "none" && i + 1 < words.size()) {
      function.is_tool = true;
      function.only_result = "MPI_T_ERR_" + words[++i];
    } else if (words[i] == "brief") {
      function.is_brief = true;
    } else if (words[i] == "removed" || words[i] == "deprecated") {
      function.is_removed = true;
    } else {
      fail(place, "a function has no word " + words[i]);
    }
  }
  for (const std::string& text : split(line.substr(colon + 1), ',')) {
    function.parameters.push_back(parameter(place, text));
  }
  functions.push_back(std::move(function));
}

Parameter FunctionTable::parameter(const std::string& place, const std::string& text) const {
  Parameter result;
  Words words = split(text, ' ');
  for (; !words.empty() && kinds_.count(words[0]) == 0; words.erase(words.begin())) {
    if (words[0] == "out" || words[0] == "inout") {
      result.is_out = true;
      result.is_inout = words[0] == "inout";
    } else if (words[0] == "large") {
      result.only_large = true;
    } else if (words[0] == "at_root" || words[0] == "raw") {
      result.is_raw = true;
    } else {
      fail(place, "there is no kind " + words[0]);
    }
  }
  if (words.empty()) fail(place, "the parameter \"" + text + "\" has no kind");
  result.kind = &kinds_.at(words[0]);
  result.name = words.size() > 1 ? words[1] : "";
  if (const std::size_t at = result.name.find('['); at != std::string::npos) {
    result.is_array = true;
    result.length = result.name.substr(at + 1, result.name.size() - at - 2);
    result.name.resize(at);
  }
  return result;
}

std::vector<Constant> read_constants(const std::string& path) {
  std::vector<Constant> constants;
  std::string type;
  std::string title;
  for (const auto& [place, line] : read_lines(path)) {
    if (line[0] == '[') {
      const std::size_t end = line.find(']');
      if (end == std::string::npos) fail(place, "a section is: [what] title");
      type = line.substr(1, end - 1);
      title = trimmed(line.substr(end + 1));
      continue;
    }
    std::istringstream words(line);
    Constant constant{type, "", "", "", title};
    words >> constant.name >> constant.value;
    std::getline(words, constant.text);
    constant.text = trimmed(constant.text);
    if (type.empty() || constant.value.empty()) fail(place, "a constant is: NAME value, in a section");
    constants.push_back(constant);
    title.clear();
  }
  return constants;
}

bool is_large(const Function& function) {
  if (function.is_removed) return false;
  for (const Parameter& parameter : function.parameters) {
    if (!parameter.kind->large_type.empty()) return true;
  }
  return false;
}

const std::string& type_of(const Parameter& parameter, bool large) {
  return large && !parameter.kind->large_type.empty() ? parameter.kind->large_type : parameter.kind->type;
}

bool is_pointer(const std::string& type) { return type.back() == '*'; }

std::string declaration(const Parameter& parameter, bool large) {
  std::string type = type_of(parameter, large);
  if (type == "...") return type;
  std::string suffix;
  if (is_pointer(type)) {
    if (parameter.kind->is_const && !parameter.is_out) type = "const " + type;
  } else if (parameter.is_array) {
    suffix = "[]" + parameter.kind->rows;
    if (!parameter.is_out && parameter.kind->rows.empty()) type = "const " + type;
  } else if (parameter.is_out) {
    type += "*";
  }
  return type + " " + parameter.name + suffix;
}

std::string prototype(const std::string& prefix, const Function& function, bool large) {
  std::string text =
      (function.result.empty() ? "int" : function.result) + " " + prefix + function.name + (large ? "_c" : "") + "(";
  bool first = true;
  for (const Parameter& parameter : function.parameters) {
    if (parameter.only_large && !large) continue;
    text += (first ? "" : ", ") + declaration(parameter, large);
    first = false;
  }
  return text + (first ? "void)" : ")");
}

}  // namespace table
