// SPDX-License-Identifier: MIT
#include "comm/shm/presence.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
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
#include <string_view>
#include <system_error>
#include <utility>

#include "aplib/error.hpp"
#include "base/os/local_socket.hpp"
#include "base/os/time.hpp"
#include "comm/job_key.hpp"

namespace aplib::comm::shm {

namespace {

constexpr int seal_future_write = 0x0010;  // F_SEAL_FUTURE_WRITE, Linux 5.1

}  // namespace

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      descriptor_(std::move(other.descriptor_)) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

SharedMemory SharedMemory::make(std::size_t bytes) {
  SharedMemory made;
  made.descriptor_ = os::UniqueFd(::memfd_create("aplib", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const int descriptor = made.descriptor_.get();
  if (descriptor >= 0 && os::file_may_have(bytes) && ::ftruncate(descriptor, static_cast<off_t>(bytes)) == 0) {
    void* const data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (data != MAP_FAILED) {
      made.data_ = data;
      made.bytes_ = bytes;
      // Without the last one, before Linux 5.1, others could write as well: what they would destroy is no more than
      // what they are believed anyway.
      if (::fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0) {
        ::fcntl(descriptor, F_ADD_SEALS, seal_future_write);
        return made;
      }
    }
  }
  const int reason = errno;
  const bool has_remedy = reason == ENOMEM || reason == EMFILE || reason == ENFILE || reason == EFBIG;
  throw Error(Errc::exhausted, fmt::format("shm: cannot make {} bytes of shared memory: {}{} choose another module",
                                           bytes, os::text_of(reason), has_remedy ? ", or" : ";"));
}

std::optional<SharedMemory> SharedMemory::open(const os::UniqueFd& descriptor, std::size_t bytes, std::string& why) {
  struct stat status {};
  // A file that can be shortened later could kill the process that reads it.
  const int seals = ::fcntl(descriptor.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || ::fstat(descriptor.get(), &status) != 0 ||
      status.st_size != static_cast<off_t>(bytes)) {
    why = fmt::format("what it gave is not {} bytes of sealed shared memory", bytes);
    return std::nullopt;
  }
  void* const data = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, descriptor.get(), 0);
  if (data == MAP_FAILED) {
    why = fmt::format("its shared memory cannot be mapped: {}; raise the limit on address space (ulimit -v)",
                      std::generic_category().message(errno));
    return std::nullopt;
  }
  SharedMemory opened;
  opened.data_ = data;
  opened.bytes_ = bytes;
  return opened;
}

namespace {

bool rings(int descriptor) noexcept {
  pollfd one{descriptor, POLLIN, 0};
  return ::poll(&one, 1, 0) > 0;
}

void silence(int descriptor) noexcept {
  std::uint64_t count = 0;
  iovec into{&count, sizeof count};
  // This never blocks, even if a peer, which holds the same open file, has set it to.
  if (::preadv2(descriptor, &into, 1, -1, RWF_NOWAIT) >= 0 || errno == EAGAIN || !rings(descriptor)) return;
  [[maybe_unused]] const ssize_t read = ::read(descriptor, &count, sizeof count);
}

}  // namespace

Bell::Bell() : block_(SharedMemory::make(sizeof(ControlBlock))) {}

void Bell::arm() noexcept {
  std::atomic<std::uint32_t>& asleep = block().asleep;
  {
    const std::lock_guard hold(mutex_);
    // The second sleeper gets another number, because the first may have been woken already.
    const std::uint32_t now = asleep.load(std::memory_order_relaxed);  // relaxed: under the mutex
    asleep.store(++armed_ == 1 ? now + 1 : now + 2, std::memory_order_relaxed);
  }
  std::atomic_thread_fence(std::memory_order_seq_cst);  // own store before own look
}

void Bell::disarm() noexcept {
  const std::lock_guard hold(mutex_);
  if (--armed_ != 0) return;
  std::atomic<std::uint32_t>& asleep = block().asleep;
  asleep.store(asleep.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);  // relaxed: a ring too many
  // The bell rings until all sleepers have heard it. A ring that is left was for a sleeper that is awake.
  silence(event_.get());
}

void Bell::sleep(std::optional<std::chrono::nanoseconds> timeout) const noexcept {
  const timespec time = os::timespec_of(timeout.value_or(std::chrono::nanoseconds(0)));
  pollfd one{event_.get(), POLLIN, 0};
  ::ppoll(&one, 1, timeout ? &time : nullptr, nullptr);
}

void Bell::ring_if_armed() noexcept {
  std::atomic_thread_fence(std::memory_order_seq_cst);  // what was made before the look; pairs with arm()
  if ((block().asleep.load(std::memory_order_relaxed) & 1U) != 0) ring();
}

void PeerBell::ring(std::uint32_t asleep) noexcept {
  if (rung_.exchange(asleep, std::memory_order_relaxed) == asleep) return;  // relaxed: two rings do no harm
  rings_.fetch_add(1, std::memory_order_relaxed);
  event_.signal();
}

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
      !take(text, parsed.block, hexadecimal) || text.empty() || parsed.process <= 0)
    return std::nullopt;
  parsed.host = text;
  return parsed;
}

std::string Endpoint::print() const {
  return fmt::format("{}:{}:{}:{}:{}:{}:{:x}:{}", name, network_namespace, process_namespace, user_namespace, user,
                     process, block, host);
}

bool Endpoint::joins(const Endpoint& other) const {
  return host == other.host && network_namespace == other.network_namespace && user_namespace == other.user_namespace &&
         user == other.user;
}

LocalAddress Endpoint::address() const noexcept {
  constexpr std::string_view prefix = "aplib-";
  LocalAddress address;
  address.name.sun_family = AF_UNIX;
  std::memcpy(address.name.sun_path + 1, prefix.data(), prefix.size());
  std::memcpy(address.name.sun_path + 1 + prefix.size(), name.data(), name_digits);
  address.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + prefix.size() + name_digits);
  return address;
}

os::UniqueFd listen_at(const Endpoint& endpoint) {
  os::UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const LocalAddress address = endpoint.address();
  if (socket && ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address.name), address.bytes) == 0 &&
      ::listen(socket.get(), SOMAXCONN) == 0)
    return socket;
  throw Error(Errc::failed, fmt::format("shm: cannot listen on a local socket: {}; choose another module",
                                        std::generic_category().message(errno)));
}

namespace {

/// Where the kernel lets a process reach only its descendants' memory (Yama), a process may name others that may reach
/// its own. These are of the same user, whom the kernel lets reach it anywhere else.
void permit_access() {
  int scope = 0;
  if (std::ifstream("/proc/sys/kernel/yama/ptrace_scope") >> scope && scope == 1)
    ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
}

}  // namespace

Presence::Presence(const std::string& host) : own(Endpoint::make(host)), listener(listen_at(own)) {
  ControlBlock& block = bell->block();
  std::memcpy(block.name, own.name.data(), sizeof block.name);
  own.block = reinterpret_cast<std::uintptr_t>(&block);
  permit_access();
}

namespace {

struct Paper {
  std::uint32_t magic = 0;
  std::uint8_t version = 0;
  std::uint8_t verdict = 0;
  std::uint16_t reserved = 0;
  std::uint32_t segment_bytes = 0;
  std::uint32_t block_bytes = 0;
};
constexpr std::uint32_t magic = 0x6d687361;
constexpr std::uint8_t version = 1;
constexpr std::size_t descriptors = 3;  // segment, control block, bell

/// A write to the bell might block otherwise.
bool is_eventfd(int descriptor) {
  std::array<char, 64> target{};
  const std::string path = "/proc/self/fd/" + std::to_string(descriptor);
  const ssize_t bytes = ::readlink(path.c_str(), target.data(), target.size());
  return bytes > 0 && std::string_view(target.data(), static_cast<std::size_t>(bytes)) == "anon_inode:[eventfd]";
}

}  // namespace

bool give(int socket, Verdict verdict, const SharedMemory* mine, const Bell& bell) noexcept {
  Paper paper{magic, version, static_cast<std::uint8_t>(verdict), 0, sizeof(Segment), sizeof(ControlBlock)};
  std::array<int, descriptors> numbers{};
  if (mine != nullptr) numbers = {mine->descriptor(), bell.block_memory().descriptor(), bell.descriptor()};
  return os::send_message(socket, std::as_bytes(std::span(&paper, 1)),
                          std::span(numbers).first(mine != nullptr ? descriptors : 0), MSG_DONTWAIT);
}

Given take(int socket, Connection& connection, std::string& why) {
  Paper paper;
  os::ReceivedMessage received =
      os::receive_message(socket, std::as_writable_bytes(std::span(&paper, 1)), MSG_DONTWAIT);
  const ssize_t bytes = received.bytes;
  if (bytes < 0 && errno == EAGAIN) return Given::nothing_yet;
  std::array<os::UniqueFd, os::passed_max>& got = received.descriptors;
  if (bytes <= 0) {
    why = "its process has ended";
    return Given::wrong;
  }
  if (bytes != static_cast<ssize_t>(sizeof paper) || paper.magic != magic || paper.version != version) {
    why = "it does not follow the protocol: the installations differ";
    return Given::wrong;
  }
  if (paper.verdict == static_cast<std::uint8_t>(Verdict::not_now)) return Given::not_now;
  if (paper.verdict == static_cast<std::uint8_t>(Verdict::unable)) {
    why =
        "no descriptor or memory is left there to share memory; raise its limit of open files (ulimit -n) or on "
        "address space (ulimit -v)";
    return Given::wrong;
  }
  if (paper.verdict != static_cast<std::uint8_t>(Verdict::taken) || paper.segment_bytes != sizeof(Segment) ||
      paper.block_bytes != sizeof(ControlBlock)) {
    why = "its shared memory is of another form: the installations differ";
    return Given::wrong;
  }
  if (received.passed != descriptors) {
    why = "what it gives has no room here, or is missing; raise the limit of open files (ulimit -n)";
    return Given::wrong;
  }
  if (!is_eventfd(got[2].get())) {
    why = "it does not follow the protocol: its bell is none";
    return Given::wrong;
  }
  auto segment = SharedMemory::open(got[0], sizeof(Segment), why);
  if (!segment) return Given::wrong;
  auto block = SharedMemory::open(got[1], sizeof(ControlBlock), why);
  if (!block) return Given::wrong;
  connection.theirs = std::move(*segment);
  connection.block = std::move(*block);
  connection.bell = std::move(got[2]);
  return Given::taken;
}

}  // namespace aplib::comm::shm
