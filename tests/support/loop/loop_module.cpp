// SPDX-License-Identifier: MIT
#include "loop/loop_module.hpp"

#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <ctime>
#include <new>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "aplib/error.hpp"

namespace aplib::comm::loop {
// All operations have the default order. Either the ringer sees the sleeper in sleepers_, or the sleeper, which counted
// itself first, sees the ring in rings_ and does not sleep. The system calls are here because the library does not
// export its own (base/os/thread.hpp) to programs that link modules.

void Doorbell::ring() noexcept {
  rings_.fetch_add(1);
  os::Bell* const bell = bell_.load();
  if (bell != nullptr && bell->anyone()) bell->ring();
  if (sleepers_.load() == 0) return;
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&rings_), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

void Doorbell::call() noexcept {
  called_.store(true);
  ring();
}

std::optional<std::uint32_t> Doorbell::ticket() noexcept {
  const std::uint32_t drawn = rings_.load();
  if (called_.exchange(false)) return std::nullopt;
  return drawn;
}

void Doorbell::sleep(std::uint32_t ticket, std::optional<std::chrono::nanoseconds> timeout) noexcept {
  timespec time{};
  if (timeout) {
    const auto left = std::max<std::int64_t>(timeout->count(), 0);
    time.tv_sec = left / 1'000'000'000;
    time.tv_nsec = left % 1'000'000'000;
  }
  sleepers_.fetch_add(1);
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&rings_), FUTEX_WAIT_PRIVATE, ticket, timeout ? &time : nullptr,
          nullptr, 0);
  sleepers_.fetch_sub(1);
  // The call that ended this sleep is answered, so it need not end the next one too.
  called_.exchange(false);
}

int Doorbell::descriptor() noexcept {
  try {
    std::call_once(made_, [this] {
      made_bell_ = std::make_unique<os::Bell>();
      bell_.store(made_bell_.get());
    });
  } catch (...) {
    return -1;
  }
  return made_bell_->descriptor();
}

bool Doorbell::arm() noexcept {
  if (descriptor() < 0) return false;
  made_bell_->begin();
  return !called_.load();
}

void Doorbell::disarm() noexcept {
  os::Bell* const bell = bell_.load();
  if (bell == nullptr) return;
  bell->end();
  if (!bell->anyone()) called_.store(false);
}

namespace {

constexpr std::size_t bytes_per_poll = 64 * 1024;  // From each peer.

constexpr auto counting = std::memory_order_relaxed;  // No other data depends on a counter.

}  // namespace

LoopModule::LoopModule(std::shared_ptr<LoopNet::State> net, Peer self)
    : net_(std::move(net)),
      self_(self),
      connections_(std::make_unique<Connection[]>(net_->processes)),
      order_(net_->processes),
      random_(net_->first_seed + self) {
  std::iota(order_.begin(), order_.end(), 0U);
}

LoopModule::~LoopModule() {
  if (receiver_ != nullptr) close(std::chrono::nanoseconds(0));
}

void LoopModule::start(Receiver& receiver) {
  if (receiver_ != nullptr)
    throw Error(Errc::bad_argument, fmt::format("loop module of process {}: started twice", self_));
  for (Peer peer = 0; peer < net_->processes; ++peer) {
    if (peer != self_) connections_[peer].reader = std::make_unique<FrameReader>(receiver, peer);
  }
  receiver_ = &receiver;
}

void LoopModule::send(Peer to, const Label& label, std::span<const std::byte> body) {
  net_->check(to, "send");
  if (to == self_) {
    throw Error(Errc::bad_argument,
                fmt::format("loop: send: process {} is this process; modules carry frames to others", to));
  }
  if (body.size() > body_bytes_max) {
    throw Error(Errc::bad_argument,
                fmt::format("loop: send to process {}: a body of {} bytes; at most {} are carried: send it in parts",
                            to, body.size(), body_bytes_max));
  }
  if (closed_.load()) return;
  LoopPipe& pipe = net_->pipe(self_, to);
  try {
    if (!pipe.send(label, body)) return;
  } catch (const std::bad_alloc&) {
    throw Error(
        Errc::exhausted,
        fmt::format("loop: send to process {}: no memory to queue a body of {} bytes; {} bytes wait there already", to,
                    body.size(), pipe.queued()));
  }
  frames_sent_.fetch_add(1, counting);
  bytes_sent_.fetch_add(body.size(), counting);
  constexpr std::size_t gathered = 16;  // Times the limit of one body; when more has gathered, it is sent.
  const std::size_t limit = net_->faults.hold_back_bytes;
  if (limit != 0 && body.size() <= limit && pipe.queued() < gathered * limit) return;
  push(to);
}

std::size_t LoopModule::queued(Peer to) const noexcept {
  return to < net_->processes ? net_->pipe(self_, to).queued() : 0;
}

bool LoopModule::push(Peer peer) noexcept {
  if (process().frozen.load() || !net_->pipe(self_, peer).push()) return false;
  system_calls_.fetch_add(1, counting);
  net_->process(peer).bell.ring();
  return true;
}

void LoopModule::flush() noexcept {
  for (Peer peer = 0; peer < net_->processes; ++peer) {
    if (queued(peer) != 0) push(peer);
  }
}

bool LoopModule::poll() {
  if (stopped()) return false;
  flush();
  const std::uint32_t count = net_->processes;
  first_ = (first_ + 1) % count;
  if (net_->faults.shuffle_peers) {
    for (std::uint32_t i = count; i > 1; --i) {
      random_ = random_ * 6364136223846793005ULL + 1442695040888963407ULL;  // Knuth's MMIX generator.
      std::swap(order_[i - 1], order_[(random_ >> 33U) % i]);
    }
  }
  bool called = false;
  for (std::uint32_t i = 0; i < count; ++i) {
    const Peer peer = order_[(first_ + i) % count];
    if (peer == self_) continue;
    if (!stopped() && tell_done(peer)) called = true;
    if (!stopped() && poll_peer(peer)) called = true;
  }
  return called;
}

/// Reports the writes and reads with one peer that are done. Whether there were any.
bool LoopModule::tell_done(Peer peer) {
  LoopPipe& pipe = net_->pipe(self_, peer);
  bool called = false;
  while (const std::optional<LoopTransfers::Done> done = pipe.transfer_done(!called)) {
    receiver_->memory_done(done->context, done->ok);
    called = true;
  }
  return called;
}

bool LoopModule::poll_peer(Peer peer) {
  Connection& connection = connections_[peer];
  LoopPipe& pipe = net_->pipe(peer, self_);
  if (connection.over.load(std::memory_order_relaxed) || !pipe.poll()) return false;
  bool called = false;
  if (!pipe.end_seen()) {
    const bool wanted = receiver_->wants(peer);
    connection.unwanted.store(!wanted);
    if (!wanted) return false;
    called = read(peer);
    if (!connection.reader->refusal().empty()) {
      lose(peer, connection.reader->refusal());
      return true;
    }
    if (connection.reader->ended_in_order()) {
      connection.over.store(true);
      pipe.close_reading();
      return called;
    }
  }
  const std::optional<std::string> why = pipe.end_seen();
  if (!why) return called;
  lose(peer, *why);
  return true;
}

/// Takes what is visible from one peer, up to the limit. Whether that made upcalls.
bool LoopModule::read(Peer peer) {
  LoopPipe& pipe = net_->pipe(peer, self_);
  FrameReader& reader = *connections_[peer].reader;
  const std::uint64_t frames = reader.frames();
  const std::uint64_t body_bytes = reader.bytes();
  const bool was_large = !reader.room_in_body().empty();
  for (std::size_t taken = 0; taken < bytes_per_poll;) {
    const FrameReader::Room room = reader.room();
    const std::size_t bytes = pipe.read(room.body, room.buffer);
    system_calls_.fetch_add(1, counting);
    if (bytes == 0 || !reader.filled(bytes)) break;
    taken += bytes;
  }
  if (pipe.queued() != 0) net_->process(peer).bell.ring();
  frames_received_.fetch_add(reader.frames() - frames, counting);
  bytes_received_.fetch_add(reader.bytes() - body_bytes, counting);
  return reader.frames() != frames || was_large != !reader.room_in_body().empty();
}

void LoopModule::lose(Peer peer, const std::string& why) {
  Connection& connection = connections_[peer];
  connection.over.store(true);
  net_->pipe(peer, self_).close_reading();
  net_->pipe(self_, peer).break_off("the connection was ended by the other side", false);
  net_->process(peer).bell.ring();
  connection.reader->end();
  receiver_->peer_lost(peer, why);
}

MemoryKey LoopModule::expose(Peer peer, std::span<std::byte> memory) {
  check_other(peer, "expose");
  try {
    return net_->pipe(peer, self_).memory().open(memory);
  } catch (const std::bad_alloc&) {
    throw Error(Errc::exhausted,
                fmt::format("loop: expose {} bytes to process {}: no memory to note them", memory.size(), peer));
  }
}

void LoopModule::conceal(Peer peer, const MemoryKey& key) noexcept {
  if (reaches_memory(peer)) net_->pipe(peer, self_).memory().conceal(key);
}

void LoopModule::write(Peer to, const MemoryKey& key, std::uint64_t address, std::span<const std::byte> local,
                       std::uint64_t context) {
  begin(to, {true, key, address, const_cast<std::byte*>(local.data()), local.size(), context}, "write");
}

void LoopModule::read(Peer from, const MemoryKey& key, std::uint64_t address, std::span<std::byte> local,
                      std::uint64_t context) {
  begin(from, {false, key, address, local.data(), local.size(), context}, "read");
}

void LoopModule::check_other(Peer peer, const char* call) const {
  net_->check(peer, call);
  if (peer != self_) return;
  throw Error(Errc::bad_argument,
              fmt::format("loop: {}: process {} is this process; modules reach others' memory", call, peer));
}

void LoopModule::begin(Peer peer, const LoopTransfer& transfer, const char* call) {
  check_other(peer, call);
  if (closed_.load() || process().killed.load()) return;
  try {
    net_->pipe(self_, peer).begin(transfer);
  } catch (const std::bad_alloc&) {
    throw Error(Errc::exhausted, fmt::format("loop: {} with process {}: no memory to note it", call, peer));
  }
  system_calls_.fetch_add(1, counting);
  process().bell.ring();  // Sleepers must handle the end, or a delay.
}

void LoopModule::wait(std::optional<std::chrono::nanoseconds> timeout) {
  const std::optional<std::uint32_t> ticket = process().bell.ticket();
  if (!ticket) return;
  const std::optional<std::chrono::nanoseconds> time = stopped() ? timeout : time_to_sleep(timeout);
  if (time && time->count() <= 0) return;
  process().bell.sleep(*ticket, time);
}

bool LoopModule::arm() {
  if (!process().bell.arm()) return false;
  if (stopped()) return true;
  flush();
  const std::optional<std::uint32_t> ticket = process().bell.ticket();
  const std::optional<std::chrono::nanoseconds> time = time_to_sleep(std::nullopt);
  if (!time) return ticket.has_value();
  // The descriptor does not show times, so delays are waited for here. They are short.
  if (ticket && time->count() > 0) process().bell.sleep(*ticket, time);
  return false;
}

/// Until when there is nothing to do, as far as is known now. 0: there is something.
std::optional<std::chrono::nanoseconds> LoopModule::time_to_sleep(
    std::optional<std::chrono::nanoseconds> timeout) const {
  constexpr std::chrono::nanoseconds none{0};
  for (Peer peer = 0; peer < net_->processes; ++peer) {
    if (peer == self_) continue;
    if (net_->pipe(self_, peer).writable()) return none;
    if (const std::optional<LoopPipe::Clock::time_point> next = net_->pipe(self_, peer).next_transfer()) {
      const std::chrono::nanoseconds left = std::max(*next - LoopPipe::Clock::now(), none);
      timeout = timeout ? std::min(*timeout, left) : left;
    }
    const Connection& connection = connections_[peer];
    const LoopPipe& pipe = net_->pipe(peer, self_);
    if (connection.over.load()) continue;
    if (connection.unwanted.load()) {
      if (pipe.end_seen()) return none;
      continue;
    }
    const LoopPipe::Outlook outlook = pipe.outlook();
    if (outlook.now) return none;
    if (outlook.later) {
      const std::chrono::nanoseconds left = std::max(*outlook.later - LoopPipe::Clock::now(), none);
      timeout = timeout ? std::min(*timeout, left) : left;
    }
  }
  return timeout;
}

bool LoopModule::anything_queued() const noexcept {
  for (Peer peer = 0; peer < net_->processes; ++peer) {
    if (peer != self_ && queued(peer) != 0) return true;
  }
  return false;
}

bool LoopModule::close(std::chrono::nanoseconds linger) {
  if (closed_.exchange(true)) return true;
  const bool killed = process().killed.load();
  for (Peer peer = 0; peer < net_->processes && !killed; ++peer) {
    if (peer == self_) continue;
    net_->pipe(self_, peer).end_transfers(!process().frozen.load());
    tell_done(peer);
  }
  for (Peer peer = 0; peer < net_->processes; ++peer) {
    if (peer == self_) continue;
    // First, so that two processes that close at the same time do not wait for each other to read.
    net_->pipe(peer, self_).close_reading();
    net_->pipe(peer, self_).memory().conceal_all();
    net_->process(peer).bell.ring();
  }
  const LoopPipe::Clock::time_point limit = LoopPipe::Clock::now() + linger;
  while (true) {
    const std::optional<std::uint32_t> ticket = process().bell.ticket();
    flush();
    const LoopPipe::Clock::time_point now = LoopPipe::Clock::now();
    if (!anything_queued() || now >= limit) break;
    const bool writable = [&] {
      for (Peer peer = 0; peer < net_->processes; ++peer) {
        if (peer != self_ && !process().frozen.load() && net_->pipe(self_, peer).writable()) return true;
      }
      return false;
    }();
    if (ticket && !writable) process().bell.sleep(*ticket, limit - now);
  }
  bool all = !killed;
  for (Peer peer = 0; peer < net_->processes; ++peer) {
    if (peer == self_) continue;
    LoopPipe& pipe = net_->pipe(self_, peer);
    if (pipe.queued() != 0) {
      all = false;
      pipe.break_off("the process ended before it had sent everything", false);
    } else {
      pipe.end_in_order();
    }
    net_->process(peer).bell.ring();
    if (connections_[peer].reader) connections_[peer].reader->end();
  }
  return all;
}

Traffic LoopModule::traffic() const noexcept {
  return {.frames_sent = frames_sent_.load(counting),
          .frames_received = frames_received_.load(counting),
          .bytes_sent = bytes_sent_.load(counting),
          .bytes_received = bytes_received_.load(counting),
          .system_calls = system_calls_.load(counting),
          .refused = 0};
}

std::string LoopModule::describe(Peer peer) const {
  net_->check(peer, "describe");
  return fmt::format("loop, from process {} to process {}", self_, peer);
}

}  // namespace aplib::comm::loop
