// SPDX-License-Identifier: MIT
// Errors: one exception type, whose text names the place, the call, the cause and the remedy.
//
//   try { aplib::send(aplib::CellId{99}, 1); }
//   catch (const aplib::Error& e) { e.what(); }
//   // "cell 0 task 0: send: there is no cell 99; the machine has cells 0..3 (2x2)"
#pragma once

#include <stdexcept>
#include <string>

#include "aplib/export.hpp"

namespace aplib {

/// What the caller should do about an error.
enum class Errc {
  failed,        ///< The operation failed this time; the text says why.
  bad_argument,  ///< The caller passed something impossible; fix the call.
  bad_option,    ///< An option (command line, environment) is unknown or out of range; fix it and start again.
  ended,         ///< The cell at the other end has ended; nothing more comes from it.
  mismatch,      ///< Cells disagree on a collective call (which one, or which size), or a message has the wrong size.
  exhausted,     ///< A resource ran out; the text names the limit and how to raise it.
};

/// The only exception that APlib throws at users. Do not catch it just to go on: the text is for a person.
/// Thread safety: as std::runtime_error.
class APLIB_API Error : public std::runtime_error {
 public:
  Error(Errc code, const std::string& text) : std::runtime_error(text), code_(code) {}
  Error(const Error&) = default;
  ~Error() override;

  [[nodiscard]] Errc code() const noexcept { return code_; }

 private:
  Errc code_;
};

/// Exit statuses of a machine, also in docs/exit-status.md. A program's own status is passed on unchanged.
enum class ExitStatus : int {
  ok = 0,
  program_failed = 1,   ///< An exception left a task, or the host program or a cell failed without a number of its own.
  usage = 2,            ///< An option, grid or argument is wrong; nothing was started.
  deadlock = 70,        ///< Every task waited and no message was on its way.
  stack_overflow = 71,  ///< A task overflowed its stack.
  peer_lost = 72,       ///< A process of the machine, its host or the connection to it was lost.
  interrupted = 130,    ///< Ctrl-C (128 + SIGINT).
};

}  // namespace aplib
