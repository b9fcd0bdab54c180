// SPDX-License-Identifier: MIT
#include "wan/tun.hpp"

#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace aplib::wan {
namespace {

[[noreturn]] void fail(const std::string& what, const std::string& remedy) {
  throw std::runtime_error(what + ": " + std::strerror(errno) + ": " + remedy);
}

os::UniqueFd open_file(const std::string& path, int flags) {
  return os::UniqueFd(open(path.c_str(), flags | O_CLOEXEC));
}

/// This process is in another network namespace until the end of the block.
class Visit {
 public:
  explicit Visit(const std::string& name_space) : home_(open_file("/proc/self/ns/net", O_RDONLY)) {
    const os::UniqueFd there = open_file(name_space, O_RDONLY);
    if (!home_ || !there || setns(there.get(), CLONE_NEWNET) != 0) {
      fail("cannot enter the network namespace " + name_space, "make it first, and be root");
    }
  }
  // It was ours, so it takes us back.
  ~Visit() { static_cast<void>(setns(home_.get(), CLONE_NEWNET)); }
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;

 private:
  os::UniqueFd home_;
};

}  // namespace

Tun::Tun(const std::string& name_space, const std::string& device, bool offload) {
  if (device.size() >= IFNAMSIZ) {
    throw std::runtime_error("the name of a device has at most " + std::to_string(IFNAMSIZ - 1) +
                             " letters: choose a shorter one");
  }
  const Visit visit(name_space);
  os::UniqueFd file = open_file("/dev/net/tun", O_RDWR | O_NONBLOCK);
  if (!file) fail("cannot open /dev/net/tun", "be root, on a system that has TUN devices");
  ifreq request{};
  device.copy(request.ifr_name, IFNAMSIZ - 1);
  request.ifr_flags = static_cast<short>(IFF_TUN | IFF_NO_PI | (offload ? IFF_VNET_HDR : 0));
  if (ioctl(file.get(), TUNSETIFF, &request) != 0) fail("cannot make the device " + device, "choose a free name");
  if (offload && ioctl(file.get(), TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6) != 0) {
    fail("the device " + device + " takes no large packets", "leave out --offload");
  }
  file_ = std::move(file);
}

std::size_t Tun::read(std::span<std::byte> into) noexcept {
  const ssize_t got = ::read(file_.get(), into.data(), into.size());
  return got > 0 ? static_cast<std::size_t>(got) : 0;
}

bool Tun::write(std::span<const std::byte> packet) noexcept {
  return ::write(file_.get(), packet.data(), packet.size()) == static_cast<ssize_t>(packet.size());
}

}  // namespace aplib::wan
