// SPDX-License-Identifier: MIT
#include "kernel/programs.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <sys/mman.h>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <span>
#include <thread>
#include <utility>

#include "aplib/error.hpp"
#include "base/os/descriptor.hpp"
#include "base/os/thread.hpp"
#include "calls/idl.hpp"
#include "calls/typed_call.hpp"
#include "cell/baton.hpp"
#include "kernel/api.hpp"
#include "kernel/loaded_run.hpp"
#include "kernel/machine_impl.hpp"
#include "kernel/placement.hpp"
#include "kernel/process_run.hpp"
#include "kernel/signals.hpp"
#include "loader/elf_segments.hpp"
#include "loader/known_images.hpp"
#include "loader/libc/signals.hpp"
#include "loader/program.hpp"

namespace aplib {
namespace {

/// Exit statuses are a byte, as everywhere.
constexpr int exit_byte(int status) { return status & 0xff; }

std::uint32_t sink_cell(const Domain& domain, std::uint32_t cell) {
  return cell == domain.cell_count ? OutputSink::host : cell;
}

/// Where the cell's programs lie, and their heap.
CellMemory memory_of(const Domain& domain, std::uint32_t cell, bool low) {
  if (!low) return SlotPlan::of(domain.slot_of(cell));
  if (cell == domain.cell_count) return LowPlan::of_host();
  return LowPlan::of_cell(domain.cell_map.local_index(cell), domain.local_count());
}

/// This process's, with these variables set.
std::vector<std::string> environment_with(const std::vector<std::pair<std::string, std::string>>& variables) {
  std::vector<std::string> environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) environment.emplace_back(*entry);
  for (const auto& [name, value] : variables) {
    std::erase_if(environment, [start = name + "="](const std::string& each) { return each.starts_with(start); });
    environment.push_back(fmt::format("{}={}", name, value));
  }
  return environment;
}

/// What leaves a program is its to end by (std::set_terminate), as in a process, but our own errors. Where it has no
/// runtime of C++, in words, while its types and texts are still mapped: our own type outlives the instance.
[[noreturn]] void end_by_exception(const loader::Instance& instance) {
  try {
    throw;
  } catch (const Stopped&) {
    throw;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    instance.terminate();
    throw Error(Errc::failed, fmt::format("uncaught exception: {}{}", error.what(), os::remedy_of(error)));
  } catch (...) {
    instance.terminate();
    throw Error(Errc::failed, "uncaught exception of a type not derived from std::exception");
  }
}

}  // namespace

/// A cell as its programs see it.
class LoadedRun::CellHost : public loader::CellServices {
 public:
  CellHost(LoadedRun& run, Domain& domain, Cell& cell)
      : run_(run), domain_(domain), cell_(cell), name_(domain.name_of(cell.id)), number_(sink_cell(domain, cell.id)) {}

  // relaxed: the last change is seen by end(), which asks after the processors have ended
  void instance_begins() override { run_.instances_.fetch_add(1, std::memory_order_relaxed); }
  void instance_gone() noexcept override { run_.instances_.fetch_sub(1, std::memory_order_relaxed); }

  void keep(ReservedRange memory) override {
    const std::lock_guard lock(run_.mutex_);
    kept_.push_back(std::move(memory));
  }

  std::string name() override {
    const TaskControl* task = running_task();
    return task != nullptr ? fmt::format("{} task {}", name_, task->id) : name_;
  }
  void write(loader::Stream stream, std::span<const char> bytes) override {
    while_alive([&] { run_.output.write(number_, stream, bytes); });
  }
  void flush(loader::Stream stream) override {
    while_alive([&] { run_.output.flush(number_, stream); });
  }
  int input() override {
    int descriptor = -1;
    while_alive([&] { descriptor = run_.output.input(number_); });
    return descriptor;
  }

  void sleep(std::chrono::nanoseconds duration) override {
    if (TaskControl* task = running_task()) {
      Processor::sleep_until(*task, deadline_after(duration), "sleep");
    } else {
      std::this_thread::sleep_for(duration);
    }
  }
  void yield() override {
    if (TaskControl* task = running_task()) {
      Processor::yield(*task);
    } else {
      std::this_thread::yield();
    }
  }

  FlowStack stack() noexcept override {
    const TaskControl* const task = task_of_thread();
    if (task == nullptr || task->is_guest) return {};
    const Stack& stack = task->aside != nullptr ? *task->aside : task->stack;
    return {stack.low, stack.top};
  }
  std::int64_t computed() noexcept override {
    if (domain_.carriers < domain_.local_count())             // SpinWatch looks
      return cell_.computed.load(std::memory_order_relaxed);  // relaxed: a measure
    timespec used{};
    if (running_task() == nullptr || ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used) != 0) return 0;
    return used.tv_sec * std::int64_t{1'000'000'000} + used.tv_nsec;
  }
  std::shared_ptr<void> thread_begins() noexcept override {
    return std::shared_ptr<SignalStack>(new (std::nothrow) SignalStack);
  }

  bool leave_call() noexcept override {
    const TaskControl* const task = running_task();
    if (task == nullptr || !task->is_guest) return false;
    baton()->leave_for_ever();
    return true;
  }

  bool shares_thread() noexcept override {
    const TaskControl* const task = running_task();
    if (task == nullptr || task->is_guest || task->cell->processor->baton() != nullptr) return false;
    if (task->cell->live_tasks > 1) return true;
    return std::ranges::any_of(task->cell->processor->residents(),
                               [&](std::uint32_t each) { return each != cell_.id && !domain_.cells[each]->ended; });
  }

  void keep_thread(bool keeps) noexcept override { cell_.keeps_thread = keeps; }

  // The cell may move meanwhile: then the thread finds another one there.
  pid_t thread() noexcept override {
    Processor* const processor = std::atomic_ref(cell_.processor).load(std::memory_order_relaxed);  // relaxed: constant
    return processor->parker().is_asleep() ? 0 : processor->thread();
  }

  Cell* cell() noexcept override { return &cell_; }
  void begin_threads(bool ask) override {
    if (TaskControl* task = running_task(); task != nullptr && aplib::begin_threads(*task, ask)) baton()->leave();
  }

  SlotHeap* heap(bool low) override {
    SlotHeap* heap = nullptr;
    while_alive([&] {
      const CellMemory memory = memory_of(domain_, cell_.id, low);
      heap = cell_.heap.get(memory.heap, memory.bytes_each, low ? HeapSource{} : domain_.heap_source(cell_.id));
      if (heap != nullptr || told_of_heap_.exchange(true)) return;
      run_.output.warn(fmt::format(
          "{}: no memory can be allocated, because its heap cannot be made at {}: {}; run one machine at a time in a "
          "process, or give the programs the C library's heap (--heap libc), which put and get do not reach",
          name_, static_cast<void*>(memory.heap), std::strerror(errno)));
    });
    return heap;
  }

  bool is_received(const void* block) noexcept override {
    const TaskControl* const task = running_task();
    const auto* const state = task != nullptr ? static_cast<const api::CellosState*>(task->cellos_state) : nullptr;
    return state != nullptr && state->readable && state->message.data() == block;
  }

  void heap_used(const loader::libc::HeapUse& use) override {
    constexpr double kib = 1024;
    while_alive([&] {
      run_.output.warn(fmt::format(
          "{}: heap: at most {:.1f} KiB at a time (calls: {}); not freed at its end: {:.1f} KiB (blocks: {})", name_,
          static_cast<double>(use.peak) / kib, use.calls, static_cast<double>(use.bytes) / kib, use.blocks));
    });
  }

  void task_exited(int status) override {
    while_alive([&] {
      if (cell_.status == 0) cell_.status = exit_byte(status);
    });
  }
  void fail(int status, const std::string& text) override {
    while_alive([&] {
      cell_.status = status;
      domain_.fail(status, fmt::format("{}: {}", name(), text));
    });
    // By a jump: callers such as abort() are nothrow.
    if (loader::TaskContext* context = loader::here(); context != nullptr) context->instance->leave(status, false);
    Processor::prepare_to_unwind();
    throw Stopped{};
  }
  void warn(const std::string& text) override {
    {
      const std::lock_guard lock(run_.mutex_);
      if (!run_.warned_.insert(text).second) return;
    }
    while_alive([&] { run_.output.warn(fmt::format("{}: {}", name(), text)); });
  }

 private:
  [[nodiscard]] Baton* baton() const noexcept {
    return cell_.baton.load(std::memory_order_acquire);  // acquire: its making
  }

  /// Threads that a program made may outlive the run, its output and its machine.
  template <class Action>
  void while_alive(Action action) {
    const os::CancellationDisabled whole;
    const std::shared_lock lock(run_.life_);
    if (!run_.over_) action();
  }

  LoadedRun& run_;
  Domain& domain_;
  Cell& cell_;
  std::string name_;
  std::uint32_t number_;
  std::vector<ReservedRange> kept_;
  std::atomic<bool> told_of_heap_{false};
};

LoadedRun::LoadedRun(Machine::Impl& machine, const ProgramRun& what, OutputSink& sink, KeptPrograms* kept)
    : run(what), output(sink), machine_(machine), kept_(kept) {
  for (std::size_t number = 0; number <= run.others.size(); ++number)
    environments_.push_back(std::make_shared<std::vector<std::string>>(environment_with(numbered(number).variables)));
  hosts_.resize(std::size_t{cell_count_max} + 1);
}

LoadedRun::~LoadedRun() = default;

bool LoadedRun::end() {
  const std::unique_lock lock(life_);
  over_ = true;
  return instances_.load(std::memory_order_relaxed) == 0;  // relaxed: see instance_gone()
}

std::shared_ptr<const loader::Program> LoadedRun::load(const std::string& file, const ProgramRun& of) {
  const loader::LoadOptions options = load_options(machine_.options, of);
  const std::lock_guard lock(mutex_);
  std::shared_ptr<const loader::Program>& program = programs_[{file, options.preload}];
  if (program != nullptr) return program;
  KeptPrograms* const kept = options.preload.empty() ? kept_ : nullptr;  // the next run may preload others
  if (kept != nullptr) program = kept->find(file);
  if (program == nullptr) {
    loader::limit_debugger_list(machine_.options.debugger_images);
    std::shared_ptr<const loader::Program> loaded = loader::Program::load(file, options);
    loader::Instance::try_out(loaded);
    program = std::move(loaded);
    if (kept != nullptr) kept->keep(file, program);
  }
  if (program->has_low_memory()) use_low_bodies();
  return program;
}

void LoadedRun::choose_threads() {
  const std::lock_guard lock(mutex_);
  const auto some = [this](bool (loader::Program::*has)(bool) const noexcept) {
    return std::ranges::any_of(programs_,
                               [&](const auto& loaded) { return (loaded.second.get()->*has)(run.has_openmp_threads); });
  };
  machine_.options.threads = threads_for(some(&loader::Program::has_threads), machine_.options);
  machine_.program_threads = some(&loader::Program::makes_threads) ? ProgramThreads::some : ProgramThreads::none;
}

void LoadedRun::use_low_bodies() {
  low_bodies_ = true;
  if (machine_.domain != nullptr) machine_.domain->pools->use_low_memory();
}

LoadedRun::CellHost& LoadedRun::host_of(TaskControl& task) {
  Domain& domain = task.cell->processor->domain();
  // The host program's cell is last; its id changes with the grid.
  const bool on_host = task.cell == domain.host_cell.get();
  std::unique_ptr<CellHost>& host = hosts_[on_host ? std::size_t{cell_count_max} : task.cell->id];
  if (host == nullptr) host = std::make_unique<CellHost>(*this, domain, *task.cell);
  return *host;
}

int LoadedRun::run_instance(TaskControl& self, const std::shared_ptr<const loader::Program>& program,
                            const std::function<int(loader::Instance&)>& entry, std::vector<std::string> arguments) {
  const std::uint32_t cell = self.cell->id;
  Domain& domain = self.cell->processor->domain();
  const CellMemory memory = memory_of(domain, cell, program->has_low_memory());
  const std::size_t number = program_of(cell);
  std::unique_ptr<loader::Instance> instance = loader::Instance::make(
      program, host_of(self), {memory.instances, memory.bytes_each}, {std::move(arguments), environments_[number]});
  if (program->has_low_memory() && !LowPlan::holds(instance->images().front().base)) {
    host_of(self).warn(fmt::format(
        "{} needs {} KiB, and a cell has {} KiB below 2 GiB: its globals lie above, where a pointer does not fit into "
        "an int; run fewer cells in a process",
        program->path(), program->span() / 1024, memory.bytes_each / 1024));
  }
  if (const auto& folder_of = numbered(number).folder_of; folder_of)
    instance->start_in(folder_of(sink_cell(domain, cell)));
  if (run.variables_of && !domain.has_host) {
    for (const auto& [name, value] : run.variables_of(cell))
      loader::libc::set_variable(instance->libc(), fmt::format("{}={}", name, value));
  }
  const struct TakeBack {  // this thread is the processor's again
    const Cell& cell;
    ~TakeBack() {
      // Relaxed: made by this thread.
      if (Baton* const baton = cell.baton.load(std::memory_order_relaxed)) baton->close();
    }
  } take_back{*self.cell};
  const loader::Outcome outcome = loader::Instance::run(
      std::move(instance),
      [&entry](loader::Instance& loaded) -> int {
        try {
          return entry(loaded);
        } catch (const TaskExit& exit) {
          return exit.status;
        } catch (...) {
          end_by_exception(loaded);
        }
      },
      [&self](ProgramContext* context) { enter_program(self, context); });
  return exit_byte(outcome.status);
}

std::function<void()> LoadedRun::cell_body(std::shared_ptr<const loader::Program> program, const loader::Entry& entry,
                                           std::vector<std::string> arguments) {
  return [this, program = std::move(program), entry, arguments = std::move(arguments)] {
    TaskControl& self = *running_task();
    const std::uint32_t cell = self.cell->id;
    struct Ended {
      LoadedRun& run;
      TaskControl& self;
      std::uint32_t cell;
      int status = static_cast<int>(ExitStatus::program_failed);
      bool through = false;
      ~Ended() {
        Domain& domain = self.cell->processor->domain();
        // Relaxed: stop() has published it.
        if (!through && domain.stops_well.load(std::memory_order_relaxed)) status = 0;
        if (status != 0 && self.cell->status == 0) self.cell->status = status;
        domain.guarded([this] { run.output.ended(cell, status); });
      }
    } ended{*this, self, cell};
    const auto& arguments_of = numbered(program_of(cell)).arguments_of;
    ended.status =
        run_instance(self, program, entry.function(),
                     arguments_of && !self.cell->processor->domain().has_host ? arguments_of(cell) : arguments);
    ended.through = true;
  };
}

std::size_t LoadedRun::program_of(std::uint32_t cell) const noexcept {
  std::size_t number = 0;
  while (number < run.others.size() && run.others[number].first_cell <= cell) ++number;
  return number;
}

std::function<void()> LoadedRun::cell_bodies(std::shared_ptr<const loader::Program> program,
                                             const loader::Entry& entry) {
  std::vector<std::function<void()>> bodies{cell_body(std::move(program), entry, run.arguments)};
  for (const ProgramRun& other : run.others) {
    const std::shared_ptr<const loader::Program> loaded = load(other.file, other);
    bodies.push_back(cell_body(loaded, choose_start(*loaded, other).entry, other.arguments));
  }
  if (bodies.size() == 1) return std::move(bodies.front());
  return [this, bodies = std::move(bodies)] { bodies[program_of(running_task()->cell->id)](); };
}

std::function<int()> LoadedRun::host_body(std::shared_ptr<const loader::Program> program, const loader::Entry& entry) {
  return [this, program = std::move(program), entry] {
    TaskControl& self = *running_task();
    const int status = run_instance(self, program, entry.function(), run.arguments);
    output.ended(OutputSink::host, status);
    return status;
  };
}

void LoadedRun::finish(Machine::Impl& machine) {
  // Where threads of a program still run their instance, and what it asks of us, must stay: for ever, as nobody can
  // say when they end.
  machine.programs_remain = !end();
  if (!machine.programs_remain) return;
  static_cast<void>(machine.loaded.release());
  for (Cell* cell : machine.domain->cells) {
    if (cell != nullptr) cell->heap.abandon();
  }
}

namespace {

Report run_loaded(Machine& machine, const ProgramRun& run, OutputSink& output, KeptPrograms* kept) {
  Machine::Impl& impl = MachineAccess::impl(machine);
  impl.loaded = std::make_unique<LoadedRun>(impl, run, output, kept);
  LoadedRun& loaded = *impl.loaded;
  const std::shared_ptr<const loader::Program> program = loaded.load(run.file);
  const ProgramStart start = choose_start(*program, run);
  const std::function<void()> bodies = start.is_host ? nullptr : loaded.cell_bodies(program, start.entry);
  output.begin(start.is_host);
  Report report;
  if (start.is_host) {
    report = machine.run_host(loaded.host_body(program, start.entry));
  } else {
    impl.program_stack_bytes = impl.options.program_stack_bytes;
    loaded.choose_threads();
    report = machine.run(bodies);
    impl.program_stack_bytes = 0;
  }
  loaded.finish(impl);
  return report;
}

}  // namespace

Report run_program(Machine& machine, const ProgramRun& run, OutputSink& output) {
  return run_loaded(machine, run, output, nullptr);
}

Report run_program(Machine& machine, const ProgramRun& run, OutputSink& output, KeptPrograms& kept) {
  return run_loaded(machine, run, output, &kept);
}

bool lend_thread_locals(const void* begin, std::size_t bytes) noexcept {
  return loader::lend_executable_tls(begin, bytes);
}

bool programs_remain(Machine& machine) { return MachineAccess::impl(machine).programs_remain; }

void stop_machine(Machine& machine, int status, const std::string& text) {
  // acquire: the domain's making. Before that there is nothing to stop yet.
  Domain* domain = MachineAccess::impl(machine).stoppable.load(std::memory_order_acquire);
  if (domain != nullptr) domain->fail(status, text);
}

bool signal_this_process(int signal) {
  return os::expects_signal(::getpid(), signal) && ::kill(::getpid(), signal) == 0;
}

std::optional<bool> pass_signal(Machine& machine, int signal, pid_t sender) {
  if (MachineAccess::impl(machine).adopts) return signal_this_process(signal);
  // acquire: as above
  const Domain* domain = MachineAccess::impl(machine).stoppable.load(std::memory_order_acquire);
  if (domain == nullptr) return false;
  // A program that ends has no handlers any more for a moment, in which its cell lives.
  constexpr int moments = 20;
  for (int moment = 0; moment < moments; ++moment) {
    // relaxed: an end at this moment may come before or behind
    const std::uint32_t live = domain->live_cells.load(std::memory_order_relaxed);
    if (live == 0) return std::nullopt;
    if (loader::libc::pass_to_programs(signal, live, sender)) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

std::string describe_waits(Machine& machine) {
  // acquire: as above
  const Domain* domain = MachineAccess::impl(machine).stoppable.load(std::memory_order_acquire);
  return domain != nullptr ? describe_waits(*domain) : std::string();
}

std::string why_not_loaded(const std::string& file) {
  try {
    return loader::why_for_processes(*loader::ElfFile::open(file));
  } catch (const loader::ForProcessesOnly& only) {
    return only.cause();
  } catch (const Error&) {  // whoever loads it says so
  }
  return {};
}

std::string why_no_process(const std::string& file) { return loader::why_no_process(file); }
bool calls_mpi(const std::string& file) { return loader::calls_mpi(file); }
bool needs_mpi(const std::string& file) { return loader::needs_mpi(file); }
bool starts_others(const std::string& file) { return loader::starts_others(file); }
bool needs_process(const std::string& file) { return loader::needs_process(file); }
bool finds_our_mpi(const std::string& file) { return loader::finds_our_mpi(file); }

namespace api {

StartedProgram started_program(const char* call) {
  const TaskControl& self = self_or_throw(call);
  Domain& domain = self.cell->processor->domain();
  const Machine::Impl& machine = Machine::Impl::of(domain);
  const LoadedRun* const loaded = machine.loaded.get();
  StartedProgram started{.cells = domain.cell_count};
  if (machine.process != nullptr && !machine.process->first_cells().empty()) {
    const std::vector<std::uint32_t>& firsts = machine.process->first_cells();
    const auto next = std::ranges::upper_bound(firsts, self.cell->id);
    started.number = static_cast<std::uint32_t>(next - firsts.begin() - 1);
    started.cells = (next != firsts.end() ? *next : domain.cell_count) - firsts[started.number];
    return started;
  }
  if (loaded == nullptr) return started;
  const std::size_t number = loaded->program_of(self.cell->id);
  const bool is_last = number == loaded->run.others.size();
  started.number = static_cast<std::uint32_t>(number);
  started.cells =
      (is_last ? domain.cell_count : loaded->numbered(number + 1).first_cell) - loaded->numbered(number).first_cell;
  return started;
}

void start_program(const char* call, const std::string& file, TaskId task, std::vector<std::string> arguments) {
  TaskControl* self = running_task();
  if (self == nullptr || !on_host(call)) fail(Errc::bad_argument, call, "only the host program can start programs");
  Machine::Impl& impl = Machine::Impl::of(self->cell->processor->domain());
  if (impl.loaded == nullptr)
    fail(Errc::failed, call,
         fmt::format("'{}' cannot be loaded by a program that is linked with the library; run it with aprun", file));
  std::shared_ptr<const loader::Program> program;
  std::function<void()> body;
  try {
    const bool is_here = impl.process == nullptr || ::access(file.c_str(), R_OK) == 0;
    program = impl.loaded->load(is_here ? file : impl.process->program_file(file));
    body = impl.loaded->cell_body(program, loader::Entry::choose(*program, loader::Entry::Role::cell), arguments);
  } catch (const Error& error) {
    fail(error.code(), call, error.what());
  }
  check_start(call, task);
  impl.program_stack_bytes = impl.options.program_stack_bytes;
  impl.start_cells(*self, std::move(body), task, file, arguments);
  impl.program_stack_bytes = 0;
}

bool launcher_has(const std::string& name) {
  const TaskControl* self = running_task();
  if (self == nullptr) return false;
  const Machine::Impl& impl = Machine::Impl::of(self->cell->processor->domain());
  if (impl.process == nullptr) return false;
  try {
    return !impl.process->program_file(name).empty();
  } catch (const Error&) {  // it is not there either
    return false;
  }
}

bool offers_cell_program(const char* call, const std::string& file) {
  TaskControl* self = running_task();
  if (self == nullptr || !on_host(call)) fail(Errc::bad_argument, call, "only the host program can start programs");
  LoadedRun* loaded = Machine::Impl::of(self->cell->processor->domain()).loaded.get();
  if (loaded == nullptr) return false;
  try {
    return bool(loaded->load(file)->find("cell_main"));
  } catch (const Error& error) {
    fail(error.code(), call, error.what());
  }
}

std::string host_file() {
  const TaskControl* self = running_task();
  if (self == nullptr) return {};
  const Machine::Impl& impl = Machine::Impl::of(self->cell->processor->domain());
  return impl.loaded != nullptr ? impl.loaded->run.file : std::string();
}

}  // namespace api

// ---------------------------------------------------------------- where a program begins, and what its run would be

namespace {

/// LD_PRELOAD of the program's environment: names, separated by spaces or colons.
std::vector<std::string> preloaded(const ProgramRun& run) {
  const auto own = std::ranges::find(run.variables, "LD_PRELOAD", &std::pair<std::string, std::string>::first);
  const char* const of_process = std::getenv("LD_PRELOAD");
  const std::string text = own != run.variables.end() ? own->second : of_process != nullptr ? of_process : "";
  std::vector<std::string> names;
  for (std::size_t at = 0; (at = text.find_first_not_of(" :", at)) != text.npos;) {
    const std::size_t end = std::min(text.find_first_of(" :", at), text.size());
    names.push_back(text.substr(at, end - at));
    at = end;
  }
  return names;
}

}  // namespace

loader::LoadOptions load_options(const Options& options, const ProgramRun& run) {
  loader::LoadOptions load;
  load.preload = preloaded(run);
  load.sharing = {options.private_libraries, options.shared_libraries};
  load.account_heap = options.account_heap;
  if (options.low_memory != "auto") load.low_memory = options.low_memory == "on";
  if (options.heap != "auto") load.heap = options.heap == "slot" ? loader::HeapPlace::slot : loader::HeapPlace::libc;
  return load;
}

// A thread that waits for another thread of its program keeps other cells from running.
std::uint32_t threads_for(bool has_threads, const Options& options) {
  return has_threads && options.threads == Options::threads_auto ? Options::threads_per_cell : options.threads;
}

std::optional<std::size_t> entry_arguments(std::string_view signature) {
  if (signature.find('(') == signature.npos) return std::nullopt;
  return calls::texts_of(calls::read_signature(signature));
}

ProgramStart choose_start(const loader::Program& program, const ProgramRun& run) {
  const bool is_host = run.entry.empty() && loader::Entry::has_host(program);
  if (is_host && (run.first_cell != 0 || !run.others.empty())) {
    throw Error(Errc::bad_option, fmt::format("{}: a host program starts the programs of all cells itself: start it "
                                              "alone",
                                              program.path()));
  }
  const auto role = is_host ? loader::Entry::Role::host : loader::Entry::Role::cell;
  return {is_host, loader::Entry::choose(program, role, run.entry, run.entry_arguments)};
}

namespace {

constexpr std::uint64_t whole_pages(std::uint64_t first, std::uint64_t end) {
  constexpr std::uint64_t mask = loader::page_bytes - 1;
  return ((end + mask) & ~mask) - (first & ~mask);
}

std::vector<ProgramSummary::Carrier> plan_carriers(const Options& options, ProgramThreads threads) {
  const Placement placement = plan_placement(options, threads);
  const std::uint32_t cells = options.cells.count();
  std::vector<ProgramSummary::Carrier> carriers;
  for (std::uint32_t p = 0; p < placement.processors; ++p) {
    const int core = p < placement.core_of_processor.size() ? static_cast<int>(placement.core_of_processor[p]) : -1;
    carriers.push_back({.first_cell = first_cell_of_processor(p, cells, placement.processors),
                        .last_cell = first_cell_of_processor(p + 1, cells, placement.processors) - 1,
                        .core = core});
  }
  return carriers;
}

}  // namespace

ProgramSummary summarize_program(const Options& options, const ProgramRun& run) {
  const auto program = loader::Program::load(run.file, load_options(options, run));
  const ProgramStart start = choose_start(*program, run);

  ProgramSummary summary;
  summary.path = program->path();
  summary.build_id = program->images().front().file->build_id();
  summary.is_host = start.is_host;
  summary.entry = start.entry.text();
  for (std::size_t i = 0; i < program->images().size(); ++i) {
    const loader::ElfFile& file = *program->images()[i].file;
    if (i > 0) summary.libraries.push_back({file.path(), true});
    for (const loader::Segment& segment : file.segments()) {
      const std::uint64_t bytes = whole_pages(segment.address, segment.address + segment.memory_bytes);
      ((segment.protection & PROT_WRITE) != 0 ? summary.private_bytes : summary.shared_bytes) += bytes;
    }
  }
  for (const loader::Library& library : program->shared_libraries()) summary.libraries.push_back({library.path, false});
  Options planned = options;
  planned.threads = threads_for(program->has_threads(run.has_openmp_threads), options);
  const bool makes_threads = program->makes_threads(run.has_openmp_threads);
  summary.carriers = plan_carriers(planned, makes_threads ? ProgramThreads::some : ProgramThreads::none);
  return summary;
}

}  // namespace aplib
