// SPDX-License-Identifier: MIT
#include "comm/shm/endpoint.hpp"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <span>
#include <system_error>

#include "aplib/error.hpp"
#include "comm/job_key.hpp"
#include "comm/shm/remote_memory.hpp"
#include "comm/shm/shm_module.hpp"

namespace aplib::comm::shm {
namespace {

constexpr std::size_t name_digits = 32;
constexpr std::string_view separators_and_blanks = " \t\r\n,;%";

std::uint64_t namespace_number(const char* path) {
  struct stat status {};
  return ::stat(path, &status) == 0 ? status.st_ino : 0;
}

/// "a b" -> "a%20b".
std::string quote(std::string_view text) {
  std::string quoted;
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    constexpr unsigned char printable_first = 0x21;
    constexpr unsigned char printable_last = 0x7e;
    if (code < printable_first || code > printable_last || separators_and_blanks.find(c) != std::string_view::npos) {
      quoted += fmt::format("%{:02x}", code);
    } else {
      quoted += c;
    }
  }
  return quoted;
}

/// The abstract name: nothing in the file system, gone with the process.
sockaddr_un address_of(const Endpoint& endpoint, socklen_t& bytes) noexcept {
  constexpr std::string_view prefix = "aplib-";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, prefix.data(), prefix.size());
  std::memcpy(address.sun_path + 1 + prefix.size(), endpoint.name.data(), name_digits);
  bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + prefix.size() + name_digits);
  return address;
}

template <class Number>
bool take(std::string_view& text, Number& number, int base = 10) {
  const std::size_t end = text.find(':');
  if (end == std::string_view::npos) return false;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + end, number, base);
  if (error != std::errc() || stop != text.data() + end) return false;
  text.remove_prefix(end + 1);
  return true;
}

}  // namespace

Endpoint Endpoint::make(const std::string& host) {
  std::array<std::byte, name_digits / 2> random;
  fill_random(random);
  Endpoint made;
  for (const std::byte byte : random) made.name += fmt::format("{:02x}", static_cast<unsigned>(byte));
  made.network_namespace = namespace_number("/proc/self/ns/net");
  made.process_namespace = namespace_number("/proc/self/ns/pid");
  made.user_namespace = namespace_number("/proc/self/ns/user");
  made.user = ::geteuid();
  made.process = ::getpid();
  made.host = quote(host);
  return made;
}

std::optional<Endpoint> Endpoint::parse(std::string_view text) {
  Endpoint parsed;
  if (text.size() <= name_digits || text[name_digits] != ':') return std::nullopt;
  parsed.name = text.substr(0, name_digits);
  if (parsed.name.find_first_not_of("0123456789abcdef") != std::string::npos) return std::nullopt;
  text.remove_prefix(name_digits + 1);
  constexpr int hexadecimal = 16;
  if (!take(text, parsed.network_namespace) || !take(text, parsed.process_namespace) ||
      !take(text, parsed.user_namespace) || !take(text, parsed.user) || !take(text, parsed.process) ||
      !take(text, parsed.board, hexadecimal) || text.empty() || parsed.process <= 0)
    return std::nullopt;
  parsed.host = text;
  return parsed;
}

std::string Endpoint::print() const {
  return fmt::format("{}:{}:{}:{}:{}:{}:{:x}:{}", name, network_namespace, process_namespace, user_namespace, user,
                     process, board, host);
}

bool Endpoint::joins(const Endpoint& other) const {
  return host == other.host && network_namespace == other.network_namespace && user_namespace == other.user_namespace &&
         user == other.user;
}

os::UniqueFd listen_at(const Endpoint& endpoint) {
  os::UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  socklen_t bytes = 0;
  const sockaddr_un address = address_of(endpoint, bytes);
  if (socket && ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), bytes) == 0 &&
      ::listen(socket.get(), SOMAXCONN) == 0)
    return socket;
  throw Error(Errc::failed, fmt::format("shm: cannot listen on a local socket: {}; choose another module",
                                        std::generic_category().message(errno)));
}

os::UniqueFd connect_to(const Endpoint& endpoint) noexcept {
  os::UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  socklen_t bytes = 0;
  const sockaddr_un address = address_of(endpoint, bytes);
  if (!socket || ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), bytes) != 0) return {};
  return socket;
}

namespace {

/// Where the kernel lets a process reach only its descendants' memory (Yama), it lets others name who else may
/// reach theirs: those of the same user, whom it lets everywhere else.
void permit_access() {
  int scope = 0;
  if (std::ifstream("/proc/sys/kernel/yama/ptrace_scope") >> scope && scope == 1)
    ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
}

}  // namespace

Presence::Presence(const std::string& host) : own(Endpoint::make(host)), listener(listen_at(own)) {
  Board& board = bell->board();
  std::memcpy(board.name, own.name.data(), sizeof board.name);
  own.board = reinterpret_cast<std::uintptr_t>(&board);
  permit_access();
}

}  // namespace aplib::comm::shm
