// SPDX-License-Identifier: MIT
#include "aplib/machine.hpp"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "aplib/error.hpp"
#include "base/cpus.hpp"
#include "base/futex.hpp"
#include "base/program_context.hpp"
#include "kernel/deadlock.hpp"
#include "kernel/loaded_run.hpp"
#include "kernel/machine_impl.hpp"
#include "kernel/signals.hpp"

namespace aplib {

Machine::Impl::Impl(Options chosen)
    : options(std::move(chosen)), placement(plan_placement(options)), log(options.log_level) {
  // Now, while the process most likely has one thread: with several, registering waits 8 ms for all of them.
  os::process_barrier_register();
}

Machine::Impl::~Impl() = default;

void Machine::Impl::make_domain(bool with_host) {
  stoppable.store(nullptr, std::memory_order_relaxed);  // relaxed: nothing is published
  in_debugger.show(nullptr);
  domain = std::make_unique<Domain>();
  in_debugger.show(domain.get());
  domain->owner = this;
  domain->options = options;
  domain->has_host = with_host;
  domain->report = [this](const std::string& text) { log.error("{}", text); };
  domain->on_deadlock = [this](Domain& stuck) {
    if (stuck.has_host && stuck.host_cell->ended) {
      // The host program is through and the cells only wait for more from it: as on the original, its end is the end of the run.
      log.info("the host program has ended while cells still wait; the run ends");
      stuck.stop();
    } else {
      stuck.fail(static_cast<int>(ExitStatus::deadlock), describe_deadlock(stuck));
    }
  };
  domain->build_cells(options.cells);
  if (with_host) {
    domain->processors.push_back(std::make_unique<Processor>(*domain, 0, true));
    domain->host_cell->processor = domain->processors.front().get();
    domain->poll_time = std::chrono::nanoseconds(0);
    domain->processors.front()->prepare();
  }
}

void Machine::Impl::make_carriers() {
  stoppable.store(nullptr, std::memory_order_relaxed);  // relaxed: nothing is published
  options.cells = domain->grid;
  placement = plan_placement(options);
  domain->options = options;
  domain->poll_time = poll_time(options, placement);
  domain->carriers = placement.processors;
  domain->arrivals = std::make_unique<ArrivalLines[]>(domain->carriers);
  std::vector<std::unique_ptr<Processor>> carriers;
  for (std::uint32_t p = 0; p < domain->carriers; ++p)
    carriers.push_back(std::make_unique<Processor>(*domain, p, false));
  for (std::uint32_t c = 0; c < domain->cell_count; ++c) {
    domain->cells[c]->processor = carriers[processor_of_cell(c, domain->cell_count, domain->carriers)].get();
  }
  for (auto& host : domain->processors) carriers.push_back(std::move(host));
  domain->processors = std::move(carriers);
  for (auto& processor : domain->processors) processor->prepare();
  stoppable.store(domain.get(), std::memory_order_release);  // release: all of it
}

void Machine::Impl::start_threads() {
  // Carriers are the machine's, also when a loaded host program starts its cells: its own threads would belong to it.
  ProgramContext* const starter = std::exchange(current_program_context, nullptr);
  // Ctrl-C is for the thread that runs the machine: carriers are never interrupted by it.
  sigset_t stop_signals;
  sigset_t before;
  sigemptyset(&stop_signals);
  sigaddset(&stop_signals, SIGINT);
  sigaddset(&stop_signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &stop_signals, &before);  // threads inherit it
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
    } catch (const std::system_error& error) {
      domain->fail(
          static_cast<int>(ExitStatus::program_failed),
          fmt::format(
              "cannot start thread {} of {}: {}; use fewer threads (APLIB_THREADS) or raise the limit on processes "
              "(ulimit -u)",
              p + 1, domain->carriers, error.code().message()));
      // Cells of processors that do not run count as live for ever, so the count of live cells cannot end the run.
      domain->over.store(true, std::memory_order_release);  // release: to Processor::idle()
      domain->wake_all();
      break;
    }
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  current_program_context = starter;
}

void Machine::Impl::join_threads() {
  for (std::thread& thread : threads) thread.join();
  threads.clear();
}

Report Machine::Impl::report(Clock::time_point start, int host_status) {
  Report report;
  report.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  report.exit_status = host_status;
  for (std::uint32_t c = 0; c < domain->cell_count; ++c) {
    const Cell& cell = *domain->cells[c];
    report.cell_status.push_back(cell.status);
    report.cell_waiting_seconds.push_back(std::chrono::duration<double>(cell.waiting).count());
    if (report.exit_status == 0) report.exit_status = cell.status;
  }
  const int signal = domain->signal.load(std::memory_order_relaxed);  // relaxed: the threads are joined
  if (!domain->failure.text.empty()) {
    report.exit_status = domain->failure.status;
    report.reason = domain->failure.text;
  } else if (signal != 0) {
    report.exit_status = 128 + signal;
    report.reason = fmt::format("stopped by signal {}", signal);
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
  domain->build_cells(options.cells);
  self.cell->processor->prepare();
}

void Machine::Impl::start_cells(TaskControl& self, std::function<void()> body, TaskId task) {
  domain->programs.push_back(std::make_unique<Program>(Program{std::move(body), index(task), program_stack_bytes}));
  const Program* program = domain->programs.back().get();
  Processor& host = *self.cell->processor;
  domain->programs_started.fetch_add(1,
                                     std::memory_order_relaxed);  // relaxed: carriers read it behind the start messages
  domain->live_cells.fetch_add(domain->cell_count,
                               std::memory_order_relaxed);  // relaxed: the host itself counts, so it stays above 0
  if (domain->carriers == 0) {
    make_carriers();
    start_threads();
  }
  for (std::uint32_t c = 0; c < domain->cell_count; ++c) host.send_start(c, *program);
}

Machine::Machine(Options options) : impl_(std::make_unique<Impl>(std::move(options))) {}

Machine::~Machine() = default;

Machine::Impl& MachineAccess::impl(Machine& machine) noexcept { return *machine.impl_; }

const Options& Machine::options() const noexcept { return impl_->options; }

Report Machine::run(std::function<void()> cell_program) {
  if (Processor::current() != nullptr) {
    throw Error(Errc::bad_argument, "run: called from a task; a machine is run from an ordinary thread");
  }
  impl_->make_domain(false);
  Domain& domain = *impl_->domain;
  domain.first_program = Program{std::move(cell_program), 0, impl_->program_stack_bytes};
  domain.start_at_once = true;
  domain.programs_started.store(1, std::memory_order_relaxed);            // relaxed: before the threads
  domain.live_cells.store(domain.cell_count, std::memory_order_relaxed);  // relaxed: before the threads
  impl_->make_carriers();
  const SignalScope signals(domain);
  const Clock::time_point start = Clock::now();
  impl_->start_threads();
  impl_->join_threads();
  return impl_->report(start, 0);
}

Report Machine::run_host(std::function<int()> host_program) {
  if (Processor::current() != nullptr) {
    throw Error(Errc::bad_argument, "run_host: called from a task; a machine is run from an ordinary thread");
  }
  impl_->make_domain(true);
  Domain& domain = *impl_->domain;
  domain.live_cells.store(1, std::memory_order_relaxed);  // relaxed: before the threads
  int status = 0;
  const Program program{[&status, &host_program] { status = host_program(); }, 0, 0};
  const SignalScope signals(domain);
  const SignalStack signal_stack;
  const Clock::time_point start = Clock::now();
  Processor& host = *domain.processors.front();
  impl_->stoppable.store(&domain, std::memory_order_release);  // release: all of it
  host.start_program(*domain.host_cell, program);
  host.run();
  impl_->join_threads();
  return impl_->report(start, status != 0 ? status : domain.host_cell->status);
}

}  // namespace aplib
