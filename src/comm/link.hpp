// SPDX-License-Identifier: MIT
// Link: what every module knows of its link to one other process, whatever carries the frames: its state, whether it is
// broken, the frames that were sent before it was up, and what it has to tell the thread that polls. The
// links of tcp, shm and rdma derive from it.
//
//   idle --first send--> calling --our call is taken--> up --the peer ends, or is lost, or we close--> over
//     \___ its call comes: gathering until all of it is here ___/
//
// The sender makes it calling. Only the module's own thread makes it gathering or up. Only the thread that polls, or
// close(), makes it over. In rdma, which has no thread of its own, whoever holds its lock may go along any edge.
//
// Invariants:
// (1) Only set_state() changes the state, along these edges. Another edge is a fault of ours: it breaks the link, with
//     a message, and never the process.
// (2) A broken link writes nothing any more. It has told why, once, and is over when that is heard.
// (3) To break and to tell needs no memory: where there is none for the words, shorter ones are told.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "comm/module.hpp"

namespace aplib::comm {

class Link;

/// What links have to tell the thread that polls, first told first heard. Thread safety: all functions, any thread.
class LinkReports {
 public:
  struct Told {
    Link* link = nullptr;               ///< Null: nobody has anything to tell.
    bool up = false;                    ///< It has come up.
    std::optional<std::string> lost{};  ///< Nothing more comes than what is here already: why.
  };

  [[nodiscard]] bool any() const noexcept { return any_.load(std::memory_order_acquire); }  // pairs with tell()
  /// What one link tells; to be called until there is none.
  [[nodiscard]] Told take() noexcept;

 private:
  friend class Link;
  /// `up`, or else `lost`.
  void tell(Link& link, bool up, std::string&& lost) noexcept;

  std::atomic<bool> any_ = false;
  std::mutex lock_;
  Link* first_ = nullptr;
  Link* last_ = nullptr;
};

/// Thread safety: what is protected, under the lock of the link that derives from it.
class Link {
 public:
  enum class State : std::uint8_t { idle, calling, gathering, up, over };
  /// What becomes of a call of theirs.
  enum class Answer : std::uint8_t {
    taken,       ///< The link gathers what belongs to it.
    not_now,     ///< We call as well, and ours is the call that counts.
    unexpected,  ///< There is a connection, or there was one.
  };

  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  [[nodiscard]] Peer peer() const noexcept { return peer_; }

  /// Whether a link may go from one state to the other. What is over may end once more.
  [[nodiscard]] static constexpr bool is_edge(State from, State to) noexcept {
    switch (to) {
      case State::idle:
        return false;
      case State::calling:
        return from == State::idle;
      case State::gathering:
        return from == State::idle || from == State::calling;
      case State::up:
        return from == State::calling || from == State::gathering;
      case State::over:
        return true;
    }
    return false;
  }

 protected:
  Link(Peer peer, LinkReports& reports) noexcept : peer_(peer), reports_(reports) {}
  ~Link() = default;

  [[nodiscard]] State state_locked() const noexcept { return state_; }
  /// False: there is no such edge; the link is broken.
  bool set_state(State to) noexcept;
  /// They call. Where both call at the same time, the call of the process with the lower number counts: both sides
  /// know that without a word, so that they always agree on the connection that carries the frames. `self`: our number.
  [[nodiscard]] Answer take_call(Peer self) noexcept;
  /// As a first send, without a frame. False: it is calling already, or more.
  bool begin_call() noexcept { return state_ == State::idle && !broken_ && set_state(State::calling); }
  /// What was queued goes out from here on. False: it is over, or broken.
  [[nodiscard]] bool come_up() noexcept;

  /// Nothing is written any more; the thread that polls takes what the peer has sent before, and then ends the
  /// link. `why`: a text, or a function that makes one.
  template <class Why>
  void break_off(const Why& why) noexcept {
    if (broken_ || state_ == State::over) return;
    broken_ = true;
    stop_writing();
    reports_.tell(*this, false, words(why));
    told();
  }

  // Early frames: what is sent before the link is up waits here, in order.

  struct EarlyFrame {
    Label label;
    std::size_t bytes = 0;
    std::unique_ptr<std::byte[]> body{};  // Null without bytes.
    [[nodiscard]] std::span<const std::byte> span() const noexcept { return {body.get(), bytes}; }
    /// An empty body counts, too.
    [[nodiscard]] std::size_t weight() const noexcept { return sizeof(Label) + bytes; }
  };
  /// Throws std::bad_alloc; then nothing is kept.
  void keep_early(const Label& label, std::span<const std::byte> body) {
    keep_early(label, copy_of(body), body.size());
  }
  /// The same, from copy_of().
  void keep_early(const Label& label, std::unique_ptr<std::byte[]> body, std::size_t bytes);
  /// Null for an empty one. Needs no lock.
  [[nodiscard]] static std::unique_ptr<std::byte[]> copy_of(std::span<const std::byte> body);
  [[nodiscard]] std::size_t early_bytes() const noexcept { return early_bytes_; }
  /// The oldest, which is not kept any more. Nothing: there is none.
  [[nodiscard]] std::optional<EarlyFrame> take_early() noexcept;
  void drop_early() noexcept;

  bool broken_ = false;

 private:
  friend class LinkReports;

  /// It has just been broken: what is queued is dropped.
  virtual void stop_writing() noexcept = 0;
  /// There is something to hear: the thread that polls may sleep.
  virtual void told() noexcept = 0;

  template <class Why>
  static std::string words(const Why& why) noexcept {
    try {
      if constexpr (requires { why(); }) {
        return why();
      } else {
        return std::string(why);
      }
    } catch (const std::bad_alloc&) {
      return "no memory here";  // so short that it needs none
    }
  }

  const Peer peer_;
  State state_ = State::idle;
  LinkReports& reports_;
  std::deque<EarlyFrame> early_;
  std::size_t early_bytes_ = 0;
  // Under the lock of the reports.
  Link* next_ = nullptr;
  bool listed_ = false;
  bool tells_up_ = false;
  std::optional<std::string> tells_lost_;
};

}  // namespace aplib::comm
