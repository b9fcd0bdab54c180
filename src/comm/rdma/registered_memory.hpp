// SPDX-License-Identifier: MIT
// Memory that the provider knows: for packets, for bodies that wait to be read, and the program's own, remembered.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "base/os/descriptor.hpp"
#include "comm/rdma/fabric.hpp"

namespace aplib::comm::rdma {

// PacketBuffers: memory of fixed size for packets, in registered blocks.

/// Thread safety: none (the module's lock).
class PacketBuffers {
 public:
  /// The context comes first: the provider writes there while it has the buffer.
  struct Buffer {
    fi_context2 context;
    std::byte* memory;
    void* descriptor;
  };

  /// `access`: FI_SEND or FI_RECV.
  PacketBuffers(Fabric& fabric, std::size_t bytes, std::size_t count_max, std::uint64_t access) noexcept
      : fabric_(fabric), bytes_(bytes), count_max_(count_max), access_(access) {}

  /// Null: all are taken, or there is no memory.
  [[nodiscard]] Buffer* take() noexcept;
  void give(Buffer* buffer) noexcept { free_.push_back(buffer); }  // reserved by more()
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  void clear() noexcept;

 private:
  struct Block {
    std::unique_ptr<std::byte[]> memory;
    Fid<fid_mr> region;
    std::unique_ptr<Buffer[]> buffers;
  };
  static constexpr std::size_t per_block = 32;
  bool more() noexcept;

  Fabric& fabric_;
  const std::size_t bytes_;
  const std::size_t count_max_;
  const std::uint64_t access_;
  std::vector<Block> blocks_;
  std::vector<Buffer*> free_;
};

// RegisteredPool: memory for bodies that wait to be read by their receivers, registered once and used again and again.

/// Thread safety: none (the module's lock).
class RegisteredPool {
 public:
  struct Block {
    std::unique_ptr<std::byte[]> memory;
    std::size_t bytes = 0;
    Fid<fid_mr> region;
  };

  explicit RegisteredPool(Fabric& fabric) noexcept : fabric_(fabric) {}

  /// At least so many bytes. Null: there is no memory, or it cannot be registered.
  [[nodiscard]] std::unique_ptr<Block> take(std::size_t bytes) noexcept;
  void give(std::unique_ptr<Block> block) noexcept;
  void clear() noexcept;

 private:
  static constexpr std::size_t kept_bytes_max = std::size_t{64} * 1024 * 1024;
  static constexpr unsigned smallest_bits = 15;

  Fabric& fabric_;
  std::array<std::vector<std::unique_ptr<Block>>, 64> free_;  // By size, a power of two.
  std::size_t kept_bytes_ = 0;
};

// MemoryWatch: hears of memory that is unmapped, given back (madvise) or moved (mremap), from the kernel
// (userfaultfd). munmap() and its like return after the watch has heard of it, on whatever thread they are called.

/// Thread safety: as said. Costs a thread, which sleeps.
class MemoryWatch {
 public:
  struct Range {
    std::uintptr_t begin;
    std::uintptr_t end;
  };
  /// What has gone since the last time.
  struct Gone {
    static constexpr std::size_t ranges_max = 256;
    std::array<Range, ranges_max> ranges;
    std::size_t count = 0;
    bool everything = false;  ///< There were too many.
  };

  /// Null: the kernel does not let us (vm.unprivileged_userfaultfd, a seccomp filter, an old kernel).
  [[nodiscard]] static std::unique_ptr<MemoryWatch> open() noexcept;
  ~MemoryWatch();
  MemoryWatch(const MemoryWatch&) = delete;
  MemoryWatch& operator=(const MemoryWatch&) = delete;

  /// Watches whole pages. False: memory of a kind that cannot be watched, as that of a file. Any thread.
  [[nodiscard]] bool add(Range pages) noexcept;
  void remove(Range pages) noexcept;

  /// Any thread. What was unmapped before this call is in it. Allocates nothing.
  void take(Gone& into) noexcept;

 private:
  explicit MemoryWatch(os::UniqueFd faults);
  void listen() noexcept;

  const os::UniqueFd faults_;
  const os::EventFd stop_;
  std::mutex mutex_;
  Gone gone_;
  std::thread listener_;
};

// RegistrationCache: registrations of local memory, kept for the next time, because making one costs microseconds
// and a system call. It survives what programs do to their memory: a registration whose pages were unmapped, given
// back or moved is never used again, whatever lies at its addresses now (MemoryWatch). Where the kernel does not
// tell of that, nothing is kept.

/// Registered as long as it lives.
class Registration {
 public:
  virtual ~Registration() = default;
  Registration() = default;
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;
  /// What the provider wants to see beside an address.
  [[nodiscard]] virtual void* descriptor() const noexcept = 0;
};

/// Thread safety: none (the module's lock); memory may be unmapped by any thread at any time.
class RegistrationCache {
 public:
  /// Registers whole pages. Null: not possible now.
  using Make = std::function<std::shared_ptr<Registration>(std::span<const std::byte> pages)>;
  struct Limits {
    std::size_t entries = 1024;
    std::size_t bytes = std::size_t{4} << 30U;
  };

  /// `watch`: false: as where the kernel does not tell.
  RegistrationCache(Make make, Limits limits, bool watch);

  /// The memory is mapped now, and stays so as long as the registration is used. Null: not possible now.
  [[nodiscard]] std::shared_ptr<Registration> find_or_make(std::span<const std::byte> memory);

  [[nodiscard]] bool watches() const noexcept { return watch_ != nullptr; }
  [[nodiscard]] std::size_t entries() const noexcept { return entries_.size(); }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::uint64_t made() const noexcept { return made_; }

 private:
  struct Entry {
    std::uintptr_t end;
    std::shared_ptr<Registration> registration;
    std::list<std::uintptr_t>::iterator use;
  };
  using Entries = std::map<std::uintptr_t, Entry>;  // By begin; they do not overlap.

  void hear();
  void forget(std::uintptr_t begin, std::uintptr_t end);
  Entries::iterator drop(Entries::iterator entry);
  [[nodiscard]] Entries::iterator first_behind(std::uintptr_t begin);

  Make make_;
  Limits limits_;
  std::unique_ptr<MemoryWatch> watch_;
  Entries entries_;
  std::list<std::uintptr_t> used_;  // Begins of entries, the latest first.
  std::size_t bytes_ = 0;
  std::uint64_t made_ = 0;
};

}  // namespace aplib::comm::rdma
