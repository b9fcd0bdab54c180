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

/// A file that is open until the end of its block.
class Descriptor {
 public:
  Descriptor(const std::string& path, int flags) : number_(open(path.c_str(), flags | O_CLOEXEC)) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int number() const noexcept { return number_; }
  int release() noexcept { return std::exchange(number_, -1); }

 private:
  int number_;
};

/// This process is in another network namespace until the end of the block.
class Visit {
 public:
  explicit Visit(const std::string& name_space) : home_("/proc/self/ns/net", O_RDONLY) {
    const Descriptor there(name_space, O_RDONLY);
    if (home_.number() < 0 || there.number() < 0 || setns(there.number(), CLONE_NEWNET) != 0) {
      fail("cannot enter the network namespace " + name_space, "make it first, and be root");
    }
  }
  // It was ours, so it takes us back.
  ~Visit() { static_cast<void>(setns(home_.number(), CLONE_NEWNET)); }
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;

 private:
  Descriptor home_;
};

}  // namespace

Tun::Tun(const std::string& name_space, const std::string& device, bool offload) {
  if (device.size() >= IFNAMSIZ) {
    throw std::runtime_error("the name of a device has at most " + std::to_string(IFNAMSIZ - 1) +
                             " letters: choose a shorter one");
  }
  const Visit visit(name_space);
  Descriptor file("/dev/net/tun", O_RDWR | O_NONBLOCK);
  if (file.number() < 0) fail("cannot open /dev/net/tun", "be root, on a system that has TUN devices");
  ifreq request{};
  device.copy(request.ifr_name, IFNAMSIZ - 1);
  request.ifr_flags = static_cast<short>(IFF_TUN | IFF_NO_PI | (offload ? IFF_VNET_HDR : 0));
  if (ioctl(file.number(), TUNSETIFF, &request) != 0) fail("cannot make the device " + device, "choose a free name");
  if (offload && ioctl(file.number(), TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6) != 0) {
    fail("the device " + device + " takes no large packets", "leave out --offload");
  }
  descriptor_ = file.release();
}

Tun::~Tun() { close(); }

void Tun::close() noexcept {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

std::size_t Tun::read(std::span<std::byte> into) noexcept {
  const ssize_t got = ::read(descriptor_, into.data(), into.size());
  return got > 0 ? static_cast<std::size_t>(got) : 0;
}

bool Tun::write(std::span<const std::byte> packet) noexcept {
  return ::write(descriptor_, packet.data(), packet.size()) == static_cast<ssize_t>(packet.size());
}

}  // namespace aplib::wan
