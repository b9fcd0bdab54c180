// SPDX-License-Identifier: MIT
// Carries one end of a transfer (launch/files) over connections: the standard streams of what a keeper has started, and
// the lanes that join them.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "base/os/descriptor.hpp"
#include "launch/files/receiver.hpp"
#include "launch/files/sender.hpp"

namespace aplib::launch::pool {

/// Where further lanes of a transfer come from. One thread at a time.
class LaneSource {
 public:
  LaneSource() = default;
  virtual ~LaneSource() = default;
  LaneSource(const LaneSource&) = delete;
  LaneSource& operator=(const LaneSource&) = delete;

  /// Readable when take() has something. -1: nothing will come.
  [[nodiscard]] virtual int fd() const noexcept = 0;
  /// A socket that is a lane. Does not wait.
  [[nodiscard]] virtual os::UniqueFd take() = 0;
  /// So many lanes might help. Does not wait.
  virtual void want(std::size_t /*lanes*/) {}
};

/// What a keeper passes to a process that it has started (knock.hpp).
class PassedLanes final : public LaneSource {
 public:
  explicit PassedLanes(os::UniqueFd socket) : socket_(std::move(socket)) {}
  [[nodiscard]] int fd() const noexcept override { return socket_.get(); }
  [[nodiscard]] os::UniqueFd take() override;

 private:
  os::UniqueFd socket_;
};

/// Carries the transfer to its end. Blocks. Returns all that went wrong; none: all files are there. All descriptors
/// become ones that do not block. `lanes` may be none.
[[nodiscard]] std::vector<std::string> carry(files::Sender& sender, const os::Ends& ends, LaneSource* lanes = nullptr);
[[nodiscard]] std::vector<std::string> carry(files::Receiver& receiver, const os::Ends& ends,
                                             LaneSource* lanes = nullptr);

}  // namespace aplib::launch::pool
