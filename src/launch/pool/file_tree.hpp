// SPDX-License-Identifier: MIT
// Files from here to hosts of a pool. Hosts of one site get the same files from each other: the launcher sends to the
// first, and each passes on to the next what it has, while it comes (file_passer.hpp). So the launcher's connection
// carries the files once, not once for each host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "launch/files/manifest.hpp"
#include "launch/files/target.hpp"
#include "launch/pool/pool.hpp"

namespace aplib::launch::pool {

/// Which host gets the files from whom. Hosts form chains, in the order in which they are ready: a chain carries a
/// large file in little more than the time of its slowest link, because each host passes on while it receives. A
/// host's sources are always those before it, so that there is no circle. Thread safety: none.
class SendPlan {
 public:
  /// Longer chains would make small files wait at each host.
  static constexpr std::size_t chain_max = 32;
  /// Sources of a host beside the launcher: then that one serves it.
  static constexpr int attempts_max = 3;

  /// A host; nothing: the launcher.
  using Source = std::optional<std::size_t>;
  enum class Trouble : std::uint8_t {
    unreached,  ///< There was no connection.
    cut,        ///< It ended.
    own,        ///< The files cannot be placed. The launcher hears why.
  };

  explicit SendPlan(std::size_t hosts) : hosts_(hosts) {}

  /// The host is ready to receive; `serves`: others may reach it.
  [[nodiscard]] Source join(std::size_t host, bool serves) {
    const Source source = standing(tail_);
    hosts_[host].depth = source ? hosts_[*source].depth + 1 : 1;
    const bool is_long = hosts_[host].depth > chain_max;
    if (is_long) hosts_[host].depth = 1;
    if (serves) tail_ = host;
    return hosts_[host].source = is_long ? std::nullopt : source;
  }
  /// It does not get them from its source: another one.
  [[nodiscard]] Source again(std::size_t host, Trouble trouble) {
    Host& it = hosts_[host];
    const bool is_dead = it.source && hosts_[*it.source].gone;
    // Who does not reach a host that stands will hardly reach the one before it.
    const bool gives_up = ++it.attempts >= attempts_max || trouble == Trouble::own ||
                          (trouble == Trouble::unreached && !is_dead) || !it.source;
    return it.source = gives_up ? std::nullopt : standing(hosts_[*it.source].source);
  }
  /// It serves nobody any more.
  void leave(std::size_t host) { hosts_[host].gone = true; }

 private:
  struct Host {
    Source source{};
    std::size_t depth = 0;
    int attempts = 0;
    bool gone = false;
  };

  /// It, or the first before it that is not gone.
  [[nodiscard]] Source standing(Source host) const {
    while (host && hosts_[*host].gone) host = hosts_[*host].source;
    return host;
  }

  std::vector<Host> hosts_;
  Source tail_{};  // the last one of the chain that grows
};

/// Those of the hosts that may reach others, together with these: those of a site, and those of none, which are at
/// least of this computer's network. This computer has no neighbours, and neither has who did not reach one lately.
[[nodiscard]] std::vector<std::vector<std::size_t>> neighbours(const Pool& pool, std::span<const std::size_t> hosts);
/// All that are in one of these.
[[nodiscard]] std::vector<std::size_t> hosts_with_neighbours(const Pool& pool, std::span<const std::size_t> hosts);

struct FilesToSend {
  std::shared_ptr<const files::Manifest> manifest{};
  std::string folder{};  ///< On the hosts.
  files::Existing existing = files::Existing::refuse;
  /// Below which `folder` is, of hosts that have neighbours; empty: the host's own. Nothing: the user's home.
  std::optional<std::string> below{};
  /// What went wrong. Any thread; one call at a time.
  std::function<void(const std::string& text)> complain{};
  /// The host has all, or will not have it. Any thread, once for each host. May be empty.
  std::function<void(std::size_t host, bool good)> over{};
  std::stop_token stop{};  ///< It ends soon.
};

/// Sends the files to these hosts of the pool, all at once, and waits. True: all hosts have them. Throws Error.
[[nodiscard]] bool send_files(const Pool& pool, std::span<const std::size_t> hosts, const FilesToSend& what);

}  // namespace aplib::launch::pool
