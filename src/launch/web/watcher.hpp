// SPDX-License-Identifier: MIT
// Watcher: what the machines and farms of this user on this computer are and were, for a page. It asks machines as
// apctl does, each second while somebody looks, and each ten seconds else, however many look; and keeps the last
// minutes. Farms tell by files (base/farm_tally.hpp).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "launch/wire/event_loop.hpp"

namespace aplib::launch::web {

/// Not thread safe: the loop's thread.
class Watcher {
 public:
  /// `folder`: the registry's.
  Watcher(wire::EventLoop& loop, std::string folder);
  ~Watcher();
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  /// The members of a JSON object (docs/web.md), without its braces. Who asks is who looks.
  [[nodiscard]] std::string state();

  /// Asks a machine to end, as apctl stop does. False: it is not known, or has ended.
  bool stop_machine(std::uint32_t job);
  /// Ends an apfarm, as SIGTERM does. `id`: of its state. False: as above, or the farm is a program's own.
  bool stop_farm(std::string_view id);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace aplib::launch::web
