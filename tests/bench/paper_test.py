#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""scripts/paper as a whole, quickly: every part that can run here runs, and the report has its table. The figures are
not checked."""

import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tests" / "support")]
sys.dont_write_bytecode = True

import namespaces  # noqa: E402 (the path must be set first)
from paper import hosts, report  # noqa: E402


class Named:
    def __init__(self, name):
        self.name = name

    def line(self):
        return f"there {self.name} \"$@\" {{cmd}}"


def check_texts():
    text = (ROOT / "examples" / "paper-unequal-by-hand.toml").read_text(encoding="utf-8")
    changed = hosts.started_by(text, [Named("ss-lx"), Named("ss10")])
    for name in ("ss-lx", "ss10"):
        assert f'command = "there {name} \\"$@\\" {{cmd}}"' in changed, changed
    assert "launch" not in changed, changed


def check_page():
    """What was not measured stays as it was."""
    old = report.page({name: f"## {title}\n\nold {name}\n" for name, title in report.SECTIONS.items()})
    new = report.page({"equal": "## Equal hosts\n\nnew\n"}, old)
    assert new == old.replace("old equal", "new"), new


def check_slow_program(build):
    """More passes change no result, not in a bit, and none of them is left out."""
    words = ["--grid", "64", "--json", "--quiet", "--cells", "2x2", "--threads", "1"]

    def result(program, passes):
        done = subprocess.run(
            [f"{build}/bin/{program}", *words],
            env={**os.environ, "BENCH_PASSES": passes},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        return json.loads(done.stdout)

    results = [result("scg", "1"), result("bench-scg", "1"), result("bench-scg", "300.5")]
    for name in ("iterations", "residual", "true_residual"):
        assert len({each[name] for each in results}) == 1, (name, results)
    # A run of one pass takes a millisecond. One that loses its core meanwhile says nothing of its speed.
    fast = itertools.chain([results[1]], (result("bench-scg", "1") for _ in range(20)))
    assert any(results[2]["mflops"] < each["mflops"] / 10 for each in fast), results


def check_slow_mpi_program(build):
    """The same of the program for MPI."""
    words = [f"{build}/bin/aprun", "--cells", "1x3", "--threads", "1", f"{build}/bin/bench-cg", "--grid", "64"]

    def result(passes):
        environment = {**os.environ, "BENCH_PASSES": passes}
        return json.loads(subprocess.run(words, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout)

    slow, fast = result("300.5"), itertools.chain(result("1") for _ in range(20))
    assert any(each["residual"] == slow["residual"] and slow["mflops"] < each["mflops"] / 10 for each in fast), slow


def main():
    build = sys.argv[1]
    check_texts()
    check_page()
    check_slow_program(build)
    check_slow_mpi_program(build)
    expected = ["## One host", "Noise: "]
    hindrance = namespaces.hindrance() or namespaces.CpuQuota.hindrance()
    if hindrance is None:
        expected += ["## Equal hosts", "## Unequal hosts", "### The same by CPU quotas", "ss-lx"]
        expected += [] if len(os.sched_getaffinity(0)) < 2 else ["4 and 7 cells, by hand: ", "an MPI program"]
    else:
        print(f"several hosts are not tried: {hindrance}")
        expected += ["Not measured: several hosts"]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-B", str(ROOT / "scripts" / "paper"), "--build", build, "--quick", "--out", folder],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        page = (pathlib.Path(folder) / "paper.md").read_text(encoding="utf-8")
    for words in expected:
        assert words in page, f"'{words}' is not in:\n{page}\n{done.stderr}"
    return 0


if __name__ == "__main__":
    sys.exit(main())
