// SPDX-License-Identifier: MIT
#include "launch/terminal.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <boost/system/system_error.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <new>
#include <system_error>
#include <utility>

#include "aplib/error.hpp"
#include "base/os/descriptor.hpp"
#include "base/os/thread.hpp"
#include "base/text.hpp"

namespace aplib::launch {
namespace {

int not_written(std::string_view who, int error) {
  tell_user(who, fmt::format("cannot write standard output: {}", std::strerror(error)));
  return static_cast<int>(ExitStatus::program_failed);
}

}  // namespace

int write_all(int descriptor, std::string_view bytes) noexcept {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EAGAIN) {
      pollfd wait{.fd = descriptor, .events = POLLOUT, .revents = 0};
      ::poll(&wait, 1, -1);
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

void open_standard_streams() noexcept {
  for (int descriptor = 0; descriptor <= STDERR_FILENO; ++descriptor) {
    if (::fcntl(descriptor, F_GETFD) >= 0 || errno != EBADF) continue;
    // The lowest free number is this one, because those below are open. exec keeps it, as it keeps standard streams.
    if (::open("/dev/null", O_RDWR) != descriptor) return;  // NOLINT(android-cloexec-open)
  }
}

namespace {

/// `kept`: control characters that stay.
std::string spelled(std::string_view text, std::string_view kept) {
  std::string result;
  result.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto code = static_cast<unsigned char>(text[i]);
    const bool plain = (code >= ' ' && code != 0x7f) || kept.find(text[i]) != kept.npos;
    // Terminals take 0x80 to 0x9f for control characters, too; in UTF-8 they stand behind 0xc2.
    const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0U;
    if (code == '\n' && !plain) {
      result += "\\n";
    } else if (!plain || (code == 0xc2 && next >= 0x80 && next < 0xa0)) {
      result += fmt::format("\\x{:02x}", code);
      if (plain) result += fmt::format("\\x{:02x}", static_cast<unsigned>(text[++i]) & 0xffU);
    } else {
      result += text[i];
    }
  }
  return result;
}

}  // namespace

std::string printable(std::string_view text) { return spelled(text, "\n\t"); }

std::string one_line(std::string_view text) { return spelled(text, ""); }

std::string table(const std::vector<TableRow>& rows) {
  std::vector<std::size_t> widths(rows.front().size(), 0);
  for (const TableRow& row : rows) {
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], one_line(row[c]).size());
  }
  std::string text;
  for (const TableRow& row : rows) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c) {
      if (widths[c] > 0) line += fmt::format("{:{}}  ", one_line(row[c]), widths[c]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

std::string failure_text(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return no_memory_text;
  // Asio names the call alone that has failed, as "epoll", and the standard library says no more than the reason.
  if (const auto* const asios = dynamic_cast<const boost::system::system_error*>(&error)) {
    const boost::system::error_code& code = asios->code();
    const bool is_systems = code.category() == boost::system::system_category();
    return "cannot wait for events: " + (is_systems ? os::text_of(code.value()) : code.message());
  }
  const auto* const own = dynamic_cast<const std::system_error*>(&error);
  if (own == nullptr || own->code() != std::errc::resource_unavailable_try_again) return error.what();
  return "cannot start a thread: " + own->code().message() + os::thread_remedy;
}

std::string unknown_option(const CLI::App& options, std::string_view word) {
  std::vector<std::string_view> names;
  for (const CLI::Option* option : options.get_options()) {
    if (option->get_group().empty()) continue;  // not for people
    names.insert(names.end(), option->get_lnames().begin(), option->get_lnames().end());
    names.insert(names.end(), option->get_snames().begin(), option->get_snames().end());
  }
  std::string_view name = word.substr(0, word.find('='));
  name.remove_prefix(std::min(name.find_first_not_of('-'), name.size()));
  const auto meant = text::nearest(name, names);
  return fmt::format("unknown option {}{}", word,
                     meant ? fmt::format("; did you mean {}{}?", meant->size() == 1 ? "-" : "--", *meant) : "");
}

void tell_user(std::string_view who, std::string_view text) {
  static_cast<void>(write_all(STDERR_FILENO, printable(fmt::format("{}{}{}\n", who, who.empty() ? "" : ": ", text))));
}

WaitNote::WaitNote(std::string who, std::string text) {
  if (who.empty() || text.empty()) return;
  thread_ = os::quiet_thread("ap-wait-note", [this, who = std::move(who), text = std::move(text)] {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::seconds(2), [this] { return over_; })) tell_user(who, text);
  });
}

WaitNote::~WaitNote() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

std::string wait_text(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_fifo(path, ignored)
             ? fmt::format("waits for what comes from {}, a pipe, until its writers close it", path)
             : "";
}

int print(std::string_view who, std::string_view text) {
  std::cout.flush();
  const int error = write_all(STDOUT_FILENO, text);
  return error == 0 ? 0 : not_written(who, error);
}

int finish_output(std::string_view who) {
  std::cout.flush();
  if (std::cout.good()) return 0;
  // The stream has forgotten the cause. The system says it again.
  const int error = write_all(STDOUT_FILENO, "\n");
  return not_written(who, error == 0 ? EIO : error);
}

}  // namespace aplib::launch
