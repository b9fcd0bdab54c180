# SPDX-License-Identifier: MIT
"""Simulated hosts: namespaces with slow links and a share of a core each, and cluster files that start processes
there."""

import re
import shlex
import subprocess


class SlowHost:
    """A namespace bound to a core, with a share of it, or all of it."""

    def __init__(self, host, core, quota=None):
        self.host = host
        self.name = host.name
        self.core = core
        self.quota = quota

    def words(self, words):
        """The command line that runs `words` on this host."""
        return self.host.command(["taskset", "-c", str(self.core), *words], self.quota)

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


def one_cell_each(names):
    """The text of a cluster file with a cell on every host."""
    hosts = "".join(f'[[host]]\nname = "{name}"\nlaunch = "ssh"\ncells = 1\nthreads = 1\n\n' for name in names)
    return f'[machine]\ncells = {len(names)}\nprogram = "scg"\npoll-time = 0\n\n{hosts}'
