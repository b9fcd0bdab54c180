# SPDX-License-Identifier: MIT
"""Every library that cells share has a row in docs/privatization.md that says why it cannot be private, or cannot hurt.
Looks into those of this computer: a row that says of one that it writes nothing of its own must be right.

    tests/loader/shared_libraries.py FOLDER-OF-THE-SOURCES
"""

import fnmatch
import pathlib
import re
import subprocess
import sys

LISTS = ("never_separate", "shareable")
NOTHING = "nothing"
COMPILERS_BYTES = 16  # of .data and .bss each: a handle for destructors, and whether they have run
SECTION = re.compile(r"\] (\.data|\.bss|\.tdata|\.tbss) +\S+ +[0-9a-f]+ [0-9a-f]+ ([0-9a-f]+) ")


def listed(source):
    """The patterns of program.cpp's lists."""
    text = (source / "src/loader/program.cpp").read_text(encoding="utf-8")
    return [name for one in LISTS for name in
            re.findall(r'"([^"]+)"', re.search(rf"constexpr std::array {one}\{{(.*?)\}};", text, re.S)[1])]


def rows(source):
    """{pattern: what it writes} of the page's table."""
    text = (source / "docs/privatization.md").read_text(encoding="utf-8")
    table = re.search(r"\| shared library \|.*?\n\n", text, re.S)[0].splitlines()[2:]
    found = {}
    for line in filter(None, table):
        names, writes, why = (cell.strip() for cell in line.strip("|").split("|"))
        assert why, line
        found.update(dict.fromkeys(re.findall(r"`([^`]+)`", names), writes))
    return found


def installed():
    """{name: path} of the system's libraries."""
    cache = subprocess.run(["/sbin/ldconfig", "-p"], stdout=subprocess.PIPE, text=True, check=True).stdout
    return dict(reversed(re.findall(r"^\t(\S+) \(libc6,x86-64[^)]*\) => (\S+)$", cache, re.M)))


def written_bytes(path):
    """Bytes of the sections that stay writable, without those of every library."""
    listing = subprocess.run(["readelf", "-SW", path], stdout=subprocess.PIPE, text=True, check=True).stdout
    return sum(int(size, 16) for _, size in SECTION.findall(listing) if int(size, 16) > COMPILERS_BYTES)


def main(source):
    patterns, documented = listed(source), rows(source)
    complaints = [f"{pattern}: the page has no row for it" for pattern in patterns if pattern not in documented]
    complaints += [f"{pattern}: the page has a row for it, and no list" for pattern in documented
                   if pattern not in patterns]
    looked_at = 0
    for name, path in sorted(installed().items()):
        pattern = next((each for each in documented if fnmatch.fnmatchcase(name, each)), None)
        if pattern is None:
            continue
        looked_at += 1
        if documented[pattern] == NOTHING and written_bytes(path):
            complaints.append(f"{path}: has {written_bytes(path)} bytes that it may write; say in the row of {pattern} "
                              "why they cannot hurt")
    print("\n".join([*complaints, f"{looked_at} libraries, {len(complaints)} complaints"]))
    return int(bool(complaints) or not looked_at)


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
