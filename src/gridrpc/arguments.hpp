// SPDX-License-Identifier: MIT
// The arguments of a call: how they travel. Client and server compute their sizes from the function and its scalars, so
// that these need not travel.
//
// A call's bytes: its IN scalars; then all other IN arguments, in their order. Results: all OUT arguments, in their
// order. An array is the elements that travel, side by side; large ones lie in the arena instead, if there is one. A
// string or file is its length (8 bytes; `no_text`: NULL) and its bytes. INOUT counts as both.
#pragma once

#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/os/descriptor.hpp"
#include "calls/extents.hpp"
#include "calls/interface.hpp"
#include "gridrpc/channel.hpp"

namespace aplib::gridrpc {

using namespace calls;

inline constexpr std::uint64_t no_text = ~std::uint64_t{0};
inline constexpr std::uint64_t text_bytes_max = std::uint64_t{1} << 30;

/// A client's arguments, as the C interface has them.
class Arguments {
 public:
  /// Takes them from the list of f(...).
  void take(const Function& function, std::va_list list);
  /// From an argument stack. Throws Error(bad_argument): there are too few or too many.
  void take(const Function& function, std::span<void* const> stack);

  /// Of each argument's first element; of WORK: nothing. An IN string's element is a char *.
  [[nodiscard]] std::span<void* const> addresses() const noexcept { return addresses_; }

 private:
  struct alignas(16) Slot {
    std::byte bytes[16];
  };
  template <class T>
  void keep(T value) {
    std::memcpy(slots_[addresses_.size()].bytes, &value, sizeof value);
    addresses_.push_back(slots_[addresses_.size()].bytes);
  }

  std::vector<Slot> slots_;
  std::vector<void*> addresses_;
};

/// What one side is about to send.
class Parcel {
 public:
  void clear() noexcept;
  void copy(const void* data, std::size_t bytes);
  /// `data` stays where it is until send().
  void refer(const void* data, std::uint64_t bytes);
  void text(const char* text);
  /// All of it, or no_text for NULL. Throws Error(bad_argument): it cannot be opened.
  void file(const char* path);

  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  /// Throws as Channel does, and Error(failed): a file became shorter.
  void send(Channel& channel, const void* head, std::size_t head_bytes, int descriptor = -1);

 private:
  struct Piece {
    const void* data = nullptr;  ///< Nothing: so many bytes of copied_, or of the file.
    std::uint64_t bytes = 0;
    os::UniqueFd file{};
  };

  std::vector<std::byte> copied_;
  std::vector<Piece> pieces_;
  std::vector<iovec> parts_;
  std::uint64_t bytes_ = 0;
};

/// The bytes that a head has announced. What does not fit is refused before it is read.
class Body {
 public:
  Body(Channel& channel, std::uint64_t bytes) noexcept : channel_(channel), left_(bytes) {}

  /// Throws as Channel does, and Error(failed): there are not so many.
  void read(void* into, std::uint64_t bytes);
  template <class T>
  [[nodiscard]] T read() {
    T value;
    read(&value, sizeof value);
    return value;
  }
  /// The length of a text or file; no_text. Throws Error(failed).
  [[nodiscard]] std::uint64_t read_length(std::uint64_t most);
  /// Reads what is left.
  void skip() { channel_.skip(std::exchange(left_, 0)); }
  [[nodiscard]] std::uint64_t left() const noexcept { return left_; }

 private:
  Channel& channel_;
  std::uint64_t left_;
};

/// The memory of a call at a server.
class CallMemory {
 public:
  CallMemory() : small_(std::make_unique<Small>()) {}
  ~CallMemory() { clear(); }
  CallMemory(const CallMemory&) = delete;
  CallMemory& operator=(const CallMemory&) = delete;

  /// Aligned to cache lines. Throws Error(exhausted).
  [[nodiscard]] std::byte* take(std::uint64_t bytes);
  void clear() noexcept;

 private:
  struct alignas(64) Small {
    std::byte bytes[std::size_t{64} << 10];
  };
  std::unique_ptr<Small> small_;
  std::size_t used_ = 0;  // of small_
  std::vector<void*> blocks_;
};

/// A file of a call at a server: it has no name of its own, and ends with the call.
struct CallFile {
  os::UniqueFd file;
  std::string path;
  /// Throws Error(exhausted).
  static CallFile make();
};

// --- At the client ---

/// Throws Error(bad_argument): an address is NULL, a file cannot be read.
void write_arguments(Parcel& parcel, const Function& function, std::span<void* const> addresses, const Extents& extents,
                     const Arena& arena);
/// Into where the arguments are. Returns what was wrong with the caller's files. Throws as Channel does, and
/// Error(failed): these are no results of the function.
[[nodiscard]] std::string read_results(Body& body, const Function& function, std::span<void* const> addresses,
                                       const Extents& extents, const Arena& arena);

// --- At the server ---

/// All that a server keeps of a call. The arguments of the next one take its place.
class ServedCall {
 public:
  /// Reads the arguments. Throws Error, after which the rest can be skipped: "...".
  void read(Body& body, const Function& function, std::uint64_t arena_bytes, const Arena& arena);
  [[nodiscard]] void** addresses() noexcept { return addresses_.data(); }
  void write_results(Parcel& parcel, const Arena& arena);
  /// What it holds is free again.
  void clear() noexcept;

 private:
  void read_scalars(Body& body);
  void read_others(Body& body, const Arena& arena);
  void read_texts(Body& body, std::size_t which);
  void read_array(Body& body, std::size_t which, const Arena& arena);

  const Function* function_ = nullptr;
  Extents extents_;
  CallMemory memory_;
  std::vector<void*> addresses_;
  std::vector<CallFile> files_;
  std::vector<std::pair<char**, char*>> given_;  // strings that the function may replace, and what they were
};

}  // namespace aplib::gridrpc
