// SPDX-License-Identifier: MIT
// Writes docs/cluster-file.md from the table of keys to stdout; with --check FILE, compares instead.
#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

#include "launch/cluster/keys.hpp"

namespace {

using aplib::launch::cluster::cluster_keys;
using aplib::launch::cluster::KeyInfo;
using aplib::launch::cluster::SectionKind;

/// '|' separates the columns of a table.
std::string cell(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '|') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

std::string code(std::string_view text) { return text.empty() ? std::string() : fmt::format("`{}`", cell(text)); }

void add_table(std::string& page, SectionKind section, bool options) {
  page += "| key | values | default | range | meaning |\n| --- | --- | --- | --- | --- |\n";
  for (const KeyInfo& key : cluster_keys()) {
    if (key.section != section || key.option != options) continue;
    // A default in words is no code.
    const bool words =
        key.default_value.find(' ') != key.default_value.npos || key.default_value.find('\'') != key.default_value.npos;
    page +=
        fmt::format("| {}{} | {} | {} | {} | {} |\n", code(key.name), key.for_all_hosts ? " *" : "", code(key.values),
                    words ? cell(key.default_value) : code(key.default_value), cell(key.range), cell(key.help));
  }
  page += '\n';
}

constexpr std::string_view beginning = R"(<!-- SPDX-License-Identifier: MIT -->
<!-- Written by aplib-cluster-doc from the table of keys (src/launch/cluster/keys.cpp). Do not edit. -->
# Cluster files

    aprun -f cluster.toml                        the program of the file
    aprun -f cluster.toml ./other 1000           another program, with its arguments
    aprun -f cluster.toml -g 8x4 --dry-run       another grid; say who would run what and where, and start nothing

A cluster file says which hosts carry the cells of a machine, how a process is started on each, and how they speak to
each other. It is a [TOML](https://toml.io) file with the tables `[machine]` and `[comm]`, each at most once, and
`[[host]]` once for each host. All of it can be left out: an empty file is a machine on this computer.

```toml
[machine]
grid = "4x2"                 # or cells = 8, or "auto"
program = "./scg"
args = ["--grid", "300"]

[[host]]
name = "ws1"
cells = 3

[[host]]
name = "ws2"
address = "10.0.0.2"         # the others reach it there
cells = 5
threads = 4

[comm]
ports = "5100-5120"
secure = "tls"
```

Hosts are numbered in the order of the file, and carry consecutive cells: above, ws1 has cells 0 to 2 and ws2 cells 3
to 7. The first host also runs the host program, if there is one.

Shares by speed, on computers that are alike and one that is not:

```toml
[machine]
grid = "auto"
program = "./scg"
speed = "memory"             # of all hosts

[[host]]
name = "ws[1-8]"             # ws1, ws2, ..., ws8

[[host]]
name = "alice@old"
aprun = "/opt/aplib/bin/aprun"
folder = "/scratch/alice"
```

Many processes on one computer, to try things out:

```toml
[machine]
cells = 1024
program = "./hello"

[[host]]
launch = "local"
count = 64                   # local-1, ..., local-64
cells = 16
```

Hosts of an allocation, started by Slurm; aprun runs inside `salloc` or `sbatch`:

```toml
[machine]
launch = "slurm"             # no [[host]]: the hosts of the allocation
program = "./scg"
```

## [machine]

Keys of hosts that are marked with * below can stand here too; they hold for all hosts that do not say otherwise.

)";

constexpr std::string_view options_text =
    R"(Every option of a machine is a key too ([options.md](options.md)). An option of the command line comes before one
of the file, and that before an `APLIB_*` variable. Values are texts as on the command line, or TOML's own numbers and
truth values: `bind = false`, `stack-size = 65536`, `poll-time = "5us"`; lists for lists of names.

)";

constexpr std::string_view host_text = R"(## [[host]]

Without any `[[host]]` the machine is on this computer, in one process.

)";

constexpr std::string_view comm_text = R"(## [comm]

)";

constexpr std::string_view ending = R"(## How cells are shared out

`cells = "auto"`, the default, gives a host as many cells as its speed deserves, so that all hosts finish together.
Each such host is measured when the machine starts, in about half a second, with as many threads as will carry its
cells: `speed = "memory"` runs conjugate gradients on arrays larger than the cache, `"compute"` multiplies and adds in
registers. Under a CPU quota (a container's limit) whole periods of the quota are measured, which takes up to 1.2
seconds. A number, or a command that prints one, is believed. Hosts of different kinds of speed cannot be compared,
but numbers and commands can. Nothing is measured when there is nothing to compare: one host, or processes on one
computer.

A host with c cells on t threads at speed s is counted as taking ceil(c / t) * t / s, for programs whose cells have
equal work and wait for each other, as solvers do. Cells are dealt one by one to the host that would then take the
least time; there is no better way to share out a given grid.

`grid = "auto"`, the default, looks for a grid: at least one cell for each thread, nearly square, with as few cells as
will do to use 99 % of the sum of the speeds, and up to 16 cells for each thread; more, up to 64, only where less than
97 % would be used. `aprun --dry-run` shows grid, shares and percentage.

Numbers of cells and `"auto"` can be mixed: what the numbers leave of the grid is shared out. A grid that contradicts
the numbers is an error.

## Addresses

Every process listens on one port, of one address: the one by which it reached aprun, unless the host has an
`address`. So addresses of bridges and of containers' networks are not taken by accident. With hosts in one network
nothing needs to be said; where they have several, `address` names the one to use. `--dry-run` prints all, with the
reason. `ports` limits the ports, for firewalls: each process takes the first free one, so it must have as many as
processes share a computer.

IPv4 and IPv6 both work. `ssh` connects to the key `ssh` if there is one, else to `address`, else to `name`.

## Starting

| `launch` | who starts the process | needs |
| --- | --- | --- |
| `"ssh"` | `ssh`, at most 8 at once | `ssh HOST` without questions (keys, an agent), and aprun on the host |
| `"local"` | aprun | nothing |
| `"slurm"` | `srun`, inside an allocation | Slurm |
| `"pmix"` | nobody: `mpirun` or `srun --mpi=pmix` started aprun once for each process already | PMIx |
| `"command"` | the key `command`, by `sh` | what the command needs |

A command is, for example, `command = "docker exec -i {host} {cmd}"`, `"nsenter --net=/run/netns/{host} -- {cmd}"`, or
`"rsh {host} {quoted-cmd}"`; it must pass standard input on. The machine starts when all hosts are ready, or not at
all.

## Security

aprun makes a key for each job and gives it to the processes by their standard input: it never stands on a command
line or in an environment. With `secure = "auth"`, the default, both ends of each connection prove that they know the
key before anything else is said; `"tls"` also encrypts and protects everything that follows (TLS 1.3); `"off"` is for
closed networks. Processes listen on the one address that is in use, and drop whoever is no peer. Names and addresses
of this file reach command lines of `ssh` and others, so only letters, digits and a few other characters are allowed
in them; `command`, `speed-command` and `ssh-options` run what they say: use only files of people whom you trust.

## Mistakes

A file with mistakes is refused as a whole: nothing is started, and the exit status is 2. Each mistake is one line
with file, line, column, what stands there and what to do:

    aprun: cluster.toml:12:9: [[host]] ws1: cells = "many": not a number of cells: use 1 .. 16384 or "auto"
    cluster.toml:13:1: [[host]] ws1: "adress": unknown key: did you mean address?
)";

std::string page() {
  std::string text(beginning);
  add_table(text, SectionKind::machine, false);
  text += options_text;
  add_table(text, SectionKind::machine, true);
  text += host_text;
  add_table(text, SectionKind::host, false);
  text += comm_text;
  add_table(text, SectionKind::comm, true);
  return text += ending;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string expected = page();
  if (argc == 1) {
    std::fputs(expected.c_str(), stdout);
    return 0;
  }
  if (argc != 3 || std::string(argv[1]) != "--check") {
    std::fprintf(stderr, "usage: %s [--check FILE]\n", argv[0]);
    return 2;
  }
  std::ifstream in(argv[2]);
  const std::string found{std::istreambuf_iterator<char>(in), {}};
  if (found == expected) return 0;
  std::fprintf(stderr, "%s differs from the table of keys; write it again with:\n  %s > %s\n", argv[2], argv[0],
               argv[2]);
  return 1;
}
