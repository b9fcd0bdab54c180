// SPDX-License-Identifier: MIT
#include "comm/shm/shm_module.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <new>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "aplib/error.hpp"
#include "aplib/version.hpp"
#include "comm/kind.hpp"
#include "comm/shm/link.hpp"
#include "comm/shm/presence.hpp"
#include "comm/shm/remote_memory.hpp"
#include "comm/shm/service.hpp"

namespace aplib::comm::shm {

struct ShmModule::Impl {
  explicit Impl(Settings given) : settings(std::move(given)), links(make_links()), service(settings, bell, links) {
    up.reserve(links.size());
    ending.reserve(links.size());
  }

  std::vector<std::unique_ptr<Link>> make_links();
  Link& link(Peer peer, const char* call) const {
    if (peer < links.size() && links[peer]) [[likely]]
      return *links[peer];
    throw Error(Errc::bad_argument,
                peer == settings.self
                    ? fmt::format("shm: {}: process {} is this process; modules carry frames to others", call, peer)
                    : fmt::format("shm: {}: process {} is not reached through shared memory", call, peer));
  }
  PeerMemory* memory_of(Peer peer) const noexcept {
    return peer < memory.size() && memory[peer] && memory[peer]->reachable() ? memory[peer].get() : nullptr;
  }
  /// Whether the peer is joined by now, so that its control block can be read without the system.
  void look_at_block(Peer peer) const noexcept {
    if (const ControlBlock* const block = links[peer]->block()) memory[peer]->attach(block);
  }
  void write() noexcept {
    for (const auto& link : links)
      if (link) link->write();
  }
  /// Reserves room for the report before memory is touched, so that an error about it means that nothing was done.
  void expect_memory_report() {
    try {
      reports.expect_memory();
    } catch (const std::bad_alloc&) {
      throw Error(Errc::exhausted, "shm: no memory to report what is to be written or read");
    }
  }
  bool tell_memory() {
    if (receiver == nullptr) return false;
    bool any = false;
    for (std::size_t left = reports.memory_count(); left != 0; --left) {
      const std::optional<MemoryReport> report = reports.take_memory();
      if (!report) break;
      receiver->memory_done(report->context, report->ok);
      any = true;
    }
    return any;
  }
  bool handle_reports();
  void end();
  bool settle(std::chrono::steady_clock::time_point limit);

  Settings settings;
  Bell& bell{*settings.presence.bell};
  OpenMemory open_memory{bell.block()};
  std::vector<std::unique_ptr<PeerMemory>> memory;  // By peer, as links.
  Reports reports{bell};
  std::atomic<std::uint32_t> writers{0};  // Links with something queued.
  std::vector<std::unique_ptr<Link>> links;
  Receiver* receiver = nullptr;

  // The polling thread's.
  std::vector<Link*> up;
  struct Ending {
    Link* link;
    std::string why;
  };
  std::vector<Ending> ending;  // Their last frames are not wanted yet.

  bool closed = false;
  Service service;  // Last: its thread uses the rest.
};

std::vector<std::unique_ptr<Link>> ShmModule::Impl::make_links() {
  if (settings.self >= settings.endpoints.size()) {
    throw Error(Errc::bad_argument,
                fmt::format("shm: process {} of a machine of {} processes", settings.self, settings.endpoints.size()));
  }
  std::vector<std::unique_ptr<Link>> made(settings.endpoints.size());
  memory.resize(made.size());
  for (Peer peer = 0; peer < made.size(); ++peer) {
    if (peer == settings.self || settings.endpoints[peer].empty()) continue;
    const auto endpoint = Endpoint::parse(settings.endpoints[peer]);
    if (!endpoint) {
      throw Error(Errc::bad_argument, fmt::format("shm: \"{}\", where process {} shall be reached, is no endpoint of "
                                                  "this module",
                                                  settings.endpoints[peer], peer));
    }
    if (!settings.presence.own.joins(*endpoint)) continue;
    made[peer] = std::make_unique<Link>(peer, reports, writers);
    memory[peer] = std::make_unique<PeerMemory>(settings.presence.own, *endpoint, bell.block());
  }
  return made;
}

ShmModule::ShmModule(Settings settings) : impl_(std::make_unique<Impl>(std::move(settings))) {}

ShmModule::~ShmModule() { close(std::chrono::nanoseconds(0)); }

void ShmModule::start(Receiver& receiver) {
  if (impl_->receiver != nullptr)
    throw Error(Errc::bad_argument, fmt::format("shm module of process {}: started twice", impl_->settings.self));
  impl_->receiver = &receiver;
  for (const auto& memory : impl_->memory)
    if (memory) memory->probe();
}

void ShmModule::send(Peer to, const Label& label, std::span<const std::byte> body) {
  Link& link = impl_->link(to, "send");
  if (body.size() > body_bytes_max) [[unlikely]] {
    throw Error(Errc::bad_argument,
                fmt::format("shm: send to process {}: a body of {} bytes; at most {} are carried: send it in parts", to,
                            body.size(), body_bytes_max));
  }
  try {
    if (link.send(label, body)) [[unlikely]]
      impl_->service.call();
  } catch (const std::bad_alloc&) {
    throw Error(Errc::exhausted,
                fmt::format("shm: send to process {}: no memory to queue a body of {} bytes; {} bytes wait there "
                            "already: receive them sooner, or raise the limit on address space (ulimit -v)",
                            to, body.size(), link.queued()));
  }
}

std::size_t ShmModule::queued(Peer to) const noexcept {
  return to < impl_->links.size() && impl_->links[to] ? impl_->links[to]->queued() : 0;
}

void ShmModule::flush() noexcept {
  // relaxed: a thread that has just queued something has seen itself that there is no room
  if (impl_->writers.load(std::memory_order_relaxed) != 0) [[unlikely]]
    impl_->write();
}

bool ShmModule::poll() {
  Impl& state = *impl_;
  if (state.closed) return false;
  flush();
  bool called = false;
  if (state.reports.any() || !state.ending.empty()) [[unlikely]]
    called = state.handle_reports();
  for (Link* const link : state.up) called |= link->read(*state.receiver);
  return called;
}

bool ShmModule::Impl::handle_reports() {
  bool called = false;
  for (LinkReports::Told told = reports.links().take(); told.link != nullptr; told = reports.links().take()) {
    Link* const link = static_cast<Link*>(told.link);
    // Both lists have room for all.
    if (told.up) {
      link->begin_reading();
      up.push_back(link);
    }
    if (told.lost) ending.push_back({link, *std::move(told.lost)});
  }
  called |= tell_memory();
  for (std::size_t i = 0; i < ending.size();) {
    const bool was_over = ending[i].link->is_over();
    if (ending[i].link->lose(*receiver, ending[i].why)) {
      called |= !was_over;
      ending.erase(ending.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
  std::erase_if(up, [](const Link* link) { return link->is_over(); });
  return called;
}

bool ShmModule::shares_host(Peer peer) const noexcept { return peer < impl_->links.size() && impl_->links[peer]; }

bool ShmModule::reaches_memory(Peer peer) const noexcept { return impl_->memory_of(peer) != nullptr; }

MemoryKey ShmModule::expose(Peer peer, std::span<std::byte> memory) {
  if (!reaches_memory(peer)) return Module::expose(peer, memory);  // says so
  return impl_->open_memory.open(memory);
}

void ShmModule::conceal(Peer peer, const MemoryKey& key) noexcept {
  const PeerMemory* const memory = impl_->memory_of(peer);
  if (memory == nullptr || !impl_->open_memory.conceal(key) || impl_->links[peer]->has_ended()) return;
  impl_->look_at_block(peer);
  memory->await_accesses(key);
}

void ShmModule::write(Peer to, const MemoryKey& key, std::uint64_t address, std::span<const std::byte> local,
                      std::uint64_t context) {
  PeerMemory* const memory = impl_->memory_of(to);
  if (memory == nullptr) return Module::write(to, key, address, local, context);  // says so
  impl_->expect_memory_report();
  impl_->look_at_block(to);
  const bool ok = !impl_->links[to]->has_ended() && memory->write(key, address, local);
  impl_->reports.add({context, ok});
}

void ShmModule::read(Peer from, const MemoryKey& key, std::uint64_t address, std::span<std::byte> local,
                     std::uint64_t context) {
  PeerMemory* const memory = impl_->memory_of(from);
  if (memory == nullptr) return Module::read(from, key, address, local, context);  // says so
  impl_->expect_memory_report();
  impl_->look_at_block(from);
  const bool ok = !impl_->links[from]->has_ended() && memory->read(key, address, local);
  impl_->reports.add({context, ok});
}

bool ShmModule::arm() {
  Impl& state = *impl_;
  state.bell.arm();
  const std::uint32_t writers = state.writers.load(std::memory_order_relaxed);  // relaxed: a snapshot
  flush();
  // A thread may wait for queues to be empty, and nothing else would wake it for this.
  if (state.writers.load(std::memory_order_relaxed) < writers || state.reports.any()) return false;
  return std::none_of(state.links.begin(), state.links.end(),
                      [](const std::unique_ptr<Link>& link) { return link && link->has_work(); });
}

void ShmModule::disarm() noexcept { impl_->bell.disarm(); }

void ShmModule::wait(std::optional<std::chrono::nanoseconds> timeout) {
  if (arm()) impl_->bell.sleep(timeout);
  disarm();
}

void ShmModule::wake() noexcept { impl_->bell.ring(); }

int ShmModule::descriptor() noexcept { return impl_->bell.descriptor(); }

bool ShmModule::close(std::chrono::nanoseconds linger) {
  Impl& state = *impl_;
  if (std::exchange(state.closed, true)) return true;
  const bool all = state.settle(std::chrono::steady_clock::now() + linger);
  state.end();
  return all;
}

bool ShmModule::abandon() {
  if (!std::exchange(impl_->closed, true)) impl_->end();
  return true;
}

void ShmModule::Impl::end() {
  service.stop();
  open_memory.conceal_all();
  for (const auto& link : links)
    if (link) link->close(receiver);
  tell_memory();
}

/// Writes all queues and the mark of the end behind them to shared memory. Returns whether that was done in time.
bool ShmModule::Impl::settle(std::chrono::steady_clock::time_point limit) {
  constexpr std::chrono::microseconds first_pause{20};
  constexpr std::chrono::microseconds longest_pause{2000};
  bool good = true;
  for (std::chrono::microseconds pause = first_pause;; pause = std::min(2 * pause, longest_pause)) {
    // Frames that others send now are read and dropped: a peer that waits for room to write could not end otherwise.
    for (LinkReports::Told told = reports.links().take(); told.link != nullptr; told = reports.links().take())
      if (told.up) static_cast<Link*>(told.link)->begin_reading();
    tell_memory();
    std::size_t left = 0;
    for (const auto& link : links) {
      if (!link) continue;
      if (receiver != nullptr) link->drain(*receiver);
      link->write();
      left += link->queued();
    }
    if (left == 0 || std::chrono::steady_clock::now() >= limit) break;
    std::this_thread::sleep_for(pause);
  }
  for (const auto& link : links)
    if (link && !link->end_in_order()) good = false;
  return good;
}

Traffic ShmModule::traffic() const noexcept {
  Traffic traffic;
  for (const auto& link : impl_->links)
    if (link) link->count(traffic);
  traffic.refused = impl_->service.refused();
  traffic.system_calls += impl_->service.system_calls();
  return traffic;
}

std::string ShmModule::describe(Peer peer) const {
  const char* state = "not joined";
  switch (impl_->link(peer, "describe").state()) {
    case Link::State::up:
      state = "joined";
      break;
    case Link::State::over:
      state = "ended";
      break;
    default:
      break;
  }
  // Nothing leaves the memory of the host, so tls would hide nothing.
  return fmt::format("shm, {}, {}", state, to_string(impl_->settings.secure));
}

namespace {

class ShmPort final : public Port {
 public:
  explicit ShmPort(const PortSettings& settings) : presence_(settings.host), settings_(settings) {}

  [[nodiscard]] std::string endpoint() const override { return presence_.own.print(); }

  [[nodiscard]] std::unique_ptr<Module> join(const JoinSettings& settings) override {
    return std::make_unique<ShmModule>(Settings{settings_, settings, std::move(presence_)});
  }

 private:
  Presence presence_;
  PortSettings settings_;
};

class ShmKind final : public ModuleKind {
 public:
  [[nodiscard]] std::string name() const override { return "shm"; }
  [[nodiscard]] std::string version() const override { return aplib::version; }
  [[nodiscard]] std::string description() const override {
    return "frames through shared memory, between processes of one host";
  }
  [[nodiscard]] int rank() const override { return 300; }
  [[nodiscard]] bool one_host() const override { return true; }
  [[nodiscard]] bool has_remote_memory() const override { return true; }
  /// Nothing leaves the memory of the host: there is nothing to encrypt.
  [[nodiscard]] bool keeps(Secure) const override { return true; }
  [[nodiscard]] std::optional<std::string> unusable(const PortSettings& settings) const override {
    if (settings.host.empty()) return "it is not known which processes share this host's memory";
    if (::access("/proc/self/fd", X_OK) != 0) return "/proc is not mounted, by which memory of another one is opened";
    try {
      (void)SharedMemory::make(1);
    } catch (const std::exception& error) {
      return error.what();
    }
    return std::nullopt;
  }
  [[nodiscard]] std::unique_ptr<Port> open(const PortSettings& settings) const override {
    return std::make_unique<ShmPort>(settings);
  }
  [[nodiscard]] bool joins(const std::string& endpoint, const std::string& other) const override {
    const auto one = Endpoint::parse(endpoint);
    const auto two = Endpoint::parse(other);
    return one && two && one->joins(*two);
  }
};

}  // namespace

}  // namespace aplib::comm::shm

std::unique_ptr<aplib::comm::ModuleKind> aplib::comm::shm_kind() { return std::make_unique<shm::ShmKind>(); }
