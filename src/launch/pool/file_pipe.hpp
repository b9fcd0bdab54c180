// SPDX-License-Identifier: MIT
// Carries one end of a transfer (launch/files) over connections: the standard streams of what a keeper has started, and
// the lanes that join them; or one connection with another host.
#pragma once

#include <poll.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/os/descriptor.hpp"
#include "comm/tcp/stream.hpp"
#include "launch/files/lanes.hpp"
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

/// Carries the transfer step by step, for a thread that has more to do. All descriptors become ones that do not block.
/// Thread safety: none.
template <class End>
class Carrier {
 public:
  /// All outlive it. `source`: null: there will be no further lanes.
  Carrier(End& end, const os::Ends& ends, LaneSource* source);
  Carrier(End& end, std::unique_ptr<comm::tcp::Stream> stream);

  /// Appends what is worth a look at work().
  void add_waits(std::vector<pollfd>& waits) const;
  /// When work() is needed in any case, in milliseconds; -1: then not.
  [[nodiscard]] int patience() const;
  /// Does what can be done now. `waits`: what add_waits() has appended, with what has happened; empty: not known.
  /// False: it is over.
  bool work(std::span<const pollfd> waits);
  /// All that went wrong; none: all files are there. REQUIRES: it is over.
  [[nodiscard]] std::vector<std::string> problems() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Lane {
    os::UniqueFd own{};                           // of the first lane, others close it
    std::unique_ptr<comm::tcp::Stream> stream{};  // with another host; else:
    int reader = -1;
    int writer = -1;
    bool hears = true;
    // The chunk that it has taken, and of which `at` bytes are written. Empty: none.
    files::ChunkHead head{};
    wire::Bytes bytes{};
    std::size_t at = 0;
  };
  enum class Moved : std::uint8_t { some, not_now, never };

  void add(Lane lane);
  void take_lanes();
  [[nodiscard]] bool is_over() const;
  [[nodiscard]] bool has_unsent() const;
  void listen(std::size_t number);
  bool speak();
  bool fill(Lane& lane);
  [[nodiscard]] static Moved read(Lane& lane, std::span<std::byte> into, std::size_t& bytes);
  [[nodiscard]] static Moved write(Lane& lane);

  End& end_;
  LaneSource* const source_;
  std::deque<Lane> lanes_;
  files::LaneJoiner joiner_{files::window_bytes};
  files::LaneGrowth growth_;
  wire::Bytes unsaid_;
  std::uint64_t said_ = 0;  // bytes of the stream
  std::optional<Clock::time_point> closed_since_{};
  bool in_order_ = true;
};

extern template class Carrier<files::Sender>;
extern template class Carrier<files::Receiver>;

/// Carries the transfer to its end. Blocks. Returns all that went wrong; none: all files are there. All descriptors
/// become ones that do not block. `lanes` may be none.
[[nodiscard]] std::vector<std::string> carry(files::Sender& sender, const os::Ends& ends, LaneSource* lanes = nullptr);
[[nodiscard]] std::vector<std::string> carry(files::Receiver& receiver, const os::Ends& ends,
                                             LaneSource* lanes = nullptr);

}  // namespace aplib::launch::pool
