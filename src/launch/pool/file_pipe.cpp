// SPDX-License-Identifier: MIT
#include "launch/pool/file_pipe.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "aplib/error.hpp"

namespace aplib::launch::pool {

namespace {

constexpr const char* cut_off = "the connection was cut off before all files were there; the same command goes on";

wire::Bytes next_of(files::Sender& sender) { return sender.next(); }
wire::Bytes next_of(files::Receiver& receiver) { return receiver.reply(); }

/// What one end has to say, and the other has not taken yet.
struct Unsent {
  wire::Bytes bytes{};
  std::size_t at = 0;
};

/// False: nobody reads it any more.
template <class End>
bool speak(End& end, Unsent& unsent, int writer) {
  for (;;) {
    if (unsent.at == unsent.bytes.size()) {
      unsent.bytes = next_of(end);
      unsent.at = 0;
      if (unsent.bytes.empty()) return true;
    }
    const ssize_t written = ::write(writer, unsent.bytes.data() + unsent.at, unsent.bytes.size() - unsent.at);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno == EAGAIN;
    unsent.at += static_cast<std::size_t>(written);
  }
}

/// False: nothing comes any more.
template <class End>
bool listen(End& end, int reader) {
  std::array<std::byte, 65536> piece;
  for (;;) {
    const ssize_t got = ::read(reader, piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno == EAGAIN;
    if (got == 0) return false;
    end.take(std::span(piece).first(static_cast<std::size_t>(got)));
    if (static_cast<std::size_t>(got) < piece.size()) return true;
  }
}

template <class End>
std::vector<std::string> carry_end(End& end, const os::Ends& ends) {
  const int reader = ends.reader.get();
  const int writer = ends.writer.get();
  for (const int fd : {reader, writer}) ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
  Unsent unsent;
  bool hears = true;
  bool is_heard = speak(end, unsent, writer);
  while (is_heard && (!end.ended() || unsent.at < unsent.bytes.size()) && (hears || end.ended())) {
    const bool waits = unsent.at < unsent.bytes.size();
    std::array<pollfd, 2> fds{{{hears ? reader : -1, POLLIN, 0}, {waits ? writer : -1, POLLOUT, 0}}};
    if (::poll(fds.data(), fds.size(), -1) < 0 && errno != EINTR) break;
    if (hears && fds[0].revents != 0) hears = listen(end, reader);
    is_heard = speak(end, unsent, writer);
  }
  std::vector<std::string> problems = end.outcome().problems;
  if (end.outcome().more_problems != 0)
    problems.push_back(fmt::format("and {} more files", end.outcome().more_problems));
  if (!end.ended() && problems.empty()) problems.emplace_back(cut_off);
  return problems;
}

}  // namespace

std::vector<std::string> carry(files::Sender& sender, const os::Ends& ends) { return carry_end(sender, ends); }

std::vector<std::string> carry(files::Receiver& receiver, const os::Ends& ends) { return carry_end(receiver, ends); }

}  // namespace aplib::launch::pool
