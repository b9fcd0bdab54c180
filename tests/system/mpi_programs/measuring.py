# SPDX-License-Identifier: MIT
"""One run of a program by one library, what it says, and the comparison of answers."""

import dataclasses
import math
import os
import re
import shutil
import signal
import subprocess
import time

MISSING = "(missing)"


@dataclasses.dataclass(frozen=True)
class Run:
    command: str
    seconds: float  # from start to end
    complaint: str  # empty: it went well
    output: str
    figures: dict  # name: value
    answers: dict  # name: text


def run(program, case, library, tree, folder, seconds_max):
    """Runs the case in `folder`, which is made anew."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, text in case.files.items():
        (folder / name).write_text(text, encoding="utf-8")
    path = tree.folder / (case.program or program.program)
    words = library.command(case.ranks, [str(path), *case.arguments])
    # Ranks take the place of OpenMP's threads.
    settings = {"OMP_NUM_THREADS": "1", **library.environment}
    shown = f"cd {folder} && " + " ".join([*(f"{key}={value}" for key, value in settings.items()), *words])
    if not os.access(path, os.X_OK):
        return Run(shown, 0, f"{path} was not built (see {tree.folder / 'build.log'})", "", {}, {})
    started = time.monotonic()
    with subprocess.Popen(words, cwd=folder, env={**os.environ, **settings}, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True) as process:
        try:
            output, status = process.communicate(timeout=seconds_max)[0], process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, status = process.communicate()[0], None
    seconds = time.monotonic() - started
    text = output.decode(errors="replace")
    if program.outputs:
        text += "".join(path.read_text(errors="replace") for path in sorted(folder.glob(program.outputs)))
    return Run(shown, seconds, complaint(program, status, text, seconds_max), text, read_figures(program, text),
               {answer.name: found(answer.pattern, text) for answer in program.answers})


def found(pattern, text):
    match = re.search(pattern, text)
    return match[1] if match else MISSING


def read_figures(program, text):
    values = {}
    for figure in program.figures:
        numbers = [float(word) for word in re.findall(figure.pattern, text)]
        if numbers and sum(numbers) > 0:
            values[figure.name] = sum(numbers) * figure.factor
    return values


def complaint(program, status, text, seconds_max):
    """Why a run is wrong by itself, or nothing. `status` is None for one that was ended."""
    if status is None:
        return f"did not end within {seconds_max} s"
    if status != 0:
        return f"status {status}"
    for pattern in program.demands:
        if not re.search(pattern, text):
            return f"its output has no '{pattern}'"
    for pattern in program.forbids:
        match = re.search(f".*{pattern}.*", text)
        if match:
            return f"its output says '{match[0].strip()}'"
    missing = [answer.name for answer in program.answers if not re.search(answer.pattern, text)]
    return f"its output has no {', '.join(missing)}" if missing else ""


def differences(program, answers, expected):
    """What the answers of one library have otherwise than another's."""
    return [f"{answer.name} {answers[answer.name]} instead of {expected[answer.name]}" for answer in program.answers
            if not same(answers[answer.name], expected[answer.name], answer.tolerance)]


def same(text, other, tolerance):
    if text == other:
        return True
    try:
        return math.isclose(float(text), float(other), rel_tol=tolerance)
    except ValueError:
        return False
