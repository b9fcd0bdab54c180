// SPDX-License-Identifier: MIT
// Writes docs/options.md from the option table to stdout; with --check FILE, compares it with the file instead.
#include <fmt/format.h>

#include <string>

#include "aplib/options.hpp"
#include "generated_page.hpp"

namespace {

using aplib::testing_support::table_cell;
using aplib::testing_support::table_code;

std::string page() {
  std::string text = R"(<!-- SPDX-License-Identifier: MIT -->
<!-- Written by aplib-options-doc from the option table (src/base/options_table.cpp). Do not edit. -->
# Options

Each option can be given in three places; a later one wins:

1. in the program: `options.cells = {4, 2};` or `options.set("cells", "4x2");`
2. in the environment: `APLIB_CELLS=4x2 ./prog` (read by `Options::from_environment()`, by `aplib/command_line.hpp`,
   by `aprun`, and by a `Machine` that is given no options)
3. on the command line: `aprun --cells 4x2 prog`, or `./prog --cells 4x2` of programs that use `aplib/command_line.hpp`

| option | variable | values | unit | default | range | meaning |
| --- | --- | --- | --- | --- | --- | --- |
)";
  for (const aplib::OptionInfo& info : aplib::option_table()) {
    text += fmt::format("| {} | {} | {} | {} | {} | {} | {} |\n", table_code("--" + std::string(info.name)),
                        table_code(info.variable), table_code(info.values), table_cell(info.unit),
                        table_code(info.default_value), table_cell(info.range), table_cell(info.help));
  }
  text += R"(
How values are written (capital letters do not matter):

- a grid: `4x2` has 4 columns and 2 rows of cells; `8` means `8x1`
- a size: bytes, or with `k`, `m`, `g` for 1024, 1024^2, 1024^3
- a time: a whole number with `ns`, `us`, `ms` or `s`, or `0`
- a switch: `on`, `yes`, `true`, `1`, or `off`, `no`, `false`, `0`

A value out of range, an unknown option and an unknown variable that starts with `APLIB_` are errors: nothing is
started and the exit status is 2 (see [exit-status.md](exit-status.md)). A `Machine` that is made without options says
what is wrong with the variables when it is to run, and its report has that status; `Options::from_environment()` throws
an `Error`. A variable with an empty value counts as absent.

Usable cores are those of the affinity mask (`taskset`, cpusets), fewer when a CPU quota of a cgroup (a container's
limit) does not pay for all of them. A core here is what the kernel schedules on, a hardware thread.
)";
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  return aplib::testing_support::write_or_check(argc, argv, page(), "the option table");
}
