// SPDX-License-Identifier: MIT
// Farm: many independent tasks on some workers: threads of this process, processes of this computer, or processes on
// the hosts of a pool.
//
//   aplib::farm::Farm farm;                                      // a thread for each core
//   auto six = farm.submit([](int a, int b) { return a * b; }, 2, 3);
//   auto seven = six.then([](int value) { return value + 1; });
//   std::vector<double> all = farm.map(values, [](double x) { return std::sqrt(x); });
//
// With Where::processes, a task that crashes or hangs costs its worker, not the program.
#pragma once

#include <algorithm>
#include <iterator>
#include <ranges>
#include <tuple>
#include <typeinfo>

#include "aplib/farm_future.hpp"

namespace aplib::farm {

enum class Where : std::uint8_t {
  threads,    ///< Of this process: any callable, any argument. Nothing ends a task but itself.
  processes,  ///< Forked of this one: callables without pointers into it, arguments and results that are Sendable.
  /// On the hosts of a pool (`apctl up`), for what can go to processes. This program file must be there, in the same
  /// place. It runs with the same arguments until it makes its farm, and serves then, so make the farm early. What it
  /// prints comes out of this process's standard error.
  pool,
};

struct Options {
  Where where = Where::threads;
  unsigned workers = 0;                                ///< 0: as many as cores may be used, or as the pool has.
  std::uint64_t tasks_max = 100'000;                   ///< Held at once; submit() waits while there are more.
  std::uint64_t bytes_max = std::uint64_t{256} << 20;  ///< Of arguments, in processes.
  unsigned retries = 0;                                ///< Further runs of a task that throws or takes too long.
  unsigned crash_limit = 5;                            ///< Workers that a task may cost.
  std::chrono::nanoseconds timeout{0};                 ///< Of a run, in processes. 0: none.
  bool copies = true;  ///< In processes, idle workers at the end run what others hold for long, too.
  /// A file that keeps the results of tasks that are done: a farm with the same journal, in a program that was killed
  /// and runs again, takes them from there. It knows a task by its function's type and its arguments; equal tasks get
  /// results in turn. Callables, arguments and results are as for processes. Empty: none.
  std::string journal{};
  std::string pool{};  ///< Of Where::pool: its name.
};

namespace detail {

/// Runs a function of the program on bytes. Throws what it throws.
using Stub = Bytes (*)(std::span<const std::byte> arguments);
/// Gives the function its number, the same in all processes of the program.
/// `name`: the same in all builds of the program, for its journals.
APLIB_API std::uint32_t register_stub(Stub stub, const char* name);
[[noreturn]] APLIB_API void refuse_arguments();

template <class F, class R, class... A>
Bytes call_by_bytes(std::span<const std::byte> bytes) {
  BytesReader in(bytes);
  alignas(F) std::byte place[sizeof(F)];
  if constexpr (!std::is_empty_v<F>) in(place);
  std::tuple<A...> arguments;
  in(arguments);
  if (!in.ended()) refuse_arguments();
  F& function = *std::launder(reinterpret_cast<F*>(place));  // trivially copyable: its bytes are it
  Bytes result;
  BytesWriter out(result);
  auto value = call_for<R>([&] { return std::apply(function, arguments); });
  if constexpr (!std::is_void_v<R>) out(value);
  return result;
}

template <class F, class R, class... A>
inline const std::uint32_t stub_of = register_stub(&call_by_bytes<F, R, A...>, typeid(R (*)(F*, A*...)).name());

template <class F, class R, class... A>
class CallState final : public ResultState<R> {
 public:
  template <class G, class... B>
  explicit CallState(G&& function, B&&... arguments)
      : function_(std::forward<G>(function)), arguments_(std::forward<B>(arguments)...) {}

  std::exception_ptr run() override {
    try {
      this->result.emplace(call_for<R>([&] { return std::apply(function_, arguments_); }));
      return nullptr;
    } catch (...) {
      return std::current_exception();
    }
  }
  bool send(std::uint32_t& number, Bytes& bytes) const override {
    if constexpr (travels) {
      number = stub_of<F, R, A...>;
      BytesWriter out(bytes);
      if constexpr (!std::is_empty_v<F>) {
        std::byte place[sizeof(F)];
        std::memcpy(place, &function_, sizeof(F));
        out(place);
      }
      out(arguments_);
    }
    return travels;
  }
  bool receive([[maybe_unused]] std::span<const std::byte> bytes) override {
    if constexpr (travels) {
      BytesReader in(bytes);
      Stored<R> value{};
      if constexpr (!std::is_void_v<R>) in(value);
      if (!in.ended()) return false;
      this->result.emplace(std::move(value));
    }
    return travels;
  }
  void write_result([[maybe_unused]] Bytes& bytes) const override {
    if constexpr (travels && !std::is_void_v<R>) {
      BytesWriter out(bytes);
      out(*this->result);
    }
  }

 private:
  static constexpr bool travels =
      std::is_trivially_copyable_v<F> && (std::is_void_v<R> || Sendable<Stored<R>>)&&(Sendable<A> && ...);
  F function_;
  std::tuple<A...> arguments_;
};

}  // namespace detail

/// Thread safety: submit() and map(), any thread, but no task of a machine, for they may wait with their thread. In a
/// task of the farm itself, submit() does not wait.
class APLIB_API Farm {
 public:
  /// Starts the workers. With processes it forks: the program's other threads are not in the workers, as with fork(2),
  /// so make the farm early. Throws Error, also when the journal cannot be opened, or is something else.
  explicit Farm(const Options& options = {});
  /// Cancels what has not begun, ends processes, and waits for threads.
  ~Farm();
  Farm(const Farm&) = delete;
  Farm& operator=(const Farm&) = delete;

  /// Runs `f(arguments...)` on a worker. Waits while the farm holds as much as it may.
  template <class F, class... A>
    requires std::invocable<std::decay_t<F>&, std::decay_t<A>&...>
  auto submit(F&& f, A&&... arguments) {
    return submit(TaskOptions{}, std::forward<F>(f), std::forward<A>(arguments)...);
  }
  /// Throws Error(bad_argument) when the callable, an argument or the result cannot go to another process, or into the
  /// journal; Error(failed) when that cannot be written.
  template <class F, class... A>
  auto submit(const TaskOptions& options, F&& f, A&&... arguments) {
    auto state = make(std::forward<F>(f), std::forward<A>(arguments)...);
    state->options = options;
    detail::submit(core_, state, true);
    return Future(std::move(state));
  }

  /// `f` of each element, in their order. Elements go out in pieces of `chunk`; 0: some for each worker. Throws what a
  /// piece has thrown.
  template <std::ranges::input_range Range, class F>
  auto map(const Range& range, F f, std::size_t chunk = 0) {
    using T = std::ranges::range_value_t<Range>;
    using R = std::invoke_result_t<F&, const T&>;
    std::vector<T> all(std::ranges::begin(range), std::ranges::end(range));
    if (chunk == 0) chunk = std::max<std::size_t>(1, all.size() / (std::size_t{16} * workers()));
    const auto run = [f](const std::vector<T>& piece) {
      std::vector<R> results;
      results.reserve(piece.size());
      for (const T& each : piece) results.push_back(f(each));
      return results;
    };
    std::vector<Future<std::vector<R>>> pieces;
    for (std::size_t i = 0; i < all.size(); i += chunk) {
      const auto begin = all.begin() + static_cast<std::ptrdiff_t>(i);
      pieces.push_back(
          submit(run, std::vector<T>(begin, begin + static_cast<std::ptrdiff_t>(std::min(chunk, all.size() - i)))));
    }
    std::vector<R> results;
    results.reserve(all.size());
    for (const auto& piece : pieces) {
      const std::vector<R>& part = piece.get();
      results.insert(results.end(), part.begin(), part.end());
    }
    return results;
  }

  /// Waits until no task is left.
  void wait();
  [[nodiscard]] unsigned workers() const noexcept;

 private:
  template <class R>
  friend class Future;
  template <class F, class... A>
  static auto make(F&& f, A&&... arguments) {
    using Function = std::decay_t<F>;
    using R = std::invoke_result_t<Function&, std::decay_t<A>&...>;
    return std::static_pointer_cast<detail::ResultState<std::decay_t<R>>>(
        std::make_shared<detail::CallState<Function, std::decay_t<R>, std::decay_t<A>...>>(
            std::forward<F>(f), std::forward<A>(arguments)...));
  }

  std::shared_ptr<detail::Core> core_;
};

template <class R>
template <class F>
auto Future<R>::then(F f) const {
  using Result = std::conditional_t<std::is_void_v<R>, std::invoke_result<F&>, std::invoke_result<F&, const R&>>;
  using Next = std::decay_t<typename Result::type>;
  auto promised = std::make_shared<detail::ResultState<Next>>();
  promised->core = state_->core;
  state_->at_end([first = state_, promised, f = std::move(f)]() mutable {
    if (first->error() != nullptr) {
      promised->end(Outcome::failed, first->error());
      return;
    }
    auto call = [&] {
      if constexpr (std::is_void_v<R>) {
        return Farm::make(std::move(f));
      } else {
        return Farm::make(std::move(f), *first->result);
      }
    }();
    call->at_end([call, promised] {
      promised->result = call->result;
      promised->end(Outcome::done, call->error());
    });
    detail::submit(first->core, call, false);
  });
  return Future<Next>(promised);
}

/// The results of all, in their order, when all are there. Fails when the first of them fails.
template <class R>
  requires(!std::is_void_v<R>)
Future<std::vector<R>> when_all(const std::vector<Future<R>>& futures) {
  auto all = std::make_shared<detail::ResultState<std::vector<R>>>();
  if (!futures.empty()) all->core = futures.front().state()->core;
  auto left = std::make_shared<std::atomic<std::size_t>>(futures.size() + 1);
  const auto one_less = [all, left, futures] {
    if (left->fetch_sub(1) != 1) return;
    std::vector<R> results;
    for (const Future<R>& each : futures) {
      if (each.state()->error() != nullptr) {
        all->end(Outcome::failed, each.state()->error());
        return;
      }
      results.push_back(*each.state()->result);
    }
    all->result = std::move(results);
    all->end(Outcome::done, nullptr);
  };
  for (const Future<R>& each : futures) each.state()->at_end(one_less);
  one_less();
  return Future<std::vector<R>>(all);
}

}  // namespace aplib::farm
