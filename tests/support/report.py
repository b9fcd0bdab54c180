#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Reports what failed tests of a run said last, and in the end which were skipped and why. Fails if this computer could
have run one of those skipped.

usage: report.py LOG REPORT         ctest's log of the run; the report goes to the file REPORT and to standard output

A run tells of thousands of tests; what a failed one said stands here once more, near the summary, where one looks.

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
import textwrap

PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
FAILED_MAX = 5  # so many failed tests are quoted,
WIDTH = 120  # of the lines of names
QUOTED_MAX = 40  # with so many of their last lines, but what GoogleTest says of tests that went well
NOT_QUOTED = r"\[[ =-]*(RUN|OK|PASSED|SKIPPED)?[ =-]*\]"


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


def has_one(words):
    """Whether the tools of "a or b" or "a and b" are here."""
    return any(has(*choice.split(" and ")) for choice in words.split(" or "))


# A reason is "needs X" or "needs X: why". (X, whether it could have run here: of the test's name and the match)
NEEDS = [
    (r"a build without (sanitizers|ThreadSanitizer)", in_release),
    (r"a build with a sanitizer", lambda test, _: sanitized(test)),
    (r"a (module|net|provider) (with|that) .*", never),
    (r"a system that does not take everything at once|two free ports side by side", never),
    (r"an ld.so with a list of namespaces|userfaultfd|a compiler that makes copies of objects", never),
    (r"a system that lets (a debugger attach|perf measure)|a gdb with Python|core files in the folder.*", never),
    (r"a user who is not root", lambda *_: not is_root()),
    (r"root and (\S+)", lambda _, match: is_root() and has(match[1])),
    (
        r"temporary files that may be set-user-ID",
        lambda *_: is_root() and not os.statvfs(tempfile.gettempdir()).f_flag & os.ST_NOSUID,
    ),
    (r"devices that one can make and open", lambda *_: is_root() and succeeds("sh", "-c", MAKE_A_DEVICE)),
    (r"/dev/full", lambda *_: os.path.exists("/dev/full")),
    (
        r"namespaces",
        lambda *_: is_root() and succeeds("unshare", "--mount", "--net", "--pid", "--fork", "true"),
    ),
    (
        r"a control group for processor time",
        lambda *_: is_root() and os.access("/sys/fs/cgroup/cgroup.procs", os.W_OK),
    ),
    (r"the device /dev/net/tun", lambda *_: is_root() and succeeds("sh", "-c", ": <>/dev/net/tun")),
    (r"nf_tables", lambda *_: is_root() and has("nft") and succeeds("unshare", "--net", "nft", "add table inet a")),
    (r"a working directory for each thread \(unshare\)", lambda *_: succeeds("unshare", "--mount", "true")),
    (r"two cores", lambda *_: len(os.sched_getaffinity(0)) >= 2),
    (r"(\d+) MiB of memory", lambda _, match: available_mib() > 2 * int(match[1])),
    (r"no Slurm allocation around it", lambda *_: "SLURM_JOB_ID" not in os.environ),
    (r"the tool (\S+(?: (?:or|and) \S+)*)(?: \(.*\))?", lambda _, match: has_one(match[1])),
    (
        r"PMIx",
        lambda *_: has("mpirun") and ctypes.util.find_library("pmix") is not None and succeeds("mpirun", "--version"),
    ),
    (r"a linker that packs relocations", lambda *_: links("-Wl,-z,pack-relative-relocs")),
    (r"OpenMP", lambda *_: links("-fopenmp")),
    (r"a static C library", lambda *_: links("-Wl,-Bstatic", "-lc", "-Wl,-Bdynamic")),
    (r"the address 127\.0\.0\.1", lambda *_: True),
    (
        r"the library (\S+)",
        lambda _, match: bool(glob.glob(f"/lib/*/{match[1]}") or glob.glob(f"/usr/lib/*/{match[1]}")),
    ),
    (r"the package (\S+) of pkg-config", lambda _, match: succeeds("pkg-config", "--exists", match[1])),
    (r"the documentation of (\S+)", lambda _, match: bool(glob.glob(f"/usr/share/doc/{match[1]}/examples/*"))),
    (r"thread-locals of aprun's right below the thread pointer", never),
    (r"sources from (apt|git)", never),
    (r"APlib's own programs", lambda *_: True),
]
# Where devices may be made, they may still not be opened (nodev).
MAKE_A_DEVICE = 'd=$(mktemp -d) && mknod "$d/null" c 1 3 && : >"$d/null"; s=$?; rm -rf "$d"; exit $s'


def tests_of(log):
    """(name, the part of ctest's log from its output on) of each test."""
    for block in re.split(r"^\d+/\d+ Testing: ", log, flags=re.MULTILINE)[1:]:
        yield block.split("\n", 1)[0], block.partition("\nOutput:\n")[2]


def skipped(log):
    """(test, reason) of everything that was skipped in a log of ctest. One test of ctest may hold several. The log
    does not tell of tests that end with their status for "skipped" and say nothing."""
    for name, output in tests_of(log):
        found = re.findall(r"^[^\n]*: Skipped\n(.+)$", output, re.MULTILINE)  # GoogleTest
        found += re.findall(r"^(?:[\w.+-]+: )?skipped: (.+)$", output, re.MULTILINE)  # our scripts
        found += re.findall(r"^\[  SKIPPED \] \w+/[\w-]+: (.+)$", output, re.MULTILINE)
        if not found:
            found = re.findall(r"\.\.\. skipped ['\"](.+)['\"]$", output, re.MULTILINE)  # unittest
        if not found and "\nSkip regular expression found" in output:
            found = [""]
        for reason in found:
            yield name, reason.strip()


def failed(log):
    """(test, its last lines) of each test that failed, in a log of ctest."""
    for name, output in tests_of(log):
        said, _, end = output.rpartition("\n<end of output>\n")
        if "\nTest Failed.\n" in end:
            lines = said.splitlines()[1:]  # behind a line of dashes
            yield name, [line for line in lines if not re.match(NOT_QUOTED, line)][-QUOTED_MAX:]


def complaint_of(test, reason):
    """Why this skip is a failure; nothing when it is none."""
    if not reason:
        return "says no reason"
    need = re.match(r"needs (.+?)(?:: .*)?$", reason)
    if not need:
        return 'its reason is not of the form "needs X"'
    for pattern, could in NEEDS:
        match = re.fullmatch(pattern, need[1])
        if match:
            return "this machine could run it" if could(test, match) else None
    return "its reason is not in the table of tests/support/report.py"


def main(log, report):
    groups, complaints = collections.defaultdict(list), []
    text = pathlib.Path(log).read_text(encoding="utf-8", errors="replace")
    for test, reason in skipped(text):
        complaint = complaint_of(test, reason)
        groups[reason].append(test)
        if complaint:
            complaints.append(f"{test}: skipped: {reason or '(nothing)'}: {complaint}")
    lines = []
    for test, said in list(failed(text))[:FAILED_MAX]:
        lines += [f"failed: {test}; its last lines:", *("  " + line for line in said)]
    lines += complaints
    lines.append(f"skipped: {sum(map(len, groups.values()))} tests, for {len(groups)} reasons")
    for reason, tests in sorted(groups.items(), key=lambda item: -len(item[1])):
        lines.append(f"  {len(tests):4} {reason}:")
        lines += textwrap.wrap(", ".join(tests), WIDTH, initial_indent=" " * 7, subsequent_indent=" " * 7,
                               break_long_words=False, break_on_hyphens=False)
    pathlib.Path(report).write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
