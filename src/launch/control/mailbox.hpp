// SPDX-License-Identifier: MIT
// Mailbox: messages that one thread takes in order, one after the other, while another brings them.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include "launch/control/protocol.hpp"

namespace aplib::launch {

struct Letter {
  MessageType type = MessageType::beat;
  Bytes body{};
};

/// Thread safety: all functions may be called from any thread.
class Mailbox {
 public:
  void put(MessageType type, std::span<const std::byte> body) {
    {
      const std::lock_guard lock(mutex_);
      letters_.push_back({type, Bytes(body.begin(), body.end())});
    }
    changed_.notify_all();
  }
  /// Nothing comes any more.
  void close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    changed_.notify_all();
  }
  /// The next one; waits for it. Nothing: it was closed, and all was taken.
  std::optional<Letter> take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return closed_ || !letters_.empty(); });
    if (letters_.empty()) return std::nullopt;
    Letter letter = std::move(letters_.front());
    letters_.pop_front();
    return letter;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Letter> letters_;
  bool closed_ = false;
};

}  // namespace aplib::launch
