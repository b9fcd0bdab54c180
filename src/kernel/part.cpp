// SPDX-License-Identifier: MIT
#include "kernel/part.hpp"

#include <utility>

#include "aplib/error.hpp"

#include "kernel/loaded_run.hpp"
#include "kernel/part_run.hpp"
#include "kernel/program_start.hpp"

namespace aplib {

namespace {

/// The machine is this part for as long as it lives; notes find it.
class PartScope {
 public:
  PartScope(Machine::Impl& machine, PartRun& run) : machine_(machine) {
    const std::lock_guard lock(machine.notes_mutex);
    machine.part = &run;
    for (const auto& note : std::exchange(machine.early_notes, {})) run.receive(note);
  }
  ~PartScope() {
    const std::lock_guard lock(machine_.notes_mutex);
    machine_.part = nullptr;
  }
  PartScope(const PartScope&) = delete;
  PartScope& operator=(const PartScope&) = delete;

 private:
  Machine::Impl& machine_;
};

/// A part whose machine has a host program elsewhere.
Report wait_and_run(Machine::Impl& impl, PartRun& run,
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
  impl.options.cells = start->grid;
  return impl.run_cells(Program{body_of(*start), start->task, stack_bytes}, &*start);
}

}  // namespace

Report run_part(Machine& machine, const ProgramRun& run, OutputSink& output, const Part& part) {
  Machine::Impl& impl = MachineAccess::impl(machine);
  impl.loaded = std::make_unique<LoadedRun>(impl, run, output);
  LoadedRun& loaded = *impl.loaded;
  const std::shared_ptr<const loader::Program> program = loaded.load(run.file);
  const ProgramStart start = choose_start(*program, run);
  output.begin(start.is_host && part.self == 0);
  const auto body_of = [&](const StartNote& note) {
    const std::shared_ptr<const loader::Program> file = loaded.load(part.supervisor->program_file(note.file));
    return loaded.cell_body(file, loader::Entry::choose(*file, loader::Entry::Role::cell), note.arguments);
  };
  PartRun part_run(impl, part, body_of);
  Report report;
  {
    const PartScope scope(impl, part_run);
    impl.program_stack_bytes = impl.options.program_stack_bytes;
    if (!start.is_host) {
      report = machine.run(loaded.cell_body(program, start.entry, run.arguments));
    } else if (part.self != 0) {
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

Report run_part(Machine& machine, std::function<void()> cell_program, const Part& part, bool with_host,
                std::function<int()> host_program) {
  Machine::Impl& impl = MachineAccess::impl(machine);
  const auto body_of = [&](const StartNote&) { return cell_program; };
  PartRun run(impl, part, body_of);
  const PartScope scope(impl, run);
  if (!with_host) return machine.run(cell_program);
  return part.self == 0 ? machine.run_host(std::move(host_program)) : wait_and_run(impl, run, body_of, 0);
}

void receive_note(Machine& machine, std::span<const std::byte> note) {
  Machine::Impl& impl = MachineAccess::impl(machine);
  const std::lock_guard lock(impl.notes_mutex);
  if (impl.part != nullptr) {
    impl.part->receive(note);
  } else {
    impl.early_notes.emplace_back(note.begin(), note.end());
  }
}

}  // namespace aplib
