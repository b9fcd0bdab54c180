#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Pools: hosts on this computer, and hosts that real ssh servers lead to; what is killed on the way, and strangers.

    pool_test.py BIN [NAME]         BIN has aprun, apctl, apkeeper and apcc"""
import fcntl
import json
import os
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import unittest
import unittest.mock
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "start"))
import driver  # noqa: E402
import servers  # noqa: E402
from servers import namespaces  # noqa: E402

PATIENCE = 120
RING = Path("/run/aplib-pool-programs/ring")
RUNTIME = Path("/run/aptest/aplib")  # what namespaces.enclose() makes XDG_RUNTIME_DIR
KEEPER_VERSION = 3
FACTS = 2


def processes(name, folder=None):
    """The processes of that program; those that have `folder` in their command lines."""
    return sorted(
        pid
        for pid, line in namespaces.processes().items()
        if Path(line.split()[0]).name == name and (folder or "") in line
    )


def fields(*texts):
    """A knock's body: its purpose and token, a command, a folder."""
    return b"".join(struct.pack("<Q", len(text)) + text for text in texts)


def knock(key, purpose, token=0, command=(), version=KEEPER_VERSION):
    body = struct.pack("<BQQ", purpose, token, len(command)) + fields(*command) + fields(b"") + b"\0\0"
    return struct.pack("<II", len(body), version) + key + body


def talk(path, data, close=True):
    """What comes back for these bytes until the other side closes."""
    with socket.socket(socket.AF_UNIX) as made:
        made.settimeout(PATIENCE)
        made.connect(str(path))
        got = b""
        try:
            made.sendall(data)
            if close:
                made.shutdown(socket.SHUT_WR)
            while piece := made.recv(65536):
                got += piece
        except (BrokenPipeError, ConnectionResetError):
            pass
        return got


class Tap:
    """A socket that leads to another one, and counts the connections and bytes that it has led."""

    def __init__(self, path, target):
        self.target, self.connections, self.bytes = str(target), 0, 0
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen(16)
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def end(self):
        self.listener.shutdown(socket.SHUT_RDWR)  # which ends accept(), as closing does not
        self.thread.join()
        self.listener.close()

    def serve(self):
        while True:
            try:
                near = self.listener.accept()[0]
            except OSError:
                return
            far = socket.socket(socket.AF_UNIX)
            far.connect(self.target)
            self.connections += 1
            for pair in ((near, far), (far, near)):
                threading.Thread(target=self.lead, args=pair, daemon=True).start()

    def lead(self, reader, writer):
        try:
            while piece := reader.recv(65536):
                writer.sendall(piece)
                self.bytes += len(piece)
        except OSError:
            pass
        for end in (reader, writer):
            try:
                end.shutdown(socket.SHUT_RDWR)  # the other thread closes it, too
            except OSError:
                pass


class PoolTest(unittest.TestCase):
    def setUp(self):
        self.folder = servers.Folder("pool")
        self.addCleanup(self.folder.remove)
        self.addCleanup(self.end_all)

    def end_all(self):
        for pid in processes("apkeeper"):
            os.kill(pid, signal.SIGKILL)
        for pid, line in namespaces.processes().items():
            if "[mux]" in line:
                os.kill(pid, signal.SIGKILL)
        subprocess.run(["rm", "-rf", RUNTIME], check=True)

    def command(self, *words):
        return [driver.BIN / words[0], *map(str, words[1:])]

    def run_it(self, *words, status=0):
        done = subprocess.run(
            self.command(*words), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE,
            cwd=self.folder.path
        )
        self.assertEqual(done.returncode, status, (words, done.stdout, done.stderr))
        return done

    def start_ring(self, pool="p"):
        made = subprocess.Popen(
            self.command("aprun", "--in", pool, RING), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, cwd=self.folder.path
        )
        self.addCleanup(made.communicate)
        self.addCleanup(made.kill)
        self.assertEqual(made.stdout.readline(), "all run\n")
        return made

    def check_runs(self, *options, pool="p"):
        self.assertEqual(self.run_it("aprun", "--in", pool, *options, RING, 100).stdout, "all run\nall done\n")
        self.check_no_node()

    def check_no_node(self):
        self.assertTrue(namespaces.wait_until(lambda: not processes("aprun"), PATIENCE), namespaces.processes())

    def hosts(self, pool="p", status=0):
        return json.loads(self.run_it("apctl", "hosts", pool, "--json", status=status).stdout)


class Here(PoolTest):
    """Two hosts of this computer, which have one keeper."""

    FILE = '[comm]\npeer-timeout = "5s"\n[[host]]\nname = "a"\nlaunch = "local"\ncells = 2\n' \
           '[[host]]\nname = "b"\nlaunch = "local"\ncells = 2\n'

    def up(self, more="", status=0):
        file = self.folder.write("p.toml", more + self.FILE)
        return self.run_it("apctl", "up", "-f", file, status=status)

    def socket(self):
        path, = RUNTIME.glob("*.keeper")
        return path

    def key(self):
        return bytes.fromhex((RUNTIME / "p.pool" / "pool").read_text().split("\n")[0])

    def test_life(self):
        self.assertEqual(self.up().stdout, "pool p: 1 host stands ready\n")
        keeper, = processes("apkeeper")
        for _ in range(3):
            self.check_runs()
        host, = self.hosts()
        self.assertEqual((host["stands"], host["started"], host["running"], host["keeper"]), (True, 6, 0, keeper))
        listed = self.run_it("aprun", "--list-modules").stdout
        self.assertEqual(host["modules"], sorted(re.findall(r"^(\w+) .* usable ", listed, re.MULTILINE)))
        self.assertEqual((RUNTIME / "p.pool" / "pool").stat().st_mode & 0o777, 0o600)
        self.assertEqual(self.socket().stat().st_mode & 0o077, 0)
        self.assertEqual(self.up().stdout, "pool p: 1 host stands ready\n")
        self.assertEqual(processes("apkeeper"), [keeper])
        self.run_it("apctl", "down", "p")
        self.assertTrue(namespaces.wait_until(lambda: not processes("apkeeper"), PATIENCE))
        self.assertEqual(list(RUNTIME.iterdir()), [])
        self.assertRegex(
            self.run_it("aprun", "--in", "p", RING, status=2).stderr, "^aprun: there is no pool p: apctl up"
        )

    def test_up_tells_that_it_waits(self):
        file = self.folder.write("p.toml", self.FILE)
        RUNTIME.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(RUNTIME / "p.pool-lock", "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            up = subprocess.Popen(self.command("apctl", "up", "-f", file), stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self.addCleanup(up.kill)
            self.assertEqual(up.stderr.readline(), "apctl: pool p: waits for another apctl up or down of it\n")
        self.assertEqual((*up.communicate(timeout=PATIENCE), up.returncode), ("pool p: 1 host stands ready\n", "", 0))
        keeper, = processes("apkeeper")
        os.kill(keeper, signal.SIGSTOP)
        again = self.run_it("apctl", "up", "p")
        self.assertIn("apctl: pool p: waits for an answer of its keepers\n", again.stderr)

    def test_two_ups_at_once(self):
        file = self.folder.write("p.toml", self.FILE)
        for _ in range(4):
            ups = [
                subprocess.Popen(self.command("apctl", "up", "-f", file), stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                for _ in range(3)
            ]
            ends = [(up.communicate(timeout=PATIENCE)[0], up.returncode) for up in ups]
            self.assertEqual(ends, [("pool p: 1 host stands ready\n", 0)] * 3)
            self.assertEqual(len(processes("apkeeper")), 1)
            self.run_it("apctl", "down", "p")
            self.assertTrue(namespaces.wait_until(lambda: not processes("apkeeper"), PATIENCE))
            self.assertEqual(list(RUNTIME.iterdir()), [])

    def test_status_and_words_of_programs(self):
        self.up()
        lines = self.run_it("aprun", "--in", "p", "--processes", "sh", "-c", "echo out; echo err >&2; exit 3", status=3)
        self.assertEqual((lines.stdout, lines.stderr.count("err\n")), ("out\n" * 4, 4))
        self.check_no_node()
        self.assertRegex(
            self.run_it("aprun", "--in", "p", "/no/such", status=2).stderr, "^aprun: there is no program /no/such"
        )

    def test_a_node_is_clean(self):
        self.up()
        keeper, = processes("apkeeper")
        text = self.run_it("aprun", "--in", "p", "--processes", "sh", "-c",
                           "ls /proc/$PPID/fd >/dev/null; grep -E 'Sig(Blk|Ign)' /proc/$PPID/status; umask; pwd").stdout
        self.assertIn(str(self.folder.path), text)
        node = self.start_ring()
        for pid in processes("aprun", "--node"):
            links = [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()]
            inherited = {os.readlink(link) for link in Path(f"/proc/{keeper}/fd").iterdir()} & set(links)
            # The words are the keeper's, too, which writes the end there.
            self.assertLessEqual(len({link for link in inherited if link != "/dev/null"}), 1, inherited)
        node.kill()
        self.check_no_node()

    def test_killed_launcher(self):
        self.up()
        for _ in range(2):
            self.start_ring().kill()
            self.check_no_node()
        self.check_runs()

    def test_stopped_node_of_a_killed_launcher(self):
        self.up()
        made = self.start_ring()
        for pid in processes("aprun", "--node"):
            os.kill(pid, signal.SIGSTOP)
        made.kill()
        self.check_no_node()
        self.check_runs()

    def test_killed_node(self):
        self.up()
        made = self.start_ring()
        os.kill(processes("aprun", "--node")[0], signal.SIGKILL)
        _, errors = made.communicate(timeout=PATIENCE)
        self.assertRegex(errors, r"^aprun: [ab] \(cells \d-\d\) is lost: its process was killed by signal 9")
        self.assertEqual(made.returncode, 72)
        self.check_no_node()
        self.check_runs()

    def test_killed_keeper(self):
        self.up()
        made = self.start_ring()
        os.kill(processes("apkeeper")[0], signal.SIGKILL)
        made.send_signal(signal.SIGINT)  # it runs on until it is told otherwise
        _, errors = made.communicate(timeout=PATIENCE)
        self.assertEqual((made.returncode, errors.count("\n")), (130, 1), errors)
        self.check_no_node()
        lost, = self.hosts(status=1)
        self.assertEqual((lost["stands"], "way to its keeper is closed" in lost["problem"]), (False, True))
        self.assertRegex(
            self.run_it("aprun", "--in", "p", RING, status=2).stderr,
            "^aprun: host '[ab]': the way to its keeper is closed, .*; apctl up repairs the pool"
        )
        self.assertEqual(self.run_it("apctl", "up", "p").stdout, "pool p: 1 host stands ready; repaired: 1\n")
        self.check_runs()
        os.kill(processes("apkeeper")[0], signal.SIGKILL)
        self.hosts(status=1)  # one whose end comes after "down" has obeyed
        self.run_it("apctl", "down", "p", status=1)
        left = self.socket()
        self.up()
        self.assertEqual((left.exists(), self.socket().exists()), (False, True))

    def test_stopped_keeper(self):
        file = self.folder.write("p.toml", self.FILE.replace("5s", "1s"))
        self.run_it("apctl", "up", "-f", file)
        keeper, = processes("apkeeper")
        os.kill(keeper, signal.SIGSTOP)
        silent = r"keeper has not answered for 3 s: it is stopped, .*; apctl up repairs the pool"
        self.assertRegex(
            self.run_it("aprun", "--in", "p", RING, status=2).stderr,
            f"^aprun: host '[ab]': its {silent}; nothing was started\n$"
        )
        there = self.folder.path / "there"
        for words in (("put", file, f"p:{there}"), ("get", f"p:{file}", there), ("exec", "p", "true")):
            self.assertRegex(Path(f"/proc/{keeper}/stat").read_text(), r"\) T ")
            done = self.run_it("apctl", *words, status=1)
            self.assertRegex(done.stderr, f"^apctl: host 'a': its {silent}\n$")
        os.kill(keeper, signal.SIGCONT)
        self.check_runs("--peer-timeout", "60s")  # on a busy computer a node may say nothing for longer than 1 s

    def test_down_ends_what_runs(self):
        self.up()
        made = self.start_ring()
        self.run_it("apctl", "down", "p")
        made.communicate(timeout=PATIENCE)
        self.assertNotEqual(made.returncode, 0)
        self.check_no_node()

    def test_idle_keeper_ends(self):
        self.up('[machine]\nkeeper-idle = "1s"\n')
        self.assertTrue(namespaces.wait_until(lambda: not processes("apkeeper"), PATIENCE))
        self.assertEqual(list(RUNTIME.glob("*.keeper")), [])

    def test_strangers_get_no_byte(self):
        self.up()
        key, path, chance = self.key(), self.socket(), random.Random(1)
        keeper, = processes("apkeeper")
        self.assertGreater(len(talk(path, knock(key, FACTS))), 100)
        wrong = bytes(32)
        for data in (b"", b"\0", b"GET / HTTP/1.0\r\n\r\n" * 100, knock(wrong, FACTS), knock(wrong, FACTS, version=9),
                     struct.pack("<II", 0xffffffff, 1) + wrong + bytes(1 << 20)):
            self.assertEqual(talk(path, data), b"")
        self.assertRegex(talk(path, knock(key, FACTS, version=9)).decode(), "^aplib-keeper refuses: it is of APlib ")
        started = self.hosts()[0]["started"]
        for _ in range(2000):
            data = bytearray(knock(key, chance.randrange(3), 5, [b"/bin/true"]))
            for _ in range(chance.randrange(1, 5)):
                data[chance.randrange(len(data))] = chance.randrange(256)
            talk(path, bytes(data[:chance.randrange(1, len(data) + 1)]))
        self.assertEqual(processes("apkeeper"), [keeper])
        host, = self.hosts()
        self.assertGreater(host["strangers"], 5)
        self.assertLessEqual(host["started"], started)  # none had both connections
        self.check_runs()

    def test_files(self):
        self.up()
        path = self.folder.path
        tree = path / "tree"
        (tree / "deep").mkdir(parents=True)
        files = {"empty": b"", "deep/line\nend": b"x" * 70000, "large": random.Random(2).randbytes(3 << 20)}
        for name, content in files.items():
            (tree / name).write_bytes(content)
        (tree / "link").symlink_to("deep")
        single = self.folder.write("single", "one")
        there = path / "there"
        self.run_it("apctl", "put", tree, single, f"p:{there}")

        def content(folder):
            return {str(file.relative_to(folder)): os.readlink(file) if file.is_symlink() else file.read_bytes()
                    for file in folder.rglob("*") if file.is_symlink() or file.is_file()}

        self.assertEqual(content(there / "tree"), content(tree))
        self.assertEqual((there / "single").read_text(), "one")
        self.run_it("apctl", "put", tree, f"p:a:{there}")  # the same again is no change
        (there / "tree" / "empty").write_text("other")
        done = self.run_it("apctl", "put", tree, f"p:a:{there}", status=1)
        self.assertRegex(done.stderr, r"^apctl: a: .*tree/empty")
        self.assertEqual((there / "tree" / "empty").read_text(), "other")
        self.run_it("apctl", "sync", tree, f"p:b:{there}")
        self.assertEqual(content(there / "tree"), content(tree))
        self.run_it("apctl", "get", f"p:{there}/t*", path / "back")
        self.assertEqual(content(path / "back" / "tree"), content(tree))
        # What is there already is compared, and what differs is replaced.
        (path / "back" / "tree" / "large").write_bytes(b"other")
        kept = (path / "back" / "tree" / "deep" / "line\nend").stat().st_ino
        self.run_it("apctl", "get", f"p:{there}/t*", path / "back")
        self.assertEqual(content(path / "back" / "tree"), content(tree))
        self.assertEqual((path / "back" / "tree" / "deep" / "line\nend").stat().st_ino, kept)
        self.assertRegex(
            self.run_it("apctl", "get", f"p:{path}/none*", path / "back", status=1).stderr, "^apctl: a: no file here is"
        )
        self.assertRegex(self.run_it("apctl", "put", tree, "there", status=2).stderr, "^apctl: there: not a place in a")
        self.assertRegex(self.run_it("apctl", "put", path / "no", f"p:{there}", status=2).stderr, "^apctl: .*/no")
        for place, answer in ((f"p:c:{there}", "^apctl: pool p has no host c: it has a; .* write p:./c:"),
                              ("p:~/x", "^apctl: p:~/x: nobody expands ~ there: write .*, as x$"),
                              ("p:a:~", "^apctl: p:a:~: nobody expands ~ there: write .*, as .$")):
            self.assertRegex(self.run_it("apctl", "put", tree, place, status=2).stderr, answer)
        self.run_it("apctl", "put", tree, f"p:{there}/with:colon")
        self.assertEqual(content(there / "with:colon" / "tree"), content(tree))
        self.assertRegex(self.run_it("apctl", "put", "/proc/version", f"p:{there}", status=2).stderr,
                         "^apctl: /proc/version: its file system does not say how much is in it")
        (tree / "empty").chmod(0o750)
        self.run_it("apctl", "sync", tree, f"p:{there}")
        self.assertEqual((there / "tree" / "empty").stat().st_mode & 0o777, 0o750, "a mode alone is a difference, too")
        (there / "tree" / "empty").write_text("differs")
        self.assertRegex(self.run_it("apctl", "put", tree, f"p:{there}", status=1).stderr, r"\(apctl sync, ")
        small = self.folder.path / "small"
        small.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", small], check=True)
        self.addCleanup(subprocess.run, ["umount", small], check=True)
        failed = self.run_it("apctl", "get", f"p:{there}/tree", small, status=1).stderr
        self.assertRegex(failed, "No space left on device")
        self.assertNotIn("killed by signal", failed)
        self.assertEqual(self.hosts()[0]["running"], 0)

    def test_names_of_files_that_come(self):
        path = self.folder.path
        with unittest.mock.patch.dict(os.environ, HOME=str(path)):
            self.up()
        for name in ("data/a/x", "data/b/x", "data/b/y"):
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_text(name)

        def names(pattern, status=0):
            into = path / "into"
            subprocess.run(["rm", "-rf", into], check=True)
            said = self.run_it("apctl", "get", f"p:{pattern}", into, status=status).stderr
            return said or [str(each.relative_to(into)) for each in sorted(into.rglob("*")) if each.is_file()]

        self.assertEqual(names("data/*/x"), ["data/a/x", "data/b/x"])
        self.assertEqual(names("./data//b/"), ["data/b/x", "data/b/y"])
        self.assertEqual(names("data/../data/b/y"), ["data/b/y"])
        self.assertEqual(names(path / "data/b/*"), ["x", "y"])
        self.assertEqual(names(f"../{path.name}/data/b"), ["b/x", "b/y"])
        self.assertRegex(names(path / "data/*/x", status=1), "another file goes to x, too")

    def test_speed(self):
        self.up()
        first, = self.hosts()
        self.assertNotIn("speed", first)
        measured, = json.loads(self.run_it("apctl", "hosts", "p", "--json", "--speed").stdout)
        self.assertGreater(measured["speed"], 1e6)
        later, = self.hosts()
        self.assertEqual(later["speed"], measured["speed"])
        self.assertGreaterEqual(later["speed_age_s"], measured["speed_age_s"])
        self.assertRegex(self.run_it("apctl", "hosts", "p").stdout, r"(?s)SPEED.*\d \(\d+ s ago\)")

    def test_more_hosts_are_needed_than_there_are(self):
        self.up("[machine]\nneed = 3\n")
        self.assertRegex(self.run_it("aprun", "--in", "p", RING, status=2).stderr,
                         r"^aprun: /.*/p.toml: \[machine\]: need = 3: pool p has only 2 hosts; write at most that\n$")

    def test_net(self):
        self.up()
        self.run_it("apctl", "net", "p", "--seconds", "0.1", "--json", "net.json")
        pairs = json.loads((self.folder.path / "net.json").read_text())["pairs"]
        self.assertEqual({(pair["from"], pair["to"]) for pair in pairs if "problem" not in pair},
                         {("a", "b"), ("b", "a")})
        self.assertRegex(self.run_it("apctl", "net", "no", status=2).stderr, "^apctl: there is no pool no: ")
        self.assertRegex(self.run_it("apctl", "net", status=2).stderr, "^apctl: net: no hosts are named: ")
        self.assertRegex(self.run_it("apctl", "net", "p", "-f", "x", status=2).stderr, "^apctl: net: -f and a pool ")

    def test_a_host_that_is_not_as_it_was(self):
        if len(os.sched_getaffinity(0)) < 2:
            self.skipTest("needs two processors")
        self.up()
        keeper, = processes("apkeeper")
        os.sched_setaffinity(keeper, {min(os.sched_getaffinity(0))})
        done = self.run_it("aprun", "--in", "p", RING, 10, status=2)
        self.assertRegex(done.stderr, r"^aprun: [ab] is not what its keeper has said before, .*apctl hosts")
        self.check_no_node()
        self.hosts()
        self.check_runs()

    def test_keeper_of_systemd(self):
        key = self.folder.write("key", "5a" * 32 + "\n")
        RUNTIME.mkdir(mode=0o700)
        path = RUNTIME / "standing.keeper"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            listener.listen()
            script = 'exec 3<&"$1"; LISTEN_FDS=1 LISTEN_PID=$$ exec "$2" --key "$3" --idle 100'
            keeper = subprocess.Popen(
                ["sh", "-c", script, "sh", str(listener.fileno()), driver.BIN / "apkeeper", key],
                pass_fds=[listener.fileno()]
            )
            self.addCleanup(keeper.wait)
            self.addCleanup(keeper.kill)
        self.assertEqual(
            self.up(f'[machine]\nkeeper = "{path}"\nkeeper-key = "{key}"\n').stdout, "pool p: 1 host stands ready\n"
        )
        self.check_runs()
        self.assertEqual(processes("apkeeper"), [keeper.pid])
        self.run_it("apctl", "down", "p")
        keeper.wait(PATIENCE)

    def test_many_runs_leave_nothing(self):
        self.up()
        keeper, = processes("apkeeper")

        def size():
            words = Path(f"/proc/{keeper}/status").read_text()
            return int(re.search(r"VmRSS:\s+(\d+)", words)[1]), len(os.listdir(f"/proc/{keeper}/fd"))

        self.check_runs()
        before = size()
        for _ in range(20):
            self.check_runs()
        self.assertTrue(namespaces.wait_until(lambda: size()[1] <= before[1], PATIENCE), (before, size()))
        self.assertLess(size()[0], before[0] + 512)
        self.assertLess(size()[0], 10 << 10)


class BySsh(PoolTest):
    """Hosts that ssh leads to."""

    def setUp(self):
        reason = servers.missing(servers.Sshd.NEEDS)
        if reason:
            self.skipTest(reason)
        super().setUp()

    def up(self, sshd_more="", status=0, more=""):
        network = namespaces.Network(["ws1", "ws2", "desk"])
        self.addCleanup(network.close)
        hosts, self.desk = network.hosts[:2], network.hosts[2]
        sshd = servers.Sshd(f"MaxStartups 100\n{sshd_more}", hosts=hosts)
        self.addCleanup(sshd.close)
        lines = [f'[machine]\nssh-options = ["-F", "{sshd.folder.path}/ssh_config"]\n{more}']
        lines += [f'[[host]]\nname = "{host.name}"\nssh = "{host.address}"\ncells = 2\n' for host in hosts]
        self.network = network
        return self.run_it("apctl", "up", "-f", self.folder.write("p.toml", "".join(lines)), status=status)

    def command(self, *words):
        return self.desk.command(super().command(*words))

    def masters(self):
        return sorted(
            pid for pid, line in namespaces.processes().items() if line.startswith("ssh: ") and "[mux]" in line
        )

    def test_life(self):
        self.assertEqual(self.up().stdout, "pool p: 2 hosts stand ready\n")
        self.assertEqual((len(processes("apkeeper")), len(self.masters())), (2, 2))
        self.check_runs()
        first = self.hosts()
        self.assertEqual([(host["host"], host["way"], host["stands"]) for host in first],
                         [("ws1", "ssh", True), ("ws2", "ssh", True)])
        plan = self.run_it("aprun", "--in", "p", "--dry-run", RING).stdout
        for host in self.network.hosts[:2]:
            self.assertIn(f"{host.address}  by which ssh reached it", plan)
        self.run_it("apctl", "down", "p")
        self.assertTrue(namespaces.wait_until(lambda: not processes("apkeeper") and not self.masters(), PATIENCE))

    def test_files_take_further_ways(self):
        self.up()
        content = random.Random(3).randbytes(24 << 20)
        source, there, back = (self.folder.path / name for name in ("large", "there", "back"))
        source.write_bytes(content)
        tap = Tap(RUNTIME / "p.pool" / "0.way1", RUNTIME / "p.pool" / "0.way")
        for way, words in (
            ("put", (source, f"p:ws1:{there}")),
            ("get", (f"p:ws1:{source}", back)),
        ):
            before = tap.bytes
            self.run_it("apctl", way, *words)
            self.assertGreater(tap.bytes - before, 1 << 20, way)
        self.assertEqual(tap.connections, 4)  # two lanes each
        self.assertEqual((there / "large").read_bytes(), content)
        self.assertEqual((back / "large").read_bytes(), content)
        # One that breaks, or leads nowhere, is no harm.
        tap.end()
        self.run_it("apctl", "sync", source, f"p:ws1:{there}")
        self.assertFalse((RUNTIME / "p.pool" / "0.way1").exists())

    def test_killed_master(self):
        self.up()
        keepers = processes("apkeeper")
        made = self.start_ring()
        os.kill(self.masters()[0], signal.SIGKILL)
        _, errors = made.communicate(timeout=PATIENCE)
        self.assertEqual(made.returncode, 72, errors)
        self.assertRegex(errors, r"^aprun: ws\d \(cells \d-\d\) is lost: ")
        self.check_no_node()
        lost = [host for host in self.hosts(status=1) if not host["stands"]]
        self.assertEqual(len(lost), 1)
        self.assertEqual(processes("apkeeper"), keepers)
        self.assertEqual(self.run_it("apctl", "up", "p").stdout, "pool p: 2 hosts stand ready; repaired: 1\n")
        self.assertEqual(processes("apkeeper"), keepers)
        self.check_runs()

    def test_need(self):
        self.up(more="need = 1\n")
        os.kill(self.masters()[0], signal.SIGKILL)
        self.assertTrue(namespaces.wait_until(lambda: len(self.masters()) == 1, PATIENCE))
        done = self.run_it("aprun", "--in", "p", RING, 100)
        self.assertEqual(done.stdout, "all run\nall done\n")
        self.assertRegex(done.stderr, r"^aprun: runs on 1 of 2 hosts, without ws\d: the way to its keeper is closed, ")
        os.kill(self.masters()[0], signal.SIGKILL)
        self.assertTrue(namespaces.wait_until(lambda: not self.masters(), PATIENCE))
        done = self.run_it("aprun", "--in", "p", RING, 100, status=2)
        self.assertRegex(done.stderr, r"^aprun: 0 of 2 hosts stand, and 1 are needed \(ws1: the way .*\); apctl up p ")

    def test_killed_launcher_and_node(self):
        self.up()
        self.start_ring().kill()
        self.check_no_node()
        made = self.start_ring()
        os.kill(processes("aprun", "--node")[0], signal.SIGKILL)
        _, errors = made.communicate(timeout=PATIENCE)
        self.assertRegex(errors, r"^aprun: ws\d \(cells \d-\d\) is lost: its process was killed by signal 9")
        self.check_no_node()
        self.check_runs()

    def test_no_forwarding(self):
        done = self.up("AllowStreamLocalForwarding no", status=1)
        self.assertRegex(done.stderr, r"^apctl: host 'ws1': ")
        self.assertRegex(done.stdout, r"^pool p: 0 of 2 hosts stand ready; apctl up p tries the others again\n$")

    def test_no_login(self):
        self.up()
        self.run_it("apctl", "down", "p")
        bad = self.folder.write("q.toml", '[[host]]\nname = "ws1"\nssh = "127.0.0.1:1"\n')
        done = self.run_it("apctl", "up", "-f", bad, status=1)
        self.assertRegex(done.stderr, r"^apctl: host 'ws1': ssh to 127.0.0.1 failed 2 times .*Connection refused")
        self.run_it("apctl", "down", "q", status=1)


if __name__ == "__main__":
    if namespaces.hindrance() is None:
        namespaces.enclose()
        chaos = HERE.parents[1] / "system" / "chaos"
        namespaces.make_programs(driver.BIN / "apcc", [chaos / "ring.c"], RING.parent)
    driver.run_tests(namespaces.hindrance())
