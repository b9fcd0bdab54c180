// SPDX-License-Identifier: MIT
// Options of a machine. One table has every option (name, default, unit, range, help). The command line, the APLIB_*
// variables, --help and docs/options.md all come from it.
//
//   aplib::Options options = aplib::Options::from_environment();   // APLIB_CELLS=2x2 and so on
//   options.set("threads", "2");
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "aplib/export.hpp"

namespace aplib {

/// Shape of the machine: nx * ny cells, numbered with x fastest.
struct Grid {
  std::uint32_t nx = 1;
  std::uint32_t ny = 1;
  [[nodiscard]] constexpr std::uint32_t count() const noexcept { return nx * ny; }
  friend constexpr bool operator==(Grid, Grid) = default;
};

/// Everything that can be chosen when a machine is built. Plain values, free to copy.
struct APLIB_API Options {
  static constexpr std::uint32_t threads_auto = 0;
  static constexpr std::uint32_t threads_per_cell = 0xffff'ffffU;

  Grid cells{};                          ///< "cells": "4x2", or "8" (meaning 8x1).
  std::uint32_t threads = threads_auto;  ///< "threads": a number, "auto" = min(cells, usable cores), or "per-cell".
  std::size_t stack_bytes = 256 * 1024;  ///< "stack-size": reserved per task, committed as touched; "64k", "1m".
  std::optional<std::chrono::nanoseconds>
      poll_time{};                 ///< "poll-time": how long an idle processor polls before it sleeps;
                                   ///< "auto" (nullopt): 50us to 4ms, as it learns; 20us under a CPU quota.
  bool bind = true;                ///< "bind": bind processors to cores when there are enough and no CPU quota.
  bool balance = true;             ///< "balance": idle processors take runnable cells from busy ones.
  bool deadlock_report = true;     ///< "deadlock-report": end with a report when every task waits.
  std::string log_level = "warn";  ///< "log-level": trace, debug, info, warn, error, off.

  // These concern only loaded programs (run by aprun, or made by apcc and executed directly).
  std::size_t program_stack_bytes =
      8 * 1024 * 1024;  ///< "program-stack": as stack_bytes, for tasks that run a program.
  /// "private-libraries", "shared-libraries": file names, `*` and `?` allowed; "" or "liba.so,libb.so*". Private wins.
  std::vector<std::string> private_libraries{};
  std::vector<std::string> shared_libraries{};
  std::string heap = "auto";           ///< "heap": where malloc takes memory from: auto, slot or libc.
  std::string low_memory = "auto";     ///< "low-memory": globals, heap and bodies below 2 GiB: auto, on or off.
  bool account_heap = false;           ///< "account-heap": count what each cell's program allocates.
  bool tag_output = false;             ///< "tag-output": each line of output starts with its cell, "[3] ".
  std::uint32_t debugger_images = 64;  ///< "debugger-images": how many loaded files a debugger is shown.

  // These concern only machines of several processes (aprun -f).
  static constexpr std::uint32_t streams_auto = 0;
  std::string module =
      "auto";  ///< "module": what carries frames between processes: auto, or names such as "tcp" or "rdma,tcp".
  std::string module_path{};  ///< "module-path": "FOLDER:FOLDER": searched for modules before APlib's own folder.
  std::string provider{};     ///< "provider": libfabric's, for module rdma: "verbs"; "": the best one.
  std::string ports{};        ///< "ports": "5100-5120" or "5100": where processes listen; "": the system chooses.
  std::string secure =
      "auth";  ///< "secure": auth (connections prove the job's key), tls (they are also encrypted), off.
  std::uint32_t streams = streams_auto;  ///< "streams": connections per pair for large messages; "auto": by round trip.
  std::chrono::nanoseconds resume_time =
      std::chrono::seconds(30);  ///< "resume-time": a long link that was cut may come back for so long.
  std::size_t send_limit_bytes = std::size_t{256} << 20;  ///< "send-limit": bytes that may wait for one other process.
  std::chrono::nanoseconds send_wait =
      std::chrono::seconds(60);  ///< "send-wait": how long a send at a limit waits while nothing is taken.
  std::size_t unread_limit_bytes =
      std::size_t{1} << 30;  ///< "unread-limit": bytes that may wait in a process for a receive; then sends wait.
  std::chrono::nanoseconds peer_timeout =
      std::chrono::seconds(10);  ///< "peer-timeout": a process that is silent for so long counts as dead.

  /// Sets one option by name from text. Call from: any thread. Throws Error(bad_option), which names the option, the
  /// text, the allowed range, and for an unknown name the nearest known one.
  void set(std::string_view name, std::string_view value);

  /// The current value of one option as text that set() accepts. Throws like set().
  [[nodiscard]] std::string get(std::string_view name) const;

  /// Checks fields that were assigned without set(). Throws Error(bad_option), with set()'s wording, when one is out of
  /// range.
  void check() const;

  /// Sets the options that the environment names by APLIB_<NAME> variables (upper case, '-' as '_'). An empty variable
  /// counts as absent. Throws like set(), naming the variable, and then changes nothing. A variable that starts with
  /// APLIB_ and is no option is an error too; the text has the nearest known name. REQUIRES: no other thread changes
  /// the environment meanwhile.
  void set_from_environment();

  /// Defaults, overridden by the environment. Throws like set_from_environment().
  static Options from_environment();
};

/// One row of the table.
struct OptionInfo {
  std::string_view name;                 ///< As on the command line, without "--".
  std::string_view variable;             ///< In the environment: "APLIB_CELLS".
  std::string_view values;               ///< Form of a value, for --help: "NXxNY", "on|off".
  std::string_view default_value;        ///< As text.
  std::string_view unit;                 ///< "cells", "threads", "bytes", "time", or empty.
  std::string_view range;                ///< For people: "1x1 .. 16384 cells in all"; empty where `values` lists all.
  std::string_view help;                 ///< A sentence.
  std::string_view section = "machine";  ///< Of a cluster file: "machine" or "comm".
};

/// The whole table, in the order of --help. Call from: any thread.
[[nodiscard]] APLIB_API std::span<const OptionInfo> option_table() noexcept;

}  // namespace aplib
