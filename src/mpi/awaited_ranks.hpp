// SPDX-License-Identifier: MIT
// AwaitedRanks: what a task waits for other ranks of a communicator to do.
#pragma once

#include <string>

#include "kernel/condition.hpp"
#include "mpi/comm.hpp"
#include "mpi/error.hpp"

namespace aplib::mpi {

class AwaitedRanks : public Condition {
 public:
  explicit AwaitedRanks(const Comm& comm, const void* subject = nullptr) noexcept : Condition(subject), comm_(comm) {}

  [[nodiscard]] bool needs(std::uint32_t cell) const noexcept final;
  [[nodiscard]] std::string missing() const override;

  /// When the wait is in vain: who has ended.
  [[nodiscard]] int ended() const noexcept { return ended_; }

 protected:
  ~AwaitedRanks() = default;
  [[nodiscard]] virtual bool is_missing(int rank) const noexcept = 0;
  [[nodiscard]] const Comm& comm() const noexcept { return comm_; }

 private:
  const Comm& comm_;
  mutable int ended_ = -1;  // the last cell that it was asked about
};

}  // namespace aplib::mpi
