#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""apfarm beside GNU Parallel: each line of parallel_lines.txt, run by both.

GNU Parallel takes ten times as long as apfarm. So parallel_answers.txt has what it has answered: a line's hash, the
status, and the output's hash. It is asked for lines that are not there, or where apfarm's answer is another.

    parallel_test.py BIN [I/N]           BIN has apfarm; of N parts, the I-th one
    parallel_test.py BIN --live [I/N]    GNU Parallel itself is asked for all lines
    parallel_test.py BIN --write         the same; writes parallel_answers.txt
    parallel_test.py BIN 'LINE'          one line, with what both say"""
import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ANSWERS = HERE / "parallel_answers.txt"
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
    output = done.stdout.decode(errors="replace").replace(made, "@")
    return done.returncode, output, done.stderr.decode(errors="replace")


def hash_of(text):
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def answer_of(line, status, output):
    """As in parallel_answers.txt."""
    order = list if ORDERED.search(line) else sorted
    return f"{hash_of(line)} {status} {hash_of(''.join(order(output.splitlines(True))))}"


def difference(kind, line, answers):
    """What is wrong with a line; nothing where all is well. `answers` that are known are not asked for."""
    apfarm = run_line(line, BIN / "apfarm")
    if kind == "!":
        refused = apfarm[0] == 255 and apfarm[1] == "" and re.match("apfarm: .+", apfarm[2])
        return None if refused else ("it is not refused in words", apfarm)
    answer = answer_of(line, *apfarm[:2])
    if answer in answers:
        return None
    if not has_judge():
        if any(known.startswith(hash_of(line)) for known in answers):
            return "parallel_answers.txt has another answer, and GNU Parallel is not installed", apfarm
        print("not compared, because GNU Parallel is not installed:", line)
        return None
    judge = run_line(line, shutil.which("parallel") + " --will-cite")
    if answer == answer_of(line, *judge[:2]):
        answers.add(answer)
        return None
    return "GNU Parallel's is another", apfarm, judge


@functools.cache
def has_judge():
    version = subprocess.run(["parallel", "--version"], capture_output=True, text=True, check=False,
                             env={**os.environ, "HOME": "/nonexistent"}).stdout if shutil.which("parallel") else ""
    return "GNU parallel" in version  # moreutils has another program of that name


def main():
    options = [word for word in sys.argv[2:] if word in ("--live", "--write")]
    chosen = next((word for word in sys.argv[2:] if word not in options), "1/1")
    if options and not has_judge():
        print("skipped: needs the tool parallel (of GNU)")
        return 77
    answers = set() if options else set(ANSWERS.read_text().splitlines())
    if not re.fullmatch(r"\d+/\d+", chosen):
        print(difference("=", chosen, set()))
        return 0
    text = (HERE / "parallel_lines.txt").read_text()
    lines = re.findall(r"^([=!]) (.*(?:\n(?![=!#\n]).*)*)", text, re.MULTILINE)
    part, parts = map(int, chosen.split("/"))
    wrong = 0
    mine = lines[part - 1::parts]
    for kind, line in mine:
        found = difference(kind, line, answers)
        if found is not None:
            wrong += 1
            print(f"{kind} {line}\n   {found[0]}:", *found[1:], sep="\n   ")
    print(f"{len(mine)} lines, {wrong} of them wrong")
    if "--write" in options and not wrong and chosen == "1/1":
        ANSWERS.write_text("".join(f"{answer}\n" for answer in sorted(answers)))
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
