#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Reports which tests of a run were skipped and why, and fails if this computer could have run one of them.

usage: skips.py LOG REPORT          ctest's log of the run; the report goes to the file REPORT and to standard output

The table below judges reasons: what the test needs, and whether this computer has it. A reason without a row is a
failure too: whoever adds a reason adds the row that says how to find out.
"""

import collections
import ctypes.util
import glob
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


def succeeds(*command):
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              timeout=30).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def has(*tools):
    return all(shutil.which(tool, path=PATH) for tool in tools)


def links(*flags):
    """Whether the compiler makes a shared object with these flags."""
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "a.c"
        source.write_text("int a;\n")
        return succeeds("cc", "-shared", "-fPIC", *flags, "-o", source.with_suffix(".so"), source)


def available_mib():
    match = re.search(r"^MemAvailable: +(\d+) kB", pathlib.Path("/proc/meminfo").read_text(), re.MULTILINE)
    return int(match[1]) // 1024 if match else 0


def sanitized(test):
    return test.startswith(("asan: ", "tsan: "))


def is_root():
    return os.geteuid() == 0


def in_release(test, _):
    return not sanitized(test)


def never(_test, _match):
    return False


# (reason, what the test needs, whether it could have run here: of the test's name and the match)
NEEDS = [
    (r"[Ss]anitizer|LeakSanitizer|only release builds are installed", "a build without sanitizers", in_release),
    (r"the test before this one does more", "a build with a sanitizer", lambda test, _: sanitized(test)),
    (
        r"this module has none|this net cannot|no remote memory between these processes|libfabric's shm never answers",
        "a module that can do it",
        never,
    ),
    (r"this system takes everything at once|no two free ports side by side", "a system with other limits", never),
    (r"has no list of namespaces", "a newer ld.so", never),
    (r"does not tell of unmapped memory", "userfaultfd", never),
    (r"this compiler makes no copies", "another compiler", never),
    (r"root may read everything", "a user who is not root", lambda *_: not is_root()),
    (r"needs root and (\w+)", "root and setpriv", lambda _, match: is_root() and has(match[1])),
    (
        r"set-user-ID has no effect",
        "temporary files that may be set-user-ID",
        lambda *_: is_root() and not os.statvfs(tempfile.gettempdir()).f_flag & os.ST_NOSUID,
    ),
    (
        r"network namespaces need root|hiding a folder|makes no namespaces|see its processes alone",
        "namespaces for network, mounts and processes",
        lambda *_: is_root() and succeeds("unshare", "--mount", "--net", "--pid", "--fork", "true"),
    ),
    (
        r"no control group",
        "a control group for processor time",
        lambda *_: is_root() and os.access("/sys/fs/cgroup/cgroup.procs", os.W_OK),
    ),
    (r"unshare", "a folder of one's own for each thread (unshare)", lambda *_: succeeds("unshare", "--mount", "true")),
    (r"needs two CPUs|a core each|needs two cores", "two cores", lambda *_: len(os.sched_getaffinity(0)) >= 2),
    (r"needs (\d+) MiB of memory", "memory", lambda _, match: available_mib() > 2 * int(match[1])),
    (r"inside an allocation", "no Slurm allocation", lambda *_: "SLURM_JOB_ID" not in os.environ),
    (
        r"'([\w.+-]+)' is missing|no (gcc|make|autoconf|gfortran|clang) here|([\w.+-]+) is not installed",
        "a tool",
        lambda _, match: has(next(group for group in match.groups() if group)),
    ),
    (r"neither (\S+) nor (\S+) here", "another linker", lambda _, match: has(match[1]) or has(match[2])),
    (
        r"(\w+) needs ([\w.+ -]+) to be built",
        "tools to build a program",
        lambda _, match: has(*match[2].split(" and ")),
    ),
    (
        r"mpirun is not Open MPI's|no plugin for PMIx|without PMIx",
        "Open MPI, or Slurm with PMIx",
        lambda *_: has("mpirun") and ctypes.util.find_library("pmix") is not None and succeeds("mpirun", "--version"),
    ),
    (
        r"packs no relocations|cannot pack relative relocations",
        "a linker that packs relocations",
        lambda *_: links("-Wl,-z,pack-relative-relocs"),
    ),
    (r"has no OpenMP", "OpenMP", lambda *_: links("-fopenmp")),
    (r"no static C library", "a static C library", lambda *_: links("-Wl,-Bstatic", "-lc", "-Wl,-Bdynamic")),
    (r"no 127\.0\.0\.1", "a loopback address", lambda *_: True),
    (
        r"(lib[\w.+-]+) is not here",
        "a library",
        lambda _, match: bool(glob.glob(f"/lib/*/{match[1]}") or glob.glob(f"/usr/lib/*/{match[1]}")),
    ),
    (r"apt (?:fetched|cannot fetch|has no)|no apt-get here", "the sources of a program, by the network", never),
    (r"apcc is not built|is not built in", "APlib's own programs", lambda *_: True),
]


def skipped(log):
    """(test, reason) of everything that was skipped in a log of ctest. One test of ctest may hold several. The log
    does not tell of tests that end with their status for "skipped" and say nothing."""
    for block in re.split(r"^\d+/\d+ Testing: ", log, flags=re.MULTILINE)[1:]:
        name = block.split("\n", 1)[0]
        output = block.partition("\nOutput:\n")[2]
        found = re.findall(r"^[^\n]*: Skipped\n(.+)$", output, re.MULTILINE)  # GoogleTest
        found += re.findall(r"^(?:[\w.+-]+: )?skipped: (.+)$", output, re.MULTILINE)  # our scripts
        found += re.findall(r"^\[  SKIPPED \] \w+/[\w-]+: (.+)$", output, re.MULTILINE)
        if not found:
            found = re.findall(r"\.\.\. skipped ['\"](.+)['\"]$", output, re.MULTILINE)  # unittest
        if not found and "\nSkip regular expression found" in output:
            found = [""]
        for reason in found:
            yield name, reason.strip()


def judged(test, reason):
    """(what it needs, complaint or nothing)"""
    if not reason:
        return "?", "says no reason"
    for pattern, need, could in NEEDS:
        match = re.search(pattern, reason)
        if match:
            return need, "this machine could run it" if could(test, match) else None
    return "?", "its reason is not in the table of tests/support/skips.py"


def main(log, report):
    groups, complaints = collections.defaultdict(list), []
    text = pathlib.Path(log).read_text(encoding="utf-8", errors="replace")
    for test, reason in skipped(text):
        need, complaint = judged(test, reason)
        groups[need, reason].append(test)
        if complaint:
            complaints.append(f"{test}: skipped: {reason or '(nothing)'}: {complaint}")
    lines = [f"skipped: {sum(map(len, groups.values()))} tests, for {len(groups)} reasons"]
    for (need, reason), tests in sorted(groups.items(), key=lambda item: -len(item[1])):
        lines.append(f"  {len(tests):4} need {need}: {reason} ({tests[0]}{', ...' if len(tests) > 1 else ''})")
    lines += complaints
    pathlib.Path(report).write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
