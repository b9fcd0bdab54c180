// SPDX-License-Identifier: MIT
#include "launch/control/registry_socket.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

namespace aplib::launch {
namespace {

/// False: too long.
bool fill(sockaddr_un& address, const std::string& path) {
  address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    errno = ENAMETOOLONG;
    return false;
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return true;
}

const sockaddr* plain(const sockaddr_un& address) { return reinterpret_cast<const sockaddr*>(&address); }

}  // namespace

RegistrySocket::~RegistrySocket() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

RegistrySocket::RegistrySocket(RegistrySocket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

RegistrySocket& RegistrySocket::operator=(RegistrySocket&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

RegistrySocket RegistrySocket::make() { return RegistrySocket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)); }

int RegistrySocket::connect(const std::string& path) const {
  sockaddr_un address;
  return fill(address, path) ? ::connect(descriptor_, plain(address), sizeof address) : -1;
}

int RegistrySocket::listen(const std::string& path) const {
  constexpr int waiting_max = 16;
  const std::string before = path + ".new";
  sockaddr_un address;
  if (!fill(address, before)) return -1;
  ::unlink(before.c_str());
  if (::bind(descriptor_, plain(address), sizeof address) != 0) return -1;
  if (::listen(descriptor_, waiting_max) == 0 && ::rename(before.c_str(), path.c_str()) == 0) return 0;
  const int error = errno;
  ::unlink(before.c_str());
  errno = error;
  return -1;
}

bool RegistrySocket::send(std::string_view bytes) const {
  while (!bytes.empty()) {
    const ssize_t count = ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

uid_t RegistrySocket::peer_user() const {
  ucred who{};
  socklen_t size = sizeof who;
  return ::getsockopt(descriptor_, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 ? who.uid : static_cast<uid_t>(-1);
}

}  // namespace aplib::launch
