// SPDX-License-Identifier: MIT
#include "setup.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <pugixml.hpp>
#include <string_view>

#include "aplib/error.hpp"

namespace apbench::farm {
namespace {

constexpr std::size_t file_bytes_max = std::size_t{64} << 20;
constexpr double kb_max = 1e6;       // a message of the farm takes 2^30 bytes
constexpr double seconds_max = 1e6;  // of a task
constexpr std::string_view blanks = " \t\r\n\v\f";

[[noreturn]] void refuse(const std::string& text) { throw aplib::Error(aplib::Errc::bad_option, text); }

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(blanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

/// What a message shows of a file: one line, short, printable.
std::string shown(std::string_view text) {
  constexpr std::size_t length_max = 60;
  std::string line(trimmed(text).substr(0, length_max));
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < ' ' || c == 127) c = ' ';
  }
  return trimmed(text).size() > length_max ? line + "..." : line;
}

std::string content_of(const std::string& path, std::string_view what) {
  std::ifstream file(path, std::ios::binary);
  std::string text;
  if (file) {
    std::string piece(std::size_t{64} << 10, '\0');
    while (text.size() <= file_bytes_max &&
           (file.read(piece.data(), static_cast<std::streamsize>(piece.size())) || file.gcount() > 0)) {
      text.append(piece, 0, static_cast<std::size_t>(file.gcount()));
    }
    if (text.size() > file_bytes_max)
      refuse(fmt::format("{}: longer than {} MiB; is it {}?", path, file_bytes_max >> 20, what));
    if (file.eof()) return text;
  }
  refuse(fmt::format("{}: cannot be read: {}; it should be {}", path, std::strerror(errno), what));
}

/// The whole of `text` as a number; NaN if it is none.
double number_in(std::string_view text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  return error == std::errc{} && rest == end && std::isfinite(value) ? value : std::nan("");
}

/// The elements of a setup file, each there once.
class Elements {
 public:
  explicit Elements(const std::string& path) : path_(path), text_(content_of(path, "the benchmark's XML file")) {
    const pugi::xml_parse_result result = document_.load_buffer(text_.data(), text_.size());
    if (!result)
      refuse(fmt::format("{}: no XML: {}, at \"{}\"; close each element by its own name", place(result.offset),
                         result.description(), shown(line_at(result.offset))));
    root_ = document_.document_element();
    if (std::string_view(root_.name()) != "BenchmarkSetup")
      refuse(fmt::format("{}: the outer element is <{}>; the benchmark's is <BenchmarkSetup>",
                         place(root_.offset_debug()), shown(root_.name())));
  }

  [[nodiscard]] std::string text(const char* name) const { return std::string(trimmed(element(name).child_value())); }

  [[nodiscard]] double number(const char* name, bool whole, double low, double high) const {
    const double value = number_in(text(name));
    if (value >= low && value <= high && (!whole || value == std::floor(value))) return value;
    refuse(fmt::format("{}: {} is \"{}\"; write a {}number from {} to {}", place_of(name), name, shown(text(name)),
                       whole ? "whole " : "", low, high));
  }

  [[nodiscard]] std::string place_of(const char* name) const { return place(element(name).offset_debug()); }

 private:
  [[nodiscard]] pugi::xml_node element(const char* name) const {
    const pugi::xml_node found = root_.child(name);
    if (!found)
      refuse(
          fmt::format("{}: <BenchmarkSetup> has no <{}>; the benchmark needs NTasks, NNodes, InputFile, "
                      "TaskDataSize, SharedDataSize and WriteDataSize",
                      place(root_.offset_debug()), name));
    if (const pugi::xml_node second = found.next_sibling(name))
      refuse(fmt::format("{}: a second <{}>; leave one", place(second.offset_debug()), name));
    return found;
  }

  [[nodiscard]] std::size_t offset_in_text(std::ptrdiff_t offset) const {
    return std::min(static_cast<std::size_t>(std::max<std::ptrdiff_t>(offset, 0)), text_.size());
  }
  [[nodiscard]] std::string place(std::ptrdiff_t offset) const {
    const auto end = text_.begin() + static_cast<std::ptrdiff_t>(offset_in_text(offset));
    return fmt::format("{}:{}", path_, 1 + std::count(text_.begin(), end, '\n'));
  }
  [[nodiscard]] std::string_view line_at(std::ptrdiff_t offset) const {
    const std::size_t at = offset_in_text(offset);
    const std::size_t begin = at == 0 ? 0 : text_.rfind('\n', at - 1) + 1;  // npos + 1 is 0
    return std::string_view(text_).substr(begin, text_.find('\n', at) - begin);
  }

  std::string path_;
  std::string text_;
  pugi::xml_document document_;
  pugi::xml_node root_;
};

/// The first `count` times. More are not asked for, and not looked at.
std::vector<double> read_times(const std::string& path, std::uint64_t count, const std::string& asked_by) {
  const std::string text = content_of(path, "the file of times that InputFile names");
  std::vector<double> times;
  std::size_t line = 1;
  for (std::size_t begin = 0; begin < text.size() && times.size() < count; ++line) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view what = trimmed(std::string_view(text).substr(begin, end - begin));
    begin = end + 1;
    if (what.empty() || what.front() == '#') continue;
    const double seconds = number_in(what);
    if (!(seconds >= 0 && seconds <= seconds_max))
      refuse(fmt::format("{}:{}: \"{}\" is no time; write the seconds of one task, from 0 to {}, or # and a comment",
                         path, line, shown(what), seconds_max));
    times.push_back(seconds);
  }
  if (times.size() < count)
    refuse(fmt::format("{}:{}: it ends after {} times, and {} asks for {}; add a line for each task, or lower NTasks",
                       path, line, times.size(), asked_by, count));
  return times;
}

}  // namespace

Setup read_setup(const std::string& path) {
  const Elements elements(path);
  Setup setup;
  setup.tasks = static_cast<std::uint64_t>(elements.number("NTasks", true, 1, tasks_max));
  setup.nodes = static_cast<unsigned>(elements.number("NNodes", true, 1, nodes_max));
  setup.input_file = elements.text("InputFile");
  if (setup.input_file.empty())
    refuse(fmt::format("{}: InputFile is empty; name a file with the seconds of each task, one a line",
                       elements.place_of("InputFile")));
  setup.task_kb = elements.number("TaskDataSize", false, 0, kb_max);
  setup.shared_kb = elements.number("SharedDataSize", false, 0, kb_max);
  setup.write_kb = elements.number("WriteDataSize", false, 0, kb_max);
  const std::filesystem::path times = std::filesystem::path(path).parent_path() / setup.input_file;
  setup.sleeps = read_times(times.string(), setup.tasks, "NTasks in " + elements.place_of("NTasks"));
  return setup;
}

}  // namespace apbench::farm
