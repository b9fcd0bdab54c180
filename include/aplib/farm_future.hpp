// SPDX-License-Identifier: MIT
// Futures: the results of a farm's tasks. Included by farm.hpp.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "aplib/error.hpp"
#include "aplib/export.hpp"
#include "aplib/farm_bytes.hpp"
#include "aplib/farm_outcome.hpp"

namespace aplib::farm {

/// Why a task has no result. What a task has thrown in another process is one of these, too, with its text.
class APLIB_API TaskError : public Error {
 public:
  TaskError(Outcome outcome, const std::string& text) : Error(Errc::failed, text), outcome_(outcome) {}
  TaskError(const TaskError&) = default;
  ~TaskError() override;
  [[nodiscard]] Outcome outcome() const noexcept { return outcome_; }

 private:
  Outcome outcome_;
};

struct TaskOptions {
  int priority = 0;                     ///< Higher ones first; equal ones in the order of submission.
  std::optional<unsigned> retries{};    ///< Further runs when it throws or takes too long. Default: the farm's.
  std::chrono::nanoseconds timeout{0};  ///< Of one run, in processes. 0: the farm's.
};

namespace detail {

class Core;

/// A task, from its submission until nobody has a future of it. Internal.
class APLIB_API TaskState : public std::enable_shared_from_this<TaskState> {
 public:
  TaskState() = default;
  virtual ~TaskState();
  TaskState(const TaskState&) = delete;
  TaskState& operator=(const TaskState&) = delete;

  /// Runs it here. The result is kept by it until end(). Returns what it has thrown.
  virtual std::exception_ptr run() = 0;
  /// For another process: which function, and its arguments. False: it cannot go there.
  virtual bool send(std::uint32_t& function, Bytes& arguments) const = 0;
  /// The bytes of the result. False: they are none.
  virtual bool receive(std::span<const std::byte> result) = 0;
  /// The result as receive() takes it. REQUIRES: it is there, and send() has returned true.
  virtual void write_result(Bytes& bytes) const = 0;

  /// Once: later calls do nothing, and return false. Any thread.
  bool end(Outcome outcome, std::exception_ptr error);
  [[nodiscard]] bool ended() const noexcept { return ended_.load(std::memory_order_acquire) != 0; }
  void wait() const noexcept { ended_.wait(0, std::memory_order_acquire); }
  /// Calls it at the end, at once if that has been. Any thread.
  void at_end(std::function<void()> what);
  /// REQUIRES: ended().
  [[nodiscard]] const std::exception_ptr& error() const noexcept { return error_; }

  TaskOptions options{};
  std::shared_ptr<Core> core{};
  std::uint64_t number = UINT64_MAX;  ///< The queue's; before submission, none. Under the core's lock.
  Bytes arguments{};                  ///< In processes, and with a journal.
  std::uint32_t function = 0;

 private:
  std::mutex mutex_;
  bool ending_ = false;
  std::vector<std::function<void()>> then_;
  std::exception_ptr error_;
  std::atomic<int> ended_ = 0;
};

APLIB_API void submit(const std::shared_ptr<Core>& core, const std::shared_ptr<TaskState>& task, bool waits);
APLIB_API bool cancel(TaskState& task);

struct Nothing {};
template <class R>
using Stored = std::conditional_t<std::is_void_v<R>, Nothing, R>;

/// A task with a result of this type. Internal.
template <class R>
class ResultState : public TaskState {
 public:
  std::exception_ptr run() override { return nullptr; }
  bool send(std::uint32_t&, Bytes&) const override { return false; }
  bool receive(std::span<const std::byte>) override { return false; }
  void write_result(Bytes&) const override {}

  std::optional<Stored<R>> result{};
};

template <class R, class Call>
Stored<R> call_for(Call&& call) {
  if constexpr (std::is_void_v<R>) {
    std::forward<Call>(call)();
    return {};
  } else {
    return std::forward<Call>(call)();
  }
}

}  // namespace detail

template <class R>
class Future;
class Farm;

/// The result of a task, once it is there. Copies are of the same task. A future may outlive its farm. Thread safety:
/// different futures, any thread. A task of a machine waits with its thread: call from other threads.
template <class R>
class Future {
 public:
  Future() = default;
  explicit Future(std::shared_ptr<detail::ResultState<R>> state) : state_(std::move(state)) {}

  [[nodiscard]] bool valid() const noexcept { return state_ != nullptr; }
  /// The task has ended, in whatever way.
  [[nodiscard]] bool ready() const noexcept { return state_->ended(); }
  void wait() const { state_->wait(); }
  /// Waits. Throws what the task has thrown, or TaskError when it was cancelled, ran too long or was given up.
  std::add_lvalue_reference_t<const R> get() const {
    state_->wait();
    if (state_->error() != nullptr) std::rethrow_exception(state_->error());
    if constexpr (!std::is_void_v<R>) return *state_->result;
  }
  /// True: it had not ended, and now it is cancelled. A run that has begun in this process goes on, for nothing.
  bool cancel() const { return detail::cancel(*state_); }

  /// A further task of the same farm, `f(result)`, when this one is done. If this one fails, so does that.
  template <class F>
  auto then(F f) const;

  [[nodiscard]] const std::shared_ptr<detail::ResultState<R>>& state() const noexcept { return state_; }  ///< Internal.

 private:
  std::shared_ptr<detail::ResultState<R>> state_;
};

/// Futures in the order in which their tasks end. Of one thread.
///
///   for (const auto& each : aplib::farm::AsCompleted(futures)) use(each.get());
template <class R>
class AsCompleted {
 public:
  explicit AsCompleted(const std::vector<Future<R>>& futures) : left_(futures.size()) {
    for (const Future<R>& each : futures) {
      each.state()->at_end([done = done_, each] {
        {
          const std::lock_guard lock(done->mutex);
          done->futures.push_back(each);
        }
        done->more.notify_one();
      });
    }
  }

  class Iterator {
   public:
    using iterator_concept = std::input_iterator_tag;
    using value_type = Future<R>;
    using difference_type = std::ptrdiff_t;
    explicit Iterator(AsCompleted& all) : all_(&all) { ++*this; }
    const Future<R>& operator*() const { return future_; }
    /// Waits for the next one.
    Iterator& operator++() {
      if (all_->left_ == 0) {
        future_ = {};
        return *this;
      }
      --all_->left_;
      std::unique_lock lock(all_->done_->mutex);
      all_->done_->more.wait(lock, [this] { return !all_->done_->futures.empty(); });
      future_ = std::move(all_->done_->futures.front());
      all_->done_->futures.pop_front();
      return *this;
    }
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const { return !future_.valid(); }

   private:
    AsCompleted* all_;
    Future<R> future_;
  };
  Iterator begin() { return Iterator(*this); }
  std::default_sentinel_t end() const { return {}; }

 private:
  struct Done {
    std::mutex mutex;
    std::condition_variable more;
    std::deque<Future<R>> futures;
  };
  std::shared_ptr<Done> done_ = std::make_shared<Done>();
  std::size_t left_;
};

}  // namespace aplib::farm
