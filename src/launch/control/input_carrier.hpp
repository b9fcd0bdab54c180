// SPDX-License-Identifier: MIT
// InputCarrier: a thread that reads the cells' inputs, as fast as they are wanted.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <thread>

#include "launch/output.hpp"

namespace aplib::launch {

/// Thread safety: all functions may be called from any thread.
class InputCarrier {
 public:
  using Deliver =
      std::function<void(std::uint32_t process, std::uint32_t cell, std::span<const std::byte> bytes, bool last)>;

  /// `deliver` is called on the carrier's thread.
  InputCarrier(Output& output, Deliver deliver);
  ~InputCarrier();
  InputCarrier(const InputCarrier&) = delete;
  InputCarrier& operator=(const InputCarrier&) = delete;

  /// A cell takes so many more bytes. Nothing is read before a cell first asks.
  void want(std::uint32_t process, std::uint32_t cell, std::uint64_t bytes);

 private:
  struct Source {
    std::uint32_t process = 0;
    int descriptor = -1;  // our own
    std::uint64_t wanted = 0;
    bool ended = false;
  };
  void carry();
  void read(std::uint32_t cell, Source& source);

  Output& output_;
  const Deliver deliver_;
  int wake_[2] = {-1, -1};
  std::mutex mutex_;  // of what follows
  std::map<std::uint32_t, Source> sources_;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace aplib::launch
