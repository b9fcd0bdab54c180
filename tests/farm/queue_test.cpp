// SPDX-License-Identifier: MIT
// The queue of a farm: by hand, and in a simulation with thousands of workers that die, fail, are slow and come back.
#include "farm/queue.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <queue>
#include <random>
#include <set>
#include <unordered_map>
#include <vector>

#include "checks.hpp"

namespace aplib::farm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Numbers = std::vector<TaskNumber>;

Policy one_by_one() {
  Policy policy;
  policy.batch_max = 1;
  return policy;
}

Numbers take(Queue& queue, WorkerNumber worker, Time now = Time{0}) {
  Numbers tasks;
  queue.take(worker, now, tasks);
  return tasks;
}

TEST(FarmQueue, GivesTasksByPriorityAndInOrder) {
  Queue queue(one_by_one());
  const auto low = queue.submit({.priority = -1});
  const auto first = queue.submit({});
  const auto second = queue.submit({});
  const auto high = queue.submit({.priority = 7});
  const WorkerNumber worker = queue.join();
  Actions actions;
  for (const auto& expected : {high, first, second, low}) {
    const Numbers got = take(queue, worker);
    ASSERT_EQ(got, Numbers{*expected});
    EXPECT_EQ(queue.finished(worker, got[0], Outcome::done, seconds(1), seconds(1), actions), Queue::Verdict::counts);
  }
  EXPECT_TRUE(actions.empty());
  EXPECT_EQ(queue.held(), 0U);
}

TEST(FarmQueue, HoldsNoMoreThanItMay) {
  Policy policy = one_by_one();
  policy.tasks_max = 3;
  policy.bytes_max = 100;
  Queue queue(policy);
  EXPECT_TRUE(queue.submit({.bytes = 1000})) << "alone, a task may be larger than all";
  EXPECT_FALSE(queue.submit({.bytes = 1}));
  Actions actions;
  const WorkerNumber worker = queue.join();
  const Numbers got = take(queue, worker);
  queue.finished(worker, got.at(0), Outcome::done, Time{1}, Time{1}, actions);
  EXPECT_TRUE(queue.submit({.bytes = 60}));
  EXPECT_FALSE(queue.submit({.bytes = 60}));
  EXPECT_TRUE(queue.submit({.bytes = 40}));
  EXPECT_TRUE(queue.submit({}));
  EXPECT_FALSE(queue.submit({})) << "three are held";
}

TEST(FarmQueue, RunsFailedTasksAgainAsOftenAsTheyMay) {
  Queue queue(one_by_one());
  const auto task = queue.submit({.retries = 2});
  const WorkerNumber worker = queue.join();
  Actions actions;
  for (const auto verdict : {Queue::Verdict::again, Queue::Verdict::again, Queue::Verdict::counts}) {
    ASSERT_EQ(take(queue, worker), Numbers{*task});
    EXPECT_EQ(queue.finished(worker, *task, Outcome::failed, Time{1}, Time{1}, actions), verdict);
  }
  EXPECT_EQ(queue.finished(worker, *task, Outcome::failed, Time{1}, Time{1}, actions), Queue::Verdict::stale);
}

TEST(FarmQueue, StopsWhatTakesTooLong) {
  Queue queue(one_by_one());
  const auto task = queue.submit({.retries = 1, .timeout = seconds(2)});
  const WorkerNumber worker = queue.join();
  Actions actions;
  ASSERT_EQ(take(queue, worker, seconds(1)), Numbers{*task});
  EXPECT_EQ(queue.next_time(), Time(seconds(3)));
  queue.tick(milliseconds(2999), actions);
  EXPECT_TRUE(actions.empty());
  queue.tick(seconds(3), actions);
  ASSERT_EQ(actions.size(), 1U);
  EXPECT_EQ(actions[0].kind, Action::Kind::stop);
  EXPECT_EQ(actions[0].outcome, Outcome::timed_out);
  queue.died(worker, actions);  // the owner has killed it
  EXPECT_EQ(actions.size(), 1U) << "it has a retry left";
  const WorkerNumber next = queue.join();
  ASSERT_EQ(take(queue, next, seconds(4)), Numbers{*task});
  queue.tick(seconds(6), actions);
  queue.died(next, actions);
  ASSERT_EQ(actions.size(), 3U);
  EXPECT_EQ(actions[2].kind, Action::Kind::ended);
  EXPECT_EQ(actions[2].outcome, Outcome::timed_out);
  EXPECT_EQ(queue.held(), 0U);
}

TEST(FarmQueue, GivesUpTasksThatKillTheirWorkers) {
  Policy policy;
  policy.crash_limit = 3;
  policy.copies = false;
  Queue queue(policy);
  WorkerNumber worker = queue.join();
  Actions actions;
  // Tasks that are known to be short go out in batches.
  const auto warm = queue.submit({});
  ASSERT_EQ(take(queue, worker).size(), 1U);
  queue.finished(worker, *warm, Outcome::done, Time{100}, Time{100}, actions);
  std::vector<TaskNumber> tasks;
  for (int i = 0; i < 40; ++i) tasks.push_back(*queue.submit({}));
  const TaskNumber poisoned = tasks[5];
  std::set<TaskNumber> done;
  for (bool first = true; queue.held() != 0; first = false) {
    const Numbers batch = take(queue, worker, seconds(1));
    ASSERT_FALSE(batch.empty());
    if (std::ranges::find(batch, poisoned) != batch.end()) {
      EXPECT_EQ(batch.size() == 1, !first) << "what was under suspicion runs alone";
      queue.died(worker, actions);  // with the reports of what it did before
      worker = queue.join();
      continue;
    }
    for (const TaskNumber task : batch) {
      EXPECT_EQ(queue.finished(worker, task, Outcome::done, Time{100}, seconds(1), actions), Queue::Verdict::counts);
      EXPECT_TRUE(done.insert(task).second);
    }
  }
  EXPECT_EQ(done.size(), 39U);
  ASSERT_EQ(actions.size(), 1U);
  EXPECT_EQ(actions[0].task, poisoned);
  EXPECT_EQ(actions[0].outcome, Outcome::crashed);
}

TEST(FarmQueue, CancelsWhatWaitsAndWhatRuns) {
  Queue queue(one_by_one());
  const auto runs = queue.submit({});
  const auto waits = queue.submit({});
  const WorkerNumber worker = queue.join();
  ASSERT_EQ(take(queue, worker), Numbers{*runs});
  Actions actions;
  EXPECT_TRUE(queue.cancel(*waits, actions));
  EXPECT_TRUE(actions.empty());
  EXPECT_TRUE(queue.cancel(*runs, actions));
  EXPECT_FALSE(queue.cancel(*runs, actions));
  ASSERT_EQ(actions.size(), 1U);
  EXPECT_EQ(actions[0].kind, Action::Kind::stop);
  EXPECT_EQ(queue.held(), 0U);
  EXPECT_EQ(queue.finished(worker, *runs, Outcome::done, Time{1}, Time{1}, actions), Queue::Verdict::stale);
  EXPECT_TRUE(take(queue, worker).empty());
}

TEST(FarmQueue, CopiesWhatIsLateWhenNothingWaits) {
  Queue queue(one_by_one());
  const auto task = queue.submit({});
  const auto late = queue.submit({});
  const WorkerNumber quick = queue.join();
  const WorkerNumber slow = queue.join();
  ASSERT_EQ(take(queue, quick), Numbers{*task});
  ASSERT_EQ(take(queue, slow), Numbers{*late});
  Actions actions;
  queue.finished(quick, *task, Outcome::done, seconds(1), seconds(1), actions);
  EXPECT_TRUE(take(queue, quick, seconds(1)).empty());
  ASSERT_EQ(queue.next_time(), Time(seconds(2)));
  Numbers copy;
  queue.give(seconds(2), [&](WorkerNumber worker, const Numbers& tasks) {
    EXPECT_EQ(worker, quick);
    copy = tasks;
  });
  ASSERT_EQ(copy, Numbers{*late});
  EXPECT_EQ(queue.finished(quick, *late, Outcome::done, seconds(1), seconds(3), actions), Queue::Verdict::counts);
  ASSERT_EQ(actions.size(), 1U) << "the slow one may stop";
  EXPECT_EQ(actions[0].worker, slow);
  EXPECT_EQ(queue.finished(slow, *late, Outcome::done, seconds(9), seconds(9), actions), Queue::Verdict::stale);
}

// A worker whose task has ended elsewhere may long be at the next one: it tells results late.
TEST(FarmQueue, AWorkerRunsForNothingWhereAllIsOverOrTheFirstWasCancelled) {
  Queue queue{Policy{}};
  Actions actions;
  const WorkerNumber slow = queue.join();
  queue.submit({});
  const Numbers known = take(queue, slow);
  queue.finished(slow, known.at(0), Outcome::done, Time{1000}, Time{1000}, actions);
  for (int i = 0; i < 4; ++i) queue.submit({});
  const Numbers batch = take(queue, slow, Time{1000});
  ASSERT_EQ(batch.size(), 2U);
  const WorkerNumber quick = queue.join();
  for (int i = 0; i < 2; ++i) {
    const Numbers one = take(queue, quick, Time{1000});
    ASSERT_EQ(one.size(), 1U);
    queue.finished(quick, one[0], Outcome::done, Time{1000}, Time{2000}, actions);
  }
  ASSERT_EQ(take(queue, quick, seconds(1)), Numbers{batch[0]}) << "a copy";
  EXPECT_FALSE(queue.runs_for_nothing(slow));
  queue.finished(quick, batch[0], Outcome::done, Time{1000}, seconds(2), actions);
  EXPECT_FALSE(queue.runs_for_nothing(slow));
  EXPECT_TRUE(queue.cancel(batch[1], actions));
  EXPECT_TRUE(queue.runs_for_nothing(slow)) << "of both";
  queue.finished(slow, batch[0], Outcome::done, Time{1000}, seconds(2), actions);
  EXPECT_TRUE(queue.runs_for_nothing(slow)) << "of the cancelled one";
  queue.finished(slow, batch[1], Outcome::done, Time{1000}, seconds(2), actions);
  EXPECT_FALSE(queue.runs_for_nothing(slow));
}

TEST(FarmQueue, ACancelledTaskDoesNotHoldUpWhatIsBehindIt) {
  Queue queue{Policy{}};
  Actions actions;
  const WorkerNumber worker = queue.join();
  queue.submit({});
  queue.finished(worker, take(queue, worker).at(0), Outcome::done, Time{1000}, Time{1000}, actions);
  for (int i = 0; i < 4; ++i) queue.submit({});
  const Numbers batch = take(queue, worker, Time{1000});
  ASSERT_EQ(batch.size(), 2U);
  EXPECT_TRUE(queue.cancel(batch[0], actions));
  EXPECT_TRUE(queue.runs_for_nothing(worker));
}

TEST(FarmQueue, RetiredWorkersGetNothing) {
  Queue queue(one_by_one());
  const WorkerNumber worker = queue.join();
  queue.submit({});
  queue.retire(worker);
  EXPECT_TRUE(take(queue, worker).empty());
  EXPECT_EQ(queue.held_by(worker), 0U);
}

/// Workers, tasks and deaths in a time of their own. Workers report each task when they have finished it.
class Simulation {
 public:
  struct Plan {
    std::uint64_t seed = 1;
    int workers = 100;
    int tasks = 10'000;
    double task_seconds = 1;
    double spread = 0;           // sigma of the logarithm
    double deaths_a_second = 0;  // of all workers together
    double failing = 0;          // the part of runs that fail
    double poisoned = 0;         // the part of tasks that kill
    Time rejoin = seconds(2);    // from a death to another worker
    double slow = 1;             // how many times slower the first worker is
    Policy policy{};
  };
  struct Result {
    double end = 0;
    double useful = 0;  // seconds of work in results that count
    double extra = 0;   // seconds in runs that were of no use, but for those that a death ended, or failed
    int crashed = 0;
    int deaths = 0;
    std::uint64_t held_max = 0;
  };

  explicit Simulation(const Plan& plan) : plan_(plan), random_(plan.seed), queue_(plan.policy) {
    std::lognormal_distribution<double> length(0, plan.spread);
    for (int i = 0; i < plan.tasks; ++i) {
      work_.push_back(plan.task_seconds * (plan.spread > 0 ? length(random_) : 1));
      poisoned_.push_back(chance(plan.poisoned));
    }
  }

  Result run() {
    for (int i = 0; i < plan_.workers; ++i) join(i == 0 ? plan_.slow : 1);
    if (plan_.deaths_a_second > 0) at(death_in(), {.kind = Event::death});
    submit_more();
    settle();
    while (ended_ < plan_.tasks) {
      if (const auto time = queue_.next_time(); time && (events_.empty() || *time <= events_.top().time)) {
        now_ = std::max(now_, *time);
        queue_.tick(now_, actions_);
        settle();
        continue;
      }
      if (events_.empty()) {
        ADD_FAILURE() << "the farm stands still, seed " << plan_.seed;
        break;
      }
      const Event event = events_.top();
      events_.pop();
      now_ = event.time;
      happen(event);
      settle();
    }
    result_.end = std::chrono::duration<double>(now_).count();
    EXPECT_EQ(queue_.held(), 0U);
    EXPECT_EQ(queue_.held_bytes(), 0U);
    EXPECT_EQ(outcomes_.size(), static_cast<std::size_t>(plan_.tasks));
    return result_;
  }

 private:
  struct Event {
    enum Kind { finish, death, rejoin } kind;
    Time time{};
    std::uint64_t order = 0;
    WorkerNumber worker = 0;
    std::uint64_t run = 0;
    bool operator<(const Event& other) const { return std::tie(other.time, other.order) < std::tie(time, order); }
  };
  struct Worker {
    double slowness = 1;
    std::deque<TaskNumber> tasks;
    std::uint64_t run = 0;  // which of its runs is under way
    Time begun{};
  };

  static Time time_of(double seconds_) { return Time(static_cast<Time::rep>(seconds_ * 1e9)); }
  bool chance(double part) { return std::uniform_real_distribution<>(0, 1)(random_) < part; }
  Time death_in() { return time_of(std::exponential_distribution<>(plan_.deaths_a_second)(random_)); }
  void at(Time in, Event event) {
    event.time = now_ + in;
    event.order = ++order_;
    events_.push(event);
  }

  void join(double slowness) { workers_[queue_.join()].slowness = slowness; }

  void submit_more() {
    while (submitted_ < plan_.tasks) {
      const auto number = queue_.submit({.bytes = 10, .retries = 1000});
      if (!number) break;
      EXPECT_TRUE(index_of_.emplace(*number, submitted_++).second) << "numbers are used once";
    }
    result_.held_max = std::max(result_.held_max, queue_.held());
    EXPECT_LE(queue_.held_bytes(), plan_.policy.bytes_max);
  }

  /// Does what the queue asks for until it asks for nothing.
  void settle() {
    submit_more();
    for (std::size_t i = 0; i < actions_.size(); ++i) {
      const Action action = actions_[i];
      if (action.kind == Action::Kind::ended) {
        ++result_.crashed;
        EXPECT_EQ(action.outcome, Outcome::crashed);
        EXPECT_TRUE(poisoned_[index_of_.at(action.task)]);
        note_end(action.task);
      } else if (const auto worker = workers_.find(action.worker); worker != workers_.end()) {
        stop(action.worker, worker->second, action.task);
      }
    }
    actions_.clear();
    queue_.give(now_, [&](WorkerNumber number, const Numbers& tasks) {
      Worker& worker = workers_.at(number);
      const bool idle = worker.tasks.empty();
      worker.tasks.insert(worker.tasks.end(), tasks.begin(), tasks.end());
      if (idle) begin(number, worker);
    });
  }

  void begin(WorkerNumber number, Worker& worker) {
    if (worker.tasks.empty()) return;
    worker.begun = now_;
    const double length = work_[index_of_.at(worker.tasks.front())] * worker.slowness;
    at(time_of(length), {.kind = Event::finish, .worker = number, .run = ++worker.run});
  }

  /// As an owner does that can end a run.
  void stop(WorkerNumber number, Worker& worker, TaskNumber task) {
    const auto place = std::ranges::find(worker.tasks, task);
    if (place == worker.tasks.end()) return;
    const bool ran = place == worker.tasks.begin();
    if (ran) result_.extra += std::chrono::duration<double>(now_ - worker.begun).count() / worker.slowness;
    worker.tasks.erase(place);
    if (ran) ++worker.run;
    EXPECT_EQ(queue_.finished(number, task, Outcome::failed, Time{0}, now_, actions_), Queue::Verdict::stale);
    if (ran) begin(number, worker);
  }

  void happen(const Event& event) {
    if (event.kind == Event::rejoin) return join(1);
    if (event.kind == Event::death) {
      at(death_in(), {.kind = Event::death});
      if (!workers_.empty()) die(std::next(workers_.begin(), static_cast<long>(random_() % workers_.size()))->first);
      return;
    }
    const auto found = workers_.find(event.worker);
    if (found == workers_.end() || found->second.run != event.run) return;
    Worker& worker = found->second;
    const TaskNumber task = worker.tasks.front();
    const int index = index_of_.at(task);
    if (poisoned_[index]) return die(event.worker);
    worker.tasks.pop_front();
    const Outcome outcome = chance(plan_.failing) ? Outcome::failed : Outcome::done;
    const auto verdict = queue_.finished(event.worker, task, outcome, now_ - worker.begun, now_, actions_);
    if (outcome == Outcome::done) {
      EXPECT_EQ(verdict, Queue::Verdict::counts);
      note_end(task);
      result_.useful += work_[index];
    } else {
      EXPECT_EQ(verdict, Queue::Verdict::again);
    }
    begin(event.worker, worker);
  }

  void die(WorkerNumber number) {
    ++result_.deaths;
    workers_.erase(number);
    queue_.died(number, actions_);
    at(plan_.rejoin, {.kind = Event::rejoin});
  }

  void note_end(TaskNumber task) {
    EXPECT_TRUE(outcomes_.insert(index_of_.at(task)).second) << "every result once, seed " << plan_.seed;
    ++ended_;
  }

  Plan plan_;
  std::mt19937_64 random_;
  Queue queue_;
  std::vector<double> work_;
  std::vector<bool> poisoned_;
  std::map<WorkerNumber, Worker> workers_;
  std::unordered_map<TaskNumber, int> index_of_;
  std::set<int> outcomes_;
  std::priority_queue<Event> events_;
  Actions actions_;
  Time now_{0};
  std::uint64_t order_ = 0;
  int submitted_ = 0;
  int ended_ = 0;
  Result result_;
};

TEST(FarmSimulation, EveryResultComesOnceFromThousandsOfWorkersThatDie) {
  for (std::uint64_t seed = 1; seed <= (testing_support::sanitized ? 1 : 3); ++seed) {
    Simulation::Plan plan{.seed = seed, .workers = 2000, .tasks = 60'000, .spread = 0.5, .deaths_a_second = 40};
    plan.failing = 0.01;
    plan.policy.tasks_max = 5000;
    const auto result = Simulation(plan).run();
    EXPECT_GT(result.deaths, 1000);
    EXPECT_LE(result.held_max, 5000U);
    EXPECT_EQ(result.crashed, 0);
    EXPECT_LE(result.extra, 0.02 * result.useful) << "copies, seed " << seed;
  }
}

TEST(FarmSimulation, ShortTasksInBatchesSurviveDeaths) {
  Simulation::Plan plan{.seed = 7, .workers = 200, .tasks = 200'000, .task_seconds = 1e-4, .deaths_a_second = 2000};
  plan.poisoned = 1e-4;
  plan.rejoin = milliseconds(2);
  plan.policy.bytes_max = 200'000;
  const auto result = Simulation(plan).run();
  EXPECT_GT(result.crashed, 5);
  EXPECT_GT(result.deaths, result.crashed * 5);
  EXPECT_LE(result.held_max, 20'000U);
}

TEST(FarmSimulation, AMillionSecondsOfWorkWithPoisonedTasks) {
  Simulation::Plan plan{.seed = 11, .workers = 5000, .tasks = 50'000, .task_seconds = 20, .spread = 1};
  plan.deaths_a_second = 0.5;
  plan.poisoned = 1e-3;
  const auto result = Simulation(plan).run();
  EXPECT_GT(result.crashed, 20);
  EXPECT_LE(result.extra, 0.05 * result.useful) << "some tasks take fifty times longer than most";
}

TEST(FarmSimulation, ASlowWorkerHoldsUpNobody) {
  for (const int workers : {4, 100, 1000}) {
    const Simulation::Plan even{.seed = 5, .workers = workers - 1, .tasks = 20 * workers};
    Simulation::Plan plan = even;
    plan.workers = workers;
    plan.slow = 10;
    const auto without = Simulation(even).run();
    const auto with = Simulation(plan).run();
    EXPECT_LE(with.end, 1.2 * without.end) << workers << " workers";
    plan.policy.copies = false;
    EXPECT_GT(Simulation(plan).run().end, with.end) << "copies help";
  }
}

}  // namespace
}  // namespace aplib::farm
