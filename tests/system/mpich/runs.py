# SPDX-License-Identifier: MIT
"""Runs of lines by our mpiexec, and the suite's verdict on each (as its own runtests has it)."""

import dataclasses
import os
import re
import signal
import subprocess
import tempfile
import time

GRACE_SECONDS = 20  # for mpiexec to end what has passed its limit


@dataclasses.dataclass(frozen=True)
class Run:
    line: object
    threads: int
    command: str
    seconds: float
    complaint: str  # empty: passed
    output: str


def complaint(verdict, status, output):
    """Why the suite would say that a run failed, or nothing. `status` is None for one that hangs."""
    if status is None:
        return "hangs: mpiexec did not end it at the time limit"
    if verdict in ("TestStatus", "TestErrFatal"):
        return "" if status else "status 0, but it must fail"
    lines = output.splitlines()
    good = [line for line in lines if re.fullmatch(r"\s*No [Ee]rrors\s*", line)]
    if len(good) != 1 or len(lines) != 1:
        return f"status {status}, and its output is not just \" No Errors\""
    if verdict == "TestStatusNoErrors":
        return "" if status else "status 0, but it must fail"
    return f"status {status}" if status else ""


def run(line, threads, folder, mpiexec, module=None):
    """Runs the line's program, which lies in `folder`, on so many threads, or with each rank a process and that module
    between them."""
    settings = {
        "APLIB_THREADS": str(threads),
        "APLIB_LOG_LEVEL": "error",  # without the note that a rank computes for seconds while others wait
        "MPIEXEC_TIMEOUT": str(line.seconds),
    }
    settings.update(variable.split("=", 1) for variable in line.variables)
    if module:
        settings["APLIB_MODULE"] = module
    processes = ["--processes"] if module else []
    program = str(folder / line.program) if line.writes_files else f"./{line.program}"
    words = [str(mpiexec), *processes, "-n", str(line.ranks), *line.mpiexec, program, *line.arguments]
    place = "$(mktemp -d)" if line.writes_files else folder
    shown = f"cd {place} && " + " ".join([f"{key}={value}" for key, value in settings.items()] + words)
    if not os.access(folder / line.program, os.X_OK):
        return Run(line, threads, shown, 0, "does not compile", "")
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as own, subprocess.Popen(
            words, cwd=own if line.writes_files else folder, env={**os.environ, **settings}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True) as process:
        try:
            output, status = process.communicate(timeout=line.seconds + GRACE_SECONDS)[0], process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, status = process.communicate()[0], None
    text = output.decode(errors="replace")
    return Run(line, threads, shown, time.monotonic() - started, complaint(line.verdict, status, text), text)
