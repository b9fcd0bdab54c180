# SPDX-License-Identifier: MIT
"""What a case of the campaign can suffer: each function injures a running machine and checks how it ends."""

import os
import re
import signal
import subprocess
import threading
import time
from dataclasses import dataclass, field

from machine import Machine, namespaces, send_garbage

LOST = 72  # docs/exit-status.md
SLACK = 20  # seconds beside what is promised: a busy computer is no defect
HOST = r"ws\d+(-\d+)?"
SILENCE = r"nothing was heard of it for [\d.]+ s \(peer-timeout\)"


class Wrong(AssertionError):
    """A promise that was not kept."""


@dataclass
class Setup:
    """What a machine is made of."""

    module: str  # what messages name it: tcp, shm, rdma, mixed
    secure: str
    hosts: int
    count: int = 1  # processes on each host
    timeout: int = 5  # peer-timeout, in seconds
    arguments: list = field(default_factory=list)  # of traffic, behind SEED STOP

    COMM = {
        "tcp": 'module = "tcp"',
        "shm": 'module = "shm"',
        "rdma": 'module = "rdma"\nprovider = "tcp"',
        "mixed": 'module = "shm,tcp"',
        "mixed-rdma": 'module = "shm,rdma,tcp"\nprovider = "tcp"',
    }

    def comm(self):
        return f'{self.COMM[self.module]}\nsecure = "{self.secure}"\npeer-timeout = "{self.timeout}s"'

    @staticmethod
    def drawn(random):
        module = random.choice(list(Setup.COMM))
        secure = random.choice(["off", "auth"] if "rdma" in module else ["off", "auth", "tls"])
        if module == "shm":
            return Setup(module, secure, 1, random.randint(2, 4), random.randint(3, 6))
        if module.startswith("mixed"):
            return Setup(module, secure, 2, 2, random.randint(3, 6))
        return Setup(module, secure, random.randint(2, 4), 1, random.randint(3, 6))


class Run(Machine):
    """A machine that runs traffic, and what is promised of its end."""

    def __init__(self, bin_folder, programs, setup, random, **more):
        self.setup, self.random, self.bin = setup, random, bin_folder
        self.open_gate = threading.Event()  # closed: nobody reads its standard output
        self.open_gate.set()
        self.injured_at = self.ended_after = None
        self.stopped = []
        self.pipe = more.pop("pipe", None)  # its standard output's ends, where we hold them
        self.closed = more.pop("closed", None)  # which standard streams it was started without
        arguments = [random.randrange(1 << 30), "stop", *setup.arguments]
        counts = {f"ws{i + 1}": f"count = {setup.count}" for i in range(setup.hosts)} if setup.count > 1 else {}
        host_more = {**counts, **more.pop("host_more", {})}
        super().__init__(
            bin_folder,
            programs / "traffic",
            arguments,
            nodes=setup.hosts,
            comm_more=setup.comm(),
            host_more=host_more,
            **more,
        )

    def read(self, stream, into):
        for line in stream:
            self.open_gate.wait()
            with self.more:
                if len(into) < 10000 or line in ("all done\n",) or line.startswith("WRONG"):
                    into.append(line.rstrip("\n"))
                self.more.notify_all()

    def until_a_round(self, highest=9):
        self.wait_for("all run")
        if not self.setup.arguments:
            self.wait_for(f"round {2 ** self.random.randrange(highest)}")

    def node_pids(self):
        """{number of the process: its id} of all nodes there are."""
        found = {}
        for pid, line in namespaces.processes().items():
            match = re.match(r"\S*aprun --node .*--process (\d+)", line)
            if match:
                found[int(match[1])] = pid
        return found

    def name_of(self, process):
        host = f"ws{process // self.setup.count + 1}"
        return host if self.setup.count == 1 else f"{host}-{process % self.setup.count + 1}"

    def lost(self, process):
        first = process * self.CELLS
        return rf"^aprun: {self.name_of(process)} \(cells {first}-{first + self.CELLS - 1}\) is lost: "

    def guard(self):
        for pid in namespaces.processes():
            try:
                with open(f"/proc/{pid}/comm", encoding="utf-8") as name:
                    if name.read().strip() == "aprun-guard":
                        return pid
            except FileNotFoundError:
                pass
        raise Wrong("there is no guard")

    def program(self, name):
        """The process id of the only one of that name."""
        found = [pid for pid, line in namespaces.processes().items() if line.split()[0].endswith("/" + name)]
        if len(found) != 1:
            raise Wrong(f"{len(found)} processes of {name}: {self.describe()}")
        return found[0]

    def command(self, *words):
        """A command on the desk, to its end."""
        return self.desk.run([self.bin / words[0], *words[1:]], cwd=self.folder, env=self.environment,
                             stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)

    def a_node(self):
        """(number, process id) of one of them."""
        pids = self.node_pids()
        if len(pids) != self.setup.hosts * self.setup.count:
            raise Wrong(f"not all nodes are there: {self.describe()}")
        process = self.random.choice(sorted(pids))
        return process, pids[process]

    def kill(self, pid, number, may_have_ended=False):
        self.injured_at = time.monotonic()
        if number == signal.SIGSTOP:
            self.stopped.append(pid)
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            if not may_have_ended:
                raise Wrong(f"it ended before its injury: {self.describe()}") from None

    def injured(self):
        self.injured_at = time.monotonic()

    def finish(self, pattern=None):
        """No injury is felt any more: it shall go on, and end well. `pattern`: as in expect()."""
        self.injured()
        (self.folder / "stop").touch()
        self.expect(0, pattern, 2)
        if "all done" not in self.lines:
            raise Wrong(f"it did not come to its end: {self.describe()}")

    def expect(self, statuses, pattern, promised):
        """It ends in `promised` seconds with one of the statuses, and one line of stderr, which has the pattern; None:
        no line."""
        statuses = statuses if isinstance(statuses, tuple) else (statuses,)
        try:
            self.process.wait(promised + SLACK)
        except subprocess.TimeoutExpired:
            raise Wrong(f"it does not end within {promised + SLACK} s: {self.asked()}\n{self.describe()}") from None
        self.ended_after = time.monotonic() - self.injured_at
        for reader in self.readers:
            reader.join(5)
        if any(line.startswith("WRONG") for line in self.lines):
            raise Wrong(f"a wrong message: {[line for line in self.lines if line.startswith('WRONG')]}")
        if self.process.returncode not in statuses:
            raise Wrong(f"status {self.process.returncode} instead of {statuses}: {self.describe()}")
        if pattern is None:
            if self.errors:
                raise Wrong(f"it complains without need: {self.describe()}")
            return
        fitting = [line for line in self.errors if re.search(pattern, line)]
        if len(fitting) != 1 or len(self.errors) != 1:
            raise Wrong(f"{len(fitting)} of {len(self.errors)} lines fit {pattern!r}: {self.describe()}")

    def asked(self):
        """What apctl says, for reports of hangs."""
        texts = []
        for verb in ("status", "tasks"):
            try:
                done = self.desk.run(
                    [self.bin / "apctl", verb],
                    env=dict(os.environ, XDG_RUNTIME_DIR=str(self.folder)),
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    timeout=10,
                )
                texts.append(f"apctl {verb}:\n{done.stdout}")
            except subprocess.TimeoutExpired:
                texts.append(f"apctl {verb} does not answer")
        return "\n".join(texts)

    def apctl_list(self):
        environment = dict(os.environ, XDG_RUNTIME_DIR=str(self.folder))
        done = self.desk.run([self.bin / "apctl", "list"], env=environment, capture_output=True, text=True, timeout=30)
        if done.returncode != 0:
            raise Wrong(f"apctl list: status {done.returncode}: {done.stdout}{done.stderr}")

    def lose_neighbour(self, host, other):
        """What `host` sends to `other` goes to nobody; their ways to all others stay."""
        namespaces.batch([f"neigh replace {other.address} lladdr 02:00:00:00:00:99 dev eth0 nud permanent"],
                         host.namespace)

    def find_neighbour(self, host, other):
        namespaces.batch([f"neigh del {other.address} dev eth0"], host.namespace)

    def close(self):
        self.open_gate.set()
        for pid in self.stopped:
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                pass
        super().close()


# ---- deaths ----


def nothing(run):
    run.until_a_round()
    run.finish()


def kill_node(run):
    run.until_a_round()
    process, pid = run.a_node()
    run.kill(pid, signal.SIGKILL)
    run.expect(LOST, run.lost(process) + r"its process was killed by signal 9 \(Killed\); the machine stops$", 2)


def injure_two_nodes(run, first_signal):
    """The first of two nodes gets that signal, the second is killed. Their numbers."""
    run.until_a_round()
    pids = run.node_pids()
    first, second = run.random.sample(sorted(pids), 2)
    run.kill(pids[first], first_signal)
    run.kill(pids[second], signal.SIGKILL, may_have_ended=first_signal == signal.SIGKILL)  # with the machine
    return first, second


def kill_two_nodes(run):
    first, second = injure_two_nodes(run, signal.SIGKILL)
    run.expect(LOST, f"({run.lost(first)}|{run.lost(second)})its process was killed by signal 9", 2)


def terminate_node(run):
    run.until_a_round()
    process, pid = run.a_node()
    run.kill(pid, signal.SIGTERM)
    run.expect(143, run.lost(process) + r"it was told to end by signal 15 \(SIGTERM\)", 2)


def terminate_all_nodes(run):
    run.until_a_round()
    run.injured()
    for pid in run.node_pids().values():
        try:
            os.kill(pid, signal.SIGTERM)
        except ProcessLookupError:
            pass  # the machine ends already
    run.expect(143, r"is lost: it was told to end by signal 15 \(SIGTERM\)", 2)


def kill_node_while_it_starts(run):
    kill_while_it_starts(run, node_of(run, run.random.randrange(run.setup.hosts * run.setup.count)), 3, 30)


def node_of(run, process):
    """Its process id, as soon as it is there."""
    found = []

    def there():
        pids = run.node_pids()
        if process in pids:
            found.append(pids[process])
        return bool(found) or run.process.poll() is not None

    if not namespaces.wait_until(there, 30, 0.001) or not found:
        raise Wrong(f"a node did not come: {run.describe()}")
    return found[0]


def kill_while_it_starts(run, pid, fewest, most):
    """Kills the process when it has opened some descriptors."""
    run.wait_for_descriptors(pid, run.random.randrange(fewest, most))
    run.kill(pid, signal.SIGKILL)
    if pid == run.process.pid:
        run.expect(-signal.SIGKILL, None, 2)
        run.apctl_list()
    else:
        run.expect((2, LOST), rf"^aprun: .*{HOST}.*killed by signal 9", 2)


def kill_launcher_while_it_starts(run):
    kill_while_it_starts(run, run.process.pid, 3, 40)


def end_launcher(run):
    run.until_a_round()
    number, status = run.random.choice([(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
    run.kill(run.process.pid, number)
    run.expect(status, f"^aprun: {number.name}: stopping the machine", 2)


def end_launcher_while_it_starts(run):
    run.wait_for_descriptors(run.process.pid, run.random.randrange(8, 30))
    run.kill(run.process.pid, signal.SIGTERM)
    if run.process.wait(30) == -signal.SIGTERM:  # before it takes signals
        run.ended_after = time.monotonic() - run.injured_at
        return
    run.expect(143, "^aprun: SIGTERM: stopping the machine", 2)


def kill_launcher(run):
    run.until_a_round()
    run.kill(run.process.pid, signal.SIGKILL)
    run.expect(-signal.SIGKILL, None, 2)
    run.apctl_list()


def kill_launcher_and_guard(run):
    run.until_a_round()
    guard = run.guard()
    pids = [guard, run.process.pid]
    run.random.shuffle(pids)
    for pid in pids:
        run.kill(pid, signal.SIGKILL)
    run.expect(-signal.SIGKILL, None, 2)
    run.apctl_list()


def kill_guard(run):
    """Nobody needs it while the launcher lives."""
    run.until_a_round()
    run.kill(run.guard(), signal.SIGKILL)
    run.finish()


def kill_launcher_beside_a_stopped_node(run):
    run.until_a_round()
    _, pid = run.a_node()
    run.kill(pid, signal.SIGSTOP)
    run.kill(run.process.pid, signal.SIGKILL)
    run.expect(-signal.SIGKILL, None, 2)
    run.apctl_list()


def cell_ends_badly(run):
    statuses = {"exit": (3,), "abort": (134,), "fault": (139,)}
    run.injured()
    status = statuses[run.setup.arguments[1]]
    run.process.wait(60)
    run.injured()
    for reader in run.readers:
        reader.join(5)
    if run.process.returncode not in status:
        raise Wrong(f"status {run.process.returncode} instead of {status}: {run.describe()}")
    if not any("cell 1" in line for line in run.errors):
        raise Wrong(f"nobody says which cell: {run.describe()}")
    run.ended_after = 0


# ---- pauses and links ----


def stop_node_shortly(run):
    run.until_a_round()
    _, pid = run.a_node()
    run.kill(pid, signal.SIGSTOP)
    time.sleep(run.random.uniform(0.05, 0.5 * run.setup.timeout))
    run.kill(pid, signal.SIGCONT)
    run.finish()


def stop_node(run):
    """The launcher hears nothing of it, or another node does so first."""
    run.until_a_round()
    process, pid = run.a_node()
    run.kill(pid, signal.SIGSTOP)
    run.expect(LOST, run.lost(process) + rf"({SILENCE}|{HOST} lost its connection to it: )", run.setup.timeout + 2)


def stop_launcher_shortly(run):
    run.until_a_round()
    run.kill(run.process.pid, signal.SIGSTOP)
    time.sleep(run.random.uniform(0.05, 0.5 * run.setup.timeout))
    run.kill(run.process.pid, signal.SIGCONT)
    run.finish()


def stop_launcher(run):
    """Its nodes take it for dead, and it says so when it goes on."""
    run.until_a_round()
    run.kill(run.process.pid, signal.SIGSTOP)
    gone = namespaces.wait_until(lambda: not run.node_pids(), run.setup.timeout + SLACK)
    if not gone:
        raise Wrong(f"nodes run on without a launcher: {run.describe()}")
    run.kill(run.process.pid, signal.SIGCONT)
    run.expect(LOST, rf"^aprun: {HOST} \(cells \d+-\d+\) is lost: ", 2)


def cut_host(run):
    run.until_a_round()
    number = run.random.randrange(len(run.hosts))
    run.injured()
    run.network.cut(run.hosts[number])
    of_host = "|".join(run.lost(number * run.setup.count + i) for i in range(run.setup.count))
    run.expect(LOST, f"({of_host}){SILENCE}", run.setup.timeout + 3)


def blip(run, host, seconds):
    run.network.cut(host)
    time.sleep(seconds)
    run.network.join(host)


def blip_of_a_host(run):
    run.until_a_round()
    blip(run, run.random.choice(run.hosts), run.random.uniform(0.05, 0.3 * run.setup.timeout))
    run.finish()


def blinking_host(run):
    run.until_a_round()
    host = run.random.choice(run.hosts)
    for _ in range(run.random.randint(3, 12)):
        blip(run, host, run.random.uniform(0.02, 0.3))
        time.sleep(run.random.uniform(0.02, 0.5))
    run.finish()


def cut_pair(run):
    """Both still reach the launcher."""
    run.until_a_round()
    one, other = run.random.sample(range(len(run.hosts)), 2)
    run.injured()
    run.lose_neighbour(run.hosts[one], run.hosts[other])
    if run.random.random() < 0.7:  # else one way alone
        run.lose_neighbour(run.hosts[other], run.hosts[one])
    names = [rf"ws{number + 1}(-\d+)?" for number in (one, other)]
    run.expect(
        LOST,
        rf"^aprun: ({names[0]} .*is lost: .*{names[1]}|{names[1]} .*is lost: .*{names[0]})",
        2 * run.setup.timeout + 3,
    )


def blip_of_a_pair(run):
    run.until_a_round()
    one, other = run.random.sample(run.hosts, 2)
    run.lose_neighbour(one, other)
    run.lose_neighbour(other, one)
    time.sleep(run.random.uniform(0.05, 0.3 * run.setup.timeout))
    run.find_neighbour(one, other)
    run.find_neighbour(other, one)
    run.finish()


def cut_launcher(run):
    run.until_a_round()
    run.injured()
    run.network.cut(run.desk)
    run.expect(LOST, rf"^aprun: {HOST} \(cells \d+-\d+\) is lost: {SILENCE}", run.setup.timeout + 3)


def stop_one_kill_another(run):
    _, killed = injure_two_nodes(run, signal.SIGSTOP)
    run.expect(LOST, run.lost(killed) + "its process was killed by signal 9", 3)


# ---- relays and pools ----


def kill_relay(run):
    """All pairs go by it, and go on by the one that is started instead."""
    run.until_a_round()
    run.kill(run.program("aprelay"), signal.SIGKILL)
    run.finish(r"^aprun: .*relay.*; it is started anew$")


def reset_relayed_pairs(run):
    """Their connections to the relay end, again and again, each time some of them or all."""
    run.until_a_round()
    pid = run.program("aprelay")
    listed = run.desk.run(["ss", "-Hltnp"], stdout=subprocess.PIPE, text=True, check=True).stdout
    port, = {int(line.split()[3].rpartition(":")[2]) for line in listed.splitlines() if f"pid={pid}," in line}
    ended = ""
    for _ in range(run.random.randint(3, 12)):
        end = run.random.choice(["sport", "dport"])
        ended += run.desk.run(["ss", "-HKt", "state", "established", f"{end} = :{port}"], stdout=subprocess.PIPE,
                              text=True, check=True).stdout
        time.sleep(run.random.uniform(0.02, 0.5))
    if not ended:
        raise Wrong("no connection was there to be ended")
    run.finish()


def stop_relay_shortly(run):
    run.until_a_round()
    relay = run.program("aprelay")
    run.kill(relay, signal.SIGSTOP)
    time.sleep(run.random.uniform(0.05, 0.3 * run.setup.timeout))
    os.kill(relay, signal.SIGCONT)
    run.finish()


def check_repair(run):
    """Its keeper was killed: no machine starts in the pool until it is repaired."""
    refused = run.command("aprun", "--in", POOL, "/bin/true")
    if refused.returncode != 2 or not re.search("^aprun: host '.*': the way to its keeper is closed", refused.stderr):
        raise Wrong(f"a pool without a keeper: {refused}")
    repaired = run.command("apctl", "up", POOL)
    if repaired.returncode != 0 or "repaired: 1" not in repaired.stdout:
        raise Wrong(f"the pool is not repaired: {repaired}")


def take_down(run):
    ended = run.command("apctl", "down", POOL)
    if ended.returncode != 0:
        raise Wrong(f"the pool does not end: {ended}")


def kill_keeper(run):
    """What runs goes on."""
    run.until_a_round()
    run.kill(run.program("apkeeper"), signal.SIGKILL)
    run.finish()
    check_repair(run)
    take_down(run)


def kill_keeper_while_it_starts(run):
    """All or nothing."""
    time.sleep(run.random.uniform(0, 0.3))
    run.kill(run.program("apkeeper"), signal.SIGKILL)
    (run.folder / "stop").touch()
    runs = namespaces.wait_until(lambda: "all run" in run.lines or run.process.poll() is not None, 60)
    if runs and "all run" in run.lines:
        run.expect(0, None, 2)
    else:
        run.expect(2, rf"^aprun: (host ')?{HOST}'?: .*keeper", 2)
    check_repair(run)
    take_down(run)


def kill_launcher_of_a_pool(run):
    """Its nodes end, and the pool stands."""
    run.until_a_round()
    run.kill(run.process.pid, signal.SIGKILL)
    run.process.wait()
    run.ended_after = 0
    if not namespaces.wait_until(lambda: not run.node_pids(), 3 + SLACK):
        raise Wrong(f"nodes stay: {run.describe()}")
    take_down(run)
    run.apctl_list()  # which forgets what it has left


# ---- streams and folders ----


def slow_reader(run):
    """Nobody reads for a while; then every line of every cell comes, whole and in order."""
    run.wait_for("all run")
    for _ in range(run.random.randint(1, 4)):
        run.open_gate.clear()
        time.sleep(run.random.uniform(0.2, 2))
        run.open_gate.set()
        time.sleep(run.random.uniform(0.05, 0.3))
    run.finish()
    expected = {}
    for line in run.lines[:9000]:
        match = re.fullmatch(r"\[(\d+)\] (\d+)", line)
        if match is None and not line.startswith("all "):
            raise Wrong(f"a line that nobody wrote: {line!r}")
        if match and int(match[2]) != expected.get(match[1], 0):
            raise Wrong(f"line {line!r} where {expected.get(match[1], 0)} was due")
        if match:
            expected[match[1]] = int(match[2]) + 1


def closed_output(run):
    """As `aprun ... | head`: it ends quietly."""
    reader, writer = run.pipe
    os.close(writer)  # aprun has it
    got = b""
    while b"all run" not in got:
        piece = os.read(reader, 100)
        if not piece:
            raise Wrong(f"its output ends: {run.describe()}")
        got = got[-20:] + piece
    run.injured()
    os.close(reader)
    run.expect((141, -signal.SIGPIPE), None, 2)


def closed_streams(run):
    """Started without some of the standard streams."""
    (run.folder / "stop").touch()
    run.injured()
    try:
        run.process.wait(60)
    except subprocess.TimeoutExpired:
        raise Wrong(f"it does not end: {run.describe()}") from None
    run.ended_after = time.monotonic() - run.injured_at
    output_closed = run.closed[1]
    if run.process.returncode != 0 and not (output_closed and run.process.returncode in (1, 141)):
        raise Wrong(f"status {run.process.returncode}: {run.describe()}")
    if len(run.errors) > 1:
        raise Wrong(f"more than one message: {run.describe()}")


def full_output(run):
    run.injured()
    try:
        run.process.wait(60)
    except subprocess.TimeoutExpired:
        raise Wrong(f"it does not end: {run.describe()}") from None
    finally:
        subprocess.run(["umount", "-l", run.folder / "full"], check=True)
    run.expect((1,), r"^aprun: cannot write .*full/out: No space left on device$", 2)


def full_folder(run):
    """TMPDIR or the folder of apctl's sockets have no room, or cannot be written."""
    run.wait_for("all run")
    run.injured()
    (run.folder / "stop").touch()
    try:
        run.process.wait(30 + SLACK)
    except subprocess.TimeoutExpired:
        raise Wrong(f"it does not end: {run.describe()}") from None
    finally:
        subprocess.run(["umount", "-l", run.folder / "full"], check=True)
    run.ended_after = time.monotonic() - run.injured_at
    if run.process.returncode != 0 or "all done" not in run.lines or len(run.errors) > 1:
        raise Wrong(f"status {run.process.returncode}: {run.describe()}")


def strangers(run):
    """Garbage at every port of every host."""
    run.until_a_round()
    send_garbage(run.network.hosts, run.random.randbytes(3000))
    run.finish()


# ---- how some are started ----

POOL = "pool"
HERE = {"host_more": {f"ws{number}": 'launch = "local"' for number in range(1, 5)}, "addresses": False}


def start_by_relay(_):
    return {**HERE, "environment": {"TEST_APRUN_WAY": "relay"}}


def start_in_a_pool(_):
    return {**HERE, "pool": POOL}


def start_with_a_pipe(_):
    reader, writer = os.pipe()
    return {"stdout": writer, "pipe": (reader, writer)}


def start_without_streams(random):
    closed = [random.random() < 0.5 for _ in range(3)]
    closed[random.randrange(3)] = True
    words = " ".join(word for word, is_closed in zip(("<&-", ">&-", "2>&-"), closed) if is_closed)
    return {"prefix": ["sh", "-c", f'exec "$@" {words}', "sh"], "closed": closed}


def full(size, fill="", more=""):
    """A file system in the run's folder without room."""

    def before(run):
        folder = run.folder / "full"
        folder.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", folder], check=True)
        if fill:
            subprocess.run(["dd", "if=/dev/zero", f"of={folder}/fill", "bs=4k"], stderr=subprocess.DEVNULL, check=False)
        if more:
            subprocess.run(["mount", "-o", f"remount,{more}", folder], check=True)

    return before


def start_with_output_on_a_full_disk(_):
    return {"before": full("64k"), "options": ["--output", "full/out"]}


def start_with_a_full_folder(random):
    before = full("16k", fill="yes") if random.random() < 0.5 else full("16k", more="ro")
    variable = random.choice(["TMPDIR", "XDG_RUNTIME_DIR"])
    return {"before": before, "environment": lambda run: {variable: str(run.folder / "full")}}


# ---- the list ----


@dataclass
class Fault:
    """One kind: what to do, which setups can suffer it (`hosts`: at least so many), and how it is started."""

    injure: object
    hosts: int = 1
    weight: int = 2
    modules: tuple = ("tcp", "shm", "rdma", "mixed", "mixed-rdma")
    arguments: tuple = ()  # choices of traffic's further ones
    start: object = lambda random: {}  # what Run gets besides

    @property
    def name(self):
        return self.injure.__name__

    def suits(self, setup):
        return setup.module in self.modules and setup.hosts >= self.hosts


FAULTS = [
    Fault(nothing, weight=1),
    Fault(kill_node, weight=3),
    Fault(kill_two_nodes),
    Fault(terminate_node, weight=3),
    Fault(terminate_all_nodes),
    Fault(kill_node_while_it_starts),
    Fault(kill_launcher_while_it_starts),
    Fault(end_launcher),
    Fault(end_launcher_while_it_starts),
    Fault(kill_launcher),
    Fault(kill_launcher_and_guard),
    Fault(kill_guard, weight=1),
    Fault(kill_launcher_beside_a_stopped_node),
    Fault(cell_ends_badly, arguments=(["0", "exit"], ["0", "abort"], ["0", "fault"])),
    Fault(stop_node_shortly, weight=3),
    Fault(stop_node, weight=3),
    Fault(stop_launcher_shortly),
    Fault(stop_launcher),
    Fault(cut_host, hosts=2, weight=3),
    Fault(blip_of_a_host, hosts=2, weight=4),
    Fault(blinking_host, hosts=2, weight=3),
    Fault(cut_pair, hosts=2, weight=4),
    Fault(blip_of_a_pair, hosts=2, weight=3),
    Fault(cut_launcher),
    Fault(stop_one_kill_another),
    Fault(kill_relay, hosts=2, modules=("tcp",), start=start_by_relay),
    Fault(reset_relayed_pairs, hosts=2, modules=("tcp",), start=start_by_relay),
    Fault(stop_relay_shortly, hosts=2, modules=("tcp",), start=start_by_relay),
    Fault(kill_keeper, modules=("tcp",), start=start_in_a_pool),
    Fault(kill_keeper_while_it_starts, modules=("tcp",), start=start_in_a_pool),
    Fault(kill_launcher_of_a_pool, modules=("tcp",), start=start_in_a_pool),
    Fault(slow_reader, arguments=(["1"],)),
    Fault(closed_output, arguments=(["1"],), start=start_with_a_pipe),
    Fault(closed_streams, start=start_without_streams),
    Fault(full_output, arguments=(["1"],), weight=1, start=start_with_output_on_a_full_disk),
    Fault(full_folder, weight=1, start=start_with_a_full_folder),
    Fault(strangers, weight=1),
]
