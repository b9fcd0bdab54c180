# SPDX-License-Identifier: MIT
"""Lines of the suite's lists: each is one run of one program. And the list of those that are left out here."""

import dataclasses
import fnmatch
import re

DEFAULT_SECONDS = 180  # as in the suite's own runtests


@dataclasses.dataclass(frozen=True)
class Line:
    folder: str
    program: str
    ranks: int
    arguments: tuple = ()
    variables: tuple = ()  # of the environment: NAME=VALUE
    mpiexec: tuple = ()  # options
    verdict: str = "TestNormal"
    seconds: int = DEFAULT_SECONDS
    gigabytes: float = 0  # that the run needs, where the list says so

    @property
    def name(self):
        """What the list of those left out calls it."""
        return f"{self.folder}/{self.program}"

    @property
    def makes_threads(self):
        """Its ranks need a thread each."""
        return self.folder.startswith("threads/")

    @property
    def writes_files(self):
        """Programs of these folders write files of the same names into the folder in which they run."""
        return self.folder.split("/")[-1] == "io"

    @property
    def takes_long(self):
        """What the suite itself gives more time, what fills and checks much memory or many random datatypes, and what
        f90 has, too, but in FORTRAN 77."""
        return self.seconds > DEFAULT_SECONDS or self.gigabytes > 4 or self.folder.startswith("f77/") or any(
            int(count) > 500
            for word in self.arguments for count in re.findall(r"^-(?:\w*c(?:oun|n)t|iter)=(\d+)$", word)
        )

    def __str__(self):
        return " ".join((*self.variables, self.name, str(self.ranks), *self.arguments))

    @staticmethod
    def parse(folder, text):
        """None for a comment, an empty line, and the name of a folder with a list of its own."""
        words = text.partition("#")[0].split()
        if len(words) < 2 or words[0].startswith("@"):
            return None
        values = {}
        for key, _, value in (word.partition("=") for word in words[2:] if "=" in word):
            values.setdefault(key, []).append(value)
        return Line(
            folder,
            words[0],
            int(words[1]),
            tuple(values.get("arg", ())),
            tuple(pair for pair in values.get("env", ()) if not re.match(r"(MPIR|FI)_", pair)),
            tuple(values.get("mpiexecarg", ())),
            values.get("resultTest", ["TestNormal"])[0],
            int(values.get("timeLimit", [DEFAULT_SECONDS])[0]),
            float(values.get("mem", [0])[0]),
        )


def read_lines(tree, folder):
    """What the lists of one folder of the configured suite name. Variables that tune MPICH's own library have no effect
    here: lines that differ by these alone are one."""
    seen = set()
    for name in ("testlist", "testlist.dtp"):  # testlist.cvar and testlist.gpu: for MPICH's own algorithms and devices
        path = tree / folder / name
        if path.exists():
            for text in path.read_text(encoding="utf-8").splitlines():
                line = Line.parse(folder, text)
                if line and line not in seen:
                    seen.add(line)
                    yield line


class LeftOut:
    """Which lines are not run, and why: left_out.txt, and what needs more memory than there is."""

    def __init__(self, text, memory_gigabytes):
        self.memory = memory_gigabytes
        self.reasons = []  # (pattern of names, reason)
        reason = None
        for line in text.splitlines():
            words = line.partition("#")[0].split()
            if line.startswith(" "):
                self.reasons += [(word, reason) for word in words]
            elif words:
                reason = line.strip().removesuffix(":")

    def reason(self, line):
        """Why the line is left out, or None."""
        for pattern, reason in self.reasons:
            if fnmatch.fnmatchcase(line.name, pattern):
                return reason
        if line.gigabytes > self.memory:
            return f"needs {line.gigabytes} GB of memory"
        return None

    def unused(self, lines):
        """Patterns of the list that no line has: they are wrong."""
        return [pattern for pattern, _ in self.reasons
                if not any(fnmatch.fnmatchcase(line.name, pattern) for line in lines)]
