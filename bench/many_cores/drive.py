# SPDX-License-Identifier: MIT
"""A program: measures on the computer where it runs, within a time limit, and writes what it has, part by part, as
JSON. scripts/many-cores packs it.

    drive.py --build FOLDER --programs FOLDER --out FILE.json [--seconds N] [PART...]
"""

import argparse
import datetime
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from comparing import crowd, machine  # noqa: E402 (the path must be set first)
from many_cores import pack  # noqa: E402

RUN_SECONDS_MAX = 20
ROUNDS = 3
SIDES = {300: 1000, 1200: 100, 2048: 60, 4096: 20}  # of scg: unknowns on a side, iterations
SIZES = "1024,65536"
OPTIONS_OF_TESTS = ["--gtest_brief=1", "--gtest_shuffle", "--gtest_filter=-Abi.*"]  # Abi asks tools of compilers
CUBES = {1: 60, 8: 30, 27: 20, 64: 15}  # ranks of LULESH: elements on a side of each, 216,000 in all
SETTINGS = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1",
            "SKIP_VALIDATION": "1", "HOME": "/root", "LC_ALL": "C", "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"}
PARTS = {"scg": 0.2, "collectives": 0.4, "programs": 0.5, "crowd": 0.6, "tests": 1}  # the share of the time left


class Over(Exception):
    """A part's time is over."""


class Drive:
    def __init__(self, arguments):
        self.build, self.programs, self.out = arguments.build, arguments.programs, arguments.out
        self.cores = len(os.sched_getaffinity(0))
        self.end = time.monotonic() + arguments.seconds
        self.part, self.part_end = "", 0.0
        self.results = {
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
            "machine": {**machine.describe(self.build), "compiler": arguments.compiler},
            "values": [], "failures": [], "cut": [], "crowd": None,
        }  # fmt: skip

    def write(self):
        text = json.dumps(self.results, indent=1) + "\n"
        beside = self.out.with_name(self.out.name + ".new")
        beside.write_text(text, encoding="utf-8")
        beside.replace(self.out)

    def value(self, case, library, ranks, value, unit):
        self.results["values"].append({"part": self.part, "case": case, "library": library, "ranks": ranks,
                                       "value": value, "unit": unit})
        print(f"{self.part} {case} {library} {ranks}: {value:g} {unit}", flush=True)

    def failure(self, case, library, ranks, words):
        self.results["failures"].append({"part": self.part, "case": case, "library": library, "ranks": ranks,
                                         "words": words})
        print(f"{self.part} {case} {library} {ranks}: FAILED: {words}", flush=True)

    def has_failed(self, case, library):
        """Whoever did not end with fewer ranks is not tried with more."""
        return any((each["part"], each["case"], each["library"]) == (self.part, case, library)
                   for each in self.results["failures"])

    def would_spin(self, library, ranks):
        """MPICH's ranks keep their cores while they wait."""
        return library == "mpich" and ranks > self.cores

    def run(self, words, seconds=RUN_SECONDS_MAX, folder="/tmp"):
        """(status, output). Status None: it took too long. Raises Over when no time is left for it."""
        left = self.part_end - time.monotonic()
        if left < 1:
            raise Over
        with subprocess.Popen(words, cwd=folder, env={**os.environ, **SETTINGS}, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                              start_new_session=True) as process:
            try:
                output = process.communicate(timeout=min(seconds, left))[0]
                return process.returncode, output
            except subprocess.TimeoutExpired:
                crowd.cut(process)
                if left < seconds:
                    raise Over from None
                return None, f"> {seconds} s"

    def launch(self, library, ranks, words):
        """The command that runs a program's ranks, a core each while there are as many."""
        own = str(self.build / "lib" / "aplib" / "mpi" / "bin" / "mpiexec")
        few = ranks <= self.cores
        launchers = {
            "aplib": [own],
            "processes": [own, "--processes"],
            "openmpi": ["mpirun.openmpi", *(["--use-hwthread-cpus", "--bind-to", "hwthread"] if few else
                                            crowd.OpenMpi.oversubscribed)],
            "mpich": ["mpirun.mpich", *(["-bind-to", "hwthread"] if few else [])],
        }
        return [*launchers[library], "-n", str(ranks), *words]

    def ranks(self, most):
        """1, 2, 4, ... and the number of cores."""
        powers = [1 << power for power in range(most.bit_length()) if 1 << power <= most]
        return sorted({*powers, self.cores})

    def scg(self):
        """Cells 1, 2, ... all cores; each round has all of them."""
        for number in range(ROUNDS):
            for side, iterations in SIDES.items():
                for cells in self.ranks(self.cores):
                    across = max(each for each in range(1, cells + 1) if cells % each == 0 and each * each <= cells)
                    words = [str(self.build / "bin" / "aprun"), "--cells", f"{cells // across}x{across}", "--threads",
                             str(cells), str(self.build / "bin" / "scg"), "--grid", str(side), "--tol", "1e-300",
                             "--max-iter", str(iterations), "--json", "--quiet"]
                    status, output = self.run(words)
                    said = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
                    if status in (0, 1) and said:  # 1: not converged, as intended
                        self.value(str(side), "cells", cells, said[-1]["mflops"] / 1e3, "GFLOP/s")
                    elif number == 0:
                        self.failure(str(side), "cells", cells, output[-300:])

    def collectives(self):
        names = {"aplib": "aplib-mpi", "processes": "aplib-mpi", "openmpi": "openmpi", "mpich": "mpich"}
        for ranks in [each for each in self.ranks(4 * self.cores) if each > 1]:
            for library, name in names.items():
                for benches in (["barrier", "reduce", "allreduce", "bcast"], ["allgather", "alltoall"]):
                    case = benches[0]
                    if self.has_failed(case, library) or self.would_spin(library, ranks):
                        continue
                    program = str(self.programs / "peers" / f"mpi_peer.{name}")
                    status, output = self.run(self.launch(library, ranks, [
                        program, "--peer", name, "--case", "ranks", *benches, "--bytes", SIZES, "--samples", "5",
                        "--sample-ms", "3"]))
                    for said in [json.loads(line) for line in output.splitlines() if line.startswith("{")]:
                        self.value(f"{said['bench']} {said['bytes']}", library, ranks, said["value"] / 1e3, "us")
                    if status != 0:
                        self.failure(case, library, ranks, output[-300:])

    def program(self, name, ranks, words, pattern, unit):
        """One run by each library; what it prints, or writes to its files, has the figure."""
        for library in ("aplib", "openmpi", "mpich", "processes"):
            path = self.programs / "programs" / library.replace("processes", "aplib") / name
            if not path.exists() or self.has_failed(name, library) or self.would_spin(library, ranks):
                continue
            folder = pathlib.Path("/tmp/run")
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            status, output = self.run(self.launch(library, ranks, [str(path), *words]), 2 * RUN_SECONDS_MAX, folder)
            output += "".join(path.read_text(errors="replace") for path in sorted(folder.glob("*.txt")))
            found = re.search(pattern, output)
            if status == 0 and found:
                self.value(name, library, ranks, float(found[1]), unit)
            else:
                self.failure(name, library, ranks, output[-300:])

    def real_programs(self):
        for ranks, side in [(ranks, side) for ranks, side in CUBES.items() if ranks <= 4 * self.cores]:
            self.program("lulesh2.0", ranks, ["-s", str(side), "-i", "20"], r"FOM\s*=\s*(\S+)", "k elements/s")
        for ranks in self.ranks(2 * self.cores):
            self.program("graph500_reference_bfs", ranks, ["15", "16"], r"bfs\s+harmonic_mean_TEPS:\s+!?\s*(\S+)",
                         "edges/s")
        for ranks in self.ranks(2 * self.cores):
            self.program("xhpcg", ranks, ["--nx=32", "--ny=32", "--nz=32", "--rt=2"], r"GFLOP/s rating of=(\S+)",
                         "GFLOP/s")

    def crowd(self):
        left = self.part_end - time.monotonic()
        script = pathlib.Path(__file__).resolve().parents[1] / "crowd"
        for ranks in (self.cores, 4 * self.cores):
            status, output = self.run([
                sys.executable, "-B", str(script), "--build", str(self.build), "--out", str(self.programs), "--rounds",
                str(ROUNDS), "--seconds", str(left / 3), "--ranks", str(max(ranks, 2)),
                *(["--peers", "openmpi"] if self.would_spin("mpich", ranks) else [])], left)
            results = self.programs / "crowd.json"
            if status != 0:
                self.failure("crowd", "cells", ranks, output[-300:])
            if results.exists():
                self.results["crowd"] = json.loads(results.read_text(encoding="utf-8"))

    def tests(self):
        for number in range(ROUNDS):
            for name in pack.TESTS:
                program = self.build / "bin" / name
                if not program.exists():
                    continue
                status, output = self.run([str(program), *OPTIONS_OF_TESTS], 60, program.parent)
                self.value(name, "cells", number, 1 if status is None else status, "status")
                if status != 0:
                    self.failure(name, "cells", number,
                                 " ".join(re.findall(r"^\[  FAILED  \] (\S+)", output, re.MULTILINE)) or output[-300:])

    def measure(self, parts):
        steps = {"scg": self.scg, "collectives": self.collectives, "programs": self.real_programs,
                 "crowd": self.crowd, "tests": self.tests}
        for part, share in PARTS.items():
            if part not in parts:
                continue
            left = self.end - time.monotonic() - 5
            self.part, self.part_end = part, time.monotonic() + left * (1 if part == parts[-1] else share)
            try:
                steps[part]()
            except Over:
                self.results["cut"].append(part)
                print(f"{part}: its time is over", flush=True)
            except Exception as error:  # the other parts have their results
                self.failure(part, "cells", 0, f"{type(error).__name__}: {error}")
            self.write()


def main():
    parser = argparse.ArgumentParser(prog="drive.py", description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--programs", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--compiler", default="unknown", help="by which APlib was built, for the page")
    parser.add_argument("--seconds", type=float, default=540)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)} (default: all)")
    arguments = parser.parse_args()
    unknown = [part for part in arguments.parts if part not in PARTS]
    if unknown:
        parser.error(f"there is no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    os.environ.update(SETTINGS)
    Drive(arguments).measure([part for part in PARTS if part in (arguments.parts or PARTS)])


if __name__ == "__main__":
    main()
