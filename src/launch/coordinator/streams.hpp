// SPDX-License-Identifier: MIT
// The input and output of cells of other processes, between aprun's files and the coordinator. InputCarrier reads the
// cells' inputs as fast as they ask. OutputCarrier passes on what they write, so that a slow reader holds up only the
// writers. Each has a thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/os/descriptor.hpp"
#include "launch/output.hpp"

namespace aplib::launch::coordinator {

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

  /// A cell takes this many more bytes. Nothing is read before a cell first asks.
  void want(std::uint32_t process, std::uint32_t cell, std::uint64_t bytes);

 private:
  struct Source {
    std::uint32_t process = 0;
    os::UniqueFd descriptor{};
    std::uint64_t wanted = 0;
    bool ended = false;
  };
  void carry();
  void read(std::uint32_t cell, Source& source);

  Output& output_;
  const Deliver deliver_;
  os::EventFd wake_;
  std::mutex mutex_;  // guards what follows
  std::map<std::uint32_t, Source> sources_;
  bool closing_ = false;
  std::thread thread_;
};

/// Thread safety: all functions may be called from any thread.
class OutputCarrier {
 public:
  /// `written` is called on the carrier's thread when bytes of a process have been passed on. Each process has a
  /// bounded number of bytes on their way, so the queue is bounded too.
  OutputCarrier(Output& output, std::function<void(std::uint32_t process, std::uint64_t bytes)> written);
  /// Discards what was not passed on, unless finish() was called.
  ~OutputCarrier();
  OutputCarrier(const OutputCarrier&) = delete;
  OutputCarrier& operator=(const OutputCarrier&) = delete;

  void write(std::uint32_t process, std::uint32_t cell, Channel channel, std::string bytes);
  void flush(std::uint32_t cell, Channel channel);
  void end(std::uint32_t cell);
  /// Waits until everything is passed on, as long as readers take it.
  void finish();

 private:
  enum class Kind : std::uint8_t { bytes, flush, end };
  struct Item {
    Kind kind = Kind::bytes;
    std::uint32_t process = 0;
    std::uint32_t cell = 0;
    Channel channel{};
    std::string bytes{};
  };
  void add(Item item);
  void carry();
  void pass(const Item& item);

  Output& output_;
  const std::function<void(std::uint32_t, std::uint64_t)> written_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<Item> items_;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace aplib::launch::coordinator
