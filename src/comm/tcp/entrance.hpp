// SPDX-License-Identifier: MIT
// Entrance: takes one socket, called or answered, through the greeting, the answerer's verdict and, with
// secure=tls, the handshake of TLS.
//
//   caller   greeting ->  <- greeting    |  <- verdict, 1 byte |  TLS
//
// The verdict is the answerer's: it takes the call, or says that it calls itself and that its own call is the one.
// So both sides always agree on which connection carries the frames.
#pragma once

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "comm/connect/greeter.hpp"
#include "comm/greeting.hpp"
#include "comm/tcp/stream.hpp"
#include "comm/tls.hpp"

namespace aplib::comm::tcp {

/// One thread: that of its io_context. Keeps itself alive until `done` was called, which happens once.
class Entrance : public std::enable_shared_from_this<Entrance> {
 public:
  enum class Outcome : std::uint8_t {
    taken,     ///< stream is set.
    not_now,   ///< The other side calls us.
    refused,   ///< One of ours, that does not fit: words.
    stranger,  ///< Not one of ours.
    failed,    ///< The connection ended, or took too long: words.
  };
  struct Result {
    Outcome outcome = Outcome::failed;
    std::unique_ptr<Stream> stream{};
    Introduction peer{};
    std::string words{};
    bool greeted = false;  ///< It has proved itself.
  };
  enum class Verdict : std::uint8_t { taken = 1, not_now = 2, drop = 3 };
  using Judge = std::function<Verdict(const Introduction&)>;
  using Done = std::function<void(Result)>;

  /// `socket`: connected. `judge`: the answerer's; not called for a caller.
  Entrance(boost::asio::ip::tcp::socket socket, Greeting::Role role, const JobKey& key, Introduction mine,
           const TlsContext* tls, Judge judge, Done done);
  void begin();
  /// Ends it; done is called, soon, as for a failure, unless it was.
  void cancel(const std::string& why);
  /// Whether the other side has proved itself so far.
  [[nodiscard]] bool greeted() const noexcept { return greeted_; }

 private:
  void greeted(const connect::Greeter::Failure& failure);
  void judge();
  void hear_verdict();
  void begin_tls();
  void pump_tls();
  void finish(Outcome outcome, std::string words = {});

  boost::asio::ip::tcp::socket socket_;
  boost::asio::steady_timer limit_;
  Greeting::Role role_;
  Secure secure_;
  connect::Greeter greeter_;
  const TlsContext* tls_;
  Judge judge_;
  Done done_;
  bool greeted_ = false;
  std::array<std::byte, 1> verdict_{};
  struct FreeTls {
    void operator()(ssl_st* ssl) const noexcept;
  };
  std::unique_ptr<ssl_st, FreeTls> ssl_;
};

}  // namespace aplib::comm::tcp
