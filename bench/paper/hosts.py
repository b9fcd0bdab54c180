# SPDX-License-Identifier: MIT
"""Simulated hosts: namespaces with slow links and a share of a core each, and cluster files that start processes
there."""

import re
import shlex
import subprocess


class SlowHost:
    """A namespace bound to a core, with a share of it, or all of it. `environment`: variables of what runs there."""

    def __init__(self, host, core, quota=None, environment=None):
        self.host = host
        self.name = host.name
        self.core = core
        self.quota = quota
        self.environment = environment or {}

    def words(self, words):
        """The command line that runs `words` on this host."""
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        return self.host.command(["taskset", "-c", str(self.core), "env", *variables, *words], self.quota)

    def line(self):
        """The same as the key `command` of a cluster file; {cmd} stays as it is."""
        return shlex.join(self.words(["{cmd}"])).replace("'{cmd}'", "{cmd}")


class Filler:
    """Uses the rest of a core. A virtual processor that falls asleep whenever a quota is used up wakes slowly, and its
    speed varies by a fifth."""

    def __init__(self, core):
        self.command = ["chrt", "--idle", "0", "taskset", "-c", str(core), "sh", "-c", "while :; do :; done"]

    def __enter__(self):
        self.process = subprocess.Popen(self.command)

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def toml_text(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def started_by(text, slow_hosts):
    """The text of a cluster file, changed so that every host is started on one of `slow_hosts` instead of by ssh."""
    commands = {host.name: host.line() for host in slow_hosts}

    def replace(section):
        name = re.search(r'^name = "(.*?)"', section, re.MULTILINE).group(1)
        return re.sub(r"^launch = .*$", lambda _: "command = " + toml_text(commands[name]), section, flags=re.MULTILINE)

    first, *rest = re.split(r"^(?=\[\[host\]\])", text, flags=re.MULTILINE)
    # tcp, because otherwise they would use this computer's memory, which separate hosts cannot.
    return first + '[comm]\nmodule = "tcp"\n\n' + "".join(replace(section) for section in rest)


def with_cells(cells, speed_command=None):
    """The text of a cluster file with so many cells on each host, by name; "auto" measures by the command. The cells
    are strips of the square, so that each boundary between hosts is one side."""
    auto = "auto" in cells.values()
    hosts = "".join(
        f'[[host]]\nname = "{name}"\nlaunch = "ssh"\ncells = {toml_text(count) if count == "auto" else count}\n'
        "threads = 1\n\n"
        for name, count in cells.items()
    )
    shape = 'grid = "auto"' if auto else f'grid = "1x{sum(cells.values())}"'
    measured = f"speed-command = {toml_text(speed_command)}\n" if auto else ""
    return f'[machine]\n{shape}\nprogram = "scg"\n{measured}\n{hosts}'


def one_cell_each(names):
    """The text of a cluster file with a cell on every host."""
    hosts = "".join(f'[[host]]\nname = "{name}"\nlaunch = "ssh"\ncells = 1\nthreads = 1\n\n' for name in names)
    return f'[machine]\ncells = {len(names)}\nprogram = "scg"\npoll-time = 0\n\n{hosts}'
