// SPDX-License-Identifier: MIT
// What nodes say on their standard error: which of it the user sees, and when.
#include <fmt/format.h>

#include <optional>
#include <utility>

#include "base/log.hpp"
#include "kernel/process.hpp"
#include "launch/coordinator/coordinator_impl.hpp"
#include "launch/terminal.hpp"

namespace aplib::launch::coordinator {

void Coordinator::Impl::process_said(std::uint32_t process, const std::string& line) {
  KnownNode& node = *nodes[process];
  const auto keep_in = [&node, &line](std::vector<std::string>& lines) {
    if (lines.size() < kept_lines_max) {
      lines.push_back(line);
    } else {
      ++node.lines_hidden;
    }
  };
  if (!node.has_come()) return keep_in(node.early_lines);  // if the start fails, its message has them
  if (reports_fault(line)) {
    node.has_fault = true;
    if (phase == Phase::running && !first_to_fail) first_to_fail = process;
  }
  // Several may lack memory, and tell it both ways.
  if (line == no_memory_text || (first_to_fail && first_to_fail != process)) return keep_in(node.late_lines);
  say_of(process, line);
}

/// Tells once that memory may lie elsewhere on another host. Who does not name others' memory by its own addresses, as
/// most programs, is right all the same.
void Coordinator::Impl::compare_layouts(std::uint32_t process) {
  const KnownNode& node = *nodes[process];
  if (node.hello.heap_layout == 0 || tells_of_layouts) return;
  if (!first_layout) first_layout = process;
  const KnownNode& first = *nodes[*first_layout];
  if (first.hello.heap_layout == node.hello.heap_layout) return;
  tells_of_layouts = true;
  const auto boost = [](std::uint32_t layout) { return fmt::format("Boost {}.{}", layout / 1000, layout % 1000); };
  actions.say(fmt::format(
      "{} and {} place the memory that programs ask for differently ({} and {}): where a program puts to or gets from "
      "memory of another host by an address of its own, build APlib with the same Boost on all hosts",
      first.name, node.name, boost(first.hello.heap_layout), boost(node.hello.heap_layout)));
}

/// What processes have said since another one failed. Of a fault, and what came with it, the user has heard enough.
void Coordinator::Impl::say_late_lines() {
  for (std::uint32_t process = 0; process < nodes.size(); ++process) {
    KnownNode& node = *nodes[process];
    for (const std::string& line : std::exchange(node.late_lines, {})) {
      if ((node.has_fault && first_to_fail != process) || failure.find(line) != failure.npos) {
        say_debug(fmt::format("{}: {}", node.name, line));
      } else {
        say_of(process, line);
      }
    }
  }
}

void Coordinator::Impl::say_debug(const std::string& line) {
  const LogLevel lowest = parse_log_level(job.cluster.options.log_level).value_or(LogLevel::warn);
  if (lowest <= LogLevel::debug) actions.say("debug: " + line);
}

void Coordinator::Impl::say_of(std::uint32_t process, const std::string& line) {
  KnownNode& node = *nodes[process];
  if (node.lines_said == said_lines_max) {
    ++node.lines_hidden;
    return;
  }
  ++node.lines_said;
  actions.say(fmt::format("{}: {}", node.name, line));
}

}  // namespace aplib::launch::coordinator
