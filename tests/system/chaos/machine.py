# SPDX-License-Identifier: MIT
"""A whole machine of real processes, one on each host of a Network, and what it leaves behind."""
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))
import namespaces  # noqa: E402

PATIENCE = 120  # seconds for what should take one or two; a test that hangs says what it waits for


# What a stranger runs: it writes how many ports it has found, then what failed.
STRANGER = """\
import socket, sys
failed = []
ports = 0
for line in open("/proc/net/tcp").readlines()[1:]:
    words = line.split()
    if words[3] != "0A": continue
    host, port = words[1].split(":")
    host = ".".join(str(b) for b in reversed(bytes.fromhex(host)))
    host = "127.0.0.1" if host == "0.0.0.0" else host
    ports += 1
    for body in (b"", b"GET / HTTP/1.0\\r\\n\\r\\n", bytes.fromhex(sys.argv[1])):
        try:
            with socket.create_connection((host, int(port, 16)), 2) as s: s.sendall(body)
        except OSError as error: failed.append(f"{host}:{int(port, 16)}: {error}")
print(ports, *failed, sep="\\n")
"""


def send_garbage(hosts, garbage):
    """Sends nothing, a request of HTTP, and `garbage` to every port that these hosts listen at. Returns the number of
    ports and what failed."""
    ports, failed = 0, []
    for host in hosts:
        words = [sys.executable, "-c", STRANGER, garbage.hex()]
        found, *errors = host.run(words, stdout=subprocess.PIPE, text=True, timeout=60, check=True).stdout.splitlines()
        ports += int(found)
        failed += errors
    return ports, failed


class Machine:
    """aprun on the host "desk", and nodes on ws1, ws2, ... `more` has lines of [machine] and [comm]. `host_more` has
    lines of one host by its name, or is a function from the Host to them. `prefix` has words before aprun's command,
    and `streams` those of its standard streams that are not ours. `pool`: the hosts are made a pool of that name
    first."""

    CELLS = 2

    def __init__(
        self,
        bin_folder,
        program,
        arguments=(),
        nodes=3,
        rate=None,
        wan=None,
        machine_more="",
        comm_more="",
        host_more=None,
        options=(),
        before=None,
        beside=(),
        addresses=True,
        prefix=(),
        environment=None,
        pool=None,
        **streams,
    ):
        self.folder = Path(tempfile.mkdtemp(prefix="aplib-chaos-"))
        self.network = namespaces.Network([f"ws{i + 1}" for i in range(nodes)] + [*beside, "desk"], rate, wan=wan)
        self.hosts, self.beside, self.desk = (
            self.network.hosts[:nodes],
            self.network.hosts[nodes:-1],
            self.network.hosts[-1],
        )
        self.namespace_of = {os.stat(f"/run/netns/{host.namespace}").st_ino: host for host in self.network.hosts}
        if before:
            before(self)
        lines = ["[machine]", machine_more, "[comm]", comm_more]
        for host in self.hosts:
            extra = (host_more or {}).get(host.name, "")
            extra = extra(host) if callable(extra) else extra
            lines += [
                "[[host]]",
                f'name = "{host.name}"',
                f'address = "{host.address}"' if addresses else "",
                f"cells = {self.CELLS}",
                "threads = 1",
                extra,
            ]
            if "launch" not in extra:
                lines.append(
                    f"launch = \"command\"\ncommand = \"nsenter --net=/run/netns/{host.namespace} -- {{cmd}}\""
                )
        self.file = self.folder / "cluster.toml"
        self.file.write_text("\n".join(lines) + "\n")
        self.lines, self.errors, self.more = [], [], threading.Condition()
        # Folders for what a run keeps, removed with ours.
        kept = dict(os.environ, TMPDIR=str(self.folder), XDG_RUNTIME_DIR=str(self.folder))
        if callable(environment):
            environment = environment(self)
        self.environment = {**kept, **(environment or {})}
        where = ["--in", pool] if pool else ["-f", self.file]
        if pool:
            self.desk.run([bin_folder / "apctl", "up", "-f", self.file, "--name", pool], cwd=self.folder,
                          env=self.environment, stdout=subprocess.DEVNULL, check=True)
        command = [*prefix, bin_folder / "aprun", *where, *options, program, *map(str, arguments)]
        pipes = {name: subprocess.PIPE for name in ("stdin", "stdout", "stderr")}
        self.process = self.desk.popen(
            command, **{**pipes, **streams}, text=True, cwd=self.folder, env=self.environment
        )
        self.readers = [threading.Thread(target=self.read, args=pair)
                        for pair in ((self.process.stdout, self.lines), (self.process.stderr, self.errors)) if pair[0]]
        for reader in self.readers:
            reader.start()

    def read(self, stream, into):
        for line in stream:
            with self.more:
                if len(into) < 10000:
                    into.append(line.rstrip("\n"))
                self.more.notify_all()

    def wait_for(self, line):
        with self.more:
            if (
                not self.more.wait_for(lambda: line in self.lines or self.process.poll() is not None, PATIENCE)
                or line not in self.lines
            ):
                raise AssertionError(f"{line!r} did not come: {self.describe()}")

    def wait_for_descriptors(self, pid, count):
        """Waits for a moment during the start of a process, counted in the descriptors that it opens. Whether it came,
        or can come no more: the process has ended, or all run."""
        def opened():
            try:
                return len(os.listdir(f"/proc/{pid}/fd")) >= count or "all run" in self.lines
            except (FileNotFoundError, PermissionError):
                return True
        return namespaces.wait_until(opened, PATIENCE, 0.0005)

    def node(self, host):
        """The process id of the node on that host."""
        for pid, line in namespaces.processes().items():
            try:
                if (
                    re.match(r"\S*aprun\S* --node ", line)
                    and os.stat(f"/proc/{pid}/ns/net").st_ino == os.stat(f"/run/netns/{host.namespace}").st_ino
                ):
                    return pid
            except FileNotFoundError:
                pass
        raise AssertionError(f"there is no node on {host.name}: {namespaces.processes()}")

    def end(self):
        """Waits for it; (exit status, lines of stderr)."""
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it does not end: {self.describe()}") from None
        for reader in self.readers:
            reader.join(PATIENCE)
        return self.process.returncode, self.errors

    def describe(self):
        return (f"status {self.process.poll()}, output {self.lines[-5:]}, errors:\n  " + "\n  ".join(self.errors) +
                f"\nprocesses: {namespaces.processes()}")

    def check_nothing_left(self, but="no server"):
        """Checks that no process is left but the internet. `but` occurs in the command lines of servers that the test
        has started itself."""
        internet = self.network.wan.process.pid if self.network.wan else None

        def left():
            return [line for pid, line in namespaces.processes().items() if but not in line and pid != internet]

        if not namespaces.wait_until(lambda: not left(), PATIENCE):
            raise AssertionError(f"left behind: {left()}")

    def files(self):
        return sorted(
            str(path.relative_to(self.folder))
            for path in self.folder.rglob("*")
            if path.is_file() and path != self.file
        )

    def close(self):
        for pid in namespaces.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()
        for reader in self.readers:
            reader.join()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            try:
                if stream:
                    stream.close()
            except BrokenPipeError:
                pass
        self.network.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def seeded():
    """The test's own random numbers; APTEST_SEED repeats a run."""
    seed = int(os.environ.get("APTEST_SEED", time.time_ns() % 1000000))
    print(f"seed {seed} (APTEST_SEED={seed} repeats it)")
    return random.Random(seed)


def one_message(errors, pattern):
    """Checks that exactly one line says so."""
    found = [line for line in errors if re.search(pattern, line)]
    if len(found) != 1:
        raise AssertionError(f"{pattern!r} in {len(found)} lines of:\n  " + "\n  ".join(errors))
    return found[0]
