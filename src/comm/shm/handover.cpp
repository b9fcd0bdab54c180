// SPDX-License-Identifier: MIT
#include "comm/shm/handover.hpp"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

namespace aplib::comm::shm {
namespace {

struct Paper {
  std::uint32_t magic = 0;
  std::uint8_t version = 0;
  std::uint8_t verdict = 0;
  std::uint8_t has_barrier = 0;
  std::uint8_t reserved = 0;
  std::uint32_t segment_bytes = 0;
  std::uint32_t board_bytes = 0;
};
constexpr std::uint32_t magic = 0x6d687361;
constexpr std::uint8_t version = 1;
constexpr std::size_t descriptors = 3;  // segment, board, bell

union Control {
  cmsghdr align;
  char bytes[CMSG_SPACE(descriptors * sizeof(int))];
};

/// Else a write to it might block.
bool is_eventfd(int descriptor) {
  std::array<char, 64> target{};
  const std::string path = "/proc/self/fd/" + std::to_string(descriptor);
  const ssize_t bytes = ::readlink(path.c_str(), target.data(), target.size());
  return bytes > 0 && std::string_view(target.data(), static_cast<std::size_t>(bytes)) == "anon_inode:[eventfd]";
}

}  // namespace

bool give(int socket, Verdict verdict, const SharedMemory* mine, const Bell& bell) noexcept {
  Paper paper{magic,
              version,
              static_cast<std::uint8_t>(verdict),
              static_cast<std::uint8_t>(bell.has_barrier() ? 1 : 0),
              0,
              sizeof(Segment),
              sizeof(Board)};
  iovec part{&paper, sizeof paper};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  Control control{};
  if (mine != nullptr) {
    const std::array<int, descriptors> numbers{mine->descriptor(), bell.board_memory().descriptor(), bell.descriptor()};
    message.msg_control = control.bytes;
    message.msg_controllen = sizeof control.bytes;
    cmsghdr* const head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof numbers);
    std::memcpy(CMSG_DATA(head), numbers.data(), sizeof numbers);
  }
  return ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(sizeof paper);
}

Given take(int socket, const Bell& bell, Connection& connection, std::string& why) {
  Paper paper;
  iovec part{&paper, sizeof paper};
  Control control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  const ssize_t bytes = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return Given::nothing_yet;
  std::array<os::UniqueFd, descriptors> got;
  std::size_t count = 0;
  for (cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr; head = CMSG_NXTHDR(&message, head)) {
    if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
    for (std::size_t i = 0; CMSG_LEN((i + 1) * sizeof(int)) <= head->cmsg_len; ++i) {
      int number = -1;
      std::memcpy(&number, CMSG_DATA(head) + i * sizeof(int), sizeof number);
      os::UniqueFd owned(number);
      if (count < descriptors) got[count++] = std::move(owned);
    }
  }
  if (bytes <= 0) {
    why = "its process has ended";
    return Given::wrong;
  }
  if (bytes != static_cast<ssize_t>(sizeof paper) || paper.magic != magic || paper.version != version) {
    why = "it does not follow the protocol: the installations differ";
    return Given::wrong;
  }
  if (paper.verdict == static_cast<std::uint8_t>(Verdict::not_now)) return Given::not_now;
  if (paper.verdict != static_cast<std::uint8_t>(Verdict::taken) || paper.segment_bytes != sizeof(Segment) ||
      paper.board_bytes != sizeof(Board)) {
    why = "its shared memory is of another form: the installations differ";
    return Given::wrong;
  }
  if (count != descriptors) {
    why = "it gave no shared memory; is the limit of open files (ulimit -n) too low?";
    return Given::wrong;
  }
  if (!is_eventfd(got[2].get())) {
    why = "it does not follow the protocol: its bell is none";
    return Given::wrong;
  }
  auto segment = SharedMemory::open(got[0], sizeof(Segment), why);
  if (!segment) return Given::wrong;
  auto board = SharedMemory::open(got[1], sizeof(Board), why);
  if (!board) return Given::wrong;
  connection.theirs = std::move(*segment);
  connection.board = std::move(*board);
  connection.bell = std::move(got[2]);
  connection.light_fences = bell.has_barrier() && paper.has_barrier != 0;
  return Given::taken;
}

}  // namespace aplib::comm::shm
