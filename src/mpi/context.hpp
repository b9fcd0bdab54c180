// SPDX-License-Identifier: MIT
// Contexts: the numbers by which messages of different communicators are told apart. The members of a new communicator
// agree on one that none of them uses, so cells of different communicators may use the same.
//
// A communicator's number has 12 bits. The bits above make further channels of it, for the library's own messages.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <utility>

namespace aplib::mpi {

/// Added to a communicator's context. In the space of messages from rank to rank: the members of a group agree;
inline constexpr std::uint32_t creating = 0x2000;
/// those of one that is of no communicator.
inline constexpr std::uint32_t grouping = 0x3000;
/// those of a rank to itself, by which MPI_Grequest_complete completes a request;
inline constexpr std::uint32_t completing = 0x1000;
/// partitioned sends say which tags their partitions have,
inline constexpr std::uint32_t pairing = 0x4000;
/// these themselves,
inline constexpr std::uint32_t partitioning = 0x5000;
/// and those of a rank to itself, by which the last MPI_Pready says that it was the last.
inline constexpr std::uint32_t readying = 0x6000;
/// In the space of collectives: all members agree,
inline constexpr std::uint32_t agreeing = 0x4000;
/// for MPI_Comm_idup;
inline constexpr std::uint32_t duplicating = 0x2000;
/// nonblocking calls,
inline constexpr std::uint32_t nonblocking = 0x1000;
/// and persistent ones.
inline constexpr std::uint32_t persistent = 0x3000;

/// Which contexts a rank uses, as a set that a message can carry.
struct ContextSet {
  static constexpr std::uint32_t count = 4096;

  std::array<std::uint64_t, count / 64> words{};

  void add(std::uint32_t context) noexcept { words[context / 64] |= std::uint64_t{1} << context % 64; }
  void remove(std::uint32_t context) noexcept { words[context / 64] &= ~(std::uint64_t{1} << context % 64); }
  [[nodiscard]] bool has(std::uint32_t context) const noexcept {
    return (words[context / 64] >> context % 64 & 1) != 0;
  }
  void add_all(const ContextSet& other) noexcept {
    for (std::size_t i = 0; i < words.size(); ++i) words[i] |= other.words[i];
  }
  /// The first one from `first` on, in a circle, that is not in the set. So a freed one is used again late.
  [[nodiscard]] std::optional<std::uint32_t> first_free(std::uint32_t first) const noexcept {
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::uint32_t context = (first + i) % count;
      if (!has(context)) return context;
    }
    return std::nullopt;
  }
};

/// By these the persistent collective calls of a communicator are told apart. Its ranks make the calls in the same
/// order, but free them when they like. So each number is given once; then all agree on those that nobody has any more.
class PersistentNumbers {
 public:
  static constexpr std::uint32_t count = 0x8000;

  /// As a message can carry it.
  struct Set {
    void add(const Set& other) noexcept {
      for (std::size_t i = 0; i < words.size(); ++i) words[i] |= other.words[i];
    }
    [[nodiscard]] bool has(std::uint32_t number) const noexcept { return (words[number / 64] >> number % 64 & 1) != 0; }

    std::array<std::uint64_t, count / 64> words{};
  };

  /// The same at all ranks. Nothing: they must agree before.
  [[nodiscard]] std::optional<std::uint32_t> take() {
    while (next_ < count && agreed_ != nullptr && agreed_->has(next_)) ++next_;
    if (next_ == count) return std::nullopt;
    if (taken_ == nullptr) taken_ = std::make_unique<Set>();
    taken_->words[next_ / 64] |= std::uint64_t{1} << next_ % 64;
    return next_++;
  }
  void give_back(std::uint32_t number) noexcept { taken_->words[number / 64] &= ~(std::uint64_t{1} << number % 64); }
  /// This rank's, which are not freed.
  [[nodiscard]] Set taken() const { return taken_ != nullptr ? *taken_ : Set(); }
  /// `set`: those that some rank has.
  void agree(const Set& set) {
    agreed_ = std::make_unique<Set>(set);
    next_ = 0;
  }

 private:
  std::unique_ptr<Set> taken_;   // null: none yet
  std::unique_ptr<Set> agreed_;  // null: all numbers are new
  std::uint32_t next_ = 0;
};

/// Of a rank's partitioned sends: which tags are whose.
class TagRanges {
 public:
  /// The first of `count` tags, below `end`, that nobody has. The search goes on where the last one has ended, in a
  /// circle, so freed ones are used again late. Nothing: there are not so many side by side.
  std::optional<std::uint32_t> take(std::uint32_t count, std::uint32_t end) {
    const std::uint32_t begin = std::exchange(next_, 0);
    auto found = take_from(begin, count, end);
    return found || begin == 0 ? found : take_from(0, count, end);
  }
  void give_back(std::uint32_t first) noexcept { taken_.erase(first); }

 private:
  std::optional<std::uint32_t> take_from(std::uint32_t first, std::uint32_t count, std::uint32_t end) {
    auto after = taken_.upper_bound(first);
    if (after != taken_.begin()) first = std::max(first, std::prev(after)->second);
    while (count <= end && first <= end - count) {
      if (after == taken_.end() || after->first - first >= count) {
        taken_.emplace(first, first + count);
        next_ = first + count;
        return first;
      }
      first = after++->second;
    }
    return std::nullopt;
  }

  std::map<std::uint32_t, std::uint32_t> taken_;  // first ones and ends
  std::uint32_t next_ = 0;
};

}  // namespace aplib::mpi
