# SPDX-License-Identifier: MIT
"""One build of a program: the compilers to use, a folder with the unpacked sources, and a log of the commands."""

import dataclasses
import hashlib
import os
import pathlib
import shutil
import subprocess

from sources import Unavailable


class BuildFailed(Exception):
    """A build step failed. The text says which, and shows the end of its log."""


@dataclasses.dataclass(frozen=True)
class Compilers:
    """The values of CC, CXX and FC, as a user would set them."""

    kind: str  # "alone" (the plain compilers) or "cells" (APlib's)
    cc: str
    cxx: str
    fc: str

    @staticmethod
    def plain():
        return Compilers("alone", os.environ.get("CC", "gcc"), os.environ.get("CXX", "g++"), "gfortran")

    @staticmethod
    def aplib(build):
        return Compilers("cells", *(str(find_tool(build, name)) for name in ("apcc", "apc++", "apfort")))

    def stamp(self):
        """A text that changes when the wrappers change, so that programs are built anew."""
        digest = hashlib.sha256(self.kind.encode())
        for tool in (self.cc, self.cxx, self.fc):
            path = shutil.which(tool)
            digest.update((pathlib.Path(path).read_bytes() if path and self.kind == "cells" else tool.encode()))
        return digest.hexdigest()


def find_tool(build, name):
    for folder in ("bin", "."):
        path = pathlib.Path(build) / folder / name
        if os.access(path, os.X_OK):
            return path.resolve()
    raise Unavailable(f"needs APlib's own programs: {name} is not built in {build}")


class Tree:
    """A folder that holds one build."""

    def __init__(self, folder, compilers):
        self.folder = pathlib.Path(folder)
        self.compilers = compilers

    @property
    def cc(self):
        return self.compilers.cc

    @property
    def cxx(self):
        return self.compilers.cxx

    @property
    def fc(self):
        return self.compilers.fc

    def unpack(self, archive, under="."):
        """Unpacks without the archive's own top folder. Keeps the times, because otherwise generated files would look
        old."""
        target = self.folder / under
        target.mkdir(parents=True, exist_ok=True)
        subprocess.run(["tar", "-xf", archive, "-C", target, "--strip-components=1", "--no-same-owner"], check=True)

    def run(self, *words, under=".", **variables):
        """Runs one step of the build, with its output in the log."""
        words = [str(word) for word in words]
        with open(self.folder / "build.log", "a", encoding="utf-8") as log:
            log.write(f"\n$ {' '.join(words)}\n")
            log.flush()
            run = subprocess.run(words, cwd=self.folder / under, check=False, stdin=subprocess.DEVNULL, stdout=log,
                                 stderr=subprocess.STDOUT, env={**os.environ, "LC_ALL": "C", **variables})
        if run.returncode != 0:
            lines = (self.folder / "build.log").read_text(errors="replace").splitlines()
            raise BuildFailed(f"building with {self.cc}: '{' '.join(words)}' ended with {run.returncode}; the end of "
                              f"{self.folder / 'build.log'}:\n  " + "\n  ".join(lines[-25:]))

    def make(self, *words, under=".", **variables):
        self.run("make", f"-j{jobs()}", *words, under=under, **variables)


def jobs():
    return min(len(os.sched_getaffinity(0)), 8)


def build(program, folder, compilers, archives):
    """The program's finished tree. Builds it if there is none, or only one by an older recipe or other compilers."""
    stamp = program.stamp() + compilers.stamp() + "".join(path.name for path, _ in archives)
    tree = Tree(folder, compilers)
    mark = tree.folder / "built"
    if mark.exists() and mark.read_text(encoding="utf-8") == stamp:
        return tree
    shutil.rmtree(tree.folder, ignore_errors=True)
    tree.folder.mkdir(parents=True)
    program.build(tree, [path for path, _ in archives])
    mark.write_text(stamp, encoding="utf-8")
    return tree
