// SPDX-License-Identifier: MIT
#include "kernel/process_run.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "aplib/error.hpp"
#include "base/cpus.hpp"
#include "base/os/thread.hpp"
#include "base/program_context.hpp"
#include "kernel/loaded_run.hpp"
#include "kernel/process.hpp"
#include "kernel/signals.hpp"
#include "memory/slot_heap.hpp"

namespace aplib {

namespace {

constexpr auto inspection_time = std::chrono::milliseconds(500);  // who computes for longer than this is not looked at

void send_description(Supervisor& supervisor, std::uint64_t question, const std::string& text) {
  ByteWriter note = begin_note(NoteKind::description);
  note.number(question);
  note.text(text);
  supervisor.send_note(note.bytes());
}

}  // namespace

/// A look at the tasks of every processor, by the processors themselves: only they may read what their tasks have. It
/// has a thread that waits for them, because notes must not: the machine may have to stop meanwhile.
class ProcessRun::Inspection {
 public:
  Inspection(Supervisor& supervisor, std::uint64_t question, std::size_t processors)
      : supervisor_(supervisor), question_(question), texts_(processors) {}
  ~Inspection() {
    give_up();
    if (thread_.joinable()) thread_.join();
  }
  Inspection(const Inspection&) = delete;
  Inspection& operator=(const Inspection&) = delete;

  /// Answers when all processors have, or after a time. Throws Error.
  void begin() {
    thread_ = os::quiet_thread("aplib-inspect", [this] { answer(); });
  }
  /// Call from: the processor.
  void look(Processor& processor) noexcept {
    std::string text;
    try {
      text = describe_tasks(processor.domain(), processor);
    } catch (...) {  // there is no memory
      text.clear();
    }
    const std::lock_guard lock(mutex_);
    texts_[processor.index()] = std::move(text);
    ++count_;
    changed_.notify_one();
  }
  /// No processor looks for it any more.
  [[nodiscard]] bool is_over() {
    const std::lock_guard lock(mutex_);
    return count_ == texts_.size();
  }
  /// Answers at once.
  void give_up() {
    const std::lock_guard lock(mutex_);
    gives_up_ = true;
    changed_.notify_one();
  }

 private:
  void answer() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, inspection_time, [&] { return count_ == texts_.size() || gives_up_; });
    std::string text;
    for (const std::string& each : texts_)
      text += !each.empty() ? each : "\n  a processor that computes: its cells cannot be looked at now";
    lock.unlock();
    send_description(supervisor_, question_, text);
  }

  Supervisor& supervisor_;
  const std::uint64_t question_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> texts_;  // by processor
  std::size_t count_ = 0;
  bool gives_up_ = false;
  std::thread thread_;
};

ProcessRun::ProcessRun(Machine::Impl& machine, const Process& process,
                       std::function<std::function<void()>(const StartNote&)> body_of)
    : machine_(machine), process_(process), body_of_(std::move(body_of)) {}

ProcessRun::~ProcessRun() = default;

void ProcessRun::set_up(Domain& domain, const StartNote* start) {
  domain.process = process_.self;
  domain.node = process_.node;
  domain.cell_map = start != nullptr ? start->cells : process_.cells;
  domain.report = [this, &domain](const std::string& text) {
    ByteWriter note = begin_note(NoteKind::failed);
    note.number(static_cast<std::uint32_t>(domain.failure.status));
    note.text(text);
    process_.supervisor->send_note(note.bytes());
    if (machine_.adopts) machine_.end_adopted(domain.failure.status);
  };
}

void ProcessRun::attach(Domain& domain) {
  domain.processors.push_back(std::make_unique<Processor>(domain, static_cast<std::uint32_t>(domain.processors.size()),
                                                          ProcessorRole::network));
  domain.network_index = static_cast<std::uint32_t>(domain.processors.size()) - 1;
  network_ = std::make_shared<ModuleNetwork>(domain, process_);
  machine_.receiver = network_;
  domain.network = network_.get();
  domain.os.raise_alarm = [](void* network) { static_cast<ModuleNetwork*>(network)->wake(); };
  domain.os.alarm_context = network_.get();
}

void ProcessRun::begin(std::uint64_t starts) {
  network_->starts.store(starts, std::memory_order_relaxed);  // relaxed: before notes are dealt with
  // A loaded host program may start its cells here. Threads made here belong to the machine, not to that program.
  const WithoutProgramContext without;
  network_->begin();
  if (crowds_cores()) machine_.domain->owns_cores = false;  // it is ranks that compute beside those that wait
  if (machine_.domain->live_cells.load(std::memory_order_relaxed) == 0) network_->all_ended();  // relaxed: the same
  progress_thread_ = std::make_unique<ProgressThread>(*machine_.domain, *network_, *process_.supervisor);
  network_->status_changed();  // the host program may have given words before
}

// Each process of this host has as many threads as this one, as far as it is known. Each may be bound to cores of its
// own, so the affinity of this one says nothing.
bool ProcessRun::crowds_cores() const {
  const auto online = static_cast<std::size_t>(std::max(::sysconf(_SC_NPROCESSORS_ONLN), 1L));
  const Domain& domain = *machine_.domain;
  std::uint32_t processes = 1;
  for (std::uint32_t process = 0; process < domain.cell_map.processes(); ++process)
    processes += process != domain.process && network_->module().shares_host(process) ? 1 : 0;
  return std::uint64_t{processes} * domain.carriers > usable_cpu_count(online, cpu_quota());
}

void ProcessRun::open() {
  const std::lock_guard lock(mutex_);
  stage_ = Stage::open;
  if (stopped_status_) stop(*stopped_status_);
  const std::vector<std::vector<std::byte>> held = std::exchange(held_, {});
  for (const auto& note : held) handle(note);
}

std::optional<StartNote> ProcessRun::wait_for_start() {
  std::unique_lock lock(mutex_);
  stage_ = Stage::waits_for_start;
  const std::vector<std::vector<std::byte>> held = std::exchange(held_, {});
  for (const auto& note : held) handle(note);
  changed_.wait(lock, [this] { return first_start_ || over_ || stopped_status_; });
  stage_ = Stage::closed;
  if (over_ || stopped_status_) return std::nullopt;
  return first_start_;
}

void ProcessRun::wait_for_end() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return over_ || stopped_status_; });
}

void ProcessRun::end() {
  {
    const std::lock_guard lock(mutex_);
    stage_ = Stage::ended;
  }
  for (const auto& each : inspections_) each->give_up();  // nobody adds any more
  progress_thread_.reset();
  if (network_ != nullptr) network_->end();
}

void ProcessRun::receive(std::span<const std::byte> note) {
  const std::lock_guard lock(mutex_);
  handle(note);
}

void ProcessRun::handle(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  const auto kind = static_cast<NoteKind>(in.number<std::uint8_t>());
  if (stage_ == Stage::ended) return;
  const bool urgent = kind == NoteKind::stop || kind == NoteKind::over || kind == NoteKind::probe ||
                      (kind == NoteKind::ask && machine_.domain == nullptr);
  const bool first = kind == NoteKind::start && stage_ == Stage::waits_for_start && !first_start_;
  if (stage_ != Stage::open && !urgent && !first) {
    held_.emplace_back(bytes.begin(), bytes.end());
    return;
  }
  switch (kind) {
    case NoteKind::stop:
      stop(static_cast<int>(in.number<std::uint32_t>()));
      return;
    case NoteKind::over:
      over_ = true;
      if (stage_ == Stage::open) {
        machine_.domain->over.store(true, std::memory_order_release);  // release: to Idle::await_ready()
        machine_.domain->wake_all();
      }
      changed_.notify_all();
      return;
    case NoteKind::start: {
      std::optional<StartNote> note = StartNote::read(in, process_.processes());
      if (!note) return nonsense("the start of a program");
      if (first) {
        first_start_ = std::move(note);
        changed_.notify_all();
      } else {
        start(*note);
      }
      return;
    }
    case NoteKind::cell_ended: {
      const auto cell = in.number<std::uint32_t>();
      CellEnd end;
      end.tasks = in.number<std::uint64_t>();
      for (std::uint64_t& episode : end.episodes) episode = in.number<std::uint64_t>();
      end.status = static_cast<std::int32_t>(in.number<std::uint32_t>());
      if (!in.ended() || cell >= machine_.domain->cells.size()) return nonsense("the end of a cell");
      network_->remote_cell_ended(cell, end);
      return;
    }
    case NoteKind::status: {
      const auto process = in.number<std::uint32_t>();
      const auto status = in.number<std::uint64_t>();
      if (!in.ended() || process >= process_.processes()) return nonsense("status words");
      network_->other_status(process, status);
      return;
    }
    case NoteKind::preset:
      preset_status_words(*machine_.domain, in.number<std::uint32_t>());
      network_->status_changed();
      return;
    case NoteKind::probe:
      answer_probe(in.number<std::uint64_t>());
      return;
    case NoteKind::ask:
      describe_here(in.number<std::uint64_t>());
      return;
    default:
      return;  // a younger overseer's; the handshake has seen to it that there is none
  }
}

void ProcessRun::nonsense(const char* what) {
  const std::string text =
      fmt::format("a note of the launcher makes no sense: {}; are all installations of APlib the same?", what);
  if (machine_.domain != nullptr) {
    machine_.domain->fail(static_cast<int>(ExitStatus::peer_lost), text);
  } else {
    ByteWriter note = begin_note(NoteKind::failed);
    note.number(static_cast<std::uint32_t>(ExitStatus::peer_lost));
    note.text(text);
    process_.supervisor->send_note(note.bytes());
    stop(static_cast<int>(ExitStatus::peer_lost));
  }
}

void ProcessRun::stop(int status) {
  if (machine_.adopts) return;  // nobody could unwind the program: the launcher ends the process
  stopped_status_ = status;
  // acquire: the domain's making. While its processors are made there is nothing to stop; open() looks again.
  if (Domain* domain = machine_.stoppable.load(std::memory_order_acquire)) {
    if (status == 0) domain->stops_well.store(true, std::memory_order_relaxed);  // relaxed: stop() publishes it
    domain->stop();
    if (stage_ == Stage::open && network_ != nullptr) network_->end();
    domain->wake_all();
  }
  changed_.notify_all();
}

void ProcessRun::start(const StartNote& note) {
  Domain& domain = *machine_.domain;
  try {
    auto program =
        std::make_unique<CellProgram>(CellProgram{body_of_(note), note.task, machine_.options.program_stack_bytes});
    if (note.joins) machine_.joined.add(note.task);
    const std::lock_guard lock(network_->starts_mutex);
    network_->starts.fetch_add(1, std::memory_order_relaxed);         // relaxed: under the mutex
    domain.programs_started.fetch_add(1, std::memory_order_relaxed);  // relaxed: carriers read it behind the start
    domain.live_cells.fetch_add(domain.local_count(), std::memory_order_acq_rel);  // acq_rel: against the last to end
    network_->start_program(domain.keep(std::move(program)));
  } catch (const Error& error) {
    domain.fail(
        static_cast<int>(ExitStatus::program_failed),
        fmt::format("cannot start '{}' on {}: {}", note.file, domain.cell_map.text(process_.self), error.what()));
    return;
  }
  if (domain.local_count() == 0) network_->all_ended();
}

void ProcessRun::answer_probe(std::uint64_t round) {
  ByteWriter out = begin_note(NoteKind::still);
  out.number(round);
  const bool quiet =
      network_ != nullptr && stage_ == Stage::open &&
      network_->is_quiet(machine_.domain->sleepers.load(std::memory_order_acquire));  // acquire: as in all_asleep()
  out.number(static_cast<std::uint8_t>(quiet ? 1 : 0));
  (network_ != nullptr ? network_->counts() : QuietNote{}).write(out);
  process_.supervisor->send_note(out.bytes());
}

void ProcessRun::describe_here(std::uint64_t question) {
  if (stage_ != Stage::open || network_ == nullptr)
    return send_description(*process_.supervisor, question, "\n  no program runs on its cells yet");
  std::erase_if(inspections_, [](const auto& each) { return each->is_over(); });
  // We own it, not the processors: a run that ends does not make its last calls.
  Inspection& inspection = *inspections_.emplace_back(
      std::make_unique<Inspection>(*process_.supervisor, question, machine_.domain->thread_count()));
  try {
    inspection.begin();
  } catch (const Error& error) {
    inspections_.pop_back();
    return send_description(*process_.supervisor, question, fmt::format("\n  {}", error.what()));
  }
  // Wakes those that sleep, too.
  network_->call_on_each([](Processor& processor, void* state) { static_cast<Inspection*>(state)->look(processor); },
                         &inspection);
}

void ProcessRun::share_again(Domain& domain, Grid grid) {
  if (grid.count() == domain.cell_map.cells() || process_.cells.cells() == 0) return;
  domain.cell_map = process_.cells.shared_again(grid.count());
}

void ProcessRun::announce_start(const CellProgram& program, const std::string& file,
                                const std::vector<std::string>& arguments) {
  const Domain& domain = *machine_.domain;
  StartNote start;
  start.grid = domain.grid;
  start.cells = domain.cell_map;
  start.file = file;
  start.task = program.task;
  start.arguments = arguments;
  ByteWriter note = begin_note(NoteKind::start);
  start.write(note);
  const std::lock_guard lock(network_->starts_mutex);
  network_->starts.fetch_add(1, std::memory_order_relaxed);  // relaxed: under the mutex
  process_.supervisor->send_note(note.bytes());
}

void ProcessRun::announce_preset(std::uint32_t word) {
  ByteWriter note = begin_note(NoteKind::preset);
  note.number(word);
  process_.supervisor->send_note(note.bytes());
  if (network_ != nullptr) network_->status_changed();
}

void ProcessRun::tell_none_started() {
  ByteWriter note = begin_note(NoteKind::all_ended);
  note.number(std::uint64_t{0});
  process_.supervisor->send_note(note.bytes());
}

void preset_status_words(Domain& domain, std::uint32_t value) {
  for (const std::uint32_t c : domain.local_cells()) {
    std::atomic<std::uint64_t>& word = domain.cells[c]->posted_status;
    std::uint64_t seen = word.load(std::memory_order_relaxed);  // relaxed: a word on its own
    while ((seen >> 32) == 0 && !word.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
    }
  }
}

// ---------------------------------------------------------------- a run

namespace {

/// The machine is this process while this object lives, and notes reach it.
class ProcessScope {
 public:
  ProcessScope(Machine::Impl& machine, ProcessRun& run) : machine_(machine) {
    const std::lock_guard lock(machine.notes_mutex);
    machine.process = &run;
    for (const auto& note : std::exchange(machine.early_notes, {})) run.receive(note);
  }
  ~ProcessScope() {
    const std::lock_guard lock(machine_.notes_mutex);
    machine_.process = nullptr;
  }
  ProcessScope(const ProcessScope&) = delete;
  ProcessScope& operator=(const ProcessScope&) = delete;

 private:
  Machine::Impl& machine_;
};

/// A process whose machine has a host program elsewhere.
Report wait_and_run(Machine::Impl& impl, ProcessRun& run,
                    const std::function<std::function<void()>(const StartNote&)>& body_of, std::size_t stack_bytes) {
  Report report;
  report.exit_status = static_cast<int>(ExitStatus::program_failed);
  if (!run.ready()) return report;
  run.tell_none_started();
  const std::optional<StartNote> start = run.wait_for_start();
  if (!start) {
    report.exit_status = run.stopped_status().value_or(0);
    return report;
  }
  if (start->grid.count() != 0) impl.options.cells = start->grid;
  return impl.run_cells(CellProgram{body_of(*start), start->task, stack_bytes}, &*start);
}

}  // namespace

Report run_process(Machine& machine, const ProgramRun& run, OutputSink& output, const Process& process) {
  Machine::Impl& impl = MachineAccess::impl(machine);
  impl.loaded = std::make_unique<LoadedRun>(impl, run, output);
  LoadedRun& loaded = *impl.loaded;
  const std::shared_ptr<const loader::Program> program = loaded.load(run.file);
  const ProgramStart start = choose_start(*program, run);
  const std::function<void()> bodies = start.is_host ? nullptr : loaded.cell_bodies(program, start.entry);
  output.begin(start.is_host && process.self == 0);
  const auto body_of = [&](const StartNote& note) {
    const std::shared_ptr<const loader::Program> file = loaded.load(process.supervisor->program_file(note.file));
    return loaded.cell_body(file, loader::Entry::choose(*file, loader::Entry::Role::cell), note.arguments);
  };
  ProcessRun part_run(impl, process, body_of);
  Report report;
  {
    const ProcessScope scope(impl, part_run);
    impl.program_stack_bytes = impl.options.program_stack_bytes;
    if (!start.is_host) {
      loaded.choose_threads();
      report = machine.run(bodies);
    } else if (process.self != 0) {
      report = wait_and_run(impl, part_run, body_of, impl.options.program_stack_bytes);
    } else {
      impl.program_stack_bytes = 0;
      report = machine.run_host(loaded.host_body(program, start.entry));
    }
    impl.program_stack_bytes = 0;
  }
  loaded.finish(impl);
  return report;
}

Report run_process(Machine& machine, std::function<void()> cell_program, const Process& process, bool with_host,
                   std::function<int()> host_program) {
  Machine::Impl& impl = MachineAccess::impl(machine);
  const auto body_of = [&](const StartNote&) { return cell_program; };
  ProcessRun run(impl, process, body_of);
  const ProcessScope scope(impl, run);
  if (!with_host) return machine.run(cell_program);
  return process.self == 0 ? machine.run_host(std::move(host_program)) : wait_and_run(impl, run, body_of, 0);
}

void receive_note(Machine& machine, std::span<const std::byte> note) {
  Machine::Impl& impl = MachineAccess::impl(machine);
  const std::lock_guard lock(impl.notes_mutex);
  if (impl.process != nullptr) {
    impl.process->receive(note);
  } else {
    impl.early_notes.emplace_back(note.begin(), note.end());
  }
}

std::uint32_t heap_layout() noexcept { return SlotHeap::layout(); }

bool reports_fault(std::string_view line) noexcept {
  return line.starts_with("aplib: ") && line.find(end_of_report) != line.npos;
}

}  // namespace aplib
