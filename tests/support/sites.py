# SPDX-License-Identifier: MIT
"""What the hosts of a Network (namespaces.py) can be beside computers at one switch: sites of an internet, far from
each other, and gateways with hosts behind them.

    wan = sites.Wan(BIN / "wan", delay="10ms", rate="100Mb/s", paths={("public", "home"): {"rate": "20Mb/s"}})
    names = ["public", sites.Site("home", behind=["laptop"]), sites.Site("lab", ports=[22])]
    with namespaces.Network(names, wan=wan) as network:
        public, home, lab = network.hosts
        laptop, = home.inner                                 # reaches public and lab's port 22; nobody reaches it
        wan.set(home, public, delay="100ms", loss=0.01)      # from now on, and not the other way
        wan.cut(home, public)                                # wan.join(home, public) undoes it
        print(wan.counters()["home", "public"])              # {"packets": 3, "bytes": 180, "queue": 0, ...}
"""

import dataclasses
import json
import shutil
import subprocess
from pathlib import Path

TABLE = """
table ip nat {{
  chain postrouting {{
    type nat hook postrouting priority srcnat
    oifname "{device}" masquerade
  }}
}}
table inet site {{
  counter refused {{ }}
  chain from_outside {{
    ct state established,related accept
    {opened}
    counter name "refused" drop
  }}
  chain input {{
    type filter hook input priority filter
    iifname "{device}" jump from_outside
  }}
  chain forward {{
    type filter hook forward priority filter; policy drop
    ct state established,related accept
    {outward}
    counter name "refused" drop
  }}
}}
"""


@dataclasses.dataclass(frozen=True)
class Site:
    """A host with more than its name. `behind`: names of hosts in a private subnet, of which it is the gateway: with
    its address they reach what it reaches, and nobody reaches them. `ports`: where others reach itself by TCP; None:
    wherever it listens. `subnet`: the first three numbers of the private addresses, which two sites may share; without
    it, a site has its own. `is_closed`: those behind reach nobody outside, either. `ports` and `behind` need nft
    (hindrance())."""

    name: str
    behind: tuple = ()
    ports: tuple = None
    subnet: str = None
    is_closed: bool = False

    @property
    def is_guarded(self):
        return bool(self.behind) or self.ports is not None

    def rules(self, device):
        """What nft is told. `device`: its link to the others."""
        opened = "accept" if self.ports is None else "\n    ".join(f"tcp dport {port} accept" for port in self.ports)
        outward = f'iifname != "{device}"' + (f' oifname != "{device}"' if self.is_closed else "") + " accept"
        return TABLE.format(device=device, opened=opened, outward=outward)

    @staticmethod
    def hindrance():
        """Why guarded sites are not possible here, as the reason of a skipped test, or None."""
        if shutil.which("nft", path="/usr/sbin:/sbin:/usr/bin") is None:
            return "needs the tool nft (package nftables)"
        words = ["unshare", "--net", "nft", "-f", "-"]
        tried = subprocess.run(words, input=Site("").rules("lo"), text=True, stderr=subprocess.PIPE)
        return f"needs nf_tables: {tried.stderr.strip()}" if tried.returncode else None

    @staticmethod
    def refused(host):
        """How many packets from outside the guarded host has dropped."""
        words = ["nft", "-j", "list", "counter", "inet", "site", "refused"]
        listed = host.run(words, stdout=subprocess.PIPE, check=True)
        return next(one["counter"]["packets"] for one in json.loads(listed.stdout)["nftables"] if "counter" in one)


class Wan:
    """An internet (tests/support/wan, built as `program`) between the hosts of one Network, with a path for each
    ordered pair of them. `alike` is what all paths have: delay (one way), rate, queue, loss, seed. `paths` has what
    differs, and `access` the up, down and queue of a host: {(from, to): {"delay": "10ms"}}, {name: {"up": "1Gb/s"}}.
    `wan --help` explains the values. `offload` takes packets of 64 KiB, for more than 1 Gb/s; each drop loses as much.

    Hosts are given as such or by name. What is wrong raises ValueError, and has changed nothing. All calls return when
    they are in effect; what hosts sent before, they sent before."""

    QUEUE_PACKETS = 10000  # that a device holds while the program has no processor

    def __init__(self, program, paths=None, access=None, offload=False, **alike):
        self.command = [program, *(["--offload"] if offload else [])]
        self.paths, self.access, self.alike = paths or {}, access or {}, alike
        self.process = None

    @staticmethod
    def hindrance():
        """Why there can be none here, as the reason of a skipped test, or None."""
        try:
            with open("/dev/net/tun", "r+b", buffering=0):
                return None
        except OSError as error:
            return f"needs the device /dev/net/tun: {error.strerror}"

    def start(self, hosts):
        """Called by the Network. Makes the hosts' devices."""
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for host in hosts:
            file = Path("/run/netns", host.namespace)
            self.order("site", host, file, host.device, host.address, host.address6)
        for name, what in self.access.items():
            self.order("access", name, *words(what))
        pairs = [(a.name, b.name) for a in hosts for b in hosts if a is not b]
        unknown = self.paths.keys() - set(pairs)
        if unknown:
            raise ValueError(f"paths: {unknown.pop()} is no pair of hosts")
        for pair in pairs:
            what = {**self.alike, **self.paths.get(pair, {})}
            if what:
                self.set(*pair, **what)

    def order(self, *line):
        """Gives one order, and returns the lines of the answer before "ok"."""
        print(*line, file=self.process.stdin, flush=True)
        answer = []
        for one in self.process.stdout:
            if one == "ok\n":
                return answer
            if one.startswith("error: "):
                raise ValueError(one.strip())
            answer.append(one.strip())
        raise RuntimeError(f"{self.command[0]} has ended")

    def set(self, source, target, **what):
        """Changes the path from `source` to `target`; what is under way keeps its time."""
        self.order("pair", source, target, *words(what))

    def cut(self, source, target, time=None):
        """Drops what is under way from `source` to `target`, and what comes, for that time or until join()."""
        self.order("cut", source, target, *([time] if time else []))

    def join(self, source, target):
        self.order("join", source, target)

    def counters(self):
        """{(from, to): {"packets": 3, "bytes": 180, "queue": 0, "loss": 0, "cut": 0}}: what has arrived, and the
        packets that were dropped because too many waited, by chance, and on a path that was cut."""
        return counted(line.split() for line in self.order("count") if line.startswith("pair "))

    def nowhere(self, host):
        """How many packets of the host went to an address that no host has."""
        line, = (line for line in self.order("count") if line.startswith(f"site {host} "))
        return int(line.split()[-1])

    def close(self):
        """Ends it, and returns the last counters."""
        if self.process is None or self.process.stdout.closed:
            return {}
        with self.process:
            output, _ = self.process.communicate()
        return counted(line.split() for line in output.splitlines() if line.startswith("pair "))


def words(what):
    return [word for name, value in what.items() for word in (name, value)]


def counted(lines):
    return {(source, target): dict(zip(rest[::2], map(int, rest[1::2]))) for _, source, target, *rest in lines}
