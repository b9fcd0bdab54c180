// SPDX-License-Identifier: MIT
#include "raw_peer.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <utility>

namespace aplib::comm::test {
namespace {

bool readable(int socket) {
  pollfd one{socket, POLLIN, 0};
  return ::poll(&one, 1, -1) == 1;
}

}  // namespace

os::UniqueFd connect_to(const shm::Endpoint& endpoint) {
  os::UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const shm::LocalAddress address = endpoint.address();
  if (!socket || ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address.name), address.bytes) != 0)
    return {};
  return socket;
}

bool RawPeer::greet(const shm::Endpoint& whom, Peer peer, const std::string& machine) {
  connection_.socket = connect_to(whom);
  if (!connection_.socket) return false;
  Greeting greeting(Greeting::Role::caller, key_,
                    {.purpose = Purpose::data, .self = self_, .peer = peer, .machine = machine});
  while (true) {
    const std::vector<std::byte> out = greeting.take_output();
    if (!out.empty() && ::send(socket(), out.data(), out.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(out.size()))
      return false;
    if (greeting.state() != Greeting::State::going) return greeting.state() == Greeting::State::done;
    std::array<std::byte, Greeting::bytes_max> in;
    readable(socket());
    const ssize_t bytes = ::recv(socket(), in.data(), greeting.wants(), 0);
    if (bytes <= 0) return false;
    greeting.receive(std::span(in).first(static_cast<std::size_t>(bytes)));
  }
}

bool RawPeer::take() {
  std::string why;
  readable(socket());
  return shm::take(socket(), connection_, why) == shm::Given::taken;
}

bool RawPeer::give() {
  connection_.mine = shm::SharedMemory::make(sizeof(shm::Segment));
  return shm::give(socket(), shm::Verdict::taken, &connection_.mine, bell_);
}

bool RawPeer::give(std::span<const std::byte> bytes, const std::vector<int>& descriptors) {
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  std::vector<std::byte> control(CMSG_SPACE(descriptors.size() * sizeof(int)));
  if (!descriptors.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* const head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
    std::memcpy(CMSG_DATA(head), descriptors.data(), descriptors.size() * sizeof(int));
  }
  return ::sendmsg(socket(), &message, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
}

bool RawPeer::sees_the_end() const {
  std::array<std::byte, 256> ignored;
  while (true) {
    readable(socket());
    if (::recv(socket(), ignored.data(), ignored.size(), 0) <= 0) return true;
  }
}

void RawPeer::put(std::uint32_t position, std::uint32_t what, std::span<const std::byte> body) {
  shm::Entry& entry = segment().entries[position % shm::entry_count];
  entry.what = what;
  if (!body.empty()) std::memcpy(entry.body, body.data(), body.size());
  entry.turn.store(position + 1, std::memory_order_release);
}

}  // namespace aplib::comm::test
