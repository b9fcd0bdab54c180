// SPDX-License-Identifier: MIT
#include "farm/apfarm/joblog.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>

#include "aplib/error.hpp"

namespace aplib::farm {
namespace {

constexpr std::string_view title = "Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\tCommand\n";

[[noreturn]] void refuse(const std::string& file, const char* what) {
  throw Error(Errc::failed, fmt::format("--joblog {}: cannot {} it: {}", file, what, os::text_of(errno)));
}

template <class Number>
bool parse(std::string_view text, Number& number) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

std::optional<JobRecord> parse_line(std::string_view line) {
  std::array<std::string_view, 9> fields;
  for (std::size_t i = 0; i < 8; ++i) {
    const std::size_t tab = line.find('\t');
    if (tab == std::string_view::npos) return std::nullopt;
    fields[i] = line.substr(0, tab);
    line.remove_prefix(tab + 1);
  }
  JobRecord record;
  record.command = line;
  for (char& c : record.command) c = c == '\0' ? '\n' : c;
  if (!parse(fields[0], record.sequence) || !parse(fields[2], record.start) || !parse(fields[3], record.runtime) ||
      !parse(fields[6], record.exit_value) || !parse(fields[7], record.signal))
    return std::nullopt;
  return record;
}

std::string text_of(int descriptor, const std::string& file) {
  std::string text;
  std::array<char, 65536> bytes;
  for (;;) {
    const ssize_t count = ::read(descriptor, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) refuse(file, "read");
    if (count == 0) return text;
    text.append(bytes.data(), static_cast<std::size_t>(count));
  }
}

}  // namespace

Joblog::Joblog(const std::string& file, bool resume, bool writes) : file_(file.substr(file.starts_with('+') ? 1 : 0)) {
  const bool appends = file.starts_with('+');
  const int flags = writes ? O_RDWR | O_CREAT | O_APPEND | (resume || appends ? 0 : O_TRUNC) : O_RDONLY;
  descriptor_ = os::UniqueFd(::open(file_.c_str(), flags | O_CLOEXEC, 0666));
  if (!descriptor_ && !writes && errno == ENOENT) return;  // as an empty one
  if (!descriptor_) refuse(file, "open");
  struct stat status {};  // to read a pipe or terminal that lines are appended to would wait for ever
  const bool reads = resume || (appends && ::fstat(descriptor_.get(), &status) == 0 && S_ISREG(status.st_mode));
  const std::string text = reads ? text_of(descriptor_.get(), file) : "";
  const std::size_t whole = text.rfind('\n') + 1;  // 0 when there is none
  // First, because a file that is no joblog stays as it is.
  read_past(whole == 0 && !title.starts_with(text) ? text + '\n' : text.substr(0, whole));
  if (!writes) return;
  // A pipe or device cannot be cut, and had nothing.
  if (whole != text.size() && ::ftruncate(descriptor_.get(), static_cast<off_t>(whole)) != 0) refuse(file, "cut");
  if (whole == 0 && !os::write_all(descriptor_.get(), title)) refuse(file, "write");
}

void Joblog::read_past(const std::string& text) {
  std::size_t number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    const std::string_view line(text.data() + begin, end - begin);
    begin = end + 1;
    if (++number == 1 && text.starts_with(title)) continue;
    auto record = parse_line(line);  // what GNU Parallel appends to a new file has no title
    if (!record) {
      throw Error(Errc::bad_option, fmt::format("--joblog {}: line {} is none of a joblog: \"{}\"; name another file",
                                                file_, number, line.substr(0, 80)));
    }
    past_[record->sequence] = *std::move(record);
  }
}

void Joblog::add(const JobRecord& record) {
  std::string command = record.command;
  for (char& c : command) c = c == '\n' ? '\0' : c;  // a line for each job
  lines_ += fmt::format("{}\t{}\t{:.3f}\t{:10.3f}\t{}\t{}\t{}\t{}\t{}\n", record.sequence, record.host, record.start,
                        record.runtime, record.sent, record.received, record.exit_value, record.signal, command);
}

void Joblog::flush() {
  if (lines_.empty()) return;
  if (!os::write_all(descriptor_.get(), lines_)) refuse(file_, "write");
  lines_.clear();
}

}  // namespace aplib::farm
