// SPDX-License-Identifier: MIT
// FilePasser: a host of several that get the same files. It gets them from another one, or from the launcher, and
// passes them on while they come (file_tree.hpp decides who gets them from whom).
//
//   launcher                     host
//     KEY                  ->                 of the connections between the hosts
//                          <-    at PLACE     where it answers others; "at" alone: nowhere
//     from PLACE           ->                 another host has them
//                          <-    got          all is there
//                          <-    cut          the connection ended; unreached: there was none
//                          <-    own          the files cannot be placed here; the launcher is to hear why
//     here                 ->                 a transfer begins on this stream
//
// Each is a line. The host answers each place; when it is told `here`, nothing but the transfer follows. It stays and
// passes on until the stream closes. A connection between hosts proves the key and is encrypted (comm/greeting.hpp,
// comm/tls.hpp); on it the host that has the files is the sender of a transfer.
#pragma once

#include <poll.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/os/descriptor.hpp"
#include "comm/greeting.hpp"
#include "comm/job_key.hpp"
#include "comm/tcp/stream.hpp"
#include "comm/tls.hpp"
#include "launch/files/arrivals.hpp"
#include "launch/files/receiver.hpp"
#include "launch/files/sender.hpp"
#include "launch/pool/file_pipe.hpp"

namespace aplib::launch::pool {

inline constexpr std::string_view passer_at = "at", passer_from = "from", passer_here = "here";
inline constexpr std::string_view passer_got = "got", passer_cut = "cut", passer_unreached = "unreached",
                                  passer_own = "own";

inline constexpr std::size_t passer_line_max = 256;

/// A connection between two hosts until it can be used: connected, greeted, encrypted. Thread safety: none.
class PeerLink {
 public:
  enum class State : std::uint8_t { going, ready, failed };

  /// Calls. Throws Error(bad_argument) for what is no place.
  PeerLink(const std::string& place, const comm::JobKey& key);
  /// Was called.
  PeerLink(os::UniqueFd socket, const comm::JobKey& key);
  ~PeerLink();
  PeerLink(const PeerLink&) = delete;
  PeerLink& operator=(const PeerLink&) = delete;

  /// Does what can be done now. It fails also when its time is over.
  [[nodiscard]] State work();
  [[nodiscard]] pollfd wait() const;
  [[nodiscard]] std::chrono::steady_clock::time_point until() const noexcept { return until_; }
  /// Once. REQUIRES: State::ready.
  [[nodiscard]] std::unique_ptr<comm::tcp::Stream> take();

 private:
  State connect();
  State greet();
  State encrypt();

  os::UniqueFd socket_;
  comm::Greeting greeting_;
  std::vector<std::byte> output_;
  std::size_t sent_ = 0;
  std::unique_ptr<ssl_st, comm::FreeTls> tls_;
  const bool answers_;
  bool connected_;
  bool wants_to_write_ = true;
  std::chrono::steady_clock::time_point until_;
};

class FilePasser {
 public:
  struct Settings {
    files::Receiver::Settings receiver{};
    std::string address{};  ///< At which others reach this host. Empty, or a name: the one at which sshd was called.
    std::string ports{};    ///< As of the option; empty: any.
  };

  /// `lanes` may join the launcher's stream. Both outlive it.
  FilePasser(Settings settings, os::Ends& launcher, LaneSource& lanes);
  /// Until the launcher closes its stream. Returns what went wrong.
  [[nodiscard]] std::vector<std::string> run();

 private:
  struct Child {
    std::unique_ptr<PeerLink> link{};  // null: it is there
    std::unique_ptr<comm::tcp::Stream> stream{};
    std::optional<files::Sender> sender{};
    std::optional<Carrier<files::Sender>> carrier{};
  };
  enum class Source : std::uint8_t { none, host, launcher };

  void listen();
  void say(std::string_view word);
  void hear();
  void obey(const std::string& line);
  void wait();
  void accept();
  void work_source();
  void end_source(std::string_view word);
  [[nodiscard]] bool work_child(Child& child);

  Settings settings_;
  os::Ends& launcher_;
  LaneSource& lanes_;
  std::optional<comm::JobKey> key_;
  os::UniqueFd listener_;
  std::string place_;
  std::string line_;
  bool open_ = true;  // the launcher's stream
  files::Arrivals arrivals_;
  Source source_ = Source::none;
  bool has_all_ = false;  // or nothing more comes
  std::unique_ptr<PeerLink> link_;
  std::optional<files::Receiver> receiver_;
  std::optional<Carrier<files::Receiver>> carrier_;
  std::list<Child> children_;
  std::vector<std::string> problems_;
};

}  // namespace aplib::launch::pool
