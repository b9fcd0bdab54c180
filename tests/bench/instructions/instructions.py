# SPDX-License-Identifier: MIT
"""Counts what messages, tasks and MPI calls cost: instructions, accesses to memory and locked instructions, by
valgrind's simulator, and system calls, by strace. So the numbers are the same on any computer and under any load, where
times jump with the place of cores and pages. A locked instruction, as atomics and fences need, takes the time of some
twenty others; objdump says where they are.

Each operation runs a few and many times; the difference is the operation's own. A table has what it cost when it was
last written: costs.txt, or costs-merged.txt for a merged build, where the compiler inlines other calls. More than 2 %
above that is a failure; less is told, so that it is written down.

    python3 instructions.py BUILD             the test
    python3 instructions.py BUILD --write     writes the build's table
"""

import argparse
import functools
import math
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SKIPPED = 77

# Name, how often it runs, and what one time is made of.
OPERATIONS = {
    "message": (1000, 6000, "a round of two messages of 8 bytes, with switches"),
    "posted": (1000, 6000, "the same, received into a buffer that is posted before"),
    "stream": (20, 120, "64 messages of 8 bytes, sent and received, and a barrier"),
    "switch": (1000, 6000, "a yield by each of two cells"),
    "spawn": (50, 300, "16 tasks made and joined, by each of two cells"),
    "put": (1000, 6000, "a put of 8 bytes and the wait for it, by each of two cells"),
    "barrier": (1000, 6000, "a barrier of two cells"),
    "mpi-send": (1000, 6000, "a round of two MPI_Send and MPI_Recv of 8 bytes, with switches"),
    "mpi-isend": (1000, 6000, "MPI_Irecv, MPI_Isend and MPI_Waitall, by each of two ranks"),
    "mpi-test": (1000, 6000, "MPI_Test of an open receive, by each of two ranks, and a switch"),
    "mpi-barrier": (1000, 6000, "MPI_Barrier of two ranks"),
    "mpi-allreduce": (1000, 6000, "MPI_Allreduce of 8 bytes on two ranks"),
    "instance": (2, 34, "a further rank: the program loaded, MPI_Init, MPI_Finalize"),
}
TIMED = {"instance"}  # long enough that some of it is waits, which a busy computer makes longer
# What is counted, and the part by which it may grow.
TOLERANCES = {"instructions": 0.02, "accesses": 0.02, "locked": 0.02, "system calls": 0.1}
TRIES = 5  # callgrind fails now and then where a signal handler lets others run, as a cell's that computes for long
STRAY = 100  # of one run: calls that the runtime's own threads make by the clock, more of them on a busy computer


def skip(reason):
    print("skipped:", reason)
    sys.exit(SKIPPED)


def compile_ranks(build, folder):
    """The program of MPI calls, as a user makes it."""
    program = folder / "counted_mpi"
    subprocess.run([build / "lib/aplib/mpi/bin/mpicc", "-O2", "-o", program, HERE / "counted_mpi.c"], check=True)
    return program


def command_of(build, ranks, name, times):
    if name == "instance":
        return [build / "bin/aprun", "-n", str(times), "--threads", "1", ranks, name, "1"]
    if name.startswith("mpi-"):
        return [build / "bin/aprun", "-n", "2", "--threads", "1", ranks, name, str(times)]
    return [build / "bin/counted", name, str(times)]


def run(command, tries=1):
    for _ in range(tries):
        ran = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=600)
        if ran.returncode == 0:
            break
    if ran.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} ended with {ran.returncode}:\n{ran.stdout}{ran.stderr}")
    return ran.stderr


@functools.cache
def locked_addresses(file):
    """Those of the file's instructions that lock memory: with the prefix, an exchange with memory, or a fence."""
    ran = subprocess.run(["objdump", "-d", "--no-show-raw-insn", file], capture_output=True, text=True, timeout=300)
    locked = re.compile(r"^ *([0-9a-f]+):\t(?:lock |mfence|xchg .*\()", re.MULTILINE)
    return {int(address, 16) for address in locked.findall(ran.stdout)}


def count_locked(profile):
    """How often the run has executed a locked instruction. `profile`: callgrind's, with --dump-instr=yes."""
    count, address, is_call = 0, 0, False
    names, locked = {}, set()
    for line in profile:
        if found := re.match(r"c?ob=(\(\d+\))(?: (.*))?$", line):
            if found[2] is not None:
                names[found[1]] = found[2]
            if line.startswith("ob="):
                file = names[found[1]]
                locked = locked_addresses(file) if file.startswith("/") else set()
        elif line.startswith("calls="):
            is_call = True
        elif found := re.match(r"(0x[0-9a-f]+|[+-]\d+|\*) \S+ (\d+)", line):
            # An address, or its distance from the last one; what follows `calls=` is what the called function took.
            if found[1] != "*":
                address = int(found[1], 0) + (0 if found[1].startswith("0x") else address)
            if address in locked and not is_call:
                count += int(found[2])
            is_call = False
    return count


def count_run(command):
    """What the whole run costs, as TOLERANCES."""
    with tempfile.NamedTemporaryFile("r", prefix="aplib-profile-") as profile:
        said = run(["valgrind", "--tool=callgrind", "--cache-sim=yes", "--dump-instr=yes",
                    f"--callgrind-out-file={profile.name}", *command], TRIES)
        counts = [int(re.search(rf"{what}\s+refs:\s+([0-9,]+)", said)[1].replace(",", "")) for what in ("I", "D")]
        counts.append(count_locked(profile))
    with tempfile.NamedTemporaryFile("r", prefix="aplib-calls-") as calls:
        run(["strace", "-f", "-qq", "-o", calls.name, *command])
        return [*counts, sum(1 for _ in calls)]


def count(build, ranks, name):
    """What one time costs."""
    few, many, _ = OPERATIONS[name]
    before, after = (count_run(command_of(build, ranks, name, times)) for times in (few, many))
    return [max((after[i] - before[i]) / (many - few), 0) for i in range(len(TOLERANCES))]


def least(counts):
    """Of some counts of the same: the runtime's own threads look around now and then."""
    return [min(each) for each in zip(*counts)]


class Table:
    """What operations cost when it was written, by which compiler."""

    def __init__(self, build):
        cache = (build / "CMakeCache.txt").read_text()
        is_merged = re.search(r"^APLIB_MERGE:BOOL=ON$", cache, re.MULTILINE) is not None
        self.path = HERE / ("costs-merged.txt" if is_merged else "costs.txt")
        compiler = re.search(r"^CMAKE_CXX_COMPILER:\w+=(.*)$", cache, re.MULTILINE).group(1)
        ran = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True)
        self.compiler = ran.stdout.splitlines()[0].partition(" ")[2]
        self.written_by, self.costs = "", {}
        for line in self.path.read_text().splitlines() if self.path.exists() else []:
            if line.startswith("# compiled by "):
                self.written_by = line.removeprefix("# compiled by ")
            elif line.startswith("# operation "):
                headings = re.split("  +", line)[1:]
            elif line and not line.startswith("#"):
                name, *numbers = line.partition("#")[0].split()
                known = dict(zip(headings, map(float, numbers)))
                self.costs[name] = [known.get(heading, math.nan) for heading in TOLERANCES]  # nan: fails nothing

    def write(self):
        lines = ["# What operations cost. Written by instructions.py --write.", f"# compiled by {self.compiler}"]
        lines.append(f"# {'operation':14}" + "".join(f"{heading:>14}" for heading in TOLERANCES))
        for name, numbers in self.costs.items():
            lines.append(f"{name:16}" + "".join(f"{each:14.1f}" for each in numbers) + f"  # {OPERATIONS[name][2]}")
        self.path.write_text("\n".join(lines) + "\n")


def is_above(name, tolerance, number, known):
    few, many, _ = OPERATIONS[name]
    allowed = 1 + tolerance * (5 if name in TIMED else 1)
    return number > known * allowed + STRAY / (many - few)


def judge(costs, table, again):
    """The failures. Prints all. `again`: counts an operation once more, which is only done for one that fails."""
    failures = []
    for name, numbers in costs.items():
        if any(is_above(name, *each) for each in zip(TOLERANCES.values(), numbers, table.costs[name])):
            numbers = least([numbers, again(name)])
        for (heading, tolerance), number, known in zip(TOLERANCES.items(), numbers, table.costs[name]):
            print(f"{name:16}{number:12.1f} {heading}, {known:.1f} in {table.path.name}")
            if is_above(name, tolerance, number, known):
                failures.append(f"{name}: {number:.1f} {heading}, {known:.1f} in {table.path.name}")
            elif is_above(name, tolerance, known, number):
                print("    less: write that down (instructions.py BUILD --write)")
    return failures


def main():
    parser = argparse.ArgumentParser(description="Counts the instructions of messages, tasks and MPI calls.")
    parser.add_argument("build", type=pathlib.Path, help="the folder of a release build")
    parser.add_argument("--write", action="store_true", help="write the table")
    parser.add_argument("--only", nargs="+", choices=OPERATIONS, default=list(OPERATIONS))
    arguments = parser.parse_args()
    for tool in ("valgrind", "objdump", "strace"):
        if shutil.which(tool) is None:
            skip(f"there is no {tool} (scripts/setup test installs it)")
    table = Table(arguments.build)
    if not arguments.write and table.compiler != table.written_by:
        skip(f"{table.path.name} is of {table.written_by}, and this build of {table.compiler}")
    build = arguments.build.resolve()
    with tempfile.TemporaryDirectory(prefix="aplib-instructions-") as folder:
        ranks = compile_ranks(build, pathlib.Path(folder))
        again = functools.partial(count, build, ranks)
        costs = {name: again(name) for name in arguments.only}
        if arguments.write:
            table.costs |= {name: least([numbers, again(name)]) for name, numbers in costs.items()}
            table.write()
            return
        failures = judge(costs, table, again)
    if failures:
        sys.exit("more than 2 % above the table:\n  " + "\n  ".join(failures))


if __name__ == "__main__":
    main()
