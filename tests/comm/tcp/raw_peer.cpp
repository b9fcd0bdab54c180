// SPDX-License-Identifier: MIT
#include "raw_peer.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <stdexcept>
#include <utility>

#include "comm/tcp/address.hpp"

namespace aplib::comm::test {

RawConnection::RawConnection(const std::string& endpoint) {
  const auto where = tcp::parse_endpoint(endpoint).value();
  socket_ = ::socket(where.protocol().family(), SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket_ < 0 || ::connect(socket_, where.data(), static_cast<socklen_t>(where.size())) != 0)
    throw std::runtime_error("cannot connect to " + endpoint);
}

RawConnection::~RawConnection() {
  if (socket_ >= 0) ::close(socket_);
}

void RawConnection::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (written <= 0) return;  // the other side has closed; the test sees that when it reads
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

std::vector<std::byte> RawConnection::read(std::size_t bytes) {
  std::vector<std::byte> got(bytes);
  const ssize_t count = ::recv(socket_, got.data(), got.size(), 0);
  got.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
  return got;
}

int RawConnection::greet(const JobKey& key, const Introduction& mine) {
  Greeting greeting(Greeting::Role::caller, key, mine);
  while (greeting.state() == Greeting::State::going) {
    write(greeting.take_output());
    const std::vector<std::byte> bytes = read(greeting.wants());
    if (bytes.empty()) return -1;
    greeting.receive(bytes);
  }
  write(greeting.take_output());
  const std::vector<std::byte> verdict = read(1);
  return verdict.empty() ? -1 : std::to_integer<int>(verdict[0]);
}

void RawConnection::reset() {
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  ::close(std::exchange(socket_, -1));
}

}  // namespace aplib::comm::test
