// SPDX-License-Identifier: MIT
// BodyArena: memory of one process in which the bodies of its large messages to other processes of the host lie. Those
// map it. The owner copies a body into the arena, once, and lends it; what travels is its number. The message that the
// receiver gets has its body there, and gives it back when it is done with it. A receiver that copies it out may begin
// with the parts that are there.
//
// A body takes consecutive units, the first ones that are free. So a stream uses the same few again and again, while
// they are hot.
//
// Invariants: (1) Which units are in use stands in the owner's own memory (LendingArena) alone. Shared memory only says
// what is given back, and that is checked against it. (2) Unit 0 holds the links. links[0] is the first of the bodies
// that were given back, links[u] the one after body u, 0 the end. Borrowers push a body in front (release), and the
// owner takes all of them at once (acquire), so there is no ABA problem. (3) links[u] belongs to who has body u.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/spin_lock.hpp"
#include "memory/shared_file.hpp"

namespace aplib {

class BodyArena {
 public:
  static constexpr const char* name = "aplib-bodies";
  static constexpr std::size_t unit_bytes = 16 * 1024;
  static constexpr std::uint32_t unit_count = 4096;
  static constexpr std::size_t bytes = unit_bytes * unit_count;

  /// Maps another process's. Null: it is none, or cannot be mapped.
  [[nodiscard]] static std::unique_ptr<BodyArena> open(const SharedFilePlace& place);
  ~BodyArena();
  BodyArena(const BodyArena&) = delete;
  BodyArena& operator=(const BodyArena&) = delete;

  /// Body `number` of so many bytes, as a peer says. Null: it cannot lie there.
  [[nodiscard]] char* find(std::uint64_t number, std::uint64_t body_bytes) const noexcept {
    const bool inside = number != 0 && number < unit_count && body_bytes <= (unit_count - number) * unit_bytes;
    return inside ? at(static_cast<std::uint32_t>(number)) : nullptr;
  }
  /// The borrower is done with a body. Call from: any thread.
  void give_back(std::uint32_t number) noexcept;

 protected:
  using Links = std::array<std::atomic<std::uint32_t>, unit_count>;
  static_assert(sizeof(Links) <= unit_bytes && std::atomic<std::uint32_t>::is_always_lock_free);

  explicit BodyArena(char* base) noexcept : base_(base) {}
  /// Null: errno says why.
  [[nodiscard]] static char* map(int descriptor) noexcept;
  [[nodiscard]] char* at(std::uint32_t number) const noexcept { return base_ + number * unit_bytes; }
  [[nodiscard]] Links& links() const noexcept { return *reinterpret_cast<Links*>(base_); }

 private:
  char* base_;
};

/// The owner's. Thread safety: any thread.
class LendingArena final : public BodyArena {
 public:
  /// Null: the system has no memory for it.
  [[nodiscard]] static std::unique_ptr<LendingArena> make();

  [[nodiscard]] std::optional<SharedFilePlace> place() const noexcept {
    return SharedFile::place_of(file_.descriptor());
  }
  /// Copies a body into the arena. Returns its number; 0: there is no room for it now.
  [[nodiscard]] std::uint32_t lend(std::span<const std::byte> body) noexcept;
  /// The same part by part: room for a body. Returns its number; 0: there is none now.
  [[nodiscard]] std::uint32_t begin(std::size_t body_bytes) noexcept;
  /// Copies the bytes from `first` on, past the caches. REQUIRES: `first` begins a cache line.
  void fill(std::uint32_t number, std::size_t first, std::span<const std::byte> part) const noexcept;
  /// All of it is there: it is lent.
  void complete(std::uint32_t number, std::size_t body_bytes) noexcept;
  /// A body that nobody will receive, whether all of it is there or not.
  void take_back(std::uint32_t number, std::size_t body_bytes) noexcept;
  /// What was given back had not been lent: somebody has written into memory that is not his.
  [[nodiscard]] bool is_deceived() const noexcept { return deceived_.load(std::memory_order_relaxed); }  // a flag

 private:
  static constexpr std::uint32_t word_bits = 64;

  LendingArena(SharedFile file, char* base) noexcept;
  [[nodiscard]] static constexpr std::uint32_t units_of(std::size_t body_bytes) noexcept {
    return static_cast<std::uint32_t>((body_bytes + unit_bytes - 1) / unit_bytes);
  }
  [[nodiscard]] std::uint32_t reserve(std::uint32_t count) noexcept;
  void collect() noexcept;
  bool release(std::uint32_t number) noexcept;
  [[nodiscard]] std::uint32_t next(bool used, std::uint32_t from) const noexcept;
  void mark(bool used, std::uint32_t first, std::uint32_t count) noexcept;

  SharedFile file_;
  std::atomic<bool> deceived_{false};
  SpinLock lock_;
  std::array<std::uint64_t, unit_count / word_bits> used_{};  // a bit for each unit; under the lock
  /// Units of the body that begins there, once it is complete; 0: none is.
  std::array<std::atomic<std::uint16_t>, unit_count> lent_{};
};

}  // namespace aplib
