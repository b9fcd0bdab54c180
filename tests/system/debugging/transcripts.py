#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Replays a transcript of docs/debugging.md and compares it with what the tools print.

usage: transcripts.py SESSION --document FILE --programs FOLDER --bin FOLDER --lib FOLDER; status 77 means skipped.

A session is the ```console block after the comment <!-- session NAME -->. "$ ..." lines go to the shell, "(gdb) ..."
lines to the gdb that the "$" line before them starts, the others must be found in the output of theirs, in that
order. Addresses, numbers of processes and folders may differ.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

STEP_SECONDS = 100


class Skip(Exception):
    pass


def read_session(document, name):
    """[(shell command, its expected lines, [(gdb command, its expected lines)])]"""
    match = re.search(rf"<!-- session {name} -->\n```console\n(.*?)```", document, re.DOTALL)
    if not match:
        sys.exit(f"the document has no session '{name}'")
    steps = []
    for line in match[1].splitlines():
        if line.startswith("$ "):
            steps.append((line[2:], [], []))
        elif line.startswith("(gdb) "):
            steps[-1][2].append((line[6:], []))
        else:
            (steps[-1][2][-1][1] if steps[-1][2] else steps[-1][1]).append(line)
    return steps


def plain(line):
    """The line without what differs from run to run."""
    line = re.sub(r"0x[0-9a-f]{6,}", "ADDRESS", line)
    line = re.sub(r"^==\d+==", "==", line.strip())
    line = re.sub(r"Thread \d+ ", "Thread N ", line)
    line = re.sub(r"^\$\d+ =", "=", line)
    line = re.sub(r"\d+\.\d\d%", "SHARE", line)
    line = re.sub(r"/[^\s()]*/", "/", line)
    return re.sub(r"\s+", " ", line).strip()


def compare(command, wanted, printed):
    """A message about the wanted lines that are not in `printed`, in order."""
    lines = [plain(line) for line in printed.splitlines()]
    at = 0
    for line in wanted:
        if line.strip() in {"", "..."}:
            continue
        found = next((i for i in range(at, len(lines)) if plain(line) in lines[i]), None)
        if found is None:
            return f"{command}\n  printed no line like (from its line {at + 1} on):\n    {line}\n  but:\n" + "".join(
                f"    {text}\n" for text in printed.splitlines()
            )
        at = found + 1
    return ""


def run(command, folder, environment):
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment,
        text=True,
        errors="replace",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=STEP_SECONDS,
    )
    if "ptrace: Operation not permitted" in done.stdout or "Could not trace the inferior" in done.stdout:
        raise Skip("needs a system that lets a debugger attach")
    return done.stdout


def run_gdb(command, commands, folder, environment, lib):
    """What gdb prints at first, and for each command."""
    mark = "end of command"
    script = folder / "commands.gdb"
    text = f"echo \\n{mark}\\n\n"
    for wanted, _ in commands:
        text += f"{wanted}\necho \\n{mark}\\n\n"
    script.write_text(text)
    program, _, rest = command.partition(" ")
    quiet = (
        f"-nx -batch -iex 'add-auto-load-safe-path {lib}' -iex 'set debuginfod enabled off' -iex 'set width 0' -x"
        f" {script}"
    )
    # gdb runs commands before it knows the program's name, unless they come by -x.
    printed = run(f"{program} {quiet} {rest}", folder, environment)
    return printed.split(mark + "\n")


def check_tools(steps):
    for command, _, _ in steps:
        tool = command.split()[0]
        if tool in {"gdb", "perf", "valgrind"} and shutil.which(tool) is None:
            raise Skip(f"needs the tool {tool}")
        if tool == "gdb":
            probe = subprocess.run(
                ["gdb", "-nx", "-batch", "-ex", "python import gdb.unwinder; print('ready')"],
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            if "ready" not in probe.stdout:
                raise Skip("needs a gdb with Python")
        if tool == "perf":
            probe = subprocess.run(
                ["perf", "record", "-q", "-e", "cpu-clock", "-o", "/dev/null", "true"],
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            if probe.returncode != 0:
                raise Skip(
                    "needs a system that lets perf measure:"
                    f" {probe.stdout.strip().splitlines()[0] if probe.stdout.strip() else 'no reason given'}"
                )
    if any(command.endswith(" core") for command, _, _ in steps):
        pattern = pathlib.Path("/proc/sys/kernel/core_pattern").read_text().strip()
        uses_pid = pathlib.Path("/proc/sys/kernel/core_uses_pid").read_text().strip()
        if pattern != "core" or uses_pid != "0":
            raise Skip(f"needs core files in the folder, named 'core': core_pattern is '{pattern}'")


def replay(arguments):
    steps = read_session(arguments.document.read_text(), arguments.session)
    check_tools(steps)
    complaints = []
    with tempfile.TemporaryDirectory(prefix="aplib-debugging-") as name:
        folder = pathlib.Path(name)
        for program in arguments.programs.glob("*.c*"):
            shutil.copy(program, folder)
        environment = {key: value for key, value in os.environ.items() if not key.startswith("APLIB_")}
        environment.update(PATH=f"{arguments.bin}:{os.environ['PATH']}", HOME=name, LC_ALL="C")
        for command, wanted, commands in steps:
            if commands or command.startswith("gdb "):
                outputs = run_gdb(command, commands, folder, environment, arguments.lib)
                complaints.append(compare(command, wanted, outputs[0]))
                for (gdb_command, lines), printed in zip(commands, outputs[1:] + [""] * len(commands)):
                    complaints.append(compare(f"(gdb) {gdb_command}", lines, printed))
            else:
                complaints.append(compare(command, wanted, run(command, folder, environment)))
    return [complaint for complaint in complaints if complaint]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("session")
    for name in ("document", "programs", "bin", "lib"):
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    try:
        complaints = replay(arguments)
    except Skip as reason:
        print(f"[  SKIPPED ] debugging/{arguments.session}: {reason}")
        sys.exit(77)
    for complaint in complaints:
        print(complaint)
    print(f"debugging/{arguments.session}: {len(complaints)} differences from {arguments.document.name}")
    sys.exit(1 if complaints else 0)


main()
