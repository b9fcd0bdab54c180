// SPDX-License-Identifier: MIT
// Arrivals: what a receiver has of the files of a transfer, and how far the one is that comes, for senders here that
// pass them on to other hosts meanwhile. It outlives the receiver: where that one is cut off, another one goes on.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/os/descriptor.hpp"
#include "comm/digest.hpp"
#include "launch/files/manifest.hpp"

namespace aplib::launch::files {

/// One thread at a time.
class Arrivals {
 public:
  enum class State : std::uint8_t {
    unknown,  ///< It may come.
    coming,
    whole,  ///< It has its name, and what came was verified.
    kept,   ///< It was there already; nobody has computed its sum. Of a folder: a receiver has made it.
    lost,   ///< It does not come.
  };
  struct File {
    State state = State::unknown;
    // coming:
    std::uint64_t bytes = 0;
    std::int64_t time = 0;
    std::uint64_t ready = 0;  ///< So many bytes from its beginning are there.
    /// How often it has begun as another file than before: it changed while it was sent.
    std::uint32_t changes = 0;
    const comm::Digest* sum = nullptr;  ///< whole
  };

  // The receiver's. Entries are those of the manifest.

  /// The manifest is there; its files go below the folder. False: it is another one than that of the receiver before.
  [[nodiscard]] bool offer(const std::shared_ptr<Manifest>& manifest, const std::string& folder) {
    if (manifest_) {
      for (State& state : states_)
        if (state == State::lost) state = State::unknown;
      return manifest_->entries == manifest->entries;
    }
    manifest->folder = folder;
    manifest_ = manifest;
    states_.resize(manifest->entries.size());
    sums_.resize(manifest->entries.size());
    return true;
  }
  /// The next file begins: `file` gets its bytes, of which `ready` are there.
  void begin(std::uint32_t entry, int file, std::uint64_t bytes, std::int64_t time, std::uint64_t ready) {
    if (last_ == entry && (last_bytes_ != bytes || last_time_ != time)) ++changes_[entry];
    last_ = entry;
    last_bytes_ = bytes;
    last_time_ = time;
    ready_ = ready;
    file_ = open_again(file);
    states_[entry] = file_ ? State::coming : State::lost;
  }
  void grow(std::uint64_t ready) noexcept { ready_ = ready; }
  /// Without a sum: as Kind::kept, unless it is whole.
  void settle(std::uint32_t entry, const std::optional<comm::Digest>& sum) {
    if (entry == last_) file_.reset();
    if (sum) sums_[entry] = *sum;
    if (sum || states_[entry] != State::whole) states_[entry] = sum ? State::whole : State::kept;
  }
  /// What came of it is worth nothing; it may come again.
  void drop(std::uint32_t entry) noexcept { states_[entry] = State::unknown; }
  void lose(std::uint32_t entry) noexcept { states_[entry] = State::lost; }
  /// Nothing comes any more.
  void end() noexcept {
    for (State& state : states_)
      if (state == State::unknown || state == State::coming) state = State::lost;
  }

  // Of senders and the receiver.

  /// Nothing of it is needed any more.
  [[nodiscard]] bool has(std::uint32_t entry) const noexcept {
    return states_[entry] == State::whole || states_[entry] == State::kept;
  }
  /// Null: it has not come yet.
  [[nodiscard]] std::shared_ptr<const Manifest> manifest() const noexcept { return manifest_; }
  [[nodiscard]] File look(std::uint32_t entry) const {
    File file{.state = states_[entry]};
    const auto changes = changes_.find(entry);
    if (changes != changes_.end()) file.changes = changes->second;
    if (file.state == State::whole) file.sum = &sums_[entry];
    if (file.state != State::coming) return file;
    file.bytes = last_bytes_;
    file.time = last_time_;
    file.ready = ready_;
    return file;
  }
  /// To read. None: errno says why.
  [[nodiscard]] os::UniqueFd open(std::uint32_t entry) const {
    if (states_[entry] == State::coming) return open_again(file_.get());
    return os::UniqueFd(::open(manifest_->place(entry).c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  }

 private:
  /// A descriptor of its own, which shares no lock with the first one.
  [[nodiscard]] static os::UniqueFd open_again(int file) {
    return os::UniqueFd(::open(fmt::format("/proc/self/fd/{}", file).c_str(), O_RDONLY | O_CLOEXEC));
  }

  std::shared_ptr<Manifest> manifest_;
  std::vector<State> states_;       // by entry
  std::vector<comm::Digest> sums_;  // by entry; of those that are whole
  std::map<std::uint32_t, std::uint32_t> changes_;
  // The file that comes, or was the last one to come.
  std::optional<std::uint32_t> last_;
  std::uint64_t last_bytes_ = 0;
  std::int64_t last_time_ = 0;
  std::uint64_t ready_ = 0;
  os::UniqueFd file_;
};

}  // namespace aplib::launch::files
