# SPDX-License-Identifier: MIT
"""The description of one program: where it comes from, how it is built, and how it is run."""

import dataclasses
import hashlib
import inspect
import pathlib
import random
import re
import shutil
import subprocess
from collections.abc import Callable

from running import Run
from sources import Unavailable


@dataclasses.dataclass(frozen=True)
class Program:
    name: str
    kind: str  # "interpreter"
    language: str
    build_system: str  # how the compilers are given: "its Makefile, CC=apcc"
    packages: tuple[str, ...]  # source packages; none: our own sources
    build: Callable  # build(tree, archives)
    inputs: Callable  # inputs(folder of cell cid, cid, random generator, native tree): writes the cell's files
    runs: tuple[Run, ...]
    counted: tuple[str, ...]  # files of the tree whose globals are counted
    needs: tuple[str, ...] = ("make", "tar")  # commands

    def check_needs(self):
        missing = [command for command in self.needs if shutil.which(command) is None]
        if missing:
            raise Unavailable(f"needs the tool {' and '.join(missing)}: {self.name} is built with it")

    def stamp(self):
        """A text that changes with the recipe."""
        return hashlib.sha256(inspect.getsource(self.build).encode()).hexdigest()

    def write_inputs(self, folder, cells, native):
        """Writes a folder of inputs like dir/, the same on every computer and day."""
        shutil.rmtree(folder, ignore_errors=True)
        for cid in range(cells):
            own = pathlib.Path(folder) / str(cid)
            own.mkdir(parents=True)
            self.inputs(own, cid, random.Random(f"{self.name} {cid}"), native)

    def globals(self, tree):
        """(variables, bytes) of writable data of the files that count, by their symbol tables and section sizes."""
        variables = size = 0
        for name in self.counted:
            path = tree.folder / name
            symbols = subprocess.run(
                ["nm", path], check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
            variables += len(re.findall(r" [dDbBuV] ", symbols.stdout))
            sections = subprocess.run(
                ["size", path], check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
            columns = sections.stdout.splitlines()[-1].split() if sections.stdout else ["0"] * 3
            size += int(columns[1]) + int(columns[2])
        return variables, size
