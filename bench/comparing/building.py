# SPDX-License-Identifier: MIT
"""Builds the programs of a comparison that are missing."""

import subprocess
import sys

PROGRAMS = [
    "apbench", "apcc", "aprun", "scg", "bench-cells", "bench-hello", "bench-load", "bench-loop", "bench-loop-alone",
    "bench-module", "bench-net", "bench-program", "bench-puts",
]  # fmt: skip
LINES_SHOWN = 15


def missing(build, programs=PROGRAMS):
    """The programs that are missing."""
    return [name for name in programs if not (build / "bin" / name).exists()]


def targets(programs):
    return ["bench-programs"] if programs is PROGRAMS else programs


def commands(build, source, programs):
    """The commands that build all programs in the folder; none when it is not a build folder and cannot become one."""
    configured = (build / "CMakeCache.txt").exists()
    if not configured and build.resolve() != source.resolve() / "build" / "release":
        return []
    configure = [] if configured else [["cmake", "--preset", "release"]]
    return configure + [["cmake", "--build", str(build.resolve()), "--target", *targets(programs)]]


def make(build, source, log, programs=PROGRAMS):
    """Builds what is missing and says so. Returns why something is still missing, or an empty text."""
    absent = missing(build, programs)
    if not absent:
        return ""
    remedy = "build it with: cmake --preset release && cmake --build --preset release --target "
    remedy += " ".join(targets(programs))
    print(f"compare: not built: {', '.join(absent)}", file=sys.stderr, flush=True)
    steps = commands(build, source, programs)
    if not steps:
        return f"there is no {build / 'bin' / absent[0]}; {remedy}"
    print(f"compare: building them, which may take minutes (log: {log})", file=sys.stderr, flush=True)
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "w", encoding="utf-8") as output:
        for step in steps:
            try:
                done = subprocess.run(step, cwd=source, stdout=output, stderr=subprocess.STDOUT, check=False)
            except KeyboardInterrupt:
                return f"the build was stopped; {remedy}"
            except OSError as error:
                return f"cannot start {step[0]}: {error.strerror}; run scripts/setup"
            if done.returncode != 0:
                break
    absent = missing(build, programs)
    if not absent:
        return ""
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines()[-LINES_SHOWN:]:
        print(f"compare:   {line}", file=sys.stderr)
    return f"{', '.join(absent)} could not be built (see {log}); {remedy}"
