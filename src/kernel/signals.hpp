// SPDX-License-Identifier: MIT
// Signals while a machine runs: a fault names cell and task (and tells a stack overflow from other faults), Ctrl-C
// stops the machines. Handlers belong to the process, so this is the one place with state outside a Machine.
#pragma once

namespace aplib {

struct Domain;

/// Of every report of a fault, on stderr. See reports_fault().
inline constexpr const char* end_of_report = "; the program ends here";

/// Handlers of faults are in place while at least one of these lives. The last one puts back what was there before. A
/// fault goes on to that, too.
class FaultScope {
 public:
  FaultScope();
  ~FaultScope();
  FaultScope(const FaultScope&) = delete;
  FaultScope& operator=(const FaultScope&) = delete;
};

/// The same of those that stop the machine. Such a signal ends the process at once before.
class StopScope {
 public:
  explicit StopScope(Domain& domain);
  ~StopScope();
  StopScope(const StopScope&) = delete;
  StopScope& operator=(const StopScope&) = delete;

 private:
  Domain& domain_;
};

/// Gives the calling thread a stack for signal handlers, so that an overflow of a task's stack can be reported. The
/// stack lives as long as the object.
class SignalStack {
 public:
  SignalStack();
  ~SignalStack();
  SignalStack(const SignalStack&) = delete;
  SignalStack& operator=(const SignalStack&) = delete;

 private:
  void* memory_ = nullptr;
};

}  // namespace aplib
