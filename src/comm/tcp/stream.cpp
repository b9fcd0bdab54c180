// SPDX-License-Identifier: MIT
#include "comm/tcp/stream.hpp"

#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <system_error>

#include "comm/connect/greeter.hpp"
#include "comm/tls.hpp"

namespace aplib::comm::tcp {
namespace {

// Within a host nothing is congested. This algorithm then does next to nothing, every system has it, and everybody may
// choose it. BBR, the default of some systems, measures and paces all the same: messages of 1 MiB come in fits and
// starts, and each small one costs 0.1 us.
constexpr std::string_view congestion_within_host = "reno";

// Options that a system does not know are left out. That costs only speed, or time until a death is seen.
void set(int socket, int level, int option, int value) noexcept {
  ::setsockopt(socket, level, option, &value, sizeof value);
}

/// Whether both ends have the same address.
bool within_host(int socket) noexcept {
  sockaddr_storage own{};
  sockaddr_storage other{};
  socklen_t own_bytes = sizeof own;
  socklen_t other_bytes = sizeof other;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &own_bytes) != 0 ||
      ::getpeername(socket, reinterpret_cast<sockaddr*>(&other), &other_bytes) != 0)
    return false;
  if (own.ss_family == AF_INET6) {
    return std::memcmp(&reinterpret_cast<const sockaddr_in6&>(own).sin6_addr,
                       &reinterpret_cast<const sockaddr_in6&>(other).sin6_addr, sizeof(in6_addr)) == 0;
  }
  return reinterpret_cast<const sockaddr_in&>(own).sin_addr.s_addr ==
         reinterpret_cast<const sockaddr_in&>(other).sin_addr.s_addr;
}

}  // namespace

void prepare_socket(int socket, std::chrono::milliseconds timeout) noexcept {
  set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  // Half the time of quiet, then probes.
  constexpr int probes = 5;
  const int seconds = std::max(static_cast<int>(std::chrono::ceil<std::chrono::seconds>(timeout).count()), 2);
  set(socket, IPPROTO_TCP, TCP_KEEPIDLE, std::max(seconds / 2, 1));
  set(socket, IPPROTO_TCP, TCP_KEEPINTVL, std::max(seconds / 2 / probes, 1));
  set(socket, IPPROTO_TCP, TCP_KEEPCNT, probes);
  set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(timeout.count()));
  connect::limit_pauses(socket, timeout);
}

void prepare_for_frames(int socket) noexcept {
  set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, 0);
  if (within_host(socket))
    ::setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, congestion_within_host.data(), congestion_within_host.size());
  ::fcntl(socket, F_SETFL, ::fcntl(socket, F_GETFL) | O_NONBLOCK);
}

std::chrono::microseconds round_trip(int socket) noexcept {
  tcp_info info{};
  socklen_t bytes = sizeof info;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return {};
  return std::chrono::microseconds(info.tcpi_rtt);
}

void pull_by_room(int socket, std::size_t unsent_bytes) noexcept {
  set(socket, IPPROTO_TCP, TCP_NOTSENT_LOWAT, static_cast<int>(unsent_bytes));
}

Progress progress_of(int socket) noexcept {
  // The C library's structure ends where that of Linux 3.15 did. The system's own header cannot be included beside it.
  struct {
    tcp_info first{};
    std::uint64_t pacing_rates[2]{};
    std::uint64_t acknowledged = 0;
    std::uint64_t received = 0;
    std::uint32_t segments[6]{};
    std::uint64_t delivery_rate = 0;
    std::uint64_t busy = 0;
    std::uint64_t receiver_limited = 0;
    std::uint64_t sender_limited = 0;
  } info;
  static_assert(sizeof(tcp_info) == 104);
  socklen_t bytes = sizeof info;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return {};
  return {info.delivery_rate, info.busy, info.receiver_limited + info.sender_limited};
}

bool AnswerWatch::look(const Stream& stream, Clock::time_point now, std::chrono::milliseconds timeout) noexcept {
  if (stream.unacknowledged() <= 0) {
    since_.reset();
    return true;
  }
  if (!since_) since_ = now;
  tcp_info info{};
  socklen_t bytes = sizeof info;
  if (::getsockopt(stream.socket(), IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return true;
  // A host whose program does not read still answers, namely that its window is closed.
  return now - *since_ < timeout || std::chrono::milliseconds(info.tcpi_last_ack_recv) < timeout;
}

/// The library's object may be used by one thread at a time, even for reading and writing. The lock is held for one
/// record at a time.
struct Stream::Tls {
  static constexpr std::size_t record_bytes = 16 * 1024;
  static constexpr std::uint32_t records_per_key = 1U << 22U;  // AES-GCM: RFC 8446, 5.5, with room to spare

  explicit Tls(ssl_st* owned) : ssl(owned) {}
  ~Tls() { SSL_free(ssl); }
  Tls(const Tls&) = delete;
  Tls& operator=(const Tls&) = delete;

  ssl_st* ssl;
  std::mutex lock;
  std::size_t begun = 0;  // Bytes of a record that was encrypted and not sent; the library wants to see them again.
  std::uint32_t records = 0;
  const char* failure = "";  // The library's own text: to fail needs no memory.
  std::array<std::byte, record_bytes> gathered;
};

Stream::Stream(int socket, ssl_st* ssl) : socket_(socket), tls_(ssl != nullptr ? new Tls(ssl) : nullptr) {
  // The first frames may have come together with the end of the handshake.
  ahead_ = ssl != nullptr && SSL_has_pending(ssl) == 1;
}

Stream::~Stream() { ::close(socket_); }

Stream::Result Stream::fail(int error) noexcept {
  int none = 0;
  error_.compare_exchange_strong(none, error);
  return {Kind::failed};
}

Stream::Result Stream::read(std::span<const iovec> pieces) noexcept {
  if (tls_) return read_tls(pieces);
  ssize_t bytes;
  do {
    if (pieces.size() == 1) {
      bytes = ::recv(socket_, pieces[0].iov_base, pieces[0].iov_len, MSG_DONTWAIT);
    } else {
      msghdr message{};
      message.msg_iov = const_cast<iovec*>(pieces.data());
      message.msg_iovlen = pieces.size();
      bytes = ::recvmsg(socket_, &message, MSG_DONTWAIT);
    }
  } while (bytes < 0 && errno == EINTR);
  if (bytes > 0) return {Kind::moved, static_cast<std::size_t>(bytes)};
  if (bytes == 0) return {Kind::end};
  return errno == EAGAIN || errno == EWOULDBLOCK ? Result{Kind::not_now} : fail(errno);
}

Stream::Result Stream::write(std::span<const iovec> pieces) noexcept {
  if (tls_) return write_tls(pieces);
  ssize_t bytes;
  do {
    if (pieces.size() == 1) {
      bytes = ::send(socket_, pieces[0].iov_base, pieces[0].iov_len, MSG_DONTWAIT | MSG_NOSIGNAL);
    } else {
      msghdr message{};
      message.msg_iov = const_cast<iovec*>(pieces.data());
      message.msg_iovlen = pieces.size();
      bytes = ::sendmsg(socket_, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
  } while (bytes < 0 && errno == EINTR);
  if (bytes >= 0) return {Kind::moved, static_cast<std::size_t>(bytes)};
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS ? Result{Kind::not_now} : fail(errno);
}

/// Decrypts into the pieces, record by record, until they are full or the socket has no more. A call of the library
/// counts as one system call, though it may make none or several.
Stream::Result Stream::read_tls(std::span<const iovec> pieces) noexcept {
  std::size_t all = 0;
  ahead_ = false;
  for (const iovec& piece : pieces) {
    for (std::size_t filled = 0; filled < piece.iov_len;) {
      const std::lock_guard hold(tls_->lock);
      std::size_t bytes = 0;
      ERR_clear_error();
      errno = 0;
      const int good =
          SSL_read_ex(tls_->ssl, static_cast<std::byte*>(piece.iov_base) + filled, piece.iov_len - filled, &bytes);
      if (good == 1) {
        filled += bytes;
        all += bytes;
        continue;
      }
      const int error = errno;
      const int reason = SSL_get_error(tls_->ssl, good);
      if (reason == SSL_ERROR_WANT_READ || reason == SSL_ERROR_WANT_WRITE)
        return all != 0 ? Result{Kind::moved, all} : Result{Kind::not_now};
      // Decrypted bytes count first. The failure comes again.
      if (all != 0) {
        ahead_ = true;
        return {Kind::moved, all};
      }
      if (reason == SSL_ERROR_ZERO_RETURN) return {Kind::end};
      const unsigned long detail = ERR_peek_error();
      if (reason == SSL_ERROR_SSL && ERR_GET_REASON(detail) == SSL_R_UNEXPECTED_EOF_WHILE_READING) {
        ERR_clear_error();
        return {Kind::end};
      }
      if (reason == SSL_ERROR_SYSCALL && error != 0) return fail(error);
      tls_->failure = take_tls_error();
      return fail(-1);
    }
  }
  const std::lock_guard hold(tls_->lock);
  ahead_ = SSL_has_pending(tls_->ssl) == 1;
  return {Kind::moved, all};
}

/// Encrypts and sends, one record per round, until the socket takes no more. Gathers small pieces, so that records are
/// as full as possible.
Stream::Result Stream::write_tls(std::span<const iovec> pieces) noexcept {
  std::size_t all = 0;
  std::size_t skip = 0;  // Bytes of pieces[0] that are sent.
  while (!pieces.empty()) {
    if (skip == pieces[0].iov_len) {
      pieces = pieces.subspan(1);
      skip = 0;
      continue;
    }
    const std::size_t wanted = tls_->begun != 0 ? tls_->begun : Tls::record_bytes;
    const auto* record = static_cast<const std::byte*>(pieces[0].iov_base) + skip;
    std::size_t bytes = std::min(wanted, pieces[0].iov_len - skip);
    if (bytes < wanted && pieces.size() > 1) {
      std::memcpy(tls_->gathered.data(), record, bytes);
      for (const iovec& more : pieces.subspan(1)) {
        const std::size_t part = std::min(wanted - bytes, more.iov_len);
        std::memcpy(tls_->gathered.data() + bytes, more.iov_base, part);
        bytes += part;
      }
      record = tls_->gathered.data();
    }
    const std::lock_guard hold(tls_->lock);
    if (tls_->begun == 0 && ++tls_->records % Tls::records_per_key == 0)
      SSL_key_update(tls_->ssl, SSL_KEY_UPDATE_NOT_REQUESTED);
    std::size_t written = 0;
    ERR_clear_error();
    errno = 0;
    const int good = SSL_write_ex(tls_->ssl, record, bytes, &written);
    if (good != 1) {
      const int error = errno;
      const int reason = SSL_get_error(tls_->ssl, good);
      if (reason == SSL_ERROR_WANT_WRITE || reason == SSL_ERROR_WANT_READ) {
        tls_->begun = bytes;
        return all != 0 ? Result{Kind::moved, all} : Result{Kind::not_now};
      }
      if (reason == SSL_ERROR_SYSCALL && error != 0) return fail(error);
      tls_->failure = take_tls_error();
      return fail(-1);
    }
    tls_->begun = 0;
    all += written;
    while (written != 0) {
      const std::size_t part = std::min(written, pieces[0].iov_len - skip);
      written -= part;
      skip += part;
      if (skip == pieces[0].iov_len) {
        pieces = pieces.subspan(1);
        skip = 0;
      }
    }
  }
  return {Kind::moved, all};
}

long Stream::unacknowledged() const noexcept {
  int bytes = 0;
  return ::ioctl(socket_, SIOCOUTQ, &bytes) == 0 ? bytes : -1;
}

void Stream::end_writing() noexcept { ::shutdown(socket_, SHUT_WR); }

void Stream::break_off() noexcept { ::shutdown(socket_, SHUT_RDWR); }

std::string Stream::failure() const {
  const int error = error_.load();
  return error < 0 ? std::string("TLS: ") + tls_->failure : describe_connection_error(error);
}

std::string describe_connection_error(int error) {
  if (error == ECONNRESET || error == EPIPE) return "connection reset by peer";
  if (error == ETIMEDOUT) return "no answer from the other host: connection timed out";
  std::string text = std::generic_category().message(error);
  std::transform(text.begin(), text.begin() + 1, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

}  // namespace aplib::comm::tcp
