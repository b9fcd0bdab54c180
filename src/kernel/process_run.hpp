// SPDX-License-Identifier: MIT
// ProcessRun: what a machine has besides while it runs as one process of several: its network, its progress thread,
// and its dealings with the overseer.
//
// The life of a run: set_up (the domain learns which cells are ours), attach (the network's processor joins the
// others), begin (frames may come), open (notes are acted upon; earlier ones have waited), end.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "kernel/machine_impl.hpp"
#include "kernel/module_network.hpp"
#include "kernel/overseer.hpp"
#include "kernel/process.hpp"

namespace aplib {

class ProcessRun {
 public:
  /// `body_of`: makes what a StartNote asks for, for the cells here; may load a file.
  ProcessRun(Machine::Impl& machine, const Process& process,
             std::function<std::function<void()>(const StartNote&)> body_of);
  ~ProcessRun();

  /// This process carries cells, or will.
  [[nodiscard]] bool attached() const noexcept { return network_ != nullptr; }
  [[nodiscard]] std::uint32_t self() const noexcept { return process_.self; }
  [[nodiscard]] const std::vector<std::uint32_t>& first_cells() const noexcept { return process_.first_cells; }

  // The stages. The thread that runs the machine, or the host program's.
  /// `start`: the host program's first, where we wait for it: it says who carries what.
  void set_up(Domain& domain, const StartNote* start = nullptr);
  void attach(Domain& domain);
  /// `starts`: that have been relayed and are dealt with by this run.
  void begin(std::uint64_t starts = 0);
  /// Asks whether all are ready. False: called off.
  bool ready() { return process_.supervisor->ready(); }
  /// Notes are acted upon from here on.
  void open();
  /// A process without host program whose machine has one: waits for the first program. Nothing: the run has ended.
  std::optional<StartNote> wait_for_start();
  /// A process without cells: waits for the end of the run.
  void wait_for_end();
  void end();

  /// A note of the overseer. One thread at a time.
  void receive(std::span<const std::byte> note);

  // For the kernel's calls. Any task.
  /// The host program has chosen another grid: who carries what then, in the old proportions.
  void share_again(Domain& domain, Grid grid);
  void announce_start(const CellProgram& program, const std::string& file, const std::vector<std::string>& arguments);
  /// See Supervisor.
  std::string program_file(const std::string& file) { return process_.supervisor->program_file(file); }
  void announce_preset(std::uint32_t word);
  void status_changed() { network_->status_changed(); }
  [[nodiscard]] std::uint32_t other_status_words() const noexcept {
    return network_ != nullptr ? network_->other_status_words() : 0;
  }
  /// No cell here is live (also when there never was one).
  void tell_all_ended() { network_->all_ended(); }
  void tell_none_started();
  /// Status and text of the failure elsewhere that stopped this process, if that is what happened.
  [[nodiscard]] std::optional<int> stopped_status() const noexcept { return stopped_status_; }

 private:
  void handle(std::span<const std::byte> note);
  void start(const StartNote& note);
  void stop(int status);
  /// A note that cannot be acted upon ends the run.
  void nonsense(const char* what);
  void answer_probe(std::uint64_t round);
  /// More threads of the machine run on this host than it has cores.
  [[nodiscard]] bool crowds_cores() const;
  class Inspection;
  void describe_here(std::uint64_t question);

  Machine::Impl& machine_;
  const Process& process_;
  std::function<std::function<void()>(const StartNote&)> body_of_;
  std::shared_ptr<ModuleNetwork> network_;
  std::unique_ptr<ProgressThread> progress_thread_;

  std::mutex mutex_;  // of all below; held while a note is dealt with
  std::condition_variable changed_;
  enum class Stage {
    closed,
    waits_for_start,
    open,
    ended
  } stage_ = Stage::closed;                   // closed: notes that need cells are held
  std::vector<std::vector<std::byte>> held_;  // notes for later
  std::optional<StartNote> first_start_;
  bool over_ = false;
  std::optional<int> stopped_status_;
  std::vector<std::unique_ptr<Inspection>> inspections_;  // that a processor may still look for
};

/// Gives the status word to every cell here that has not posted one.
void preset_status_words(Domain& domain, std::uint32_t word);

}  // namespace aplib
