# SPDX-License-Identifier: MIT
"""What is known of one program: where it comes from, how it is built, and what it is run with."""

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
    build_system: str  # how the compilers get in: "its Makefile, CC=apcc"
    packages: tuple[str, ...]  # source packages; none: the sources are ours
    build: Callable  # build(tree, archives)
    inputs: Callable  # inputs(folder of cell cid, cid, random generator, native tree): writes the cell's files
    runs: tuple[Run, ...]
    counted: tuple[str, ...]  # files of the tree whose globals are counted
    needs: tuple[str, ...] = ("make", "tar")  # commands

    def check_needs(self):
        missing = [command for command in self.needs if shutil.which(command) is None]
        if missing:
            raise Unavailable(f"{self.name} needs {' and '.join(missing)} to be built, not found here")

    def stamp(self):
        """Changes with the recipe."""
        return hashlib.sha256(inspect.getsource(self.build).encode()).hexdigest()

    def write_inputs(self, folder, cells, native):
        """dir-like folder of inputs, the same on every machine and day."""
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
