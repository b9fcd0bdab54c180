// SPDX-License-Identifier: MIT
// A module in one file that needs only <aplib/comm_module.h>. It carries frames between processes of one user on one
// host, over AF_UNIX sockets with packets. docs/write-a-module.md walks through it.
//
// Each pair of processes has one socket. The process with the lower number connects when it starts, from a socket whose
// name says who it is. A frame is a packet of header and body; a large frame has further packets. The last packet of a
// connection marks its ordered end.
#include <aplib/comm_module.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

APLIB_COMM_REQUIRE(1, 0);

namespace {

constexpr std::size_t packet_bytes_max = 32 * 1024;  // Every socket takes packets of this size.
constexpr std::size_t poll_bytes_max = 64 * 1024;    // In one poll(), from each peer.
constexpr std::uint64_t end_mark = ~std::uint64_t{0};
constexpr std::uint64_t is_bell = 1ULL << 32, is_caller = 2ULL << 32;  // Data of epoll; smaller numbers are peers.

struct Header {
  aplib_comm_label label;
  std::uint64_t bytes;  // Size of the body, or end_mark.
};

struct Peer {
  // Guarded by the module's mutex:
  int socket = -1;              // Not connected yet.
  bool over = false;            // Lost, or ended in order: nothing more comes, and what is sent is dropped.
  bool unwanted = false;        // The host did not want its frames when last asked.
  std::uint32_t watched = 0;    // Events that epoll watches.
  std::deque<std::string> out;  // Packets that the system has not taken yet.
  std::atomic<std::uint64_t> queued{0};
  // For the polling thread only: the large frame under way.
  Header large{};
  char* target = nullptr;
  std::uint64_t got = 0;
};

std::int32_t fail(aplib_comm_error* error, std::int32_t status, const std::string& text) {
  std::snprintf(error->text, sizeof error->text, "example: %s", text.c_str());
  return status;
}

/// No exception leaves a plug-in. The only one that this code can throw says that memory is short.
template <class Call>
std::int32_t guarded(aplib_comm_error* error, Call&& call) noexcept {
  try {
    return call();
  } catch (const std::exception& thrown) {
    return fail(error, APLIB_COMM_EXHAUSTED, thrown.what());
  }
}

int packet_socket() { return ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); }

/// The address of an abstract socket: a 0 and the name.
struct Address {
  sockaddr_un address{};
  socklen_t bytes = sizeof address;
  static constexpr std::size_t name_at = offsetof(sockaddr_un, sun_path) + 1;
  Address() = default;
  explicit Address(const std::string& name) {
    address.sun_family = AF_UNIX;
    bytes = static_cast<socklen_t>(name_at + name.copy(address.sun_path + 1, sizeof address.sun_path - 1));
  }
  std::string name() const {
    return bytes > name_at ? std::string(address.sun_path + 1, bytes - name_at) : std::string();
  }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&address); }
};

bool same_user(int socket) {
  ucred other{};
  socklen_t bytes = sizeof other;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &other, &bytes) == 0 && other.uid == ::getuid();
}

}  // namespace

struct aplib_comm_port {
  int listener = -1;
  std::string endpoint;  // "HOST@NAME", where NAME is that of an abstract socket.
  ~aplib_comm_port() {
    if (listener >= 0) ::close(listener);
  }
};

struct aplib_comm_module {
  std::uint32_t self = 0;
  std::vector<std::string> endpoints;
  std::unique_ptr<Peer[]> peers;
  const aplib_comm_receiver* up = nullptr;
  int listener = -1, epoll = ::epoll_create1(EPOLL_CLOEXEC), bell = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  std::mutex mutex;  // Never held during an upcall, because upcalls send.
  bool closed = false;
  char packet[packet_bytes_max]{};  // To be sent; guarded by the mutex. Not on the stack, which may be small.
  char buffer[packet_bytes_max]{};  // Received; for the polling thread only.
  std::vector<std::uint32_t> gone;  // Peers that were not there when we connected.
  bool any_unwanted = false;        // For the polling thread only.
  std::atomic<std::uint64_t> waiting{0}, sent{0}, sent_bytes{0}, received{0}, received_bytes{0}, calls{0}, refused{0};

  ~aplib_comm_module() {
    close(0);
    for (const int descriptor : {epoll, bell}) ::close(descriptor);
  }
  std::uint32_t count() const { return static_cast<std::uint32_t>(endpoints.size()); }
  bool is_peer(std::uint32_t number) const { return number < count() && number != self && !endpoints[number].empty(); }
  std::string socket_name(std::uint32_t number) const {
    return endpoints[number].substr(endpoints[number].rfind('@') + 1);
  }
  /// The name of the connecting process's socket, which says who it is.
  std::string socket_name(std::uint32_t caller, std::uint32_t called) const {
    return socket_name(caller) + "." + std::to_string(called);
  }
  void watch(int descriptor, int operation, std::uint32_t events, std::uint64_t what) const {
    epoll_event event{};
    event.events = events;
    event.data.u64 = what;
    ::epoll_ctl(epoll, operation, descriptor, &event);
  }
  /// Sets what epoll watches: no thread wakes up for frames that the host does not want. Guarded by the mutex.
  void watch(std::uint32_t number) {
    Peer& peer = peers[number];
    if (peer.socket < 0) return;
    std::uint32_t events = 0;
    if (!peer.over && !peer.unwanted) events |= EPOLLIN;
    if (!peer.over && !peer.out.empty()) events |= EPOLLOUT;
    if (events == peer.watched) return;
    const int operation = events == 0 ? EPOLL_CTL_DEL : peer.watched == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
    watch(peer.socket, operation, events, number);
    peer.watched = events;
  }

  // --- Sending; guarded by the mutex ---

  void drop(Peer& peer) {
    peer.out.clear();
    waiting -= peer.queued.exchange(0);
  }
  /// True when the packet is done: the system took it, or nobody is there any more, which reading the socket will
  /// show.
  bool put(const Peer& peer, const char* bytes, std::size_t count) {
    if (peer.socket < 0) return false;
    ++calls;
    return ::send(peer.socket, bytes, count, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0 || errno == EPIPE || errno == ECONNRESET;
  }
  void put_or_queue(std::uint32_t to, std::size_t bytes) {
    Peer& peer = peers[to];
    if (peer.out.empty() && put(peer, packet, bytes)) return;
    peer.out.emplace_back(packet, bytes);
    peer.queued += bytes;
    waiting += bytes;
    watch(to);
  }
  void put_queued() {
    for (std::uint32_t number = 0; number < count(); ++number) {
      Peer& peer = peers[number];
      while (!peer.out.empty() && put(peer, peer.out.front().data(), peer.out.front().size())) {
        peer.queued -= peer.out.front().size();
        waiting -= peer.out.front().size();
        peer.out.pop_front();
      }
      watch(number);
    }
  }
  void send(std::uint32_t to, const Header& header, const char* body) {
    const std::uint64_t bytes = header.bytes == end_mark ? 0 : header.bytes;
    std::uint64_t at = std::min<std::uint64_t>(bytes, packet_bytes_max - sizeof header);
    std::memcpy(packet, &header, sizeof header);
    if (at != 0) std::memcpy(packet + sizeof header, body, at);
    put_or_queue(to, sizeof header + at);
    try {
      for (std::uint64_t next = 0; at < bytes; at += next) {
        next = std::min<std::uint64_t>(bytes - at, packet_bytes_max);
        std::memcpy(packet, body + at, next);
        put_or_queue(to, next);
      }
    } catch (...) {  // Half a frame is worse than none, so both sides see the connection end.
      ::shutdown(peers[to].socket, SHUT_RDWR);
      throw;
    }
  }
  void flush() {
    if (waiting == 0) return;
    const std::lock_guard lock(mutex);
    admit();
    put_queued();
  }

  // --- Connections; guarded by the mutex ---

  void admit() {
    for (int most = 64; most > 0; --most) {
      Address from;
      const int socket = ::accept4(listener, from.get(), &from.bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (socket < 0) return;
      std::uint32_t number = 0;
      while (number < self && !(is_peer(number) && from.name() == socket_name(number, self))) ++number;
      if (number < self && peers[number].socket < 0 && same_user(socket)) {
        peers[number].socket = socket;
        watch(number);
      } else {
        ++refused;
        ::close(socket);
      }
    }
  }
  /// Connects to a peer. Whether it is there.
  bool call(std::uint32_t number) {
    Address own(socket_name(self, number)), other(socket_name(number));
    const int socket = packet_socket();
    if (socket >= 0 && ::bind(socket, own.get(), own.bytes) == 0 && ::connect(socket, other.get(), other.bytes) == 0 &&
        same_user(socket)) {
      peers[number].socket = socket;
      watch(number);
      return true;
    }
    if (socket >= 0) ::close(socket);
    return false;
  }

  // --- Receiving; on the polling thread, without the mutex ---

  bool poll() {
    if (closed) return false;
    flush();
    bool called = false;
    for (const std::uint32_t number : gone) called = lose(number, "nobody listens there any more");
    gone.clear();
    if (any_unwanted) {
      const std::lock_guard lock(mutex);
      for (std::uint32_t number = 0; number < count(); ++number) {
        peers[number].unwanted = false;
        watch(number);
      }
      any_unwanted = false;
    }
    epoll_event events[16];
    ++calls;
    const int ready = ::epoll_wait(epoll, events, 16, 0);
    for (int i = 0; i < ready; ++i) {
      if (events[i].data.u64 == is_caller) {
        const std::lock_guard lock(mutex);
        admit();
      } else if (events[i].data.u64 < count() && (events[i].events & ~std::uint32_t{EPOLLOUT}) != 0) {
        called |= read(static_cast<std::uint32_t>(events[i].data.u64));
      }
    }
    return called;
  }
  bool read(std::uint32_t from) {
    Peer& peer = peers[from];
    const bool wanted = up->wants(up->host, from) != 0;
    int socket = -1;
    {
      const std::lock_guard lock(mutex);
      peer.unwanted = !wanted;
      any_unwanted |= !wanted;
      watch(from);
      if (!wanted || peer.over) return false;
      socket = peer.socket;
    }
    bool called = false;
    for (std::size_t taken = 0; taken < poll_bytes_max;) {
      ++calls;
      const ssize_t bytes = ::recv(socket, buffer, sizeof buffer, MSG_DONTWAIT);
      if (bytes < 0 && errno == ECONNRESET) continue;  // Reported once; what the peer sent before still follows.
      if (bytes < 0) break;
      called = true;
      if (bytes == 0) return lose(from, "the connection has ended");
      if (!take(from, static_cast<std::size_t>(bytes))) break;
      taken += static_cast<std::size_t>(bytes);
    }
    return called;
  }
  /// Handles a packet. Whether more may follow.
  bool take(std::uint32_t from, std::size_t bytes) {
    Peer& peer = peers[from];
    const char* body = buffer;
    if (peer.target == nullptr) {
      Header header{};
      if (bytes < sizeof header) return !lose(from, "a damaged packet came from there");
      std::memcpy(&header, buffer, sizeof header);
      body += sizeof header;
      bytes -= sizeof header;
      if (header.bytes == end_mark) {
        const std::lock_guard lock(mutex);
        peer.over = true;
        drop(peer);
        watch(from);
        return false;
      }
      if (header.bytes > APLIB_COMM_BODY_BYTES_MAX ||
          bytes != std::min<std::uint64_t>(header.bytes, packet_bytes_max - sizeof header))
        return !lose(from, "a damaged packet came from there");
      if (header.bytes < APLIB_COMM_LARGE_BYTES) {
        count_frame(bytes);
        up->frame(up->host, from, &header.label, body, bytes);
        return true;
      }
      peer.large = header;
      peer.got = 0;
      peer.target = static_cast<char*>(up->large_begin(up->host, from, &header.label, header.bytes));
      if (peer.target == nullptr) return !lose(from, "a large body from there was refused");
    }
    if (bytes > peer.large.bytes - peer.got) return !lose(from, "a damaged packet came from there");
    std::memcpy(peer.target + peer.got, body, bytes);
    peer.got += bytes;
    if (peer.got == peer.large.bytes) end_large(from, true);
    return true;
  }
  void count_frame(std::uint64_t bytes) {
    ++received;
    received_bytes += bytes;
  }
  void end_large(std::uint32_t from, bool complete) {
    Peer& peer = peers[from];
    if (peer.target == nullptr) return;
    peer.target = nullptr;
    if (complete) count_frame(peer.large.bytes);
    up->large_end(up->host, from, &peer.large.label, peer.large.bytes, complete ? 1 : 0);
  }
  bool lose(std::uint32_t number, const char* why) {
    end_large(number, false);
    {
      const std::lock_guard lock(mutex);
      peers[number].over = true;
      drop(peers[number]);
      watch(number);
      ::shutdown(peers[number].socket, SHUT_RDWR);  // Closed later, because a thread may be waiting on it.
    }
    up->peer_lost(up->host, number, why);
    return true;
  }

  void wait(std::int64_t nanoseconds) {
    flush();
    constexpr std::int64_t nanoseconds_per_ms = 1'000'000, ms_max = 1'000'000'000;
    const auto ms =
        nanoseconds < 0 ? -1 : std::min((nanoseconds + nanoseconds_per_ms - 1) / nanoseconds_per_ms, ms_max);
    epoll_event event{};
    ::epoll_wait(epoll, &event, 1, static_cast<int>(ms));
    hear();
  }
  void ring() const { (void)!::eventfd_write(bell, 1); }
  void hear() const {
    eventfd_t rings = 0;
    (void)!::eventfd_read(bell, &rings);
  }

  // --- Ends; no other thread is in the module ---

  bool close(std::int64_t linger) {
    if (closed) return true;
    closed = true;
    for (std::uint32_t number = 0; number < count(); ++number) end_large(number, false);
    const auto limit = std::chrono::steady_clock::now() + std::chrono::nanoseconds(linger);
    try {
      admit();
      for (std::uint32_t number = 0; number < count(); ++number) {
        const Peer& peer = peers[number];
        if (!peer.over && (peer.socket >= 0 || !peer.out.empty())) send(number, {{}, end_mark}, "");
      }
      while (put_rest(), waiting != 0 && std::chrono::steady_clock::now() < limit) {
        ::usleep(200);
        admit();
      }
    } catch (const std::exception&) {
      // Memory is short: the rest is lost, and the peers see that.
    }
    end();
    return waiting == 0;
  }
  /// Discards what comes now. Otherwise a peer that waits for room to send could not end.
  void put_rest() {
    for (std::uint32_t number = 0; number < count(); ++number) {
      Peer& peer = peers[number];
      ssize_t bytes = -1;
      while (peer.socket >= 0 && !peer.over && (bytes = ::recv(peer.socket, buffer, sizeof buffer, MSG_DONTWAIT)) > 0)
        continue;
      if (bytes == 0) {
        peer.over = true;
        drop(peer);
      }
    }
    put_queued();
  }
  void end() {
    closed = true;
    for (std::uint32_t number = 0; number < count(); ++number)
      if (peers[number].socket >= 0) ::close(std::exchange(peers[number].socket, -1));
    if (listener >= 0) ::close(std::exchange(listener, -1));
  }
};

namespace {

std::string host_of(const char* endpoint) {
  const std::string text = endpoint;
  return text.substr(0, std::min(text.rfind('@'), text.size()));
}

std::int32_t open(const aplib_comm_plugin*, const aplib_comm_port_settings* settings, aplib_comm_port** port,
                  aplib_comm_error* error) {
  return guarded(error, [&] {
    auto made = std::make_unique<aplib_comm_port>();
    made->listener = packet_socket();
    Address address("");
    if (made->listener < 0 ||
        ::bind(made->listener, address.get(), sizeof address.address.sun_family) != 0 ||  // The system chooses a name.
        ::listen(made->listener, SOMAXCONN) != 0 ||
        (address.bytes = sizeof address.address, ::getsockname(made->listener, address.get(), &address.bytes)) != 0)
      return fail(error, APLIB_COMM_FAILED, std::string("listen on a local socket: ") + std::strerror(errno));
    made->endpoint = std::string(settings->host) + "@" + address.name();
    *port = made.release();
    return 0;
  });
}

std::int32_t join(aplib_comm_port* port, const aplib_comm_join_settings* settings, aplib_comm_module** module,
                  aplib_comm_error* error) {
  return guarded(error, [&] {
    auto made = std::make_unique<aplib_comm_module>();
    made->self = settings->self;
    made->endpoints.assign(settings->endpoints, settings->endpoints + settings->processes);
    made->peers = std::make_unique<Peer[]>(settings->processes);
    if (made->epoll < 0 || made->bell < 0) return fail(error, APLIB_COMM_EXHAUSTED, std::strerror(errno));
    made->listener = std::exchange(port->listener, -1);
    made->watch(made->bell, EPOLL_CTL_ADD, EPOLLIN, is_bell);
    made->watch(made->listener, EPOLL_CTL_ADD, EPOLLIN, is_caller);
    *module = made.release();
    return 0;
  });
}

std::int32_t start(aplib_comm_module* module, const aplib_comm_receiver* receiver, aplib_comm_error* error) {
  if (module->up != nullptr) return fail(error, APLIB_COMM_BAD_ARGUMENT, "started twice");
  return guarded(error, [&] {
    const std::lock_guard lock(module->mutex);
    for (std::uint32_t number = module->self + 1; number < module->count(); ++number)
      if (module->is_peer(number) && !module->call(number)) module->gone.push_back(number);
    module->up = receiver;
    if (!module->gone.empty()) module->ring();  // poll() has something to report.
    return 0;
  });
}

std::int32_t send(aplib_comm_module* module, std::uint32_t to, const aplib_comm_label* label, const void* body,
                  std::size_t bytes, aplib_comm_error* error) {
  return guarded(error, [&] {
    if (!module->is_peer(to))
      return fail(error, APLIB_COMM_BAD_ARGUMENT, "send: there is no process " + std::to_string(to) + " to send to");
    if (bytes > APLIB_COMM_BODY_BYTES_MAX)
      return fail(error, APLIB_COMM_BAD_ARGUMENT, "send: the body is too large: send it in parts");
    const std::lock_guard lock(module->mutex);
    if (module->closed || module->peers[to].over) return 0;
    module->send(to, {*label, bytes}, static_cast<const char*>(body));
    ++module->sent;
    module->sent_bytes += bytes;
    return 0;
  });
}

void flush(aplib_comm_module* module) {
  aplib_comm_error error;  // If memory is short, what was held back is sent later.
  guarded(&error, [&] { return module->flush(), 0; });
}

void traffic(const aplib_comm_module* module, aplib_comm_traffic* now) {
  now->frames_sent = module->sent;
  now->frames_received = module->received;
  now->bytes_sent = module->sent_bytes;
  now->bytes_received = module->received_bytes;
  now->system_calls = module->calls;
  now->refused = module->refused;
}

}  // namespace

const aplib_comm_plugin aplib_comm_plugin_entry = {
    .head = APLIB_COMM_HEAD,
    .name = "example",
    .version = "1.0",
    .description = "frames over local sockets, between processes of one user on one host",
    .rank = 10,
    // The system distinguishes users, and nobody else sees what goes through these sockets. (Other modules must
    // prove settings->key.)
    .can = APLIB_COMM_KEEPS_AUTH | APLIB_COMM_KEEPS_TLS | APLIB_COMM_ONE_HOST,
    .own = nullptr,
    .usable =
        [](const aplib_comm_plugin*, const aplib_comm_port_settings* settings, aplib_comm_error* error) {
          if (*settings->host != '\0') return 0;
          return fail(error, APLIB_COMM_FAILED, "it is not known which processes are on this host");
        },
    .open = open,
    .endpoint = [](const aplib_comm_port* port) { return port->endpoint.c_str(); },
    .joins =
        [](const aplib_comm_plugin*, const char* one, const char* other) {
          aplib_comm_error error;  // Without memory the two do not join.
          return std::max(
              0, guarded(&error, [&] { return int{!host_of(one).empty() && host_of(one) == host_of(other)}; }));
        },
    .join = join,
    .close_port = [](aplib_comm_port* port) { delete port; },
    .start = start,
    .send = send,
    .queued = [](const aplib_comm_module* module,
                 std::uint32_t to) { return module->is_peer(to) ? module->peers[to].queued.load() : 0; },
    .flush = flush,
    .poll = [](aplib_comm_module* module,
               aplib_comm_error* error) { return guarded(error, [&] { return int{module->poll()}; }); },
    .wait = [](aplib_comm_module* module, std::int64_t nanoseconds,
               aplib_comm_error* error) { return guarded(error, [&] { return module->wait(nanoseconds), 0; }); },
    .wake = [](aplib_comm_module* module) { module->ring(); },
    .close = [](aplib_comm_module* module, std::int64_t linger,
                aplib_comm_error*) { return int{module->close(linger)}; },
    .destroy = [](aplib_comm_module* module) { delete module; },
    .traffic = traffic,
    .describe =
        [](const aplib_comm_module* module, std::uint32_t peer, char* text, std::size_t bytes) {
          std::snprintf(text, bytes, "example %s", module->is_peer(peer) ? module->endpoints[peer].c_str() : "nowhere");
        },
    .abandon = [](aplib_comm_module* module) { return module->end(), 1; },
    // For sleeping on several modules at once: one can wait for an epoll descriptor like for any other.
    .descriptor = [](aplib_comm_module* module) { return module->epoll; },
    .arm = [](aplib_comm_module* module, aplib_comm_error*) { return flush(module), 1; },
    .disarm = [](aplib_comm_module* module) { module->hear(); },
    // This module has no remote memory.
    .reaches_memory = nullptr,
    .expose = nullptr,
    .conceal = nullptr,
    .write = nullptr,
    .read = nullptr,
    // It touches the memory of large bodies only during poll().
    .let_go = nullptr};
