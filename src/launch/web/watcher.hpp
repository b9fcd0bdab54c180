// SPDX-License-Identifier: MIT
// Watcher: what the machines of this user on this computer are and were, for a page. It asks them as apctl does, each
// second while somebody looks, and each ten seconds else, however many look; and keeps the last minutes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

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

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace aplib::launch::web
