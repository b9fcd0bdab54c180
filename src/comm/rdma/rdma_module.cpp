// SPDX-License-Identifier: MIT
#include "comm/rdma/rdma_module.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "aplib/error.hpp"
#include "comm/rdma/rdma_state.hpp"

namespace aplib::comm {
namespace {

constexpr std::size_t incoming_max = 128;  // Packets that wait in our memory; more wait in the provider's.
constexpr std::size_t outgoing_max = 256;

/// A local buffer's registration.
class LocalRegion final : public Registration {
 public:
  explicit LocalRegion(Fid<fid_mr> region) noexcept : region_(std::move(region)) {}
  [[nodiscard]] void* descriptor() const noexcept override { return fi_mr_desc(region_.get()); }

 private:
  Fid<fid_mr> region_;
};

}  // namespace

RdmaModule::State::State(RdmaSettings settings)
    : settings_(std::move(settings)),
      count_(static_cast<std::uint32_t>(settings_.addresses.size())),
      fabric_(*settings_.fabric),
      sends_after_writes_((fabric_.info().tx_attr->msg_order & fabric_.info().rx_attr->msg_order & FI_ORDER_SAW) != 0),
      links_(std::make_unique<RdmaLink[]>(count_)),
      incoming_(fabric_, packet_bytes_max, incoming_max, FI_RECV),
      outgoing_(fabric_, packet_bytes_max, outgoing_max, FI_SEND),
      pool_(fabric_) {
  for (Peer peer = 0; peer < count_; ++peer) {
    if (peer != settings_.self && !settings_.addresses[peer].empty())
      links_[peer].address = fabric_.insert(settings_.addresses[peer]);
  }
  if (fabric_.needs(FI_MR_LOCAL)) {
    cache_ = std::make_unique<RegistrationCache>(
        [this](std::span<const std::byte> pages) -> std::shared_ptr<Registration> {
          int error = 0;
          Fid<fid_mr> region = fabric_.enroll(pages, FI_READ | FI_WRITE, error);
          return region ? std::make_shared<LocalRegion>(std::move(region)) : nullptr;
        },
        RegistrationCache::Limits{}, true);
  }
  sleep_.open(fabric_.descriptors());
}

RdmaModule::State::~State() {
  if (receiver_ != nullptr && !ended_) static_cast<void>(close(std::chrono::nanoseconds(0)));
  if (!ended_) fabric_.end();  // Before the memory that it has goes.
}

std::string RdmaModule::State::name_of(Peer peer) const {
  return peer < settings_.names.size() && !settings_.names[peer].empty()
             ? fmt::format("process {} ({})", peer, settings_.names[peer])
             : fmt::format("process {}", peer);
}

void RdmaModule::State::start(Receiver& receiver) {
  if (receiver_ != nullptr) throw Error(Errc::bad_argument, "rdma module: started twice");
  receiver_ = &receiver;
  const std::lock_guard lock(mutex_);
  const std::size_t count = std::min(incoming_max, fabric_.info().rx_attr->size);
  for (std::size_t i = 0; i < count; ++i) {
    PacketBuffers::Buffer* const buffer = incoming_.take();
    if (buffer == nullptr) {
      if (i != 0) break;
      throw Error(Errc::exhausted, "rdma: no memory for packets to come");
    }
    give_back(buffer);
  }
}

bool RdmaModule::State::reaches(Peer peer) const noexcept {
  return peer < count_ && links_[peer].address != FI_ADDR_UNSPEC;
}

bool RdmaModule::State::arm() {
  sleep_.arm();
  const std::lock_guard lock(mutex_);
  if (ended_) return true;
  release_delivered();
  if (operations_out_ != 0) take_completions();
  if (!busy_.empty()) pump_all();
  if (news_.load()) return false;
  return fabric_.descriptors().empty() || fabric_.may_sleep();
}

void RdmaModule::State::wait(std::optional<std::chrono::nanoseconds> timeout) {
  if (arm()) sleep_.sleep(time_to_sleep(timeout));
  disarm();
}

/// How long to sleep at most.
std::optional<std::chrono::nanoseconds> RdmaModule::State::time_to_sleep(
    std::optional<std::chrono::nanoseconds> timeout) {
  using namespace std::chrono_literals;
  std::optional<std::chrono::nanoseconds> limit;
  const std::lock_guard lock(mutex_);
  if (ended_) return timeout;
  // What the provider did not take is tried again, at longer and longer intervals; so is what a limit of time hangs on. Nothing else makes a tick.
  for (const Peer peer : busy_) {
    const RdmaLink& link = links_[peer];
    auto since = link.stuck_since;
    if (!since && link.stage == RdmaLink::Stage::greeting) since = link.greeting_since;
    for (const auto& other : {link.asked_since, link.gap_since, link.transfers_since, link.failed_since})
      since = since ? since : other;
    if (!since) continue;
    const std::chrono::nanoseconds next =
        std::clamp<std::chrono::nanoseconds>((Clock::now() - *since) / 4, 100us, 50ms);
    limit = limit ? std::min(*limit, next) : next;
  }
  if (fabric_.descriptors().empty()) {
    // Nobody wakes us: looks again after a time that doubles while nothing comes.
    const int idle = std::min(idle_polls_.fetch_add(1), 9);
    limit = std::min<std::chrono::nanoseconds>(limit.value_or(1s), 20us * (1 << idle));
  }
  return limit && (!timeout || *limit < *timeout) ? limit : timeout;
}

Traffic RdmaModule::State::traffic() const noexcept {
  return {.frames_sent = frames_sent_.load(),
          .frames_received = frames_received_.load(),
          .bytes_sent = bytes_sent_.load(),
          .bytes_received = bytes_received_.load(),
          .system_calls = calls_.load(),
          .refused = refused_.load()};
}

std::string RdmaModule::State::describe(Peer peer) const {
  const fi_info& info = fabric_.info();
  return fmt::format("rdma, provider {}, {}, {}", info.fabric_attr->prov_name,
                     info.domain_attr->name != nullptr ? info.domain_attr->name : "no domain",
                     reaches(peer) ? to_string(settings_.secure) : "not reached");
}

// What the kernel calls.

RdmaModule::RdmaModule(RdmaSettings settings) : state_(std::make_unique<State>(std::move(settings))) {}

RdmaModule::~RdmaModule() = default;

void RdmaModule::start(Receiver& receiver) { state_->start(receiver); }

void RdmaModule::send(Peer to, const Label& label, std::span<const std::byte> body) {
  state_->check(to, "send");
  if (body.size() > body_bytes_max) {
    throw Error(Errc::bad_argument,
                fmt::format("rdma: send to {}: a body of {} bytes; at most {} are carried: send it in parts",
                            state_->name_of(to), body.size(), body_bytes_max));
  }
  state_->send(to, label, body);
}

std::size_t RdmaModule::queued(Peer to) const noexcept {
  return to < state_->processes() ? state_->link(to).queued.load() : 0;
}

void RdmaModule::flush() noexcept { state_->flush(); }

bool RdmaModule::poll() { return state_->poll(); }

void RdmaModule::wait(std::optional<std::chrono::nanoseconds> timeout) { state_->wait(timeout); }

void RdmaModule::wake() noexcept { state_->sleep().call(); }

bool RdmaModule::reaches_memory(Peer peer) const noexcept { return state_->reaches(peer); }

MemoryKey RdmaModule::expose(Peer peer, std::span<std::byte> memory) {
  state_->check(peer, "expose");
  return state_->expose(peer, memory);
}

void RdmaModule::conceal(Peer /*peer*/, const MemoryKey& key) noexcept { state_->conceal(key); }

void RdmaModule::write(Peer to, const MemoryKey& key, std::uint64_t address, std::span<const std::byte> local,
                       std::uint64_t context) {
  state_->check(to, "write");
  // The provider only reads it.
  const std::span<std::byte> source(const_cast<std::byte*>(local.data()), local.size());
  state_->transfer(to, RdmaTransfer::Kind::write, key, address, source, context);
}

void RdmaModule::read(Peer from, const MemoryKey& key, std::uint64_t address, std::span<std::byte> local,
                      std::uint64_t context) {
  state_->check(from, "read");
  state_->transfer(from, RdmaTransfer::Kind::read, key, address, local, context);
}

int RdmaModule::descriptor() noexcept { return state_->descriptor(); }

bool RdmaModule::arm() { return state_->arm(); }

void RdmaModule::disarm() noexcept { state_->disarm(); }

bool RdmaModule::close(std::chrono::nanoseconds linger) { return state_->close(linger); }

Traffic RdmaModule::traffic() const noexcept { return state_->traffic(); }

std::string RdmaModule::describe(Peer peer) const { return state_->describe(peer); }

bool RdmaModule::abandon() {
  state_->abandon();
  return false;
}

std::shared_ptr<Fabric> RdmaModule::fabric() const { return state_->fabric(); }

/// Throws Error for a process that is not reached.
void RdmaModule::State::check(Peer peer, const char* call) const {
  if (reaches(peer)) return;
  throw Error(Errc::bad_argument, fmt::format("rdma: {}: {} is {}", call, name_of(peer),
                                              peer == settings_.self ? "this process; modules carry frames to others"
                                              : peer < count_        ? "not reached by this module"
                                                                     : "none of this machine's"));
}

int RdmaModule::State::descriptor() const noexcept { return fabric_.descriptors().empty() ? -1 : sleep_.descriptor(); }

}  // namespace aplib::comm
