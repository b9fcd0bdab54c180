// SPDX-License-Identifier: MIT
// Writes docs/cluster-file.md from the table of keys to stdout; with --check FILE, compares it with the file instead.
#include <fmt/format.h>

#include <string>

#include "generated_page.hpp"
#include "launch/cluster/keys.hpp"

namespace {

using aplib::launch::cluster::cluster_keys;
using aplib::launch::cluster::KeyInfo;
using aplib::launch::cluster::SectionKind;

using aplib::testing_support::table_cell;
using aplib::testing_support::table_code;

void add_table(std::string& page, SectionKind section, bool options) {
  page += "| key | values | default | range | meaning |\n| --- | --- | --- | --- | --- |\n";
  for (const KeyInfo& key : cluster_keys()) {
    if (key.section != section || key.option != options) continue;
    // A default in words is not code.
    const bool words =
        key.default_value.find(' ') != key.default_value.npos || key.default_value.find('\'') != key.default_value.npos;
    page += fmt::format("| {}{} | {} | {} | {} | {} |\n", table_code(key.name), key.for_all_hosts ? " *" : "",
                        table_code(key.values), words ? table_cell(key.default_value) : table_code(key.default_value),
                        table_cell(key.range), table_cell(key.help));
  }
  page += '\n';
}

constexpr std::string_view beginning = R"(<!-- SPDX-License-Identifier: MIT -->
<!-- Written by aplib-cluster-doc from the table of keys (src/launch/cluster/keys.cpp). Do not edit. -->
# Cluster files

    aprun -f cluster.toml                        the program of the file
    aprun -f cluster.toml ./other 1000           another program, with its arguments
    aprun -f cluster.toml -g 8x4 --dry-run       another grid; print who would run what and where, and start nothing

A cluster file says which hosts carry the cells of a machine, how a process is started on each, and how the processes
communicate. It is a [TOML](https://toml.io) file with the tables `[machine]` and `[comm]`, each at most once, one
`[[host]]` for each host, one `[[site]]` for hosts behind a gateway, and one `[[file]]` for what goes along. All of them
can be left out: an empty file is a machine on this computer. [cluster.md](cluster.md) is the guide.

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

Hosts are numbered in the order of the file and carry consecutive cells: above, ws1 has cells 0 to 2 and ws2 cells 3 to
7. The first host also runs the host program, if there is one.

Shares by speed, on eight equal computers and a different one:

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

The hosts of an allocation, started by Slurm; aprun runs inside `salloc` or `sbatch`:

```toml
[machine]
launch = "slurm"             # no [[host]]: the hosts of the allocation
program = "./scg"
```

## [machine]

The keys of hosts that are marked with * below are also allowed here. They apply to every host that does not set them.

)";

constexpr std::string_view options_text =
    R"(Every option of a machine is also a key ([options.md](options.md)). An option of the command line overrides one
of the file, which overrides an `APLIB_*` variable. Values are texts, as on the command line, or TOML's own
numbers and truth values: `bind = false`, `stack-size = 65536`, `poll-time = "5us"`. Lists of names are TOML
lists.

)";

constexpr std::string_view host_text = R"(## [[host]]

Without any `[[host]]` the machine is on this computer, in one process.

)";

constexpr std::string_view site_text = R"(## [[site]]

```toml
[[site]]
gateway = "login1"           # ssh leads to it, and by it to the hosts
hosts = ["ws[1-8]"]
```

Hosts that others cannot reach, as behind a gateway with ssh alone. [cluster.md](cluster.md#sites-and-gateways) has the
rules.

)";

constexpr std::string_view file_text = R"(## [[file]]

```toml
[[file]]
source = "input.dat"         # every host gets it, under the same name

[[file]]
source = "params/ws2"
target = "params"            # the folder's name there
hosts = ["ws2"]

[[file]]
source = "result-*.dat"      # what the hosts have when the machine has ended
fetch = true
target = "results"           # the folder here
```

[cluster.md](cluster.md#files) has the rules.

)";

constexpr std::string_view comm_text = R"(## [comm]

)";

constexpr std::string_view ending = R"(## How cells are shared out

`cells = "auto"`, the default, gives each host cells in proportion to its speed, so that all hosts finish together. When
the machine starts, each such host is measured for about half a second, on as many threads as will carry its cells.
`speed = "memory"` runs conjugate gradients on arrays larger than the cache; `"compute"` multiplies and adds in
registers. Under a CPU quota (a container's limit), whole periods of the quota are measured, which takes up to 1.2
seconds. A number, or the output of a command, is not checked by measuring. Hosts with different kinds of `speed` cannot
be compared, except for numbers and commands. Nothing is measured when there is nothing to compare: one host, or
processes on one computer.

aprun assumes that a host with c cells on t threads at speed s takes ceil(c / t) * t / s. This holds for programs whose
cells have equal work and wait for each other, as solvers do. It deals out the cells one by one, each to the host that
would then take the least time. There is no better way to share out a given grid.

`grid = "auto"`, the default, looks for a nearly square grid with at least one and at most 16 cells for each thread. It
takes the smallest that uses 99 % of the sum of the speeds. Only where less than 97 % would be used does it try up to 64
cells for each thread. `aprun --dry-run` shows the grid, the shares and the percentage.

Numbers of cells and `"auto"` can be mixed: the hosts with `"auto"` share what the numbers leave of the grid. A grid
that contradicts the numbers is an error.

## Addresses

Every process listens on one port of one address: the host's `address`, or else the one by which ssh has reached the
host, or by which it has reached aprun. A process that aprun starts on its own computer takes the address from which it
reaches the others. So a bridge's address or that of a container's network is never taken by accident. Hosts in one
network need no `address`. Where hosts have several networks, `address` names the one to use. `--dry-run` prints all
addresses, with the reason for each. `ports` limits the ports, for firewalls. Each process takes the first free one, so
the range needs as many ports as processes share a computer.

IPv4 and IPv6 both work. ssh connects to the key `ssh` if there is one, otherwise to `address`, otherwise to `name`.

## Starting

| `launch` | who starts the process | needs |
| --- | --- | --- |
| `"ssh"` | `ssh`, at most 8 at once | `ssh HOST` without questions (keys, an agent), also over `ProxyJump`, and aprun on the host |
| `"local"` | aprun | nothing |
| `"slurm"` | `srun`, inside an allocation | Slurm; the hosts reach aprun |
| `"pmix"` | nobody: `mpirun` or `srun --mpi=pmix` has already started aprun once for each process | PMIx; the hosts reach aprun |
| `"command"` | the key `command`, by `sh` | what the command needs; the host reaches aprun |

A command is, for example, `command = "docker exec -i {host} {cmd}"`, `"nsenter --net=/run/netns/{host} -- {cmd}"`, or
`"rsh {host} {quoted-cmd}"`. It must pass standard input on; what it does with standard output does not matter. The
machine starts when all hosts are ready, or not at all.

What `secure` protects, and whom a cluster file trusts, is in [cluster.md](cluster.md#security).

## Mistakes

aprun refuses a file with mistakes as a whole: it starts nothing and exits with status 2. Each mistake is one line with
the file, line, column, what stands there, and what to do:

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
  text += site_text;
  add_table(text, SectionKind::site, false);
  text += file_text;
  add_table(text, SectionKind::file, false);
  text += comm_text;
  add_table(text, SectionKind::comm, true);
  return text += ending;
}

}  // namespace

int main(int argc, char** argv) {
  return aplib::testing_support::write_or_check(argc, argv, page(), "the table of keys");
}
