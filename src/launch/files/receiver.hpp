// SPDX-License-Identifier: MIT
// Receiver: the other end of a transfer (sender.hpp). It says what is lacking below a folder, and makes it there.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/digest.hpp"
#include "launch/files/arrivals.hpp"
#include "launch/files/frames.hpp"
#include "launch/files/manifest.hpp"
#include "launch/files/target.hpp"

namespace aplib::launch::files {

/// One thread at a time. Whatever the sender says, nothing outside the folder changes. What cannot be placed is a
/// problem of the outcome. It throws only std::bad_alloc, and Error(failed) where the cryptographic library fails.
class Receiver {
 public:
  struct Settings {
    std::string folder{};  ///< Made if it is not there.
    Existing existing = Existing::refuse;
    /// What has come of a large file stays beside its name when the transfer is cut off, and the next one goes on
    /// behind it. Otherwise nothing stays, even if this process is killed.
    bool resume = false;
    std::string host{};  ///< This computer, as in Manifest::host.
    bool waits = false;  ///< Nothing is made or asked for before accept().
    /// Hears of each file, and outlives the receiver. What an earlier one has brought there is not asked for again.
    Arrivals* arrivals = nullptr;
    bool notes_new = false;  ///< For new_entries(): looks once more for each entry.
  };
  /// Files of fewer bytes are not resumed.
  static constexpr std::uint64_t resumed_bytes_min = std::uint64_t{1} << 20;

  explicit Receiver(Settings settings) : settings_(std::move(settings)) {}

  /// The next bytes of the stream. The sender is a stranger.
  void take(std::span<const std::byte> bytes);
  /// What is to be told to the sender now.
  [[nodiscard]] wire::Bytes reply() { return std::exchange(replies_, {}); }

  /// The whole manifest has come.
  [[nodiscard]] bool offered() const noexcept { return offered_; }
  [[nodiscard]] const std::vector<Entry>& entries() const noexcept { return manifest_->entries; }
  /// Those whose paths had nothing before, neither the same nor another. REQUIRES: ended(), Settings::notes_new.
  [[nodiscard]] std::vector<Entry> new_entries() const;
  [[nodiscard]] const std::string& sender_host() const noexcept { return manifest_->host; }
  /// Goes on, into `folder`. REQUIRES: offered(), Settings::waits.
  void accept(std::string folder);
  /// Ends it. Empty: as if all had come.
  void decline(const std::string& why);

  [[nodiscard]] bool ended() const noexcept { return ended_; }
  [[nodiscard]] const Outcome& outcome() const noexcept { return outcome_; }

 private:
  /// The file that comes.
  struct Coming {
    std::uint32_t entry = 0;
    std::uint64_t bytes = 0;
    std::int64_t time = 0;
    std::uint64_t at = 0;
    Part part{};  ///< None: it cannot be placed, which is a problem already.
    comm::Sha256 sum{};
  };

  bool take_frame(const Frame& frame);
  bool take_entries(Entries entries);
  bool take_begin(const FileBegin& begin);
  bool take_data(std::span<const std::byte> bytes);
  bool take_hole(std::uint64_t bytes);
  bool take_end(const FileEnd& end);
  bool take_done(Outcome theirs);
  void place_coming(const FileEnd& end);

  void answer_all();
  void make(std::uint32_t i);
  [[nodiscard]] Answer answer_file(std::uint32_t i);
  [[nodiscard]] bool has_room();
  template <class Function, class... Words>
  void tell(Function function, Words&&... words) {
    if (settings_.arrivals != nullptr) std::invoke(function, *settings_.arrivals, std::forward<Words>(words)...);
  }
  void finish_folders();
  void finish();

  const Settings settings_;
  FrameReader heard_;
  wire::Bytes replies_;
  const std::shared_ptr<Manifest> manifest_ = std::make_shared<Manifest>();  // as it has come
  std::uint64_t path_bytes_ = 0;
  std::vector<bool> were_there_;  // by entry, whatever it was; empty without Settings::notes_new
  std::vector<Answer> answers_;   // by entry; Kind::nothing: it does not come, or has come
  std::optional<Target> target_;
  std::vector<std::uint32_t> folders_;  // that were made here, also by an earlier receiver of the same arrivals
  std::optional<Coming> coming_;
  std::uint64_t taken_ = 0;
  std::uint64_t told_ = 0;
  std::uint64_t window_ = 0;  // the sender's
  bool begun_ = false;
  bool pushes_ = false;
  bool offered_ = false;
  bool ended_ = false;
  Outcome outcome_;
};

}  // namespace aplib::launch::files
