// SPDX-License-Identifier: MIT
// mpiexec's command line, in the words of MPI's standard, Open MPI and MPICH, as one of aprun. aprun under the name
// mpiexec or mpirun reads it; docs/mpi.md lists the options.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launch/wire/start_messages.hpp"

namespace aplib::launch {

/// What mpiexec was asked to do, for aprun.
struct Mpiexec {
  std::vector<std::string> words;           ///< aprun's command line, without its name, with the first program.
  std::string hosts;                        ///< Text of a cluster file; empty: all ranks are on this computer.
  std::vector<wire::NamedValue> own;        ///< Variables of the first program.
  std::vector<wire::ProgramText> others;    ///< Further programs, behind colons.
  std::vector<wire::NamedValue> variables;  ///< Those that hold for all programs, to be set before the machine begins.
  bool processes = false;                   ///< The first program's ranks are ordinary processes.
  std::string note;                         ///< Options that have no effect; empty: none.
};

/// The name under which aprun was started, "mpiexec" or "mpirun", without suffix .aplib; empty: another one.
[[nodiscard]] std::string_view mpiexec_name(std::string_view argv0);

/// Understands `arguments`, argv without argv[0]. `own_name`: this computer's. Reads the host file that they name.
/// Where they name no hosts, a batch system's job may have some. Throws Error(bad_option): subject, cause, remedy in
/// one line.
[[nodiscard]] Mpiexec read_mpiexec(std::span<const char* const> arguments, std::string_view own_name);

/// The text of --help.
[[nodiscard]] std::string mpiexec_help();

}  // namespace aplib::launch
