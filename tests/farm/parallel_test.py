#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""apfarm beside GNU Parallel: each line of parallel_lines.txt, run by both.

    parallel_test.py BIN [I/N]     BIN has apfarm; of N parts, the I-th one
    parallel_test.py BIN 'LINE'    one line, with what both say"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
BIN = Path(sys.argv[1]).resolve()
PATIENCE = 60
# Where jobs print in an order that the line says.
ORDERED = re.compile(r"parallel .*(-k|-j ?1\b)")


def make_files(folder):
    (folder / "in" / "sub.dir").mkdir(parents=True)
    for name, text in (("list", "one\ntwo\nthree\nfour\nfive\n"), ("blank", "a\n\nb\n  \n\t\nc\n"),
                       ("table.csv", "n,m\n1,x\n2,y y\n3,\n"), ("table.tsv", "n\tm\n1\tx\n2\ty y\n"),
                       ("table.txt", "a b\nc d\n"), ("zeros", "a b\0c\nd\0"), ("in/a.txt", "A\n"), ("in/b.txt", "B\n"),
                       ("in/sub.dir/c.tar.gz", "C\n")):
        (folder / name).write_text(text)


def run_line(line, program):
    """(status, output, errors)"""
    with tempfile.TemporaryDirectory(prefix="aplib-parallel-") as made:
        folder = Path(made, "here")
        folder.mkdir()
        make_files(folder)
        environment = {"PATH": os.environ["PATH"], "HOME": made, "TMPDIR": made, "SHELL": "/bin/bash",
                       "LC_ALL": "C.UTF-8"}
        script = f'parallel() {{ {program} "$@"; }}\n{line}'
        done = subprocess.run(["bash", "-c", script], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                              capture_output=True, timeout=PATIENCE)
    output = done.stdout.decode(errors="replace")
    return done.returncode, output, done.stderr.decode(errors="replace")


def difference(kind, line):
    """What is wrong with a line; nothing where all is well."""
    apfarm = run_line(line, BIN / "apfarm")
    if kind == "!":
        refused = apfarm[0] == 255 and apfarm[1] == "" and re.match("apfarm: .+", apfarm[2])
        return None if refused else ("it is not refused in words", apfarm)
    judge = run_line(line, shutil.which("parallel") + " --will-cite")
    order = list if ORDERED.search(line) else sorted
    if apfarm[0] == judge[0] and order(apfarm[1].splitlines(True)) == order(judge[1].splitlines(True)):
        return None
    return "GNU Parallel's is another", apfarm, judge


def main():
    version = subprocess.run(["parallel", "--version"], capture_output=True, text=True, check=False,
                             env={**os.environ, "HOME": "/nonexistent"}).stdout if shutil.which("parallel") else ""
    if "GNU parallel" not in version:  # moreutils has another program of that name
        print("skipped: needs the tool parallel (of GNU)")
        return 77
    chosen = sys.argv[2] if len(sys.argv) > 2 else "1/1"
    if not re.fullmatch(r"\d+/\d+", chosen):
        print(difference("=", chosen))
        return 0
    text = (HERE / "parallel_lines.txt").read_text()
    lines = re.findall(r"^([=!]) (.*(?:\n(?![=!#\n]).*)*)", text, re.MULTILINE)
    part, parts = map(int, chosen.split("/"))
    wrong = 0
    mine = lines[part - 1::parts]
    for kind, line in mine:
        found = difference(kind, line)
        if found is not None:
            wrong += 1
            print(f"{kind} {line}\n   {found[0]}:", *found[1:], sep="\n   ")
    print(f"{len(mine)} lines, {wrong} of them wrong")
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
