// SPDX-License-Identifier: MIT
#include "comm/tcp/tcp_module.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "aplib/error.hpp"
#include "aplib/version.hpp"
#include "comm/kind.hpp"
#include "comm/tcp/link.hpp"
#include "comm/tcp/service.hpp"

namespace aplib::comm::tcp {
namespace {

/// Up to so many connected peers are read without asking the system first who has sent. A message then costs one call
/// instead of two, and a peer without one costs a call.
constexpr std::size_t read_directly_max = 4;

std::vector<std::unique_ptr<Link>> make_links(const Settings& settings, Poller& poller) {
  if (settings.self >= settings.endpoints.size()) {
    throw Error(Errc::bad_argument,
                fmt::format("tcp: process {} of a machine of {} processes", settings.self, settings.endpoints.size()));
  }
  std::vector<std::unique_ptr<Link>> links(settings.endpoints.size());
  for (Peer peer = 0; peer < links.size(); ++peer)
    if (peer != settings.self && !settings.endpoints[peer].empty())
      links[peer] = std::make_unique<Link>(peer, poller, settings.way(peer).relay);
  return links;
}

std::vector<std::string> text_of_ways(const Settings& settings) {
  std::vector<std::string> texts = settings.endpoints;
  for (Peer peer = 0; peer < texts.size(); ++peer) {
    const Way way = settings.way(peer);
    if (way.kind == Way::Kind::calls || way.kind == Way::Kind::called) texts[peer] += ", reverse";
    if (way.kind == Way::Kind::relay) texts[peer] = "by relay " + way.relay;
  }
  return texts;
}

}  // namespace

struct TcpModule::Impl {
  explicit Impl(Settings& settings)
      : self(settings.self),
        secure(settings.secure),
        ways(text_of_ways(settings)),
        links(make_links(settings, poller)),
        service(settings, links) {
    up.reserve(links.size());
  }

  Link& link(Peer peer, const char* call) const {
    if (peer < links.size() && links[peer]) return *links[peer];
    throw Error(Errc::bad_argument,
                peer == self
                    ? fmt::format("tcp: {}: process {} is this process; modules carry frames to others", call, peer)
                : peer < links.size()
                    ? fmt::format("tcp: {}: process {} is not reached by this module", call, peer)
                    : fmt::format("tcp: {}: there is no process {}; the machine has {}", call, peer, links.size()));
  }

  void write(bool also_full) noexcept {
    // Each link that is listed now is tried once. If another thread holds its lock, it stays in the list.
    for (std::uint32_t left = poller.writers(); left != 0; --left) {
      Link* const link = poller.take_writer();
      if (link == nullptr) return;
      link->write(also_full);
    }
  }

  bool handle_reports();
  void watch_all() noexcept;
  bool read_directly();
  bool read_ready();
  void note_read_ahead(bool ahead) noexcept;
  void end();
  bool settle(std::chrono::steady_clock::time_point limit);

  const Peer self;
  const Secure secure;
  const std::vector<std::string> ways;  // By peer, for people.
  Poller poller;
  std::vector<std::unique_ptr<Link>> links;
  Receiver* receiver = nullptr;

  // The polling thread's.
  std::vector<Link*> up;
  std::size_t turn = 0;
  std::atomic<bool> read_ahead = false;  // Somebody's bytes were taken from the socket and not read; for arm().

  bool closed = false;
  Service service;  // Last: its thread uses the rest.
};

TcpModule::TcpModule(Settings settings) : impl_(std::make_unique<Impl>(settings)) {}

TcpModule::~TcpModule() { close(std::chrono::nanoseconds(0)); }

void TcpModule::start(Receiver& receiver) {
  if (impl_->receiver != nullptr)
    throw Error(Errc::bad_argument, fmt::format("tcp module of process {}: started twice", impl_->self));
  impl_->receiver = &receiver;
  impl_->service.begin_calls();
}

void TcpModule::send(Peer to, const Label& label, std::span<const std::byte> body) {
  Link& link = impl_->link(to, "send");
  if (body.size() > body_bytes_max) {
    throw Error(Errc::bad_argument,
                fmt::format("tcp: send to process {}: a body of {} bytes; at most {} are carried: send it in parts", to,
                            body.size(), body_bytes_max));
  }
  try {
    if (link.send(label, body)) impl_->service.call();
  } catch (const std::bad_alloc&) {
    throw Error(Errc::exhausted,
                fmt::format("tcp: send to process {}: no memory to queue a body of {} bytes; {} bytes wait there "
                            "already: receive them sooner, or raise the limit on address space (ulimit -v)",
                            to, body.size(), link.queued()));
  }
  impl_->service.sent();
}

std::size_t TcpModule::queued(Peer to) const noexcept {
  return to < impl_->links.size() && impl_->links[to] ? impl_->links[to]->queued() : 0;
}

void TcpModule::flush() noexcept { impl_->write(false); }

bool TcpModule::poll() {
  Impl& state = *impl_;
  if (state.closed) return false;
  state.write(true);
  bool called = false;
  if (state.poller.hear()) called = state.handle_reports();
  if (state.up.size() <= read_directly_max ? state.read_directly() : state.read_ready()) called = true;
  return called;
}

bool TcpModule::Impl::handle_reports() {
  bool called = false;
  for (LinkReports::Told told = poller.reports().take(); told.link != nullptr; told = poller.reports().take()) {
    Link& link = static_cast<Link&>(*told.link);
    if (told.up) {
      link.begin_reading(*receiver);
      up.push_back(&link);  // has room for all
      if (up.size() > read_directly_max) watch_all();
    }
    if (told.lost && !link.is_over()) {
      link.lose(*receiver, *told.lost);
      called = true;
    }
  }
  std::erase_if(up, [](const Link* link) { return link->is_over(); });
  return called;
}

/// Behind Poller::begin_sleep(), or where links are no longer read directly.
void TcpModule::Impl::watch_all() noexcept {
  if (poller.unwatched() == 0) return;
  for (const auto& link : links)
    if (link) link->watch_again();
}

bool TcpModule::Impl::read_directly() {
  bool called = false;
  bool any_over = false;
  bool ahead = false;
  const std::size_t count = up.size();
  if (count > 1) turn = (turn + 1) % count;
  for (std::size_t i = 0; i < count; ++i) {
    Link* const link = up[count > 1 ? (turn + i) % count : 0];
    if (link->read(*receiver)) {
      called = true;
      link->found_in_poll();
    }
    any_over |= link->is_over();
    ahead |= link->read_ahead();
  }
  if (any_over) std::erase_if(up, [](const Link* link) { return link->is_over(); });
  note_read_ahead(ahead);
  return called;
}

bool TcpModule::Impl::read_ready() {
  constexpr std::size_t ready_max = 64;
  std::array<Link*, ready_max> ready;
  const std::size_t count = poller.ready(ready);
  bool called = false;
  for (std::size_t i = 0; i < count; ++i) {
    // A link of several streams may be listed several times. It reads all of them at once.
    if (std::find(ready.begin(), ready.begin() + i, ready[i]) == ready.begin() + i) called |= ready[i]->read(*receiver);
  }
  bool any_over = false;
  bool ahead = false;
  for (Link* const link : up) {
    if (link->must_be_asked() && std::find(ready.begin(), ready.begin() + count, link) == ready.begin() + count)
      called |= link->read(*receiver);
    any_over |= link->is_over();
    ahead |= link->read_ahead();
  }
  if (any_over) std::erase_if(up, [](const Link* link) { return link->is_over(); });
  note_read_ahead(ahead);
  return called;
}

/// The system tells nobody of these bytes any more. Somebody may have gone to sleep before they were taken.
void TcpModule::Impl::note_read_ahead(bool ahead) noexcept {
  if (!ahead) return read_ahead.store(false, std::memory_order_relaxed);  // relaxed: a look too many does no harm
  read_ahead.store(true);  // seq_cst, as both looks: either arm() sees this, or the sleeper is seen here
  if (poller.someone_sleeps()) poller.wake();
}

void TcpModule::wait(std::optional<std::chrono::nanoseconds> timeout) {
  impl_->poller.wait(arm() ? timeout : std::chrono::nanoseconds(0));
  disarm();
}

void TcpModule::wake() noexcept { impl_->poller.wake(); }

int TcpModule::descriptor() noexcept { return impl_->poller.descriptor(); }

bool TcpModule::arm() {
  impl_->poller.begin_sleep();
  impl_->watch_all();
  flush();
  return !impl_->read_ahead.load();  // behind begin_sleep(); see note_read_ahead()
}

void TcpModule::disarm() noexcept { impl_->poller.end_sleep(); }

bool TcpModule::close(std::chrono::nanoseconds linger) {
  Impl& state = *impl_;
  if (std::exchange(state.closed, true)) return true;
  const bool all = state.settle(std::chrono::steady_clock::now() + linger);
  state.end();
  return all;
}

bool TcpModule::abandon() {
  if (!std::exchange(impl_->closed, true)) impl_->end();
  return true;
}

void TcpModule::Impl::end() {
  service.stop();
  for (const auto& link : links)
    if (link) link->close();
}

/// Sends all queues and the mark of the end behind them, and waits until the other hosts have them. Returns whether
/// that was done in time.
bool TcpModule::Impl::settle(std::chrono::steady_clock::time_point limit) {
  // Frames that others send now are read and dropped: a peer that waits for room to write could not end otherwise.
  std::vector<std::byte> scratch(64 * 1024);
  std::vector<bool> marked(links.size());
  const auto rounds = [&](auto&& undone) {
    constexpr std::chrono::microseconds first_pause{20};
    constexpr std::chrono::microseconds longest_pause{2000};
    for (std::chrono::microseconds pause = first_pause;; pause = std::min(2 * pause, longest_pause)) {
      if (!undone()) return true;
      if (std::chrono::steady_clock::now() >= limit) return false;
      std::this_thread::sleep_for(pause);
    }
  };
  // What calls before it sends comes up first: the other process would take the end of a call for a loss.
  static_cast<void>(rounds([&] {
    return std::ranges::any_of(links, [this](const auto& link) {
      return link && service.calls_at_once(link->peer()) && link->state() < Link::State::up;
    });
  }));
  bool good = rounds([&] {
    bool undone = false;
    for (const auto& link : links) {
      if (!link) continue;
      if (link->state() == Link::State::up) {
        const bool connected = marked[link->peer()] || (marked[link->peer()] = link->end_in_order());
        if (connected && link->drain(scratch) && link->queued() != 0) undone = true;
      } else if (link->queued() != 0) {
        undone = true;  // it is being connected
      }
    }
    return undone;
  });
  for (const auto& link : links)
    if (link && link->queued() == 0) link->end_writing();
  good &= rounds([&] {
    bool undone = false;
    for (const auto& link : links) {
      if (!link || !link->on_its_way()) continue;
      link->drain(scratch);
      undone = true;
    }
    return undone;
  });
  return good;
}

Traffic TcpModule::traffic() const noexcept {
  Traffic traffic;
  for (const auto& link : impl_->links)
    if (link) link->count(traffic);
  traffic.refused = impl_->service.refused();
  return traffic;
}

std::string TcpModule::describe(Peer peer) const {
  const Link& link = impl_->link(peer, "describe");
  const std::size_t streams = link.streams();
  std::string connection = fmt::format("{} stream{}", streams, streams == 1 ? "" : "s");
  if (link.state() == Link::State::over) {
    connection = "ended";
  } else if (link.is_cut()) {
    connection = "cut";
  } else if (streams == 0) {
    connection = "not connected";
  }
  return fmt::format("tcp {}, {}, {}", impl_->ways[peer], connection,
                     to_string(impl_->service.is_relayed(peer) ? Secure::tls : impl_->secure));
}

namespace {

// tcp as a kind of module, which works everywhere.

class TcpPort final : public Port {
 public:
  explicit TcpPort(const PortSettings& settings) : settings_(settings), listener_(settings.address, settings.ports) {}

  std::string endpoint() const override { return listener_.endpoint(); }
  int listening() const override { return listener_.descriptor(); }

  std::unique_ptr<Module> join(const JoinSettings& settings) override {
    return std::make_unique<TcpModule>(Settings{settings_, settings, std::move(listener_)});
  }

 private:
  const PortSettings settings_;
  Listener listener_;
};

class TcpKind final : public ModuleKind {
 public:
  std::string name() const override { return "tcp"; }
  std::string version() const override { return aplib::version; }
  std::string description() const override { return "frames over TCP, between any hosts"; }
  int rank() const override { return tcp_rank; }
  bool has_remote_memory() const override { return false; }
  bool keeps(Secure) const override { return true; }
  std::optional<std::string> unusable(const PortSettings&) const override { return std::nullopt; }
  std::unique_ptr<Port> open(const PortSettings& settings) const override {
    return std::make_unique<TcpPort>(settings);
  }
  bool joins(const std::string& endpoint, const std::string& other) const override {
    return !endpoint.empty() && !other.empty();
  }

 private:
  static constexpr int tcp_rank = 100;
};

}  // namespace

}  // namespace aplib::comm::tcp

namespace aplib::comm {

std::unique_ptr<ModuleKind> tcp_kind() { return std::make_unique<tcp::TcpKind>(); }

}  // namespace aplib::comm
