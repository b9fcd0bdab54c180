// SPDX-License-Identifier: MIT
#include "comm/shm/service.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <exception>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "aplib/error.hpp"
#include "comm/connect/greeter.hpp"
#include "comm/shm/presence.hpp"

namespace aplib::comm::shm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds retry_after{10};

bool is_same_user(int socket) noexcept {
  ucred who{};
  socklen_t bytes = sizeof who;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &bytes) == 0 && who.uid == ::geteuid();
}

bool send_all(int socket, std::span<const std::byte> bytes) noexcept {
  // So little fits into any socket that nothing was written to before.
  return bytes.empty() ||
         ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(bytes.size());
}

}  // namespace

struct Service::Impl {
  /// A connection in the making.
  struct Entrance {
    os::UniqueFd socket{};  // None: to be tried again at `retry`.
    Clock::time_point retry{};
    Clock::time_point limit{};
    std::optional<Peer> peer{};  // Once it is known.
    bool ours = false;           // We call.
    bool taken = false;          // They call, and we wait for what they give.
    std::optional<Greeting> greeting{};
    Connection connection{};
  };
  using Place = std::list<Entrance>::iterator;

  Impl(Service& owner, const Settings& given, const Bell& bell_, std::span<const std::unique_ptr<Link>> all);

  void run() noexcept;
  void round();
  void accept();
  void begin_calls();
  void dial(Entrance& entrance);
  /// False: it is over.
  bool advance(Entrance& entrance);
  bool greet(Entrance& entrance);
  bool judge(Entrance& entrance);
  bool receive(Entrance& entrance);
  bool join(Entrance& entrance);
  bool fail(Entrance& entrance, const std::string& why);
  void expire(Clock::time_point now);
  [[nodiscard]] Introduction introduction(Peer peer) const;
  [[nodiscard]] milliseconds patience() const {
    return std::max<milliseconds>(settings.peer_timeout, std::chrono::seconds(2));
  }
  void refuse() { service.refused_.fetch_add(1, std::memory_order_relaxed); }
  void count() { service.system_calls_.fetch_add(1, std::memory_order_relaxed); }
  void alarm() const noexcept {
    constexpr std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(control.get(), &one, sizeof one);
  }

  Service& service;
  const Settings& settings;
  const Bell& bell;
  std::span<const std::unique_ptr<Link>> links;
  std::vector<Endpoint> endpoints;

  os::UniqueFd control;  // Something is in `asked`, or stop.
  std::mutex mutex;
  std::vector<Peer> asked;  // Under the mutex.
  std::atomic<bool> stopping{false};
  bool accepting = true;

  std::list<Entrance> entrances;
  std::vector<std::pair<int, Peer>> joined;  // Sockets of links that are up; the links own them.
  std::thread thread;
};

Service::Impl::Impl(Service& owner, const Settings& given, const Bell& bell_,
                    std::span<const std::unique_ptr<Link>> all)
    : service(owner), settings(given), bell(bell_), links(all), control(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  endpoints.resize(links.size());
  for (Peer peer = 0; peer < links.size(); ++peer) {
    if (links[peer]) endpoints[peer] = *Endpoint::parse(settings.endpoints[peer]);  // the module has looked at it
  }
  if (!control)
    throw Error(Errc::exhausted,
                "shm: cannot make the descriptor its thread waits on; raise the limit of open files "
                "(ulimit -n)");
  // Signals are for the threads of the program.
  sigset_t all_signals;
  sigset_t before;
  sigfillset(&all_signals);
  pthread_sigmask(SIG_SETMASK, &all_signals, &before);
  try {
    thread = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw Error(Errc::exhausted, fmt::format("shm: cannot start its thread: {}; raise the limit of processes "
                                             "(ulimit -u)",
                                             error.code().message()));
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_setname_np(thread.native_handle(), "aplib-shm");
}

Introduction Service::Impl::introduction(Peer peer) const {
  return {settings.secure, Purpose::data, 0, settings.self, peer, settings.machine, 0};
}

void Service::Impl::run() noexcept {
  while (!stopping.load(std::memory_order_acquire)) {
    try {
      round();
    } catch (const std::exception&) {
      // No memory for one connection: it ends by its time limit, the others go on.
    }
  }
}

/// Sleeps until something happens, and does it.
void Service::Impl::round() {
  std::vector<pollfd> wanted{{control.get(), POLLIN, 0}};
  wanted.push_back({accepting ? settings.presence.listener.get() : -1, POLLIN, 0});
  std::optional<Clock::time_point> next;
  for (const Entrance& entrance : entrances) {
    wanted.push_back({entrance.socket.get(), POLLIN, 0});
    const Clock::time_point due = entrance.socket ? entrance.limit : std::min(entrance.retry, entrance.limit);
    next = next ? std::min(*next, due) : due;
  }
  // Nothing comes there but the end.
  for (const auto& [socket, peer] : joined) wanted.push_back({socket, POLLRDHUP, 0});
  int timeout = -1;
  if (next) timeout = std::max(0, static_cast<int>(std::chrono::ceil<milliseconds>(*next - Clock::now()).count()));
  if (::poll(wanted.data(), wanted.size(), timeout) < 0) return;
  if (stopping.load(std::memory_order_acquire)) return;

  std::size_t i = 2;
  for (Place place = entrances.begin(); place != entrances.end(); ++i) {
    const Place here = place++;
    if (wanted[i].revents != 0 && !advance(*here)) entrances.erase(here);
  }
  std::vector<std::pair<int, Peer>> ended;
  for (const pollfd& end : std::span(wanted).subspan(i)) {
    if (end.revents == 0) continue;
    const auto found = std::find_if(joined.begin(), joined.end(), [&](const auto& j) { return j.first == end.fd; });
    ended.push_back(*found);
    joined.erase(found);
  }
  for (const auto& [socket, peer] : ended) links[peer]->give_up("its process has ended");
  if (wanted[0].revents != 0) {
    std::uint64_t ignored = 0;
    [[maybe_unused]] const ssize_t bytes = ::read(control.get(), &ignored, sizeof ignored);
    begin_calls();
  }
  if (wanted[1].revents != 0) accept();
  expire(Clock::now());
}

void Service::Impl::accept() {
  os::UniqueFd socket(::accept4(settings.presence.listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  count();
  if (!socket) {
    // No descriptors left: it is tried again when something else has happened, or after a while.
    if (errno == EMFILE || errno == ENFILE) std::this_thread::sleep_for(retry_after);
    return;
  }
  if (!is_same_user(socket.get())) return refuse();
  if (entrances.size() >= connect::strangers_max + 2 * links.size()) {
    // Somebody opens connections and says nothing. The one that has been silent for longest goes.
    const auto silent = std::find_if(entrances.begin(), entrances.end(), [](const auto& e) { return !e.peer; });
    if (silent != entrances.end()) {
      refuse();
      entrances.erase(silent);
    }
  }
  Entrance& entrance = entrances.emplace_back();
  entrance.socket = std::move(socket);
  entrance.limit = Clock::now() + Greeting::time_max;
  entrance.greeting.emplace(Greeting::Role::answerer, settings.key, introduction(Introduction::anyone));
}

void Service::Impl::begin_calls() {
  std::vector<Peer> peers;
  {
    const std::lock_guard hold(mutex);
    peers.swap(asked);
  }
  for (const Peer peer : peers) {
    if (links[peer]->state() != Link::State::calling) continue;  // theirs was quicker
    Entrance& entrance = entrances.emplace_back();
    entrance.ours = true;
    entrance.peer = peer;
    entrance.limit = Clock::now() + patience();
    dial(entrance);
  }
}

void Service::Impl::dial(Entrance& entrance) {
  const Peer peer = *entrance.peer;
  entrance.socket = connect_to(endpoints[peer]);
  count();
  if (!entrance.socket) {
    // Its listener is there as long as its process is, whatever else is wrong passes.
    if (errno == ECONNREFUSED) {
      fail(entrance, "its process has ended");
      entrance.limit = {};
    }
    entrance.retry = Clock::now() + retry_after;
    return;
  }
  entrance.greeting.emplace(Greeting::Role::caller, settings.key, introduction(peer));
  if (!is_same_user(entrance.socket.get()) || !send_all(entrance.socket.get(), entrance.greeting->take_output())) {
    fail(entrance, "what answers for it is another user's");
    entrance.socket.reset();
    entrance.limit = {};
  }
}

bool Service::Impl::fail(Entrance& entrance, const std::string& why) {
  if (entrance.ours) {
    if (links[*entrance.peer]->state() == Link::State::calling) links[*entrance.peer]->give_up(why);
  } else if (entrance.taken) {
    links[*entrance.peer]->give_up(why);
  } else {
    refuse();
  }
  return false;
}

bool Service::Impl::advance(Entrance& entrance) {
  count();
  try {
    return entrance.greeting ? greet(entrance) : receive(entrance);
  } catch (const std::exception& error) {
    return fail(entrance, error.what());  // no memory, or no cryptography
  }
}

bool Service::Impl::greet(Entrance& entrance) {
  std::array<std::byte, Greeting::bytes_max> input;
  Greeting& greeting = *entrance.greeting;
  // Not a byte more than the greeting's: what comes behind it carries descriptors.
  const ssize_t bytes = ::recv(entrance.socket.get(), input.data(), std::min(input.size(), greeting.wants()), 0);
  if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  // Who ends it while he calls was called himself meanwhile, or has thought better of it.
  if (bytes <= 0) return entrance.ours && fail(entrance, "its process has ended");
  greeting.receive(std::span(input).first(static_cast<std::size_t>(bytes)));
  // A stranger learns nothing, and closes the greeting's own way.
  const bool sent =
      greeting.state() == Greeting::State::stranger || send_all(entrance.socket.get(), greeting.take_output());
  switch (greeting.state()) {
    case Greeting::State::refused:
      return fail(entrance, greeting.words());
    case Greeting::State::stranger:
      return fail(entrance, "what answers for it is not of this machine: " + greeting.words());
    case Greeting::State::going:
      return sent || (entrance.ours && fail(entrance, "its process has ended"));
    case Greeting::State::done:
      break;
  }
  if (!sent) return entrance.ours && fail(entrance, "its process has ended");
  const Peer peer = greeting.peer().self;
  entrance.greeting.reset();
  entrance.limit = Clock::now() + patience();
  if (entrance.ours) return true;
  if (peer >= links.size() || !links[peer]) return fail(entrance, "it is not expected");
  entrance.peer = peer;
  return judge(entrance);
}

/// Which of two connections of a pair carries the frames. On this thread, where nothing else changes it.
bool Service::Impl::judge(Entrance& entrance) {
  const Peer peer = *entrance.peer;
  Link& link = *links[peer];
  // Both call.
  if (connect::our_call_counts(settings.self, peer) && link.state() == Link::State::calling) {
    (void)give(entrance.socket.get(), Verdict::not_now, nullptr, bell);
    return false;
  }
  if (!link.answer(connect::our_call_counts(peer, settings.self)))
    return false;  // our calls crossed, and we are joined already
  entrance.taken = true;
  try {
    entrance.connection.mine = SharedMemory::make(sizeof(Segment));
  } catch (const Error& error) {
    return fail(entrance, error.what());
  }
  if (!give(entrance.socket.get(), Verdict::taken, &entrance.connection.mine, bell))
    return fail(entrance, "its process has ended");
  return true;
}

/// What the other side gives behind the greeting.
bool Service::Impl::receive(Entrance& entrance) {
  std::string why;
  switch (take(entrance.socket.get(), bell, entrance.connection, why)) {
    case Given::nothing_yet:
      return true;
    case Given::not_now:
      // Its call is on the way; it is lost if that does not come.
      entrance.socket.reset();
      entrance.retry = Clock::time_point::max();
      return entrance.ours || fail(entrance, "it does not follow the protocol");
    case Given::wrong:
      return fail(entrance, why);
    case Given::taken:
      break;
  }
  if (!entrance.ours) return join(entrance);
  const Peer peer = *entrance.peer;
  if (links[peer]->state() != Link::State::calling) return false;  // theirs was taken meanwhile
  try {
    entrance.connection.mine = SharedMemory::make(sizeof(Segment));
  } catch (const Error& error) {
    return fail(entrance, error.what());
  }
  if (!give(entrance.socket.get(), Verdict::taken, &entrance.connection.mine, bell))
    return fail(entrance, "its process has ended");
  return join(entrance);
}

bool Service::Impl::join(Entrance& entrance) {
  const Peer peer = *entrance.peer;
  entrance.connection.mine.forget_descriptor();
  entrance.connection.socket = std::move(entrance.socket);
  const int socket = entrance.connection.socket.get();
  if (links[peer]->connect(std::move(entrance.connection))) joined.emplace_back(socket, peer);
  return false;
}

void Service::Impl::expire(Clock::time_point now) {
  for (Place place = entrances.begin(); place != entrances.end();) {
    const Place here = place++;
    if (here->ours && links[*here->peer]->state() != Link::State::calling) {
      entrances.erase(here);  // theirs was taken
    } else if (now >= here->limit) {
      fail(*here,
           fmt::format("it does not answer within {} s", std::chrono::ceil<std::chrono::seconds>(patience()).count()));
      entrances.erase(here);
    } else if (here->ours && !here->socket && now >= here->retry) {
      dial(*here);
    }
  }
}

Service::Service(const Settings& settings, const Bell& bell, std::span<const std::unique_ptr<Link>> links)
    : impl_(std::make_unique<Impl>(*this, settings, bell, links)) {}

Service::~Service() { stop(); }

void Service::call(Peer peer) {
  {
    const std::lock_guard hold(impl_->mutex);
    impl_->asked.push_back(peer);
  }
  impl_->alarm();
}

void Service::stop() {
  if (!impl_->thread.joinable()) return;
  impl_->stopping.store(true, std::memory_order_release);
  impl_->alarm();
  impl_->thread.join();
  impl_->entrances.clear();
}

}  // namespace aplib::comm::shm
