// SPDX-License-Identifier: MIT
// Sender: one end of a transfer. It reads the files of a manifest and makes a stream of bytes of them, for a Receiver
// (receiver.hpp) wherever that is. frames.hpp has the form.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "base/os/descriptor.hpp"
#include "comm/digest.hpp"
#include "launch/files/arrivals.hpp"
#include "launch/files/frames.hpp"
#include "launch/files/manifest.hpp"

namespace aplib::launch::files {

/// Bytes of the stream that a sender makes at a time.
inline constexpr std::size_t chunk_bytes = std::size_t{64} << 10;
/// Bytes of the stream that may be under way: what a gigabit a second takes in 250 ms. A sender and the connection
/// behind it keep no more of it in memory.
inline constexpr std::size_t window_bytes = std::size_t{32} << 20;

/// One thread at a time. What it cannot read is a problem of the outcome. It throws only std::bad_alloc, and
/// Error(failed) where the cryptographic library fails.
class Sender {
 public:
  struct Settings {
    std::size_t window = window_bytes;  ///< At least 4 * chunk_bytes.
    bool pushes = false;                ///< All files are sent, without asking what of them is there.
    /// A receiver here gets the files at the same time, and they are passed on as far as they have come. The manifest
    /// is the arrivals'. Where one of them does not come, the sender gives up.
    const Arrivals* arrivals = nullptr;
  };

  Sender(std::shared_ptr<const Manifest> manifest, Settings settings);

  /// The next bytes of the stream, at most chunk_bytes and a frame. Empty: none before take(), before more arrives, or
  /// ever.
  [[nodiscard]] wire::Bytes next();
  /// What the receiver says. It is a stranger.
  void take(std::span<const std::byte> bytes);

  /// The receiver has all, or one end has given up: outcome() says which.
  [[nodiscard]] bool ended() const noexcept { return ended_; }
  [[nodiscard]] const Outcome& outcome() const noexcept { return outcome_; }

 private:
  /// A file that is being read.
  struct Open {
    os::UniqueFd file{};
    std::uint32_t entry = 0;
    int attempt = 1;
    std::uint64_t bytes = 0;
    std::int64_t time = 0;
    std::uint64_t at = 0;
    std::uint64_t data_end = 0;  ///< What lies before it is no hole.
    bool sparse = false;
    bool comes = false;         ///< Its receiver verifies it, so that no sum is computed here.
    std::uint32_t changes = 0;  ///< Arrivals::File
    comm::Sha256 sum{};
  };
  enum class Stage : std::uint8_t { manifest, files, done };

  void take_frame(const Frame& frame);
  void take_answers(Answers answers);
  void give_up(std::string why);

  void add_entries(wire::Bytes& to);
  void add_files(wire::Bytes& to);
  /// The next file that is asked for. False: it has not come yet.
  bool begin_next(wire::Bytes& to);
  [[nodiscard]] bool has_come(std::uint32_t entry, const Answer& answer);
  [[nodiscard]] bool open_file(Open& open);
  void begin_file(wire::Bytes& to, std::uint32_t entry, const Answer& answer, int attempt);
  [[nodiscard]] bool has_same(const Open& open, const Answer& answer) const;
  bool add_data(wire::Bytes& to);
  [[nodiscard]] std::optional<std::uint64_t> come_of(const Open& open);
  [[nodiscard]] ssize_t read_some(Open& open, std::span<std::byte> into) const;
  bool add_hole(wire::Bytes& to, std::uint64_t end);
  void end_file(wire::Bytes& to);
  void drop_file(wire::Bytes& to, const std::string& why);
  [[nodiscard]] static bool changed(const Open& open);
  [[nodiscard]] const comm::Digest* known_sum(std::uint32_t entry) const;
  [[nodiscard]] std::string place_of(std::uint32_t entry) const { return shown(manifest_->place(entry)); }

  const std::shared_ptr<const Manifest> manifest_;
  const Settings settings_;
  FrameReader said_;
  std::deque<std::pair<std::uint32_t, Answer>> wanted_;  // what is asked for
  std::size_t entries_sent_ = 0;
  std::size_t answered_ = 0;
  bool is_answered_ = false;  // also if there is no entry
  std::optional<Open> open_;
  std::uint64_t sent_ = 0;
  std::uint64_t taken_ = 0;
  Stage stage_ = Stage::manifest;
  bool begun_ = false;
  bool ended_ = false;
  Outcome outcome_;
};

}  // namespace aplib::launch::files
