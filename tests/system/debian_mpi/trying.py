# SPDX-License-Identifier: MIT
"""Runs of one case by Debian's mpirun and by APlib's mpiexec, what they leave behind, and the comparison of it."""

import dataclasses
import difflib
import os
import pathlib
import re
import shutil
import signal
import subprocess

# What mpiexec says of a program that cannot be cells.
REFUSAL = re.compile(r"^aprun: .*: each of its cells is a process.*$", re.MULTILINE)
NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eEdD][-+]?\d+)?")
HANG = "does not end"


@dataclasses.dataclass(frozen=True)
class Answer:
    status: object  # a number, or HANG
    text: str  # what is compared: standard output and files
    said: str  # standard error


def prepare(case, folder):
    """Writes the case's inputs. Returns its shell's complaint."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if not case.inputs:
        return ""
    made = subprocess.run(["bash", "-euc", case.inputs], cwd=folder, check=False, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)
    return made.stdout.decode(errors="replace")[-500:] if made.returncode else ""


def run(case, command, inputs, folder, seconds):
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(inputs, folder, symlinks=True)
    environment = {**os.environ, "LC_ALL": "C", "TZ": "UTC", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
                   "HOME": str(folder), "PWD": str(folder), "OMPI_ALLOW_RUN_AS_ROOT": "1",
                   "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", **case.environment}
    source = folder / case.stdin if case.stdin else os.devnull
    with open(source, "rb") as stdin, open(f"{folder}.out", "wb") as out, open(f"{folder}.err", "wb") as err, \
         subprocess.Popen(command, cwd=folder, env=environment, stdin=stdin, stdout=out, stderr=err,
                          start_new_session=True) as process:
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            status = HANG
            process.terminate()  # mpirun ends its ranks, which are in sessions of their own
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                pass
        try:
            os.killpg(process.pid, signal.SIGKILL)  # and what it has left behind
        except ProcessLookupError:
            pass
    return Answer(status, text(case, folder), pathlib.Path(f"{folder}.err").read_text(errors="replace"))


def text(case, folder):
    parts = [pathlib.Path(f"{folder}.out").read_bytes().decode(errors="replace")] if case.output else []
    for pattern in case.files:
        for path in sorted(folder.glob(pattern)):
            data = path.read_bytes()
            shown = data.decode(errors="replace") if b"\0" not in data else data.hex()
            parts.append(f"== {path.relative_to(folder)}\n{shown}")
    if case.after:
        done = subprocess.run(["bash", "-c", case.after], cwd=folder, check=False, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
        parts.append(done.stdout.decode(errors="replace"))
    whole = "\n".join(parts).replace(str(folder), "FOLDER")
    for pattern in case.ignored:
        whole = re.sub(pattern, "", whole, flags=re.MULTILINE)
    lines = [line.rstrip() for line in whole.splitlines() if re.search(case.kept, line)]
    return "\n".join(line for line in (sorted(lines) if case.unordered else lines) if line)


def numbers(text):
    return [float(re.sub("[dD]", "e", word)) for word in NUMBER.findall(text)]


def scatter(one, other):
    """The largest relative difference of two texts' numbers; None where they differ in something else."""
    if one == other:
        return 0.0
    if NUMBER.sub("#", re.sub(" +", " ", one)) != NUMBER.sub("#", re.sub(" +", " ", other)):
        return None
    return max((abs(a - b) / max(abs(a), abs(b), 1e-9) for a, b in zip(numbers(one), numbers(other)) if a != b),
               default=0.0)


def judge(case, answer, expected):
    """(verdict, explanation) of an answer beside those of Debian's mpirun. Verdicts: same, scatter, wrong, status,
    hang, and refused, where aprun has said that the program needs --processes."""
    if answer.status == HANG:
        return "hang", answer.said[-600:]
    right = expected[0]
    if answer.status != right.status and "--processes" in answer.said:
        return "refused", answer.said[:300]
    if answer.status not in {each.status for each in expected}:
        return "status", f"status {answer.status} instead of {right.status}\n{answer.said[-1200:]}"
    if answer.text in {each.text for each in expected}:
        return "same", ""
    own = [scatter(right.text, each.text) for each in expected]
    if None in own:
        return "scatter" if case.loose else "wrong", "Debian's own runs differ in more than numbers"
    found = min((value for value in (scatter(answer.text, each.text) for each in expected) if value is not None),
                default=None)
    if found is not None and found <= max(case.tolerance, 2 * max(own)):
        return "scatter", f"{found:.1e}"
    lines = difflib.unified_diff(right.text.splitlines(), answer.text.splitlines(), "Debian", "APlib", "", "", 0, "")
    return "wrong", "\n".join(line[:160] for line in list(lines)[:24])
