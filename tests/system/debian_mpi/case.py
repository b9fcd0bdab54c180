# SPDX-License-Identifier: MIT
"""One program of Debian, with its input and how its answer is read."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    package: str
    command: str  # of a shell's words; {n} is the number of ranks
    inputs: str = ""  # a script of bash that writes them
    more: tuple[str, ...] = ()  # further packages
    mpi: str = "openmpi"
    ranks: tuple[int, ...] = (2, 4, 16)
    output: bool = True  # whether standard output is compared
    files: tuple[str, ...] = ()  # patterns of files that are compared
    after: str = ""  # a command whose output is compared too, where files differ from run to run
    kept: str = ""  # what lines must contain to be compared
    ignored: tuple[str, ...] = ()  # regular expressions of what is not: times, dates, names of the computer
    unordered: bool = False  # lines of several ranks
    tolerance: float = 0.0  # relative, of numbers
    loose: bool = False  # its own runs differ in more than numbers
    status: int = 0  # of Debian's runs
    stdin: str = ""
    environment: dict = dataclasses.field(default_factory=dict, hash=False)
    note: str = ""  # for the page
    small: bool = False  # for scripts/test --all
