# SPDX-License-Identifier: MIT
"""A description of this computer, without its name."""

import os
import pathlib
import platform
import re
import subprocess
import time


def first_match(pattern, text, otherwise):
    found = re.search(pattern, text, re.MULTILINE)
    return found.group(1).strip() if found else otherwise


def read(path):
    try:
        return pathlib.Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def compiler(build):
    cache = read(build / "CMakeCache.txt")
    path = first_match(r"^CMAKE_CXX_COMPILER:\w+=(.+)$", cache, "")
    if not path:
        return "unknown"
    try:
        text = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    except OSError:
        return "unknown"
    kind = "clang" if "clang" in text else "gcc"
    build_type = first_match(r"^CMAKE_BUILD_TYPE:\w+=(.+)$", cache, "no build type")
    version = first_match(r"(\d+\.\d+\.\d+)", text, "?")
    return f"{kind} {version}, {build_type}"


def describe(build):
    info = read("/proc/cpuinfo")
    release = read("/etc/os-release")
    return {
        "processor": first_match(r"^model name\s*:\s*(.+)$", info, platform.machine()),
        "virtual": " hypervisor" in first_match(r"^flags\s*:(.+)$", info, ""),
        "cores": len(os.sched_getaffinity(0)),
        "system": first_match(r'^PRETTY_NAME="?([^"\n]+)', release, "unknown"),
        "kernel": "Linux " + first_match(r"^(\d+\.\d+(?:\.\d+)?)", platform.release(), "?"),
        "compiler": compiler(build),
        "libc": " ".join(platform.libc_ver()),
    }


def ticks():
    """(busy, all) processor time since the computer was started."""
    fields = [int(field) for field in read("/proc/stat").split("\n", 1)[0].split()[1:9]]
    return sum(fields) - sum(fields[3:5]), sum(fields)  # 3, 4: idle, waiting for a disk


def busy_percent(seconds=1.0):
    """The share of the computer that others use now."""
    try:
        busy, total = ticks()
        time.sleep(seconds)
        busy_after, total_after = ticks()
        return min(100 * (busy_after - busy) / max(total_after - total, 1), 100.0)  # idle time may be taken back
    except (ValueError, IndexError):
        return 0.0


def sentence(facts):
    kind = " (virtual machine)" if facts["virtual"] else ""
    return (
        f"{facts['processor']}{kind}, {facts['cores']} cores, {facts['system']}, {facts['kernel']}, {facts['libc']}, "
        f"{facts['compiler']}"
    )
