#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: runpath_test.py CMAKE BUILD_FOLDER [--install]

Nothing that is built may take a library from the current folder. An empty or relative element of DT_RUNPATH or
DT_RPATH makes the dynamic linker look there, so the owner of that folder would decide what runs. This test reads these
entries of every program and shared object in the build tree and, with --install, in a tree that it installs. Then it
runs aprun in a folder that has a broken file with the name of each library that aprun needs.
"""

import mmap
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

PT_LOAD, PT_DYNAMIC = 1, 2
DT_NEEDED, DT_STRTAB, DT_RPATH, DT_RUNPATH = 1, 5, 15, 29
# What tests build while they run, with their own paths on purpose, and what the compiler leaves behind.
FOREIGN = {"third-party", "CMakeFiles", "Testing"}


class Elf:
    """The dynamic entries of a 64-bit little-endian ELF file. `is_linked` is false for objects and for files of other
    kinds."""

    def __init__(self, path):
        self.needed, self.search = [], []
        with open(path, "rb") as file:
            is_elf = file.read(6) == b"\x7fELF\x02\x01"
            # Programs with a sanitizer have gigabytes, of which this reads a few pages.
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if is_elf else b""
        self.is_linked = len(data) >= 64 and struct.unpack_from("<H", data, 16)[0] in (2, 3)
        if not self.is_linked:
            return
        offset, = struct.unpack_from("<Q", data, 32)
        size, count = struct.unpack_from("<HH", data, 54)
        segments = [struct.unpack_from("<IIQQQQQQ", data, offset + i * size) for i in range(count)]
        entries = []
        for kind, _, start, _, _, length, _, _ in segments:
            if kind == PT_DYNAMIC:
                entries = list(struct.iter_unpack("<QQ", data[start:start + length - length % 16]))
        address = dict(entries).get(DT_STRTAB)
        if address is None:
            return
        strings = next(start + address - virtual for kind, _, start, virtual, _, length, _, _ in segments
                       if kind == PT_LOAD and virtual <= address < virtual + length)

        def text(at):
            return data[strings + at:data.find(b"\0", strings + at)].decode()

        for tag, value in entries:
            if tag == DT_NEEDED:
                self.needed.append(text(value))
            elif tag in (DT_RPATH, DT_RUNPATH):
                self.search.append(text(value))


def linked_files(folder):
    for where, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in FOREIGN]
        for name in names:
            path = os.path.join(where, name)
            if not os.path.islink(path) and os.path.isfile(path):
                elf = Elf(path)
                if elf.is_linked:
                    yield path, elf


def complaints(folder, allowed):
    """One line for each element that names neither a place relative to the file itself nor a folder inside one of
    `allowed`."""
    found = []
    for path, elf in linked_files(folder):
        for search in elf.search:
            for element in search.split(":"):
                if element == "$ORIGIN" or element.startswith("$ORIGIN/"):
                    continue
                if element.startswith("/") and any(pathlib.Path(element).is_relative_to(place) for place in allowed):
                    continue
                found.append(f"{path}: RUNPATH '{search}' has the element '{element}'")
    return found


class RunpathTest(unittest.TestCase):
    CMAKE, BUILD, INSTALL = "", "", False

    def expect_found_here_only(self, program):
        with tempfile.TemporaryDirectory() as folder:
            for library in Elf(program).needed:
                pathlib.Path(folder, library).write_text("planted\n", encoding="ascii")
            clean = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
            run = subprocess.run(
                [program, "--version"], cwd=folder, env=clean, capture_output=True, text=True, check=False
            )
            self.assertEqual(run.returncode, 0, run.stderr)

    def test_build_tree(self):
        files = list(linked_files(self.BUILD))
        self.assertIn(os.path.join(self.BUILD, "bin", "aprun"), [path for path, _ in files])
        self.assertEqual(complaints(self.BUILD, [self.BUILD]), [])
        self.expect_found_here_only(os.path.join(self.BUILD, "bin", "aprun"))

    def test_install_tree(self):
        if not self.INSTALL:
            self.skipTest("needs a build without sanitizers: tests install no other")
        with tempfile.TemporaryDirectory() as prefix:
            subprocess.run(
                [self.CMAKE, "--install", self.BUILD, "--prefix", prefix], check=True, stdout=subprocess.DEVNULL
            )
            self.assertTrue(any(elf.search for _, elf in linked_files(prefix)))
            self.assertEqual(complaints(prefix, []), [])
            self.expect_found_here_only(os.path.join(prefix, "bin", "aprun"))

    def test_complains_of_what_must_not_be(self):
        compiler = os.environ.get("CC", "cc")
        with tempfile.TemporaryDirectory() as folder:
            for number, (search, wrong) in enumerate(
                {
                    "/x:": ["/x", ""],
                    ":": ["", ""],
                    "lib": ["lib"],
                    "$ORIGIN:$ORIGIN/../lib": [],
                    f"{folder}/lib": [],
                    f"{folder}x": [f"{folder}x"],
                    "${ORIGIN}x": ["${ORIGIN}x"],
                    "$ORIGINx/../..": ["$ORIGINx/../.."],
                }.items()
            ):
                library = os.path.join(folder, f"{number}.so")
                subprocess.run(
                    [compiler, "-shared", "-x", "c", "/dev/null", "-o", library, f"-Wl,-rpath,{search}"], check=True
                )
                self.assertEqual([line.rsplit("'", 2)[1] for line in complaints(folder, [folder])], wrong, search)
                os.remove(library)


if __name__ == "__main__":
    RunpathTest.CMAKE, RunpathTest.BUILD = sys.argv[1], os.path.realpath(sys.argv[2])
    RunpathTest.INSTALL = "--install" in sys.argv
    unittest.main(argv=sys.argv[:1], verbosity=2)
