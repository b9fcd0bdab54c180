// SPDX-License-Identifier: MIT
#include "comm/rdma/rdma_module.hpp"

#include <fmt/format.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <string_view>
#include <utility>

#include "aplib/error.hpp"
#include "comm/rdma/impl.hpp"

namespace aplib::comm::rdma {
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

RdmaModule::Impl::Impl(Settings settings)
    : settings_(std::move(settings)),
      count_(static_cast<std::uint32_t>(settings_.addresses.size())),
      fabric_(*settings_.fabric),
      sends_after_writes_((fabric_.info().tx_attr->msg_order & fabric_.info().rx_attr->msg_order & FI_ORDER_SAW) != 0),
      incoming_(fabric_, packet_bytes_max, incoming_max, FI_RECV),
      outgoing_(fabric_, packet_bytes_max, outgoing_max, FI_SEND),
      pool_(fabric_) {
  for (Peer peer = 0; peer < count_; ++peer) {
    links_.emplace_back(peer, reports_, news_, sleep_);
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

RdmaModule::Impl::~Impl() {
  if (receiver_ != nullptr && !ended_) static_cast<void>(close(std::chrono::nanoseconds(0)));
  if (!ended_) end_endpoint();  // Before the memory that it has goes.
}

std::string RdmaModule::Impl::name_of(Peer peer) const {
  return peer < settings_.names.size() && !settings_.names[peer].empty()
             ? fmt::format("process {} ({})", peer, settings_.names[peer])
             : fmt::format("process {}", peer);
}

void RdmaModule::Impl::start(Receiver& receiver) {
  if (receiver_ != nullptr) throw Error(Errc::bad_argument, "rdma module: started twice");
  receiver_ = &receiver;
  const std::lock_guard hold(mutex_);
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

bool RdmaModule::Impl::reaches(Peer peer) const noexcept {
  return peer < count_ && links_[peer].address != FI_ADDR_UNSPEC;
}

bool RdmaModule::Impl::arm() {
  sleep_.arm();
  const std::lock_guard hold(mutex_);
  const bool may_sleep = arm_locked();
  // A thread that sleeps on the descriptor knows no time limits of this module.
  if (may_sleep && !ended_) sleep_.set_timer(time_to_sleep(std::nullopt));
  return may_sleep;
}

bool RdmaModule::Impl::arm_locked() {
  if (ended_) return true;
  look_for_silence();
  release_delivered();
  if (!cut_ && operations_out_ != 0) take_completions();
  if (!busy_.empty()) pump_all();
  if (news_.load()) return false;
  if (cut_) return true;
  return fabric_.descriptors().empty() || fabric_.may_sleep();
}

void RdmaModule::Impl::wait(std::optional<std::chrono::nanoseconds> timeout) {
  sleep_.arm();
  bool may_sleep = false;
  {
    const std::lock_guard hold(mutex_);
    may_sleep = arm_locked();
    sleep_.set_timer(std::nullopt);
    if (may_sleep && !ended_) timeout = time_to_sleep(timeout);
  }
  if (may_sleep) sleep_.sleep(timeout);
  disarm();
}

/// How long to sleep at most. Call under the lock.
std::optional<std::chrono::nanoseconds> RdmaModule::Impl::time_to_sleep(
    std::optional<std::chrono::nanoseconds> timeout) {
  using namespace std::chrono_literals;
  std::optional<std::chrono::nanoseconds> limit;
  // What the provider did not take is tried again, at growing intervals, and so is what has a time limit. Nothing else
  // makes a tick.
  for (const Peer peer : busy_) {
    const Link& link = links_[peer];
    auto since = link.stuck_since;
    if (!since && link.state() == Link::State::calling) since = link.greeting_since;
    for (const auto& other : {link.asked_since, link.gap_since, link.transfers_since, link.failed_since})
      since = since ? since : other;
    if (!since) continue;
    const std::chrono::nanoseconds next =
        std::clamp<std::chrono::nanoseconds>((Clock::now() - *since) / 4, 100us, 50ms);
    limit = limit ? std::min(*limit, next) : next;
  }
  for (const Peer peer : watched_) {
    const Link& link = links_[peer];
    if (!link.unproven || link.asked_since) continue;
    const Clock::time_point now = Clock::now();
    const std::chrono::nanoseconds next =
        std::max<std::chrono::nanoseconds>(link.unproven_since.value_or(now) + question_after() - now, 100us);
    limit = limit ? std::min(*limit, next) : next;
  }
  if (fabric_.descriptors().empty()) {
    // Nobody wakes this thread, so it looks again after a time that doubles while nothing comes.
    const int idle = std::min(idle_polls_.fetch_add(1), 9);
    limit = std::min<std::chrono::nanoseconds>(limit.value_or(1s), 20us * (1 << idle));
  }
  return limit && (!timeout || *limit < *timeout) ? limit : timeout;
}

Traffic RdmaModule::Impl::traffic() const noexcept {
  return {.frames_sent = frames_sent_.load(),
          .frames_received = frames_received_.load(),
          .bytes_sent = bytes_sent_.load(),
          .bytes_received = bytes_received_.load(),
          .system_calls = calls_.load(),
          .refused = refused_.load()};
}

std::string RdmaModule::Impl::describe(Peer peer) const {
  const fi_info& info = fabric_.info();
  return fmt::format("rdma, provider {}, {}, {}", info.fabric_attr->prov_name,
                     info.domain_attr->name != nullptr ? info.domain_attr->name : "no domain",
                     reaches(peer) ? to_string(settings_.secure) : "not reached");
}

// The functions that the kernel calls.

RdmaModule::RdmaModule(Settings settings) : impl_(std::make_unique<Impl>(std::move(settings))) {}

RdmaModule::~RdmaModule() = default;

void RdmaModule::start(Receiver& receiver) { impl_->start(receiver); }

void RdmaModule::send(Peer to, const Label& label, std::span<const std::byte> body) {
  impl_->check(to, "send");
  if (body.size() > body_bytes_max) {
    throw Error(Errc::bad_argument,
                fmt::format("rdma: send to {}: a body of {} bytes; at most {} are carried: send it in parts",
                            impl_->name_of(to), body.size(), body_bytes_max));
  }
  impl_->send(to, label, body);
}

std::size_t RdmaModule::queued(Peer to) const noexcept {
  return to < impl_->processes() ? impl_->link(to).queued.load() : 0;
}

void RdmaModule::flush() noexcept { impl_->flush(); }

bool RdmaModule::poll() { return impl_->poll(); }

void RdmaModule::wait(std::optional<std::chrono::nanoseconds> timeout) { impl_->wait(timeout); }

void RdmaModule::wake() noexcept { impl_->sleep().call(); }

bool RdmaModule::reaches_memory(Peer peer) const noexcept { return impl_->reaches(peer); }

MemoryKey RdmaModule::expose(Peer peer, std::span<std::byte> memory) {
  impl_->check(peer, "expose");
  return impl_->expose(peer, memory);
}

void RdmaModule::conceal(Peer /*peer*/, const MemoryKey& key) noexcept { impl_->conceal(key); }

void RdmaModule::write(Peer to, const MemoryKey& key, std::uint64_t address, std::span<const std::byte> local,
                       std::uint64_t context) {
  impl_->check(to, "write");
  // The provider only reads the memory.
  const std::span<std::byte> source(const_cast<std::byte*>(local.data()), local.size());
  impl_->transfer(to, Transfer::Kind::write, key, address, source, context);
}

void RdmaModule::read(Peer from, const MemoryKey& key, std::uint64_t address, std::span<std::byte> local,
                      std::uint64_t context) {
  impl_->check(from, "read");
  impl_->transfer(from, Transfer::Kind::read, key, address, local, context);
}

int RdmaModule::descriptor() noexcept { return impl_->descriptor(); }

bool RdmaModule::arm() { return impl_->arm(); }

void RdmaModule::disarm() noexcept { impl_->disarm(); }

void RdmaModule::let_go() noexcept { impl_->let_go(); }

bool RdmaModule::close(std::chrono::nanoseconds linger) { return impl_->close(linger); }

Traffic RdmaModule::traffic() const noexcept { return impl_->traffic(); }

std::string RdmaModule::describe(Peer peer) const { return impl_->describe(peer); }

bool RdmaModule::abandon() {
  impl_->abandon();
  return false;
}

std::shared_ptr<Fabric> RdmaModule::fabric() const { return impl_->fabric(); }

/// Checks a peer. Throws Error for a process that is not reached.
void RdmaModule::Impl::check(Peer peer, const char* call) const {
  if (reaches(peer)) return;
  throw Error(Errc::bad_argument, fmt::format("rdma: {}: {} is {}", call, name_of(peer),
                                              peer == settings_.self ? "this process; modules carry frames to others"
                                              : peer < count_        ? "not reached by this module"
                                                                     : "none of this machine's"));
}

int RdmaModule::Impl::descriptor() const noexcept { return fabric_.descriptors().empty() ? -1 : sleep_.descriptor(); }

// poll(): the upcalls. They are made without the lock, so that they may send. Only the polling thread uses the inbox
// of a link.

namespace {

constexpr auto counting = std::memory_order_relaxed;  // Nothing else is read after a counter.

}  // namespace

bool RdmaModule::Impl::poll() {
  ++polls_;
  bool called = false;
  if (!with_inbox_.empty()) {
    {
      const std::lock_guard hold(mutex_);
      release_delivered();
    }
    called = deliver_inbox();
  }
  std::size_t bytes = 0;
  bool more = true;
  while (more && bytes < bytes_per_poll) {
    {
      const std::lock_guard hold(mutex_);
      if (ended_) return called;
      if (polls_ % polls_per_look == 0) look_for_silence();
      release_arrivals();
      delivered_.store(false, counting);
      if (!cut_ && operations_out_ != 0) take_completions();
      if (!busy_.empty()) pump_all();
      more = !cut_ && take_packets(bytes);
    }
    for (Arrival& arrival : arrivals_) {
      arrival.kept = deliver(arrival.peer, arrival.frames(), arrival.bytes, called);
    }
  }
  if (news_.load()) {
    called |= tell();
    if (!with_inbox_.empty()) called |= deliver_inbox();  // A large body that was in front of it has ended.
  }
  // The buffers go back with the next look at the provider, so that an answer need not wait for that.
  if (!arrivals_.empty() || !freed_.empty()) delivered_.store(true, std::memory_order_release);
  if (called) idle_polls_.store(0, counting);
  return called;
}

/// Call under the lock, before the next look at the provider.
void RdmaModule::Impl::release_delivered() {
  if (!delivered_.load(std::memory_order_acquire)) return;
  release_arrivals();
  delivered_.store(false, counting);
}

/// Gives back the room of what was delivered. Call under the lock.
void RdmaModule::Impl::release_arrivals() {
  for (const Arrival& arrival : arrivals_) {
    Link& link = links_[arrival.peer];
    if (!arrival.kept) link.consumed += arrival.bytes;
    if (arrival.buffer != nullptr) give_back(arrival.buffer);
    give_credit(link, arrival.peer);
  }
  arrivals_.clear();
  for (const auto& [peer, bytes] : freed_) {
    links_[peer].consumed += bytes;
    give_credit(links_[peer], peer);
  }
  freed_.clear();
}

/// Whether frames of the peer are wanted. Asks once per poll and peer.
bool RdmaModule::Impl::wanted(Peer from) {
  Link& link = links_[from];
  if (link.asked != polls_) {
    link.asked = polls_;
    link.wanted = receiver_->wants(from);
  }
  return link.wanted;
}

/// Delivers the frames of a packet of `credit` bytes. Returns whether any are kept for later.
bool RdmaModule::Impl::deliver(Peer from, std::span<const std::byte> frames, std::size_t credit, bool& called) {
  Link& link = links_[from];
  if (link.loss_told) return false;
  std::size_t at = 0;
  if (!link.large && link.inbox.empty() && wanted(from)) at = deliver_some(from, frames, called);
  if (at == frames.size()) return false;
  const std::span<const std::byte> rest = frames.subspan(at);
  link.inbox.push_back({{rest.begin(), rest.end()}, credit});
  if (!link.listed) {
    link.listed = true;
    with_inbox_.push_back(from);
  }
  return true;
}

/// Delivers frames up to the end, or to a large one, which it begins. Returns how many bytes that were.
std::size_t RdmaModule::Impl::deliver_some(Peer from, std::span<const std::byte> frames, bool& called) {
  Link& link = links_[from];
  std::size_t at = 0;
  while (at != frames.size()) {
    FrameHead head{};
    const std::size_t left = frames.size() - at;
    if (left >= sizeof head) std::memcpy(&head, frames.data() + at, sizeof head);
    const bool is_large = head.flags == FrameHead::large;
    if (left < sizeof head || left < frame_room(head.bytes) || head.bytes >= Module::large_from_bytes ||
        head.flags > FrameHead::large || (is_large && head.bytes != sizeof(Rendezvous))) {
      const std::lock_guard hold(mutex_);
      lose(link, from, "it breaks the protocol: a frame that does not fit into its packet", true);
      return frames.size();
    }
    const std::span<const std::byte> body = frames.subspan(at + sizeof head, head.bytes);
    at += frame_room(head.bytes);
    if (is_large) {
      Rendezvous rendezvous;
      std::memcpy(&rendezvous, body.data(), sizeof rendezvous);
      begin_large(from, head.label, rendezvous, called);
      if (link.large) return at;
      continue;
    }
    receiver_->frame(from, head.label, body);
    called = true;
    frames_received_.fetch_add(1, counting);
    bytes_received_.fetch_add(body.size(), counting);
  }
  return at;
}

void RdmaModule::Impl::begin_large(Peer from, const Label& label, const Rendezvous& rendezvous, bool& called) {
  Link& link = links_[from];
  {
    const std::lock_guard hold(mutex_);
    if (link.is_over()) return;  // It cannot be read any more; the loss follows.
    if (rendezvous.bytes < Module::large_from_bytes || rendezvous.bytes > Module::body_bytes_max) {
      return lose(link, from, "it breaks the protocol: a large body of no large size", true);
    }
  }
  called = true;
  std::byte* const into = receiver_->large_begin(from, label, rendezvous.bytes);
  const std::lock_guard hold(mutex_);
  if (into == nullptr) return lose(link, from, "a large body was refused", true);
  link.large = std::make_unique<LargeBody>(LargeBody{
      .label = label, .into = into, .bytes = rendezvous.bytes, .number = rendezvous.number, .left = rendezvous.bytes});
  if (link.is_over()) {  // Lost during the upcall.
    link.large->left = 0;
    link.large->failed = true;
    changed_.push_back(from);
    news_.store(true);
    return;
  }
  for (std::size_t at = 0; at < rendezvous.bytes;) {
    const std::size_t part = std::min<std::size_t>(rendezvous.bytes - at, part_bytes());
    link.transfers.push_back({.kind = Transfer::Kind::body,
                              .local = into + at,
                              .bytes = part,
                              .remote = rendezvous.address + at,
                              .key = rendezvous.key});
    at += part;
  }
  note_busy(link, from);
  pump(link, from);
}

/// Delivers frames that could not be delivered when they came.
bool RdmaModule::Impl::deliver_inbox() {
  bool called = false;
  for (std::size_t i = 0; i < with_inbox_.size();) {
    const Peer peer = with_inbox_[i];
    Link& link = links_[peer];
    while (!link.inbox.empty() && !link.large && wanted(peer)) {
      Link::Kept& first = link.inbox.front();
      link.inbox_at += deliver_some(peer, std::span(first.frames).subspan(link.inbox_at), called);
      if (link.inbox_at != first.frames.size()) break;
      freed_.emplace_back(peer, first.credit);
      link.inbox_at = 0;
      link.inbox.pop_front();
    }
    if (link.inbox.empty()) {
      link.listed = false;
      with_inbox_[i] = with_inbox_.back();
      with_inbox_.pop_back();
    } else {
      ++i;
    }
  }
  return called;
}

/// Reports ends of transfers and of large bodies, and losses.
bool RdmaModule::Impl::tell() {
  bool called = false;
  std::vector<Peer> changed;
  {
    const std::lock_guard hold(mutex_);
    news_.store(false);
    telling_.swap(done_);
    // In the order in which they were lost: the first loss may be the cause of the others.
    for (LinkReports::Told told = reports_.take(); told.link != nullptr; told = reports_.take()) {
      if (!told.lost) continue;
      Link& link = *static_cast<Link*>(told.link);
      lose(link, link.peer(), *told.lost, false);  // it is over already, unless a wrong edge has broken it
      changed.push_back(link.peer());
    }
    changed.insert(changed.end(), changed_.begin(), changed_.end());
    changed_.clear();
  }
  for (const Done& done : telling_) {
    receiver_->memory_done(done.context, done.ok);
    called = true;
  }
  telling_.clear();
  for (const Peer peer : changed) {
    Link& link = links_[peer];
    std::unique_ptr<LargeBody> ended;
    bool lost = false;
    {
      const std::lock_guard hold(mutex_);
      if (link.large && link.large->left != 0) continue;  // It comes here again when no read is under way any more.
      ended = std::move(link.large);
      if (ended && ended->failed) lose(link, peer, "a large body could not be read", true);
      if (ended && link.is_up()) {
        control(link, peer, PacketKind::taken, std::as_bytes(std::span(&ended->number, 1)));
      }
      lost = link.lost_because.has_value();
    }
    if (ended) {
      called = true;
      receiver_->large_end(peer, ended->label, ended->bytes, !ended->failed);
      if (!ended->failed) {
        frames_received_.fetch_add(1, counting);
        bytes_received_.fetch_add(ended->bytes, counting);
      }
    }
    if (lost && !link.loss_told) {
      link.loss_told = true;
      link.inbox.clear();
      link.inbox_at = 0;
      called = true;
      receiver_->peer_lost(peer, *link.lost_because);
    }
  }
  return called;
}

// Writes and reads in others' memory.

namespace {

/// The words of a MemoryKey. The provider checks its own key. The bounds are checked here as well, so that a mistake
/// does not cost the connection.
struct KeyWords {
  std::uint64_t key;
  std::uint64_t address;
  std::uint64_t bytes;
};
static_assert(sizeof(KeyWords) <= MemoryKey::bytes_max);

std::optional<KeyWords> words_of(const MemoryKey& key) noexcept {
  KeyWords words{};
  if (key.bytes != sizeof words) return std::nullopt;
  std::memcpy(&words, key.words.data(), sizeof words);
  return words;
}

}  // namespace

MemoryKey RdmaModule::Impl::expose(Peer peer, std::span<std::byte> memory) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  if (memory.empty())
    throw Error(Errc::bad_argument, fmt::format("rdma: expose to {}: no memory is given", name_of(peer)));
  const std::lock_guard hold(mutex_);
  Exposure& exposure = exposed_[{address, memory.size()}];
  if (exposure.times == 0) {
    int error = 0;
    exposure.region = fabric_.enroll(memory, FI_REMOTE_READ | FI_REMOTE_WRITE, error);
    if (!exposure.region) {
      exposed_.erase({address, memory.size()});
      const bool full = error == -FI_ENOMEM || error == -FI_ENOSPC || error == -FI_EAGAIN;
      throw Error(full ? Errc::exhausted : Errc::bad_argument,
                  fmt::format("rdma: expose {} bytes to {}: provider {} does not register them: {}", memory.size(),
                              name_of(peer), fabric_.info().fabric_attr->prov_name, fabric_words(error)));
    }
  }
  ++exposure.times;
  const KeyWords words{fi_mr_key(exposure.region.get()), address, memory.size()};
  MemoryKey key;
  key.bytes = sizeof words;
  std::memcpy(key.words.data(), &words, sizeof words);
  return key;
}

void RdmaModule::Impl::conceal(const MemoryKey& key) noexcept {
  const std::optional<KeyWords> words = words_of(key);
  if (!words) return;
  const std::lock_guard hold(mutex_);
  const auto found = exposed_.find({words->address, words->bytes});
  if (found == exposed_.end() || fi_mr_key(found->second.region.get()) != words->key) return;
  if (--found->second.times == 0) exposed_.erase(found);
}

std::size_t RdmaModule::Impl::part_bytes() const noexcept {
  return std::min<std::size_t>(fabric_.info().ep_attr->max_msg_size, transfer_part_max);
}

void RdmaModule::Impl::transfer(Peer peer, Transfer::Kind kind, const MemoryKey& key, std::uint64_t address,
                                std::span<std::byte> local, std::uint64_t context) {
  const std::optional<KeyWords> words = words_of(key);
  const std::lock_guard hold(mutex_);
  Link& link = links_[peer];
  const std::uint64_t offset = words ? address - words->address : 0;
  const bool open = words && offset <= words->bytes && local.size() <= words->bytes - offset;
  try {
    if (!open || closing_ || link.is_over() || local.empty()) {
      done_.push_back({context, open && local.empty() && !link.is_over()});
      news_.store(true);
      sleep_.ring();
      return;
    }
    const std::size_t part = part_bytes();
    Transfer transfer{.kind = kind,
                      .local = local.data(),
                      .bytes = local.size(),
                      .remote = fabric_.needs(FI_MR_VIRT_ADDR) ? address : offset,
                      .key = words->key,
                      .context = context};
    if (local.size() > part) {
      transfer.parts = std::make_shared<Transfer::Parts>();
      transfer.parts->left = (local.size() + part - 1) / part;
    }
    done_.reserve(done_.size() + 1);
    for (std::size_t at = 0; at < local.size(); at += part) {
      transfer.local = local.data() + at;
      transfer.bytes = std::min(part, local.size() - at);
      if (kind == Transfer::Kind::write) transfer.number = ++link.writes_begun;
      if (link.is_up() && !link.failed_since && link.transfers.empty() && link.control.empty() &&
          has_room(link, transfer.bytes) && post_transfer(link, peer, transfer)) {
        transfer.remote += transfer.bytes;
        continue;
      }
      if (link.is_over()) {
        transfer_over(link, peer, transfer, false);
        continue;
      }
      link.transfers.push_back(transfer);
      transfer.remote += transfer.bytes;
      note_busy(link, peer);
      need_greeting(link, peer);
      sleep_.ring();
    }
  } catch (const std::bad_alloc&) {
    throw Error(Errc::exhausted,
                fmt::format("rdma: {} {} bytes, {}: no memory to note it",
                            kind == Transfer::Kind::write ? "write" : "read", local.size(), name_of(peer)));
  }
}

/// Returns false if the provider does not take it now.
bool RdmaModule::Impl::post_transfer(Link& link, Peer peer, const Transfer& transfer) {
  Operation* const operation = take_operation();
  operation->peer = peer;
  operation->is_packet = false;
  operation->transfer = transfer;
  void* descriptor = nullptr;
  if (cache_) {
    operation->local = cache_->find_or_make({transfer.local, transfer.bytes});
    if (!operation->local) {
      give_operation(operation);
      if (operations_out_ != 0) return false;  // What ends gives registrations back.
      transfer_over(link, peer, transfer, false);
      return true;
    }
    descriptor = operation->local->descriptor();
  }
  ssize_t error = 0;
  if (transfer.kind == Transfer::Kind::write) {
    iovec from{transfer.local, transfer.bytes};
    fi_rma_iov to{transfer.remote, transfer.bytes, transfer.key};
    fi_msg_rma message{};
    message.msg_iov = &from;
    message.desc = &descriptor;
    message.iov_count = 1;
    message.addr = link.address;
    message.rma_iov = &to;
    message.rma_iov_count = 1;
    message.context = &operation->context;
    error = fi_writemsg(fabric_.endpoint(), &message, FI_DELIVERY_COMPLETE | FI_COMPLETION);
  } else {
    error = fi_read(fabric_.endpoint(), transfer.local, transfer.bytes, descriptor, link.address, transfer.remote,
                    transfer.key, &operation->context);
  }
  calls_.fetch_add(1, std::memory_order_relaxed);
  if (error == 0) {
    ++operations_out_;
    if (transfer.kind == Transfer::Kind::write) link.writes_posted = transfer.number;
    unstick(link);
    if (link.transfers_out++ == 0) link.transfers_since = Clock::now();
    link.transfer_bytes_out += transfer.bytes;
    note_busy(link, peer);
    return true;
  }
  give_operation(operation);
  stick(link, peer, static_cast<int>(error), "remote memory");
  return false;
}

void RdmaModule::Impl::transfer_over(Link& link, Peer peer, const Transfer& transfer, bool ok) {
  if (transfer.kind == Transfer::Kind::body) {
    if (!link.large) return;
    link.large->left -= transfer.bytes;
    if (!ok) link.large->failed = true;
    if (link.large->left != 0) return;
    changed_.push_back(peer);
  } else {
    if (transfer.kind == Transfer::Kind::write && !sends_after_writes_) {
      // Frames wait for all writes that were made before them.
      const std::size_t at = transfer.number - link.writes_over - 1;
      if (at >= link.writes_ended.size()) link.writes_ended.resize(at + 1);
      link.writes_ended[at] = true;
      while (!link.writes_ended.empty() && link.writes_ended.front()) {
        link.writes_ended.pop_front();
        ++link.writes_over;
      }
      if (!link.packets.empty()) note_busy(link, peer);
    }
    if (transfer.parts) {
      transfer.parts->ok &= ok;
      if (--transfer.parts->left != 0) return;
      ok = transfer.parts->ok;
    }
    done_.push_back({transfer.context, ok});
  }
  news_.store(true);
  sleep_.ring();
}

// The end. In close() and abandon(), no other thread is in the module.

namespace {

using namespace std::chrono_literals;

constexpr auto last_words = 50ms;     // For the marks of the end to go out, also without linger.
constexpr auto last_answers = 200ms;  // For those who should have seen them.
constexpr auto between_looks = 1ms;

}  // namespace

/// Drops frames that come while this process closes. Nobody wants them, but senders may wait until they are taken.
void RdmaModule::Impl::discard(Peer from, std::span<const std::byte> frames) {
  Link& link = links_[from];
  while (frames.size() >= sizeof(FrameHead)) {
    FrameHead head;
    std::memcpy(&head, frames.data(), sizeof head);
    if (frame_room(head.bytes) > frames.size()) return;
    if (head.flags == FrameHead::large && head.bytes == sizeof(Rendezvous) && link.is_up()) {
      Rendezvous rendezvous;
      std::memcpy(&rendezvous, frames.data() + sizeof head, sizeof rendezvous);
      control(link, from, PacketKind::taken, std::as_bytes(std::span(&rendezvous.number, 1)));
    }
    frames = frames.subspan(frame_room(head.bytes));
  }
}

/// Looks at the provider once, without taking anything for the receiver. Returns whether something came.
bool RdmaModule::Impl::progress_closing() {
  if (cut_) return false;
  // All of it is read first, because a peer that has ended gets no answer.
  std::size_t bytes = 0;
  while (take_packets(bytes)) {
  }
  for (const Arrival& arrival : arrivals_) {
    discard(arrival.peer, arrival.frames());
  }
  release_arrivals();
  take_completions();
  // A large body that was begun is read to its end, because its sender waits for that.
  news_.store(false);  // Nobody is told before the end.
  for (const Peer peer : std::exchange(changed_, {})) {
    Link& link = links_[peer];
    if (link.large && link.large->left == 0 && !link.large->failed && link.is_up())
      control(link, peer, PacketKind::taken, std::as_bytes(std::span(&link.large->number, 1)));
  }
  pump_all();
  return bytes != 0;
}

/// Whether all that was accepted has arrived or never will.
bool RdmaModule::Impl::all_out() const {
  if (operations_out_ != 0) return false;
  return std::all_of(links_.begin(), links_.end(), [](const Link& link) {
    return link.is_over() || (link.queued.load() == 0 && link.control.empty() && link.transfers.empty());
  });
}

void RdmaModule::Impl::progress_until(Clock::time_point limit, const std::function<bool()>& done) {
  while (true) {
    bool came = false;
    {
      const std::lock_guard hold(mutex_);
      came = progress_closing();
      if (done() || (!came && Clock::now() >= limit)) return;
    }
    if (!came) wait(std::min<std::chrono::nanoseconds>(between_looks, limit - Clock::now()));
  }
}

bool RdmaModule::Impl::close(std::chrono::nanoseconds linger) {
  if (ended_) return true;
  const Clock::time_point now = Clock::now();
  const Clock::time_point limit = linger > 24h * 365 ? now + 24h * 365 : now + linger;
  {
    const std::lock_guard hold(mutex_);
    closing_ = true;
    release_delivered();
    for (const Peer peer : with_inbox_) {
      Link& link = links_[peer];
      for (const Link::Kept& kept : std::exchange(link.inbox, {})) {
        discard(peer, std::span(kept.frames).subspan(std::exchange(link.inbox_at, 0)));
        freed_.emplace_back(peer, kept.credit);
      }
    }
    with_inbox_.clear();
  }
  progress_until(limit, [&] { return all_out(); });
  bool all = true;
  {
    const std::lock_guard hold(mutex_);
    for (Peer peer = 0; peer < count_; ++peer) {
      Link& link = links_[peer];
      if (link.is_over() || link.address == FI_ADDR_UNSPEC) continue;
      const bool out = link.queued.load() == 0;
      if (!out) all = false;
      if (!link.is_up()) continue;
      const std::string_view why = "the process ended before it had sent everything";
      if (!out) drop_queued(link);
      const bool stays = linger > 0ns;
      control(link, peer, out ? PacketKind::end : PacketKind::reset,
              out ? std::as_bytes(std::span(&stays, 1)) : std::as_bytes(std::span(why)));
      link.ending = true;
    }
  }
  const auto said = [this] {
    return std::all_of(links_.begin(), links_.end(),
                       [](const Link& link) { return !link.ending || link.control.empty(); });
  };
  const auto answered = [this] {
    return std::all_of(links_.begin(), links_.end(),
                       [](const Link& link) { return !link.ending || link.end_answered || link.is_over(); });
  };
  progress_until(Clock::now() + last_words, said);
  if (linger > 0ns) progress_until(std::min(Clock::now() + last_answers, std::max(limit, Clock::now())), answered);
  end_fabric();
  tell_ends();
  return all;
}

void RdmaModule::Impl::end_endpoint() noexcept {
  fabric_.end(std::any_of(operations_.begin(), operations_.end(), [](const auto& operation) {
    return operation->out && !operation->is_packet && operation->transfer.kind != Transfer::Kind::write;
  }));
}

void RdmaModule::Impl::end_fabric() {
  const std::lock_guard hold(mutex_);
  closing_ = true;
  ended_ = true;
  end_endpoint();
  exposed_.clear();
}

/// Reports the ends of all transfers. REQUIRES: nothing is under way, so the provider touches no memory.
void RdmaModule::Impl::tell_ends() {
  for (const std::unique_ptr<Operation>& operation : operations_) {
    if (!operation->out || operation->is_packet || operation->given_up) continue;
    transfer_over(links_[operation->peer], operation->peer, operation->transfer, false);
  }
  for (Peer peer = 0; peer < count_; ++peer) {
    Link& link = links_[peer];
    end(link);
    if (const std::unique_ptr<LargeBody> ended = std::move(link.large))
      receiver_->large_end(peer, ended->label, ended->bytes, false);
  }
  for (const Done& done : std::exchange(done_, {})) receiver_->memory_done(done.context, done.ok);
}

/// No provider takes back what it was told to read or write for one peer. For all peers, the end of the endpoint does.
void RdmaModule::Impl::let_go() noexcept {
  const std::lock_guard hold(mutex_);
  const bool any = std::any_of(operations_.begin(), operations_.end(), [](const auto& operation) {
    return operation->out && !operation->is_packet;  // also what was given up
  });
  if (!any || ended_ || cut_) return;
  cut_ = true;
  end_endpoint();
  for (Link& link : links_) {
    end(link);
    give_up_transfers(link.peer());
  }
  operations_out_ = 0;  // Packets were out, too.
}

void RdmaModule::Impl::abandon() { end_fabric(); }

}  // namespace aplib::comm::rdma
