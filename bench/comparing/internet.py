# SPDX-License-Identifier: MIT
"""Hosts that are far from each other: network namespaces of this computer and an internet between them, with real ssh
servers and a pool. All of it ends with the script that has called enclose()."""

import contextlib
import itertools
import json
import os
import pathlib
import secrets
import subprocess
import sys
import tempfile
import time

from . import globus, sources

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "launch" / "start"))

import servers  # noqa: E402 (the path must be set first)
from servers import namespaces  # noqa: E402
from sites import Wan  # noqa: E402

RATE = "1Gb/s"
MIB = 1 << 20
SECONDS_MAX = 900  # of one command
WAYS_BYTES = 100_000_000  # a transfer of so many opens all ways of ssh that a pool may have
MESSAGES_PORT = 5100  # of comm_tcp_wan_peer
IDLE_SECONDS = 1  # after which a connection begins slowly again
HELLO = '#include <stdio.h>\nint main(void) { puts("hello"); return 0; }\n'


def hindrance():
    """Why there can be no such hosts here, or None."""
    return namespaces.hindrance() or Wan.hindrance() or servers.missing(servers.Sshd.NEEDS)


def enclose():
    """As namespaces.enclose(): this script begins once more, in namespaces of its own."""
    namespaces.enclose()


def congestion_control():
    """The system's own, which all connections have."""
    return pathlib.Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text(encoding="ascii").strip()


class Internet:
    """Two hosts and a desk, from which all is called. Nothing is there before the first at()."""

    def __init__(self, build):
        self.programs = build.resolve() / "bin"
        self.desk = None
        self.round_trip_ms = None
        self.pool_stands = self.ways_stand = False
        self.taken = {}  # what those who measure keep in mind
        self.grid = globus.Grid(self)

    def at(self, round_trip_ms):
        """From now on, packets between any two take that time there and back."""
        if self.desk is None:
            self.open()
        if round_trip_ms == self.round_trip_ms:
            return
        # Connections that stand have measured how far it was, and would take it for that.
        self.end_pool()
        for one, other in itertools.permutations(self.network.hosts, 2):
            self.network.wan.set(one, other, delay=f"{round_trip_ms / 2}ms")
        self.round_trip_ms = round_trip_ms

    def open(self):
        self.network = namespaces.Network(["ws1", "ws2", "desk"], wan=Wan(self.programs / "wan", rate=RATE))
        *hosts, desk = self.network.hosts
        sshd = servers.Sshd("MaxStartups 100\nSubsystem sftp internal-sftp", hosts=hosts)
        self.ssh, self.host = sshd.command.split(), hosts[0]
        folder = servers.Folder("wan")
        self.folder = folder.path
        lines = [f'[machine]\nssh-options = ["-F", "{sshd.folder.path}/ssh_config"]\n']
        lines += [f'[[host]]\nname = "{host.name}"\nssh = "{host.address}"\ncells = 1\n' for host in hosts]
        folder.write("p.toml", "".join(lines))
        sources.run([self.programs / "apcc", folder.write("hello.c", HELLO), "-o", self.folder / "hello"])
        self.desk = desk

    def seconds(self, program, *words, pool=False, environment=None):
        """How long the command takes at the desk. One of APlib's is a program of the build, and may need a pool."""
        if pool and not self.pool_stands:
            self.seconds("apctl", "up", "-f", self.folder / "p.toml")
            self.pool_stands = True
        own = self.programs / program
        command = [own if own.exists() else program, *words]
        begun = time.monotonic()
        sources.run(self.desk.command(command), name=program, seconds=SECONDS_MAX, cwd=self.folder, env=environment,
                    stdin=subprocess.DEVNULL)  # fmt: skip
        return time.monotonic() - begun

    def together(self, commands, environment):
        """What commands print that run at the desk at the same time."""
        with contextlib.ExitStack() as ends:
            runs = [ends.enter_context(started(self.desk, words, environment)) for words in commands]
            return [finished(run) for run in runs]

    def end_pool(self):
        if self.pool_stands:
            self.pool_stands = self.ways_stand = False
            with contextlib.suppress(sources.Unusable):  # what of it stands no more is no matter
                self.seconds("apctl", "down", "p")

    def file(self, size):
        """One of so many bytes that nothing compresses."""
        path = self.folder / f"file-{size}"
        if not path.exists():
            with open(path, "wb") as file:
                for begin in range(0, size, MIB):
                    file.write(os.urandom(min(MIB, size - begin)))
        return path

    def files(self, count, size):
        """A folder with so many of them."""
        path = self.folder / f"files-{count}-{size}"
        if not path.exists():
            path.mkdir()
            for number in range(count):
                (path / f"{number:05}").write_bytes(os.urandom(size))
        return path

    def carried(self, source, carry):
        """The seconds in which `carry(source, folder)` brings the file or folder into the folder."""
        with tempfile.TemporaryDirectory(dir=self.folder) as there:
            seconds = carry(source, there)
            if contents(pathlib.Path(there, source.name)) != contents(source):
                raise sources.Unusable(f"{source.name} did not come whole")
            return seconds

    def transfer(self, way, size, by):
        """The seconds of a file's way from the desk to a host, `way` "put", or back, "get". `by` is one of those
        below."""
        return self.carried(self.file(size), lambda source, folder: by(way, source, folder))

    def by_apctl(self, way, source, folder):
        if not self.ways_stand:
            self.ways_stand = True
            for first in ("put", "get"):
                self.transfer(first, WAYS_BYTES, self.by_apctl)
            time.sleep(IDLE_SECONDS)
        words = [source, f"p:{self.host}:{folder}"] if way == "put" else [f"p:{self.host}:{source}", folder]
        return self.seconds("apctl", way, *words, pool=True)

    def by_scp(self, way, source, folder):
        return self.seconds("scp", "-q", *self.ssh[1:], *self.named(way, source, folder))

    def by_rsync(self, way, source, folder):
        return self.seconds("rsync", "-r", "-e", " ".join(self.ssh), *self.named(way, source, folder))

    def named(self, way, source, folder):
        there = f"{self.host.address}:"
        return [source, f"{there}{folder}/"] if way == "put" else [f"{there}{source}", f"{folder}/"]

    def by_tar(self, way, source, folder):
        """A folder to a host."""
        there = f"{' '.join(self.ssh)} {self.host.address} tar -C {folder} -xf -"
        line = f"tar -C {source.parent} -cf - {source.name} | {there}"
        return self.seconds("bash", "-o", "pipefail", "-c", line)

    def login(self):
        """The seconds of a command on the host by ssh that does nothing."""
        return self.seconds(*self.ssh, self.host.address, "true")

    def hello(self):
        """The seconds of a program on both hosts that only prints."""
        return self.seconds("aprun", "--in", "p", "./hello", pool=True)

    def messages(self, count, size, connections):
        """Mb/s of messages from the desk to a host, over so many connections, or as many as APlib finds right: 0."""
        key = secrets.token_hex(32)

        def process(number, here, other):
            program = self.programs / "comm_tcp_wan_peer"
            return started(here, [program, key, number, here.address, other.address, count, size, connections, 30])

        with process(1, self.host, self.desk) as receiver:
            if not namespaces.wait_until(lambda: listens(self.host, MESSAGES_PORT), SECONDS_MAX):
                raise sources.Unusable("comm_tcp_wan_peer does not listen")
            with process(0, self.desk, self.host) as sender:
                text = finished(sender)
                finished(receiver)
        return float(text.split()[1])

    def iperf3(self, count, size, connections):
        """Mb/s of as many bytes, over so many connections."""
        with started(self.host, ["iperf3", "-s", "-1", "--forceflush"]) as server:
            while "listening" not in (line := server.stdout.readline()):
                if not line:
                    raise sources.Unusable("iperf3 -s ended before it listened")
            words = ["iperf3", "-c", self.host.address, "-J", "-P", connections, "-n", count * size]
            with started(self.desk, words) as client:
                found = json.loads(finished(client))["end"]
            finished(server)
        return found["sum_received"]["bits_per_second"] / 1e6


def listens(host, port):
    return host.run(["ss", "-Hltn", f"sport = :{port}"], stdout=subprocess.PIPE, check=True).stdout != b""


def contents(path):
    """Names and sizes of a file, or those in a folder."""
    return sorted((file.name, file.stat().st_size) for file in ([path] if path.is_file() else path.iterdir()))


@contextlib.contextmanager
def started(host, words, environment=None):
    """A process on the host that does not outlive the block."""
    process = host.popen(words, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def finished(process):
    """What it has printed. Raises Unusable if it fails."""
    name = pathlib.Path(process.args[3]).name  # behind nsenter's own words
    try:
        text, _ = process.communicate(timeout=SECONDS_MAX)
    except subprocess.TimeoutExpired as error:
        raise sources.Unusable(f"{name} did not end within {SECONDS_MAX} s") from error
    if process.returncode != 0:
        raise sources.Unusable(f"{name} failed with status {process.returncode}: {text.strip()[-200:]}")
    return text
