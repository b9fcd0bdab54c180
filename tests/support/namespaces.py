# SPDX-License-Identifier: MIT
"""Hosts on one computer: network namespaces joined by a switch or an internet (sites.py), links that can be slowed down
and cut, and shares of a processor.

    import namespaces
    namespaces.enclose()                                     # first: everything ends with this script, however it ends
    with namespaces.Network(["ws1", "ws2"], rate="10mbit") as network:
        ws1, ws2 = network.hosts
        print(ws1.address)                                   # 10.91.0.1
        server = ws1.popen(["sleep", "1"])                   # or ws1.command([...]) for the command line
        network.cut(ws2)                                     # nothing gets through; network.join(ws2) undoes it

It needs root, and `ip` and `tc` of the package iproute2: hindrance() says what is missing. Nothing here goes through
the real network.
"""

import contextlib
import ctypes
import dataclasses
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

from sites import Site

INSIDE = "APTEST_ENCLOSED"  # not APLIB_...: those are options of a machine
PR_SET_PDEATHSIG = 1
CLONE_NEWNET = 0x40000000
FLAGS = ["--mount", "--net", "--pid", "--ipc", "--fork", "--kill-child=KILL", "--mount-proc"]


def hindrance():
    """Why namespaces are not possible here, as the reason of a skipped test, or None."""
    if os.geteuid() != 0:
        return "needs namespaces: they take root"
    for tool in ("ip", "tc"):
        if shutil.which(tool, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin") is None:
            return f"needs the tool {tool} (package iproute2)"
    if shutil.which("unshare") is None or shutil.which("nsenter") is None:
        return "needs the tool unshare and nsenter (package util-linux)"
    tried = subprocess.run(["unshare", *FLAGS, "true"], stderr=subprocess.PIPE, text=True)
    if tried.returncode != 0:
        return f"needs namespaces: {tried.stderr.strip()}"
    return None


def enclose():
    """Continues this script in separate namespaces for processes, network and mounts. When it ends, even by SIGKILL,
    the system ends every process there and removes the network and the mounts, including that of its temporary files
    (TMPDIR). Does nothing the second time.
    """
    if os.environ.get(INSIDE) == str(os.getppid()) == "1":
        return
    if os.environ.get(INSIDE) != "begin" or os.getpid() != 1:
        environment = dict(os.environ, **{INSIDE: "begin"})
        os.environ["PATH"] = environment["PATH"] = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
        sys.stdout.flush()
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # ends this process with its parent
        os.execvpe("unshare", ["unshare", *FLAGS, sys.executable, *sys.argv], environment)
    # This is process 1 here, which adopts orphans. The script itself continues in a child.
    main = os.fork()
    if main == 0:
        os.environ[INSIDE] = "1"
        for folder in ("/run/netns", "/run/aptest"):
            Path(folder).mkdir(parents=True, exist_ok=True)
            subprocess.run(["mount", "-t", "tmpfs", "none", folder], check=True)
        # Not the folders of this user's other processes, whose numbers are others' here: apctl's files have them.
        os.environ["TMPDIR"] = os.environ["XDG_RUNTIME_DIR"] = "/run/aptest"
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        return

    def pass_on(number, _):
        try:
            os.kill(main, number)
        except ProcessLookupError:
            pass  # it has ended just now

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, pass_on)
    while True:
        try:
            ended, status = os.wait()
        except InterruptedError:
            continue
        if ended == main:
            os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def enter_network(file):
    """This thread goes on in that network namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(file.fileno(), CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), f"setns: {os.strerror(ctypes.get_errno())}", file.name)


def make_programs(apcc, sources, folder):
    """Compiles each of the C and C++ files to a program of its name in `folder`, a file system of its own that ends
    with this script's namespaces."""
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "none", folder], check=True)
    for source in sources:
        compiler = [apcc.with_name("apc++"), "-std=c++20"] if source.suffix == ".cpp" else [apcc]
        subprocess.run([*compiler, "-O1", source, "-o", folder / source.stem], check=True)


def run_tests(apcc, sources, folder):
    """Runs the unit tests of the calling script, SCRIPT BIN [-k NAME], with programs in `folder`. Exits with status 77
    and the reason where there are no namespaces."""
    reason = hindrance()
    if reason:
        print(f"skipped: {reason}")
        sys.exit(77)
    enclose()
    make_programs(apcc, sources, folder)
    result = unittest.main(argv=[sys.argv[0], *sys.argv[2:]], exit=False, verbosity=2).result
    sys.exit(not (result.testsRun and result.wasSuccessful()))


def processes():
    """{pid: command line} of all living processes that this script can see, except itself, process 1 and kernel
    threads. In an enclosed script these are the processes that are left over. Guards of APlib, whose command lines are
    those of their makers, have their names before these."""
    found = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) in (1, os.getpid()):
            continue
        try:
            name, _, numbers = (folder / "stat").read_text().rpartition(")")
            state = numbers.split()[0]
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            if line and name.endswith("(aprun-guard"):
                line = f"aprun-guard of {line}"
            if state not in "ZX" and line:
                found[int(folder.name)] = line
        except (FileNotFoundError, ProcessLookupError):
            pass  # it has ended just now
    return found


def wait_until(condition, seconds, pause=0.01):
    """Whether `condition()` became true in time. Use it only where the system gives no event."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(pause)
    return True


def batch(lines, namespace=None):
    command = ["ip", *(["-n", namespace] if namespace else []), "-batch", "-"]
    subprocess.run(command, input="\n".join(lines) + "\n", text=True, check=True)


@dataclasses.dataclass
class Connection:
    unread: int  # bytes that have come and that its process has not read
    repeats: int  # how often what is not acknowledged has been sent again


def make_switch(namespace, hosts):
    """A switch in that namespace, with the hosts' links to it."""
    lines = ["link add switch type bridge stp_state 0 forward_delay 0", "link set switch up"]
    for host in hosts:
        lines += [f"link add {host.port} type veth peer name {host.device} netns {host.namespace}",
                  f"link set {host.port} master switch", f"link set {host.port} up"]
    batch(lines, namespace)


class Host:
    """A namespace with one link: to the switch or the internet of its Network, or to its `gateway`. `inner`: the hosts
    behind it."""

    def __init__(self, network, number, site, gateway=None):
        self.network, self.site, self.name, self.gateway = network, site, site.name, gateway
        self.device, self.port = "eth0", f"port{number}"  # its end of the link, and the switch's
        if gateway:
            self.namespace = f"{gateway.namespace}i{number}"
            self.address, self.address6 = f"{gateway.subnet}.{number + 2}", None
        else:
            self.namespace = f"{network.prefix}{number}"
            self.address = f"10.91.{number // 250}.{number % 250 + 1}"
            self.address6 = f"fd91::{number + 1:x}"
        self.subnet = site.subnet or f"172.{16 + number // 250}.{number % 250}"
        self.inner = [Host(network, i, Site(name), self) for i, name in enumerate(site.behind)]

    def __str__(self):
        return self.name

    def set_up(self):
        """Called by the Network. REQUIRES: it has its device."""
        if self.gateway:
            lines = [f"address add {self.address}/24 dev {self.device}"]
        else:
            lines = [f"address add {self.address}/16 dev {self.device}",
                     f"address add {self.address6}/64 dev {self.device} nodad"]
        lines += [f"link set {self.device} up", "link set lo up"]
        if self.gateway:
            lines.append(f"route add default via {self.gateway.subnet}.1")
        elif self.network.wan:
            # What is sent to no host is lost on the way, as in the internet.
            lines += [f"link set {self.device} txqueuelen {self.network.wan.QUEUE_PACKETS}",
                      f"route add default dev {self.device}"]
        batch(lines, self.namespace)
        if self.inner:
            make_switch(self.namespace, self.inner)
            batch([f"address add {self.subnet}.1/24 dev switch"], self.namespace)
            self.set("ipv4.ip_forward", 1)
            for host in self.inner:
                host.set_up()
        if self.site.is_guarded:
            self.run(["nft", "-f", "-"], input=self.site.rules(self.device), text=True, check=True)

    def command(self, words, quota=None):
        """The command line that runs `words` on this host."""
        words = quota.command(words) if quota else list(words)
        return ["nsenter", f"--net=/run/netns/{self.namespace}", "--", *map(str, words)]

    def popen(self, words, quota=None, **options):
        return subprocess.Popen(self.command(words, quota), **options)

    def run(self, words, quota=None, **options):
        return subprocess.run(self.command(words, quota), **options)

    @contextlib.contextmanager
    def inside(self):
        """What this thread opens in the block, sockets above all, is opened on this host. What is open stays where it
        is."""
        with open("/proc/thread-self/ns/net") as home, open(f"/run/netns/{self.namespace}") as there:
            enter_network(there)
            try:
                yield
            finally:
                enter_network(home)

    def set(self, setting, value):
        """Sets what `sysctl net.SETTING` would: host.set("ipv4.tcp_congestion_control", "reno")."""
        with self.inside():
            Path("/proc/sys/net", setting.replace(".", "/")).write_text(str(value))

    def connections(self):
        """What the system says of the established TCP connections here."""
        tables = self.run(["cat", "/proc/net/tcp", "/proc/net/tcp6"], stdout=subprocess.PIPE, text=True, check=True)
        rows = [line.split() for line in tables.stdout.splitlines()]
        # Number, two addresses, state, bytes to send : to read, timer, how often the timer has sent again: all hex.
        return [Connection(int(row[4].partition(":")[2], 16), int(row[6], 16)) for row in rows if row[3] == "01"]


class Network:
    """Hosts in one subnet, by a switch, or by the paths of an internet, `wan` (sites.Wan). `names` has names, and
    sites.Site where a host is more than that.

    `rate` limits every link to the switch in both directions: "10mbit", "1gbit"; None: as fast as the system copies.
    `burst`: bytes that pass at once after a pause; see limit()."""

    made = 0

    def __init__(self, names, rate=None, burst=None, wan=None):
        if wan and rate:
            raise ValueError("rate is for links to a switch: an internet's paths have theirs")
        Network.made += 1
        self.prefix = f"ap{os.getpid()}n{Network.made}x"
        self.switch = None if wan else f"{self.prefix}s"
        self.wan = wan
        sites = [name if isinstance(name, Site) else Site(name) for name in names]
        self.hosts = [Host(self, number, site) for number, site in enumerate(sites)]
        try:
            batch([f"netns add {name}" for name in self.namespaces()])
            if wan:
                wan.start(self.hosts)
            else:
                make_switch(self.switch, self.hosts)
            for host in self.hosts:
                host.set_up()
            if rate:
                for host in self.hosts:
                    self.limit(host, rate, burst)
        except BaseException:
            self.close()
            raise

    def namespaces(self):
        each = [host.namespace for outer in self.hosts for host in (outer, *outer.inner)]
        return each if self.wan else [self.switch, *each]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        if self.wan:
            self.wan.close()
        for name in self.namespaces():
            if Path("/run/netns", name).exists():
                subprocess.run(["ip", "netns", "delete", name], stderr=subprocess.DEVNULL, check=False)

    def limit(self, host, rate, burst=None):
        """From now on, limits the link to `rate` in both directions. The bucket holds `burst` bytes (without it: 4 ms,
        and at least some packets). Up to 50 ms more wait; then packets are dropped."""
        units = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
        bits = float(rate[:-4]) * units[rate[-4:]]
        burst = burst or max(int(bits / 8 * 0.004), 16 * 1024)
        for namespace, device in ((host.namespace, host.device), (self.switch, host.port)):
            subprocess.run(
                [
                    "tc",
                    "-n",
                    namespace,
                    "qdisc",
                    "replace",
                    "dev",
                    device,
                    "root",
                    "tbf",
                    "rate",
                    rate,
                    "burst",
                    str(burst),
                    "latency",
                    "50ms",
                ],
                check=True,
            )

    def cut(self, host):
        """Pulls the cable at the switch, or cuts all paths from and to the host: it keeps its address, and nobody is
        told."""
        if self.wan:
            self.for_each_path(host, self.wan.cut)
        else:
            batch([f"link set {host.port} nomaster"], self.switch)

    def join(self, host):
        if self.wan:
            self.for_each_path(host, self.wan.join)
        else:
            batch([f"link set {host.port} master switch"], self.switch)

    def for_each_path(self, host, act):
        for other in self.hosts:
            if other is not host:
                act(host, other)
                act(other, host)


class CpuQuota:
    """A share of one processor for commands: CpuQuota(0.4) gives 0.4 of a core, in slices of 10 ms. Control groups of
    version 1 or 2."""

    PERIOD_US = 10000
    made = 0

    def __init__(self, share):
        self.folder = None
        CpuQuota.made += 1
        name = f"aptest-{os.getpid()}-{time.monotonic_ns()}-{CpuQuota.made}"
        one, two = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")
        quota = max(int(share * self.PERIOD_US), 1000)
        if (one / "cpu.cfs_quota_us").exists() or (one / "tasks").exists():
            self.folder = self.make(one, name)
            (self.folder / "cpu.cfs_period_us").write_text(str(self.PERIOD_US))
            (self.folder / "cpu.cfs_quota_us").write_text(str(quota))
        else:
            self.folder = self.make(two, name)
            (self.folder / "cpu.max").write_text(f"{quota} {self.PERIOD_US}")

    @staticmethod
    def make(parent, name):
        for old in parent.glob("aptest-*"):  # of scripts that were killed
            with contextlib.suppress(FileNotFoundError):  # its script removes it just now
                if time.time() - old.stat().st_mtime > 3600 and not (old / "cgroup.procs").read_text():
                    old.rmdir()
        (parent / name).mkdir()
        return parent / name

    @staticmethod
    def hindrance():
        try:
            CpuQuota(0.5).close()
        except OSError as error:
            return f"needs a control group for processor time: {error}"
        return None

    def command(self, words):
        enter = f'echo $$ > {shlex.quote(str(self.folder / "cgroup.procs"))} && exec "$@"'
        return ["sh", "-c", enter, "sh", *map(str, words)]

    def close(self):
        """Removes the group. REQUIRES: its processes have ended."""
        if self.folder and self.folder.exists():
            wait_until(lambda: not (self.folder / "cgroup.procs").read_text(), 60)
            self.folder.rmdir()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
