// SPDX-License-Identifier: MIT
// Prober: finds out which other processes of the machine, and which relays, this process reaches, by calling all at
// the same time, each until it has proved the job's key: another host may have the same address in its own network.
// Meanwhile, and until it ends, it answers the others that do the same.
#pragma once

#include <cstdint>
#include <memory>

#include "comm/job_key.hpp"
#include "launch/wire/way_messages.hpp"

namespace aplib::launch::node {

/// Thread safety: none.
class Prober {
 public:
  /// Begins, on a thread of its own. `listening`: on which this process is called, which outlives it; -1: it is not.
  /// Throws Error.
  Prober(int listening, const comm::JobKey& key, std::uint32_t self, const wire::Probe& what);
  /// Nobody is answered any more.
  ~Prober();
  Prober(const Prober&) = delete;
  Prober& operator=(const Prober&) = delete;

  /// Waits until all have answered, or have not for as long as a connection may take.
  [[nodiscard]] wire::Probed result();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace aplib::launch::node
