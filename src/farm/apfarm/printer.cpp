// SPDX-License-Identifier: MIT
#include "farm/apfarm/printer.hpp"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstddef>

#include "base/os/descriptor.hpp"
#include "base/text.hpp"

namespace aplib::farm {
namespace {

constexpr std::size_t buffer_bytes = 65536;

}  // namespace

std::uint64_t bytes_of_file(int file) noexcept {
  struct stat status {};
  return file >= 0 && ::fstat(file, &status) == 0 ? static_cast<std::uint64_t>(status.st_size) : 0;
}

bool copy_file(int from, int to) noexcept {
  std::array<char, buffer_bytes> bytes;
  for (off_t place = 0; from >= 0;) {
    const ssize_t count = ::pread(from, bytes.data(), bytes.size(), place);
    if (count <= 0) return count == 0;
    if (!os::write_all(to, std::string_view(bytes.data(), static_cast<std::size_t>(count)))) return false;
    place += count;
  }
  return true;
}

Printer::Printer(int signals) : signals_(signals) {
  struct stat status {};
  output_is_file_ = ::fstat(STDOUT_FILENO, &status) == 0 && S_ISREG(status.st_mode);
}

bool Printer::write(int stream, std::string_view text) {
  const bool waits = stream != STDOUT_FILENO || !output_is_file_;
  while (!text.empty()) {
    if (waits) {
      std::array<pollfd, 2> ready{pollfd{stream, POLLOUT, 0}, pollfd{signals_, POLLIN, 0}};
      if (::poll(ready.data(), ready.size(), -1) < 0 && errno != EINTR) return false;
      // The signal ends the session, and its output with it.
      if (ready[0].revents == 0 && ready[1].revents != 0) return false;
      if (ready[0].revents == 0) continue;
    }
    // A pipe that polls as writable takes that much without a wait.
    const std::size_t count = waits ? std::min<std::size_t>(text.size(), PIPE_BUF) : text.size();
    const ssize_t written = ::write(stream, text.data(), count);
    if (written < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (written < 0) {
      if (problem_ == 0 && stream == STDOUT_FILENO) problem_ = errno;
      return false;
    }
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

void Printer::print(std::string_view text) {
  buffer_ += text;
  if (buffer_.size() >= buffer_bytes) flush();
}

bool Printer::flush() {
  const bool written = buffer_.empty() || write(STDOUT_FILENO, buffer_);
  buffer_.clear();
  return written && problem_ == 0;
}

void Printer::print_file(int file, int stream, std::string_view tag) {
  std::array<char, buffer_bytes> bytes;
  bool begins = true;
  off_t place = 0;
  if (stream != STDOUT_FILENO && bytes_of_file(file) != 0) flush();
  for (;;) {
    const ssize_t count = ::pread(file, bytes.data(), bytes.size(), place);
    if (count <= 0) return;
    place += count;
    std::string_view rest(bytes.data(), static_cast<std::size_t>(count));
    std::string tagged;
    while (!tag.empty() && !rest.empty()) {
      if (begins) tagged += tag;
      const std::string_view line = rest.substr(0, std::min(rest.find('\n'), rest.size() - 1) + 1);
      tagged += line;
      begins = line.back() == '\n';
      rest.remove_prefix(line.size());
    }
    const std::string_view text = tag.empty() ? rest : tagged;
    if (stream == STDOUT_FILENO) {
      print(text);
    } else if (!write(stream, text)) {
      return;
    }
  }
}

void Printer::print_json_file(int file) {
  std::array<char, buffer_bytes> bytes;
  std::string rest;  // of the last piece: the beginning of a character
  off_t place = 0;
  for (;;) {
    const ssize_t count = ::pread(file, bytes.data(), bytes.size(), place);
    if (count <= 0) return print(text::json_text(rest));
    place += count;
    rest.append(bytes.data(), static_cast<std::size_t>(count));
    std::size_t keep = 0;
    while (keep < 3 && keep < rest.size() && (static_cast<unsigned char>(rest[rest.size() - 1 - keep]) & 0xc0U) == 0x80)
      ++keep;
    keep = keep < rest.size() && static_cast<unsigned char>(rest[rest.size() - 1 - keep]) >= 0xc0 ? keep + 1 : 0;
    print(text::json_text(std::string_view(rest).substr(0, rest.size() - keep)));
    rest.erase(0, rest.size() - keep);
  }
}

}  // namespace aplib::farm
