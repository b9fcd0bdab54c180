// SPDX-License-Identifier: MIT
// What a debugger needs to find the cells and tasks of a stopped process or a core file: the live machines, and where
// in our structures things are. It works without debug information of APlib. aplib_gdb.py reads it by the names of
// the exported variables.
#pragma once

#include <cstdint>

#include "aplib/export.hpp"

namespace aplib {

struct Domain;

/// A machine in the debugger's list for as long as it exists.
class DebuggerMachine {
 public:
  DebuggerMachine() noexcept;
  ~DebuggerMachine();
  DebuggerMachine(const DebuggerMachine&) = delete;
  DebuggerMachine& operator=(const DebuggerMachine&) = delete;

  /// The domain of the current run; null while there is none.
  void show(const Domain* domain) noexcept { domain_ = domain; }

 private:
  friend struct DebuggerAccess;
  const Domain* domain_ = nullptr;
  DebuggerMachine* next_ = nullptr;
};

/// Whether this process has any machine.
[[nodiscard]] bool has_machine() noexcept;

}  // namespace aplib

/// A fact about our structures: mostly the offset of a member.
struct AplibDebuggerFact {
  const char* name;
  std::uint64_t value;
};
extern "C" {
/// A fact without a name ends the list.
extern APLIB_API const AplibDebuggerFact* aplib_debugger_layout;
/// The first DebuggerMachine.
extern APLIB_API aplib::DebuggerMachine* aplib_debugger_machines;
}
