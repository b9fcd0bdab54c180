// SPDX-License-Identifier: MIT
// Tasks in threads of this process. A worker takes a batch from the queue under the lock, and runs it without. What it
// has not begun yet stands in its basket, from which idle workers help themselves, so that nothing short waits behind
// something long.
#include <algorithm>
#include <deque>
#include <thread>
#include <utility>

#include "farm/core.hpp"

namespace aplib::farm::detail {
namespace {

/// An idle worker looks around for so long before it sleeps: to wake it costs more than a short task.
constexpr Time look_around = std::chrono::microseconds(50);
/// Reports may wait for so long.
constexpr Time report_after = std::chrono::milliseconds(1);
constexpr std::uint32_t batch_max = 64;

struct Entry {
  std::shared_ptr<TaskState> task;
  TaskNumber number;
  WorkerNumber holder;  // by the queue
};

/// What a run was.
struct RunReport {
  Entry entry;
  std::exception_ptr error;
  Time ran;
};

struct Basket {
  std::mutex mutex;
  std::deque<Entry> entries;

  bool pop(Entry& entry) {
    const std::lock_guard lock(mutex);
    if (entries.empty()) return false;
    entry = std::move(entries.front());
    entries.pop_front();
    return true;
  }
  bool is_empty() {
    const std::lock_guard lock(mutex);
    return entries.empty();
  }
};

class ThreadCore final : public Core {
 public:
  ThreadCore(const Options& options, unsigned workers)
      : Core(options,
             {.tasks_max = options.tasks_max, .batch_max = batch_max, .batch_time = report_after, .copies = false},
             workers),
        baskets_(workers) {
    try {
      for (unsigned i = 0; i < workers; ++i) threads_.emplace_back([this, i] { work(i); });
    } catch (...) {
      end_workers();
      throw;
    }
  }

 private:
  void prepare(TaskState& task) override {
    if (journal_) encode(task, "into a journal", "leave Options::journal out");
  }

  void wake() override {
    news_.fetch_add(1, std::memory_order_release);
    if (sleepers_ != 0) more_.notify_one();
  }

  void end_workers() override {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    more_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  void work(unsigned me) {
    is_worker = true;
    std::vector<RunReport> reports;
    std::vector<TaskNumber> batch;
    EndedTasks ended;
    std::unique_lock lock(mutex_);
    const WorkerNumber number = queue_.join();
    std::uint64_t seen = 0;
    for (bool looked = false;;) {
      report(reports, ended);
      const bool found = find_work(me, number, batch);
      const std::uint64_t news = news_.load(std::memory_order_relaxed);  // written under the lock
      const bool nothing_to_do = !found && ended.empty() && reports.empty();
      if (nothing_to_do && closing_) return;
      if (nothing_to_do && looked && news == seen) {
        ++sleepers_;
        more_.wait(lock);
        --sleepers_;
        looked = false;
        continue;
      }
      seen = news;
      lock.unlock();
      reports.clear();  // with tasks that nobody else has
      tell(ended);
      if (found) run(me, reports);
      if (nothing_to_do) look(news);
      looked = nothing_to_do;
      lock.lock();
    }
  }

  /// From the queue, or from others' baskets. The lock is held.
  bool find_work(unsigned me, WorkerNumber number, std::vector<TaskNumber>& batch) {
    batch.clear();
    queue_.take(number, now(), batch);
    std::vector<Entry> found;
    for (const TaskNumber task : batch) found.push_back({.task = share(task), .number = task, .holder = number});
    // Others may help themselves.
    if (batch.size() > 1 && sleepers_ != 0) more_.notify_one();
    Basket& mine = baskets_[me];
    if (found.empty() && mine.is_empty()) found = help_oneself(me, number);
    const std::lock_guard basket(mine.mutex);
    for (Entry& entry : found) mine.entries.push_back(std::move(entry));
    return !mine.entries.empty();
  }

  /// The later half of what another worker has. The lock is held; no other basket's is.
  std::vector<Entry> help_oneself(unsigned me, WorkerNumber number) {
    std::vector<Entry> found;
    for (unsigned i = 1; i < baskets_.size() && found.empty(); ++i) {
      Basket& other = baskets_[(me + i) % baskets_.size()];
      const std::lock_guard basket(other.mutex);
      for (std::size_t left = (other.entries.size() + 1) / 2; left != 0; --left) {
        found.insert(found.begin(), std::move(other.entries.back()));
        other.entries.pop_back();
      }
    }
    for (Entry& entry : found) queue_.hand_over(entry.number, std::exchange(entry.holder, number), number, now());
    return found;
  }

  void run(unsigned me, std::vector<RunReport>& reports) {
    const Time begun = now();
    Time before = begun;
    RunReport report{};
    while (before - begun < report_after && baskets_[me].pop(report.entry)) {
      if (!report.entry.task->ended()) report.error = report.entry.task->run();  // else it was cancelled
      if (report.error == nullptr && journal_ && !report.entry.task->ended()) keep_result(*report.entry.task);
      if (report.error == nullptr) report.entry.task->end(Outcome::done, nullptr);
      const Time after = now();
      report.ran = after - std::exchange(before, after);
      reports.push_back(std::move(report));
      report.error = nullptr;
    }
  }

  /// Before anybody sees it.
  void keep_result(const TaskState& task) {
    Bytes result;
    task.write_result(result);
    add_to_journal(task, result);
    journal_->flush();
  }

  /// Until something is new, or a while.
  void look(std::uint64_t news) const {
    const Time until = now() + look_around;
    while (news_.load(std::memory_order_acquire) == news && now() < until) std::this_thread::yield();
  }

  void report(std::vector<RunReport>& reports, EndedTasks& ended) {
    const Time time = now();
    for (RunReport& each : reports) {
      const Outcome outcome = each.error == nullptr ? Outcome::done : Outcome::failed;
      const auto verdict = queue_.finished(each.entry.holder, each.entry.number, outcome, each.ran, time, actions_);
      if (verdict != Queue::Verdict::counts) continue;
      release(each.entry.number);
      note_end(each.error);
      if (outcome == Outcome::failed)
        ended.push_back({.task = each.entry.task, .outcome = outcome, .error = std::move(each.error)});
    }
    actions_.clear();  // a run in a thread cannot be stopped
    if (!reports.empty()) show_counts();
  }

  std::vector<Basket> baskets_;
  std::vector<std::thread> threads_;
  std::condition_variable more_;
  std::size_t sleepers_ = 0;
  std::atomic<std::uint64_t> news_ = 0;
};

}  // namespace

std::shared_ptr<Core> make_thread_core(const Options& options, unsigned workers) {
  return std::make_shared<ThreadCore>(options, workers);
}

}  // namespace aplib::farm::detail
