// SPDX-License-Identifier: MIT
#include "aplib/machine.hpp"

#include <fmt/format.h>
#include <unistd.h>
#include <unwind.h>

#include <algorithm>
#include <cstdio>
#include <mutex>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "aplib/error.hpp"
#include "base/cpus.hpp"
#include "base/os/thread.hpp"
#include "base/program_context.hpp"
#include "cell/domain.hpp"
#include "cell/lease.hpp"
#include "cell/processor.hpp"
#include "kernel/api.hpp"
#include "kernel/loaded_run.hpp"
#include "kernel/machine_impl.hpp"
#include "kernel/mailbox.hpp"
#include "kernel/process_run.hpp"
#include "kernel/signals.hpp"
#include "loader/known_images.hpp"
#include "loader/libc/dl.hpp"

namespace aplib {

Machine::Impl::Impl(Options chosen)
    : options(std::move(chosen)), placement(plan_placement(options)), log(options.log_level) {}

Machine::Impl::~Impl() = default;

void Machine::Impl::make_domain(bool with_host, const StartNote* start) {
  stoppable.store(nullptr, std::memory_order_relaxed);  // relaxed: nothing is published
  in_debugger.show(nullptr);
  domain = std::make_unique<Domain>();
  in_debugger.show(domain.get());
  domain->owner = this;
  if (loaded != nullptr && loaded->has_low_bodies()) domain->pools->use_low_memory();
  domain->options = options;
  domain->has_host = with_host;
  domain->report = [this](const std::string& text) {
    log.error("{}", text);
    if (loaded != nullptr) loaded->output.failed(domain->failure.status);
    if (adopts) end_adopted(domain->failure.status);
  };
  domain->place_of_call = place_of_call;
  if (log.wants(LogLevel::debug)) {
    domain->on_unread = [this](const TaskControl& task) {
      const std::string unread = describe_unread(task);
      log.debug("{} task {}: ends{}", domain->name_of(task.cell->id), task.id, unread);
    };
  }
  if (process != nullptr) process->set_up(*domain, start);
  domain->on_deadlock = [this](Domain& stuck) {
    if (stuck.has_host && stuck.host_cell->ended) {
      // The host program is through, and the cells only wait for more from it. As on the original, its end ends the
      // run.
      log.info("the host program has ended while cells still wait; the run ends");
      stuck.stops_well.store(true, std::memory_order_relaxed);  // relaxed: stop() publishes it
      stuck.stop();
    } else {
      // acquire: its status
      const std::uint32_t failed = stuck.failed_first.load(std::memory_order_acquire);
      if (failed == Domain::no_cell)
        return stuck.fail(static_cast<int>(ExitStatus::deadlock), describe_deadlock(stuck));
      // Others wait for what it would have sent, or for anybody's.
      const api::Failed first{failed, stuck.cells[failed]->status};
      stuck.fail(first.status, fmt::format("{}: {}", first.text(), describe_deadlock(stuck)));
    }
  };
  domain->build_cells(options.cells);
  if (with_host && hosts_here()) {
    domain->processors.push_back(std::make_unique<Processor>(*domain, 0, ProcessorRole::host));
    domain->host_cell->processor = domain->processors.front().get();
    domain->poll_time = std::chrono::nanoseconds(0);
    domain->processors.front()->prepare();
    domain->publish_processors();
  }
}

void Machine::Impl::end_adopted(int status) {
  std::fflush(nullptr);
  ::_exit(status);
}

void Machine::Impl::make_carriers() {
  stoppable.store(nullptr, std::memory_order_relaxed);  // relaxed: nothing is published
  options.cells = domain->grid;
  Options ours = options;
  const std::uint32_t cells = domain->local_count();
  ours.cells = {std::max(cells, 1U), 1};
  placement = plan_placement(ours, program_threads);
  domain->options = options;
  domain->poll_time = poll_time(options, placement);
  domain->owns_cores = !placement.oversubscribed;
  domain->learns_poll_time = !options.poll_time && !placement.limited && domain->owns_cores;
  domain->carriers = cells == 0 ? 0 : placement.processors;
  domain->arrivals = std::make_unique<ArrivalLines[]>(domain->carriers);
  std::vector<std::unique_ptr<Processor>> carriers;
  for (std::uint32_t p = 0; p < domain->carriers; ++p)
    carriers.push_back(std::make_unique<Processor>(*domain, p, ProcessorRole::carrier));
  for (std::uint32_t i = 0; const std::uint32_t cell : domain->local_cells())
    domain->cells[cell]->processor = carriers[processor_of_cell(i++, cells, domain->carriers)].get();
  for (auto& host : domain->processors) carriers.push_back(std::move(host));
  domain->processors = std::move(carriers);
  if (process != nullptr) process->attach(*domain);
  for (auto& processor : domain->processors) processor->prepare();
  domain->publish_processors();
  stoppable.store(domain.get(), std::memory_order_release);  // release: all of it
}

void Machine::Impl::start_threads() {
  // A loaded host program may start its cells here. The carriers belong to the machine, not to that program.
  const WithoutProgramContext without;
  for (std::uint32_t p = 0; p < domain->carriers; ++p) {
    const auto carry = [this, p] {
      const SignalStack signal_stack;
      if (p < placement.core_of_processor.size()) {
        if (const std::string problem = bind_this_thread(placement.core_of_processor[p]); !problem.empty())
          log.warn("{}", problem);
      }
      domain->processors[p]->run();
    };
    try {
      threads.emplace_back(carry);
    } catch (const std::exception& error) {  // std::system_error, std::bad_alloc
      domain->fail(static_cast<int>(ExitStatus::program_failed),
                   fmt::format("cannot start thread {} of {}: {}{}, or use fewer threads (APLIB_THREADS)", p + 1,
                               domain->carriers, error.what(), os::thread_remedy));
      // Cells of processors that do not run count as live for ever, so their count cannot end the run.
      domain->over.store(true, std::memory_order_release);  // release: to Idle::await_ready()
      domain->wake_all();
      break;
    }
  }
  if (domain->carriers < domain->local_count()) watch_for_spins();
}

void Machine::Impl::watch_for_spins() {
  try {
    spin_watch.emplace(*domain, threads, [this](const std::string& text) { log.warn("{}", text); });
  } catch (const Error&) {
    // No thread can be had for it: then nobody tells.
  }
}

void Machine::Impl::join_threads() {
  for (std::thread& thread : threads) thread.join();
  spin_watch.reset();
  threads.clear();
}

Report Machine::Impl::report(Clock::time_point start, int host_status) {
  Report report;
  report.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  report.exit_status = host_status;
  for (const std::uint32_t c : domain->local_cells()) {
    const Cell& cell = *domain->cells[c];
    report.cell_status.push_back(cell.status);
    report.cell_waiting_seconds.push_back(std::chrono::duration<double>(cell.waiting).count());
    if (report.exit_status == 0) report.exit_status = cell.status;
    if (log.wants(LogLevel::debug)) {
      for (const std::string& line : describe_orphans(*domain, cell)) log.debug("at the end, {}", line);
    }
  }
  const int signal = domain->signal.load(std::memory_order_relaxed);  // relaxed: the threads are joined
  // A thread that is not the machine's, for example one that carries output, may fail it at any moment.
  const std::lock_guard lock(domain->failure_mutex);
  if (!domain->failure.text.empty()) {
    report.exit_status = domain->failure.status;
    report.reason = domain->failure.text;
  } else if (signal != 0) {
    report.exit_status = 128 + signal;
    report.reason = fmt::format("stopped by signal {}", signal);
  } else if (process != nullptr && process->stopped_status().value_or(0) != 0) {
    report.exit_status = *process->stopped_status();
  }
  log.debug("{} cells on {} processors, {} moves, {:.3f} s", domain->cell_count, domain->carriers,
            domain->moves.load(std::memory_order_relaxed), report.seconds);  // relaxed: the threads are joined
  return report;
}

Machine::Impl& Machine::Impl::of(Domain& domain) { return *static_cast<Impl*>(domain.owner); }

void Machine::Impl::configure(TaskControl& self, const Options& wanted) {
  wanted.check();
  options = wanted;
  domain->options = options;
  if (process != nullptr) process->share_again(*domain, options.cells);
  domain->build_cells(options.cells);
  self.cell->processor->prepare();
}

void Machine::Impl::start_cells(TaskControl& self, std::function<void()> body, TaskId task, const std::string& file,
                                const std::vector<std::string>& arguments) {
  const CellProgram* program =
      &domain->keep(std::make_unique<CellProgram>(CellProgram{std::move(body), index(task), program_stack_bytes}));
  Processor& host = *self.cell->processor;
  domain->programs_started.fetch_add(1,
                                     std::memory_order_relaxed);  // relaxed: carriers read it behind the start messages
  domain->live_cells.fetch_add(domain->local_count(),
                               std::memory_order_relaxed);  // relaxed: the host itself counts, so it stays above 0
  const bool first = domain->carriers == 0 && domain->network == nullptr;
  if (first) {
    make_carriers();
    if (process != nullptr && !domain->guarded([this] { process->begin(); })) {
      domain->over.store(true, std::memory_order_release);  // as where a thread cannot be started
      return domain->wake_all();
    }
    start_threads();
    if (process != nullptr) process->open();
  }
  if (process != nullptr) process->announce_start(*program, file, arguments);
  for (const std::uint32_t c : domain->local_cells()) host.outbound().push_start(c, *program);
}

bool Machine::Impl::hosts_here() const noexcept { return process == nullptr || process->self() == 0; }

Machine::Machine() {
  try {
    impl_ = std::make_unique<Impl>(Options::from_environment());
  } catch (const Error& error) {
    if (error.code() != Errc::bad_option) throw;
    impl_ = std::make_unique<Impl>(Options{});
    impl_->environment_problem = error.what();
  }
}

Machine::Machine(Options options) : impl_(std::make_unique<Impl>(std::move(options))) {}

Machine::~Machine() = default;

Machine::Impl& MachineAccess::impl(Machine& machine) noexcept { return *machine.impl_; }

const Options& Machine::options() const noexcept { return impl_->options; }

namespace {

void refuse_in_task(const char* call) {
  if (Processor::current() == nullptr) return;
  throw Error(Errc::bad_argument,
              fmt::format("{}: called from a task; a machine is run from an ordinary thread", call));
}

/// A machine has one run at a time.
class OneRun {
 public:
  OneRun(std::atomic<bool>& running, const char* call) : running_(running) {
    if (!running.exchange(true, std::memory_order_acquire)) return;  // acquire: what the run before has left
    throw Error(Errc::bad_argument,
                fmt::format("{}: the machine runs already, in another thread; wait for that run, or make a Machine for "
                            "each thread",
                            call));
  }
  ~OneRun() { running_.store(false, std::memory_order_release); }  // release: to the next run
  OneRun(const OneRun&) = delete;
  OneRun& operator=(const OneRun&) = delete;

 private:
  std::atomic<bool>& running_;
};

Report called_off() {
  Report report;
  report.exit_status = static_cast<int>(ExitStatus::program_failed);
  return report;
}

}  // namespace

Report Machine::Impl::refused_environment() {
  log.error("{}", environment_problem);
  Report report;
  report.exit_status = static_cast<int>(ExitStatus::usage);
  report.reason = environment_problem;
  return report;
}

Report Machine::Impl::run_cells(CellProgram first, const StartNote* start) {
  make_domain(start != nullptr, start);
  domain->first_program = std::move(first);
  domain->start_at_once = true;
  domain->programs_started.store(1, std::memory_order_relaxed);                // relaxed: before the threads
  domain->live_cells.store(domain->local_count(), std::memory_order_relaxed);  // relaxed: before the threads
  make_carriers();
  std::optional<FaultScope> faults;
  if (!adopts) faults.emplace();  // before the first frame comes
  if (process != nullptr) {
    process->begin(start != nullptr ? 1 : 0);
    process->open();
    if (start == nullptr && !process->ready()) {
      process->end();
      return called_off();
    }
  }
  if (adopts) domain->processors.front()->run();
  const StopScope stops(*domain);
  const Clock::time_point begin = Clock::now();
  start_threads();
  if (domain->carriers == 0) process->wait_for_end();
  join_threads();
  if (process != nullptr) process->end();
  return report(begin, 0);
}

Report Machine::Impl::run_host(const std::function<int()>& host_program) {
  make_domain(true);
  domain->live_cells.store(1, std::memory_order_relaxed);  // relaxed: before the threads
  if (process != nullptr && !process->ready()) return called_off();
  int status = 0;
  const CellProgram program{[&status, &host_program] { status = host_program(); }, 0, 0};
  const FaultScope faults;
  const StopScope stops(*domain);
  const SignalStack signal_stack;
  const Clock::time_point start = Clock::now();
  Processor& host = *domain->processors.front();
  stoppable.store(domain.get(), std::memory_order_release);  // release: all of it
  host.start_program(*domain->host_cell, program);
  host.run();
  join_threads();
  if (process != nullptr) {
    if (!process->attached()) process->tell_none_started();
    process->end();
  }
  return report(start, status != 0 ? status : domain->host_cell->status);
}

Report Machine::run(std::function<void()> cell_program) {
  refuse_in_task("run");
  if (!impl_->environment_problem.empty()) return impl_->refused_environment();
  const OneRun one(impl_->running, "run");
  return impl_->run_cells(CellProgram{std::move(cell_program), 0, impl_->program_stack_bytes});
}

Report Machine::run_host(std::function<int()> host_program) {
  refuse_in_task("run_host");
  if (!impl_->environment_problem.empty()) return impl_->refused_environment();
  const OneRun one(impl_->running, "run_host");
  return impl_->run_host(host_program);
}

// ---------------------------------------------------------------- reports

namespace {

constexpr std::size_t lines_max = 200;

constexpr std::size_t kinds_max = 4;  // of unread messages that are named

[[nodiscard]] constexpr bool is_of_mpi(std::uint64_t key) noexcept {
  const auto space = static_cast<api::Space>(key >> MatchKey::space_shift);
  return space == api::Space::mpi || space == api::Space::mpi_collective || space == api::Space::mpi_receipt;
}

/// What MPI says of a wish or key of its own; empty: nothing.
std::string describe_for_mpi(const Cell& cell, const MatchWish& wish) {
  return is_of_mpi(wish.key) && cell.mpi.rank != nullptr ? cell.mpi.describe_wish(cell.mpi.rank, wish) : std::string();
}

/// "a message from cell 1, any task, type 7".
std::string describe_wanted(const Cell& cell, const MatchWish& wish) {
  const bool is_receipt = static_cast<api::Space>(wish.key >> MatchKey::space_shift) == api::Space::mpi_receipt;
  return (is_receipt ? "the receipt of a message to " : "a message from ") + describe_wish(cell, wish);
}

/// Messages that differ in their bodies only.
std::string describe_kind(const Cell& reader, std::uint64_t key, std::size_t bytes) {
  if (is_of_mpi(key)) return fmt::format("from {}, {} bytes", describe_wish(reader, {key, ~0ULL}), bytes);
  const std::string cell = reader.processor->domain().name_of(MatchKey::cell(key));
  const auto space = static_cast<api::Space>(key >> MatchKey::space_shift);
  return fmt::format("from {}, task {}, type {}, {} bytes{}", cell, MatchKey::task(key), MatchKey::type(key), bytes,
                     space == api::Space::line ? " (by xy_send)" : "");
}

struct UnreadKind {
  std::uint64_t key = 0;
  std::size_t bytes = 0;  ///< Of the oldest.
  std::size_t count = 0;
};

/// The kinds of these messages, oldest first.
template <class Chosen>
std::vector<UnreadKind> kinds_of(const Buffer* oldest, Chosen chosen) {
  constexpr std::size_t looks_max = 10'000;  // of millions, the rest is more of the same
  std::vector<UnreadKind> kinds;
  std::size_t looks = 0;
  for (const Buffer* each = oldest; each != nullptr && ++looks < looks_max; each = each->next) {
    if (!chosen(*each)) continue;
    const auto known = std::ranges::find(kinds, each->key, &UnreadKind::key);
    if (known != kinds.end()) {
      ++known->count;
    } else {
      kinds.push_back({each->key, each->bytes, 1});
    }
  }
  return kinds;
}

std::string describe_kinds(const Cell& reader, const std::vector<UnreadKind>& kinds) {
  std::string text;
  for (std::size_t i = 0; i < kinds.size() && i < kinds_max; ++i) {
    text += i == 0 ? "" : "; also ";
    if (i != 0 && kinds[i].count > 1) text += fmt::format("{} ", kinds[i].count);
    text += describe_kind(reader, kinds[i].key, kinds[i].bytes);
  }
  if (kinds.size() > kinds_max) text += fmt::format("; and {} more kinds", kinds.size() - kinds_max);
  return text;
}

std::string describe_group(const Domain& domain, const Group& group) {
  switch (group.scope) {
    case Scope::row:
      return fmt::format("row {}", group.first / domain.grid.nx);
    case Scope::column:
      return fmt::format("column {}", group.first);
    case Scope::all:
      break;
  }
  return "all cells";
}

// Members of the group that have not come.
std::string describe_missing(const Domain& domain, const Group& group, std::uint64_t episode) {
  std::string missing;
  std::uint32_t count = 0;
  for (const std::uint32_t id : group.local) {
    const Cell& cell = *domain.cells[id];
    if (cell.collective.active && cell.collective.group == &group && cell.collective.episode == episode) continue;
    if (++count <= 8) missing += fmt::format("{}{}", count == 1 ? "" : ", ", cell.id);
  }
  if (count > 8) missing += fmt::format(" and {} more", count - 8);
  if (!missing.empty()) return fmt::format("missing: cell {}", missing);
  return group.exchange != nullptr ? "none is missing in this process" : "none is missing";
}

/// "60000 bytes to be received by cell 1, any task, type 7".
std::string describe_lent(const Cell& cell, const Posted& sent) {
  MatchWish to = sent.wish;
  if (!is_of_mpi(to.key)) to.mask &= ~MatchKey::task_mask;  // the key has the sender's
  return fmt::format("{} bytes to be received by {}", sent.bytes, describe_wish(cell, to));
}

/// Lent messages that the task waits for; they may be other tasks' of the cell.
std::vector<const Posted*> awaited_sends(const Cell& cell, const TaskControl& task) {
  std::vector<const Posted*> found;
  for (std::uint32_t id = 0; id < cell.tasks.end(); ++id) {
    const TaskControl* const owner = cell.tasks.find(id);
    for (const Posted* sent = owner != nullptr ? owner->lent : nullptr; sent != nullptr; sent = sent->next) {
      if (sent->awaited && sent->task == &task) found.push_back(sent);
    }
  }
  return found;
}

// What the task waits for with a request, each wish once; they may be in the mailboxes of other tasks of the cell.
std::string describe_awaited(const Cell& cell, const TaskControl& task) {
  std::vector<MatchWish> wishes;
  for (std::uint32_t id = 0; id < cell.tasks.end(); ++id) {
    const TaskControl* const owner = cell.tasks.find(id);
    const Posted* each = owner != nullptr ? owner->requests.oldest() : nullptr;
    for (; each != nullptr && wishes.size() < kinds_max; each = each->next) {
      if (each->awaited && each->task == &task && std::ranges::find(wishes, each->wish) == wishes.end())
        wishes.push_back(each->wish);
    }
  }
  std::string text;
  for (const MatchWish& wish : wishes) text += (text.empty() ? "" : "; ") + describe_wanted(cell, wish);
  std::vector<const Posted*> lent = awaited_sends(cell, task);
  lent.resize(std::min(lent.size(), kinds_max));
  for (const Posted* const sent : lent) text += (text.empty() ? "" : "; ") + describe_lent(cell, *sent);
  return text;
}

std::string describe_task(Domain& domain, const Cell& cell, const TaskControl& task, Clock::time_point now) {
  std::string line = fmt::format("{} {} {}: ", domain.name_of(cell.id), task.is_guest ? "thread" : "task", task.id);
  const double seconds = std::chrono::duration<double>(now - task.wait_since).count();
  switch (task.waits) {
    case WaitFor::message: {
      line += fmt::format("waits in {} for {}", task.call, describe_wanted(cell, task.posted.wish));
      const std::uint32_t source = MatchKey::cell(task.posted.wish.key);
      const bool named = (task.posted.wish.mask & MatchKey::cell_mask) != 0;
      if (const Inbound& inbound = cell.processor->inbound(); named && inbound.cell_is_idle(source))
        line += fmt::format(" ({} has no task any more; its exit status is {})", domain.name_of(source),
                            inbound.end_of(source).status);
      break;
    }
    case WaitFor::requests:
      line +=
          fmt::format("waits in {} for {} of its requests: {}", task.call, task.awaited, describe_awaited(cell, task));
      break;
    case WaitFor::collective:
      line += fmt::format("waits in {} ({}; {})", task.call, describe_group(domain, *cell.collective.group),
                          describe_missing(domain, *cell.collective.group, cell.collective.episode));
      break;
    case WaitFor::task_end:
      line += fmt::format("waits in {} for the end of task {}", task.call, task.wait_task);
      break;
    case WaitFor::cells_end:
      line += fmt::format("waits in {} for the end of all cells", task.call);
      break;
    case WaitFor::flag:
      line += fmt::format("waits in {} for flag {} to reach {}, it is {}", task.call,
                          static_cast<const void*>(task.watch.flag), task.watch.count, task.watch.now());
      break;
    case WaitFor::condition:
      line += fmt::format("waits in {} for {}", task.call, task.watch.condition->missing());
      break;
    case WaitFor::time:
      line += fmt::format("sleeps in {}", task.call);
      break;
    case WaitFor::room:
      line += fmt::format("waits in {} for messages to be received, {} MiB wait in this process", task.call,
                          domain.unread_bytes() >> 20);
      break;
    case WaitFor::nothing:
      return line + (task.ready ? "is ready" : "runs");
  }
  line += fmt::format(", for {:.1f} s", seconds);
  if (const auto* state = static_cast<const api::CellosState*>(task.cellos_state);
      state != nullptr && state->place_of == task.call) {
    if (const std::string place = loader::libc::place_in_program(state->place); !place.empty())
      line += fmt::format(", called at {}", place);
  }
  if (task.waits != WaitFor::requests) line += describe_requests(task);
  line += describe_unread(task);
  return line;
}

}  // namespace

namespace {

/// Lines of tasks, as many as a reader can take.
class TaskList {
 public:
  explicit TaskList(Domain& domain) : domain_(domain) {}

  void add(const Cell& cell) {
    if (cell.ended) ended_.push_back(&cell);
    for (std::uint32_t id = 0; id < cell.tasks.end(); ++id) {
      const TaskControl* task = cell.tasks.find(id);
      if (task == nullptr || task->ended || (task->is_guest && task->waits == WaitFor::nothing)) continue;
      if (++lines_ <= lines_max) text_ += "\n  " + describe_task(domain_, cell, *task, now_);
      note_sends(cell, *task);
    }
    for (const std::string& line : describe_orphans(domain_, cell)) {
      if (++lines_ <= lines_max) text_ += "\n  " + line;
    }
  }

  std::string text() {
    if (lines_ > lines_max) text_ += fmt::format("\n  ... and {} more tasks", lines_ - lines_max);
    if (std::ranges::any_of(receivers_, [this](std::uint32_t cell) { return senders_.contains(cell); })) {
      text_ += fmt::format(
          "\n  sends of {} KiB or more wait until they are received, and here the receivers wait in "
          "such sends, too: receive first on one side, or use MPI_Sendrecv or MPI_Isend",
          lend_from_bytes >> 10);
    }
    if (!ended_.empty()) {
      text_ += "\n  ended already:";
      for (std::size_t i = 0; i < ended_.size() && i < 16; ++i) {
        text_ += " " + domain_.name_of(ended_[i]->id);
        if (ended_[i]->status != 0) text_ += fmt::format(" (status {})", ended_[i]->status);
        if (i + 1 < ended_.size()) text_ += ",";
      }
      if (ended_.size() > 16) text_ += fmt::format(" and {} more", ended_.size() - 16);
    }
    return text_;
  }

 private:
  /// Programs of MPI that count on a buffer send to each other before they receive.
  void note_sends(const Cell& cell, const TaskControl& task) {
    if (task.waits != WaitFor::requests) return;
    const std::vector<const Posted*> sends = awaited_sends(cell, task);
    if (sends.empty() || sends.size() != task.awaited || !is_of_mpi(sends.front()->wish.key)) return;
    senders_.insert(cell.id);
    for (const Posted* const sent : sends) receivers_.insert(MatchKey::cell(sent->wish.key));
  }

  Domain& domain_;
  const Clock::time_point now_ = Clock::now();
  std::string text_;
  std::size_t lines_ = 0;
  std::set<std::uint32_t> senders_;    // cells with a task that waits for nothing but lent sends
  std::set<std::uint32_t> receivers_;  // of these sends
  std::vector<const Cell*> ended_;
};

}  // namespace

std::string place_of_call() {
  struct Search {
    const void* place = nullptr;
    int frames = 0;
  } search;
  constexpr int frames_max = 64;
  const TaskControl* const self = running_task();
  if (self == nullptr || self->program == nullptr) return {};
  _Unwind_Backtrace(
      [](_Unwind_Context* frame, void* state) {
        auto& found = *static_cast<Search*>(state);
        const auto* const address = reinterpret_cast<const void*>(_Unwind_GetIP(frame));
        loader::FoundImage image;
        if (loader::find_image(address, image)) found.place = address;
        return found.place != nullptr || ++found.frames == frames_max ? _URC_END_OF_STACK : _URC_NO_REASON;
      },
      &search);
  return search.place != nullptr ? loader::libc::place_in_program(search.place) : std::string();
}

std::string describe_wish(const Cell& reader, const MatchWish& wish) {
  if (std::string text = describe_for_mpi(reader, wish); !text.empty()) return text;
  const Domain& domain = reader.processor->domain();
  const auto field = [&wish](std::uint64_t mask, const char* name, std::uint32_t value) {
    return (wish.mask & mask) == 0 ? fmt::format("any {}", name) : fmt::format("{} {}", name, value);
  };
  const std::string cell =
      (wish.mask & MatchKey::cell_mask) == 0 ? "any cell" : domain.name_of(MatchKey::cell(wish.key));
  if (is_of_mpi(wish.key)) {
    return fmt::format("{}, {}, {}", cell, field(ContextKey::context_mask, "context", ContextKey::context(wish.key)),
                       field(ContextKey::tag_mask, "tag", ContextKey::tag(wish.key)));
  }
  return fmt::format("{}, {}, {}", cell, field(MatchKey::task_mask, "task", MatchKey::task(wish.key)),
                     field(MatchKey::type_mask, "type", MatchKey::type(wish.key)));
}

std::string describe_unread(const TaskControl& task) {
  if (task.mailbox.empty()) return {};
  const std::size_t count = task.mailbox.size();
  return fmt::format("; {} other message{} unread, the oldest {}", count, count == 1 ? "" : "s",
                     describe_kinds(*task.cell, kinds_of(task.mailbox.oldest(), [](const Buffer&) { return true; })));
}

std::string describe_requests(const TaskControl& task) {
  if (task.requests.empty()) return {};
  const std::size_t count = task.requests.size();
  return fmt::format("; {} open request{}, the oldest for {}", count, count == 1 ? "" : "s",
                     describe_wanted(*task.cell, task.requests.oldest()->wish));
}

std::vector<std::string> describe_orphans(const Domain& domain, const Cell& cell) {
  std::vector<std::uint32_t> tasks;
  for (const Buffer* each = cell.orphans.oldest(); each != nullptr && tasks.size() < kinds_max; each = each->next) {
    if (std::ranges::find(tasks, each->task) == tasks.end()) tasks.push_back(each->task);
  }
  std::vector<std::string> lines;
  for (const std::uint32_t task : tasks) {
    const auto kinds = kinds_of(cell.orphans.oldest(), [task](const Buffer& each) { return each.task == task; });
    std::size_t count = 0;
    for (const UnreadKind& kind : kinds) count += kind.count;
    lines.push_back(fmt::format("{}: {} message{} for task {}, which does not exist, {}", domain.name_of(cell.id),
                                count, count == 1 ? "" : "s", task, describe_kinds(cell, kinds)));
  }
  return lines;
}

std::string describe_tasks(Domain& domain) {
  TaskList list(domain);
  for (const Cell* cell : domain.cells) {
    if (cell->processor != nullptr) list.add(*cell);
  }
  return list.text();
}

std::string describe_tasks(Domain& domain, const Processor& processor) {
  TaskList list(domain);
  for (const std::uint32_t cell : processor.residents()) list.add(*domain.cells[cell]);
  if (processor.is_host()) list.add(*domain.host_cell);
  return list.text();
}

std::string describe_waits(const Domain& domain) {
  if (domain.carriers == 0) return {};
  std::uint32_t least = UINT32_MAX;
  std::uint32_t most = 0;
  std::uint32_t shared = 0;
  std::uint32_t computed_on = 0;
  for (const auto& processor : domain.processors) {
    if (processor->is_host()) continue;
    const WaitChoice choice = processor->idle().choice();
    least = std::min(least, choice.polls.count());
    most = std::max(most, choice.polls.count());
    shared += choice.core == WaitChoice::Core::shared ? 1 : 0;
    computed_on += choice.core == WaitChoice::Core::computed_on ? 1 : 0;
  }
  std::string text = least == most ? fmt::format("{} us", most) : fmt::format("{} to {} us", least, most);
  const auto add = [&](std::uint32_t cores, const char* what) {
    if (cores != 0) text += fmt::format("; {} of {} cores {}", cores, domain.carriers, what);
  };
  add(shared, "shared");
  add(computed_on, "busy with others");
  return text;
}

std::string describe_deadlock(Domain& domain) {
  return "deadlock: every task waits and no message is on its way, so nothing can go on" + describe_tasks(domain) +
         "\n  look for a receive whose source, task or type no send has, a flag that too few transfers raise, or a "
         "collective that not all cells call";
}

}  // namespace aplib
