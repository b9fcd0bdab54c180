// SPDX-License-Identifier: MIT
// A machine of several processes inside one. Each process is a Machine on its own thread. Frames go by the loop module,
// notes by a queue to an overseer.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernel/overseer.hpp"
#include "kernel/process.hpp"
#include "loop/loop_net.hpp"

namespace aplib::testing_support {

/// How a run of several processes ended.
struct ProcessesOutcome {
  std::vector<Report> reports;        ///< By process.
  std::vector<std::string> failures;  ///< The overseer's failures: at most one.
  int status = 0;                     ///< That of the failure, otherwise the first process's that is not 0.
  bool over = false;
  [[nodiscard]] std::string failure() const { return failures.empty() ? std::string() : failures.front(); }
};

class Processes {
 public:
  /// Process p carries cells[p] cells.
  Processes(Grid grid, const std::vector<std::uint32_t>& cells, std::uint32_t threads = 1,
            const comm::loop::LoopFaults& faults = {}, std::uint64_t seed = 1)
      : Processes(grid, CellMap::consecutive(cells), threads, faults, seed) {}
  /// `map` says who carries what.
  Processes(Grid grid, CellMap map, std::uint32_t threads = 1, const comm::loop::LoopFaults& faults = {},
            std::uint64_t seed = 1)
      : net(map.processes(), faults, seed), cells_(std::move(map)) {
    options.cells = grid;
    options.threads = threads;
    options.bind = false;
  }

  ProcessesOutcome run(const std::function<void()>& program) { return run(program, false, {}); }
  ProcessesOutcome run_host(const std::function<void()>& program, const std::function<int()>& host) {
    return run(program, true, host);
  }

  comm::loop::LoopNet net;
  Options options;
  /// Sets other modules than the net's, one for each process. Before run().
  std::vector<std::unique_ptr<comm::Module>> modules;
  /// Called on the overseer's thread when all are ready, before anything runs.
  std::function<void()> on_go;
  /// The answer to a question about tasks. Any thread.
  std::string ask_tasks() {
    std::mutex mutex;
    std::condition_variable come;
    std::string answer;
    bool there = false;
    post([&] {
      overseer_->ask_tasks([&](std::string text) {
        const std::lock_guard lock(mutex);
        answer = std::move(text);
        there = true;
        come.notify_one();
      });
    });
    std::unique_lock lock(mutex);
    come.wait(lock, [&] { return there; });
    return answer;
  }
  /// As if the process had died. Any thread.
  void lose(std::uint32_t process, const std::string& why) {
    post([this, process, why] {
      overseer_->lost(process, why);  // before another process can tell that it has lost its connection
      net.kill(process);
      // A real process would be gone; the threads of this one must end.
      ByteWriter stop = begin_note(NoteKind::stop);
      stop.number(std::uint32_t{0});
      stop.text("");
      receive_note(*machines_[process], stop.bytes());
    });
  }
  /// A note from the launcher to a process. Any thread.
  void note(std::uint32_t process, const ByteWriter& note) {
    post([this, process, bytes = note.bytes()] { receive_note(*machines_[process], bytes); });
  }
  /// The number of notes of this kind that the processes have sent.
  [[nodiscard]] std::uint64_t notes_sent(NoteKind kind) const { return notes_sent_[static_cast<std::size_t>(kind)]; }
  void start_program(std::uint32_t task) {
    post([this, task] { overseer_->start_program("", task, {}); });
  }

 private:
  class Way final : public Supervisor {
   public:
    Way(Processes& processes, std::uint32_t self) : processes_(processes), self_(self) {}
    bool ready() override { return processes_.wait_until_all_ready(); }
    void send_note(std::span<const std::byte> note) override {
      ++processes_.notes_sent_[std::to_integer<std::size_t>(note.front())];
      processes_.post([this, bytes = std::vector<std::byte>(note.begin(), note.end())] {
        processes_.overseer_->receive(self_, bytes);
      });
    }

   private:
    Processes& processes_;
    std::uint32_t self_;
  };

  void post(std::function<void()> action) {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(action));
    changed_.notify_all();
  }

  bool wait_until_all_ready() {
    std::unique_lock lock(mutex_);
    if (++ready_ == cells_.processes()) {
      if (on_go) queue_.emplace_back(on_go);
      changed_.notify_all();
    }
    changed_.wait(lock, [this] { return ready_ == cells_.processes(); });
    return true;
  }

  ProcessesOutcome run(const std::function<void()>& program, bool with_host, const std::function<int()>& host) {
    const auto count = cells_.processes();
    ProcessesOutcome outcome;
    std::vector<std::string> names;
    std::vector<std::unique_ptr<comm::Module>> used_modules = std::move(modules);
    const bool by_net = used_modules.empty();
    std::vector<std::unique_ptr<Way>> ways;
    std::vector<std::unique_ptr<Machine>>& machines = machines_;
    machines.clear();
    std::vector<Process> processes(count);
    for (std::uint32_t p = 0; p < count; ++p) {
      names.push_back("ws" + std::to_string(p));
      if (by_net) used_modules.push_back(net.module(p));
      ways.push_back(std::make_unique<Way>(*this, p));
      machines.push_back(std::make_unique<Machine>(options));
    }
    for (std::uint32_t p = 0; p < count; ++p)
      processes[p] = Process{p, cells_, names, used_modules[p].get(), ways[p].get()};
    overseer_ = std::make_unique<Overseer>(
        names, cells_, options.deadlock_report,
        OverseerActions{
            .send = [&](std::uint32_t process, std::vector<std::byte> note) { receive_note(*machines[process], note); },
            .failed =
                [&](int status, const std::string& text) {
                  outcome.failures.push_back(text);
                  outcome.status = status;
                },
            .over = [&] { outcome.over = true; }});
    bool closing = false;
    std::thread overseer([&] {
      std::unique_lock lock(mutex_);
      while (true) {
        changed_.wait(lock, [&] { return closing || !queue_.empty(); });
        if (queue_.empty()) return;
        const std::function<void()> action = std::move(queue_.front());
        queue_.pop_front();
        lock.unlock();
        action();
        lock.lock();
      }
    });
    outcome.reports.resize(count);
    std::vector<std::thread> threads;
    for (std::uint32_t p = 0; p < count; ++p) {
      threads.emplace_back(
          [&, p] { outcome.reports[p] = run_process(*machines[p], program, processes[p], with_host, host); });
    }
    for (std::thread& thread : threads) thread.join();
    {
      const std::lock_guard lock(mutex_);
      closing = true;
      changed_.notify_all();
    }
    overseer.join();
    for (const Report& report : outcome.reports) {
      if (outcome.status == 0) outcome.status = report.exit_status;
    }
    overseer_.reset();
    ready_ = 0;
    return outcome;
  }

  CellMap cells_;
  std::vector<std::unique_ptr<Machine>> machines_;
  std::unique_ptr<Overseer> overseer_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  std::size_t ready_ = 0;
  std::array<std::atomic<std::uint64_t>, 256> notes_sent_{};
};

}  // namespace aplib::testing_support
