# SPDX-License-Identifier: MIT
"""Runs scg and reads its output."""

import json
import math
import shlex
import statistics
import subprocess

RUN_SECONDS_MAX = 300


class Failed(Exception):
    """A run failed. The text says how."""


class Scg:
    """scg, or a program like it, and aprun of a build folder."""

    def __init__(self, build, name="scg"):
        aprun, program = (build.resolve() / "bin" / name for name in ("aprun", name))
        for path in (aprun, program):
            if not path.exists():
                raise Failed(
                    f"there is no {path}; build it with: cmake --preset release && cmake --build --preset release"
                )
        self.aprun, self.program = str(aprun), str(program)

    def arguments(self, side, iterations):
        # The tolerance cannot be reached, so all runs have the same number of iterations.
        return ["--grid", str(side), "--tol", "1e-300", "--max-iter", str(iterations), "--json", "--quiet"]

    def on_this_host(self, cells, threads, side, iterations, wrap=lambda words: words):
        """MFlops of a machine of one process."""
        words = [self.aprun, "--cells", cells, "--threads", str(threads), self.program]
        return self.measured(wrap([*words, *self.arguments(side, iterations)]))

    def on_cluster(self, file, side, iterations, wrap=lambda words: words):
        """MFlops of a machine of several."""
        return self.measured(wrap([self.aprun, "-f", str(file), self.program, *self.arguments(side, iterations)]))

    def speed_line(self, side, iterations):
        """A line for sh that prints the MFlops of one cell, for speed-command."""
        words = [self.aprun, "--cells", "1x1", "--threads", "1", self.program, *self.arguments(side, iterations)]
        return shlex.join(words) + """ | sed -n 's/.*"mflops":\\([0-9.e+]*\\).*/\\1/p'"""

    def measured(self, command):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_SECONDS_MAX, check=False)
        except subprocess.TimeoutExpired as error:
            raise Failed(f"no end within {RUN_SECONDS_MAX} s: {' '.join(command)}") from error
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        # Status 1 is scg's own: not converged, as intended.
        if done.returncode not in (0, 1) or not lines:
            words = (done.stderr.strip() or "it said nothing").splitlines()[-3:]
            raise Failed(f"status {done.returncode} of {' '.join(command)}: {' / '.join(words)}")
        return Run(json.loads(lines[-1]), done.stderr)


class Run:
    """The result of a run."""

    def __init__(self, said, words):
        self.mflops = said["mflops"]
        self.cells = tuple(said["cells"])
        self.iteration_us = said["seconds"] / max(said["iterations"], 1) * 1e6
        self.words = words


def median(values):
    values = [value for value in values if value is not None]
    return statistics.median(values) if values else math.nan
