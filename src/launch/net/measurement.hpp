// SPDX-License-Identifier: MIT
// What net-probe has measured from one host to another, and the line by which it says so.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace aplib::launch::net {

/// What holds a stream of messages back.
enum class Limit : std::uint8_t {
  unknown,  ///< No TCP connection carried it.
  path,     ///< The congestion window: the links and queues between the hosts.
  sender_buffer,
  receiver_buffer,
  sender_processor,
  receiver_processor
};

/// A stream of messages from one host to another, and messages there and back. Times are seconds.
struct Measurement {
  std::uint32_t from = 0;  ///< Numbers of hosts.
  std::uint32_t to = 0;
  double round_trip = 0;  ///< The least.
  double round_trip_median = 0;
  double bytes = 0;  ///< That the receiver got in `time`.
  double time = 0;
  std::uint32_t streams = 0;  ///< TCP connections that carried them; 0: another way.
  double sent = 0;            ///< Bytes, by these connections.
  double sent_again = 0;
  double busy = 0;              ///< How long they had something to send.
  double receiver_limited = 0;  ///< And waited for room in the receiver's buffers.
  double sender_limited = 0;    ///< Or in the sender's.
  double sender_cores = 0;      ///< Processor time by time.
  double receiver_cores = 0;

  /// Bytes per second.
  [[nodiscard]] double rate() const { return time > 0 ? bytes / time : 0; }
  /// The share of bytes that were sent again.
  [[nodiscard]] double loss() const { return sent > 0 ? sent_again / sent : 0; }
  [[nodiscard]] Limit limit() const;
};

/// One line, with its end.
[[nodiscard]] std::string measurement_line(const Measurement& measurement);
/// Nothing: it is no such line.
[[nodiscard]] std::optional<Measurement> read_measurement(std::string_view line);

/// "round 3": a host says that it begins it.
[[nodiscard]] std::string round_line(std::uint32_t round);
[[nodiscard]] std::optional<std::uint32_t> read_round(std::string_view line);

}  // namespace aplib::launch::net
