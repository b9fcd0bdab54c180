#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""An internet between namespaces (sites.py, wan): what was asked is what comes, and firewalls let nothing else through.

    wan_test.py BIN [-k NAME]         BIN has wan

Times are bounded from below; a busy computer is late."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest
from pathlib import Path

import namespaces
import seven_sites
from sites import Site, Wan

WAN = Path(sys.argv[1]).resolve() / "wan"
PATIENCE = 120  # seconds for what takes one at most
SSH = 2222


def udp(host):
    """A socket of that host at a port of its own."""
    with host.inside():
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.bind((host.address, 0))
    made.settimeout(PATIENCE)
    return made


def listener(host, port=0):
    with host.inside():
        made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind((host.address, port))
    made.listen()
    made.settimeout(PATIENCE)
    return made


def calling(host, address):
    """A socket that begins to call."""
    with host.inside():
        made = socket.socket()
    made.setblocking(False)
    made.connect_ex(address)
    return made


def connect(host, address):
    with host.inside():
        made = socket.socket()
    try:
        made.settimeout(PATIENCE)
        made.connect(address)
        return made
    except OSError:
        made.close()
        raise


def travel(source, target, body=b"hello"):
    """Seconds until a datagram has come from one socket to another."""
    begin = time.monotonic()
    source.sendto(body, target.getsockname())
    got = target.recv(65536)
    assert got == body, got
    return time.monotonic() - begin


class Internet(unittest.TestCase):
    def make(self, names, **options):
        network = namespaces.Network(names, wan=Wan(WAN, **options))
        self.addCleanup(network.close)
        return network

    def sockets(self, *hosts):
        made = [udp(host) for host in hosts]
        for one in made:
            self.addCleanup(one.close)
        return made

    def check_tcp(self, client, server):
        """Both can talk when `client` calls. Returns the address by which `server` knows it."""
        with listener(server) as listening, connect(client, listening.getsockname()) as caller:
            accepted, peer = listening.accept()
            with accepted:
                caller.sendall(b"ping")
                self.assertEqual(accepted.recv(4), b"ping")
                accepted.sendall(b"pong")
                self.assertEqual(caller.recv(4), b"pong")
        return peer[0]

    def check_refused(self, client, gateway, address):
        """A call of that address is dropped at the gateway."""
        before = Site.refused(gateway)
        with calling(client, address):
            self.assertTrue(namespaces.wait_until(lambda: Site.refused(gateway) > before, PATIENCE))


class Paths(Internet):
    def test_each_direction_has_its_delay(self):
        network = self.make(["a", "b"], paths={("a", "b"): {"delay": "5ms"}, ("b", "a"): {"delay": "40ms"}})
        a, b = self.sockets(*network.hosts)
        forth, back = ([travel(*pair) for _ in range(20)] for pair in ((a, b), (b, a)))
        self.assertGreaterEqual(min(forth), 0.005)
        self.assertGreaterEqual(min(back), 0.040)
        self.assertLess(min(forth), 0.040)  # one of twenty is in time

    def test_a_delay_changes_while_it_runs(self):
        network = self.make(["a", "b"], delay="1ms")
        a, b = self.sockets(*network.hosts)
        travel(a, b)
        network.wan.set(*network.hosts, delay="60ms")
        self.assertGreaterEqual(travel(a, b), 0.060)

    def test_ipv6(self):
        network = self.make(["a", "b"], delay="20ms")
        made = []
        for host in network.hosts:
            with host.inside():
                made.append(socket.socket(socket.AF_INET6, socket.SOCK_DGRAM))
            self.addCleanup(made[-1].close)
            made[-1].bind((host.address6, 0))
            made[-1].settimeout(PATIENCE)
        self.assertGreaterEqual(travel(*made), 0.020)

    def stream(self, source, target, size):
        """Bits a second of a TCP connection, from its first byte to its last."""
        with listener(target) as listening, connect(source, listening.getsockname()) as caller:
            accepted, _ = listening.accept()
            sender = threading.Thread(target=caller.sendall, args=(bytes(size),))
            with accepted:
                begin = time.monotonic()
                sender.start()
                left = size
                while left:
                    left -= len(accepted.recv(min(left, 1 << 16)))
                sender.join()
                return size * 8 / (time.monotonic() - begin)

    def test_a_rate_is_not_exceeded(self):
        network = self.make(["a", "b", "c"], delay="2ms", rate="20Mb/s")
        a, b, c = network.hosts
        rate = self.stream(a, b, 1_000_000)
        self.assertLess(rate, 20e6)
        self.assertGreater(rate, 2e6)
        network.wan.set(a, b, rate="8Mb/s")
        self.assertLess(self.stream(a, b, 400_000), 8e6)
        network.wan.order("access", c, "up", "4Mb/s")
        self.assertLess(self.stream(c, a, 200_000), 4e6)

    def test_large_packets(self):
        """With offload, TCP hands over many at once, and all comes as it was."""
        network = self.make(["a", "b"], offload=True, delay="1ms")
        self.check_tcp(*network.hosts)
        self.stream(*network.hosts, 20_000_000)
        counters = network.wan.counters()["a", "b"]
        self.assertGreater(counters["bytes"] / counters["packets"], 1500)

    def burst(self, a, b, count, size=100):
        """Sends `count` numbered datagrams, and returns the numbers of those that come, and the counters."""
        wan, pair = a[0].network.wan, (a[0].name, b[0].name)
        before = wan.counters()[pair]
        for number in range(count):
            a[1].sendto(number.to_bytes(4, "big") + bytes(size - 4), b[1].getsockname())
        after = {name: value - before[name] for name, value in wan.counters()[pair].items()}
        left = count - after["queue"] - after["loss"] - after["cut"]
        return [int.from_bytes(b[1].recv(size)[:4], "big") for _ in range(left)], after

    def test_a_full_queue_drops(self):
        network = self.make(["a", "b"], rate="1Mb/s", queue="10kB")
        a, b = zip(network.hosts, self.sockets(*network.hosts))
        numbers, dropped = self.burst(a, b, 100, 1000)
        self.assertEqual(numbers, sorted(set(numbers)))
        self.assertGreater(dropped["queue"], 0)
        self.assertGreaterEqual(len(numbers), 5)

    def test_a_seed_repeats_its_losses(self):
        network = self.make(["a", "b"], loss=0.3, seed=7)
        a, b = zip(network.hosts, self.sockets(*network.hosts))
        first, dropped = self.burst(a, b, 100)
        self.assertGreater(dropped["loss"], 0)
        self.assertEqual(len(first) + dropped["loss"], 100)
        network.wan.set(*network.hosts, seed=7)
        self.assertEqual(self.burst(a, b, 100)[0], first)
        network.wan.set(*network.hosts, seed=8)
        self.assertNotEqual(self.burst(a, b, 100)[0], first)

    def test_cut_and_join(self):
        network = self.make(["a", "b"])
        a, b = zip(network.hosts, self.sockets(*network.hosts))
        network.wan.cut(*network.hosts)
        self.assertEqual(self.burst(a, b, 5)[1]["cut"], 5)
        travel(b[1], a[1])  # the other direction is whole
        network.wan.join(*network.hosts)
        self.assertEqual(self.burst(a, b, 5)[0], list(range(5)))
        network.cut(b[0])  # as at a switch: all its paths
        self.assertEqual([self.burst(*pair, 5)[1]["cut"] for pair in ((a, b), (b, a))], [5, 5])
        network.join(b[0])
        travel(a[1], b[1])
        travel(b[1], a[1])

    def test_a_cut_drops_what_is_under_way(self):
        network = self.make(["a", "b"], delay="1000s")
        a, b = self.sockets(*network.hosts)
        a.sendto(b"lost", b.getsockname())
        network.wan.cut(*network.hosts)
        self.assertEqual(network.wan.counters()["a", "b"]["cut"], 1)
        network.wan.join(*network.hosts)
        network.wan.set(*network.hosts, delay="1ms")
        travel(a, b)

    def test_a_cut_ends_by_itself(self):
        network = self.make(["a", "b"])
        a, b = self.sockets(*network.hosts)
        begin = time.monotonic()
        network.wan.cut(*network.hosts, "200ms")
        while network.wan.counters()["a", "b"]["packets"] == 0:
            a.sendto(b"hello", b.getsockname())
        self.assertGreaterEqual(time.monotonic() - begin, 0.200)
        self.assertEqual(b.recv(5), b"hello")

    def test_packets_to_nobody(self):
        network = self.make(["a", "b"])
        a, = self.sockets(network.hosts[0])
        a.sendto(b"hello", ("192.168.7.7", 7))
        self.assertEqual(network.wan.nowhere(network.hosts[0]), 1)
        self.assertEqual(network.wan.nowhere(network.hosts[1]), 0)

    def test_seven_sites(self):
        network = namespaces.Network(seven_sites.NAMES, wan=seven_sites.wan(WAN))
        self.addCleanup(network.close)
        made = self.sockets(*network.hosts)
        for a, b in seven_sites.pairs():
            taken = travel(made[a], made[b]) + travel(made[b], made[a])
            self.assertGreaterEqual(taken, seven_sites.round_trip_ms(a, b) / 1000)
        nagoya, nii = network.hosts[5], network.hosts[3]
        self.assertLess(self.stream(nagoya, nii, 500_000), seven_sites.mbit_per_second(5, 3) * 1e6)


class Process(Internet):
    def test_bad_orders_change_nothing(self):
        network = self.make(["a", "b"], delay="5ms")
        a, b = network.hosts
        for order, why in (
            (("pair", a, "nobody", "delay", "1ms"), 'there is no site "nobody": use one of a, b'),
            (("pair", a, b, "delay", "soon"), '"soon" is no time'),
            (("site", "c", "/run/netns/none", "eth0", "10.0.0.1"), "cannot enter the network namespace"),
            (("site", "c", f"/run/netns/{a.namespace}", "eth0", "10.0.0.1"), "cannot make the device eth0"),
            (("site", "c", f"/run/netns/{a.namespace}", "x" * 16, "10.0.0.1"), "has at most 15 letters"),
        ):
            with self.assertRaises(ValueError) as refused:
                network.wan.order(*order)
            self.assertIn(" ".join(map(str, order)), str(refused.exception))
            self.assertIn(why, str(refused.exception))
        made = self.sockets(a, b)
        self.assertGreaterEqual(travel(*made), 0.005)

    def test_unknown_pairs_and_rates_of_links_are_refused(self):
        before = set(os.listdir("/run/netns"))
        with self.assertRaisesRegex(ValueError, "is no pair of hosts"):
            self.make(["a", "b"], paths={("a", "c"): {"delay": "1ms"}})
        with self.assertRaisesRegex(ValueError, "an internet's paths have theirs"):
            namespaces.Network(["a"], rate="1mbit", wan=Wan(WAN))
        self.assertEqual(set(os.listdir("/run/netns")), before)

    def test_unknown_options(self):
        run = subprocess.run([WAN, "--fast"], capture_output=True, text=True)
        self.assertEqual((run.returncode, run.stdout), (2, ""))
        self.assertEqual(run.stderr, "wan: '--fast' is no option: use --offload, --help, or none\n")
        self.assertIn("pair FROM TO", subprocess.run([WAN, "--help"], capture_output=True, text=True).stdout)

    def devices(self, host):
        with host.inside():
            return [name for _, name in socket.if_nameindex()]

    def test_it_ends_with_its_input(self):
        network = self.make(["a", "b"])
        a, b = self.sockets(*network.hosts)
        travel(a, b)
        self.assertIn("eth0", self.devices(network.hosts[0]))
        self.assertEqual(network.wan.close()["a", "b"]["packets"], 1)
        self.assertEqual(network.wan.process.returncode, 0)
        self.assertNotIn("eth0", self.devices(network.hosts[0]))

    def test_its_death_leaves_no_device(self):
        network = self.make(["a", "b"])
        os.kill(network.wan.process.pid, signal.SIGKILL)
        network.wan.process.wait()
        for host in network.hosts:
            self.assertNotIn("eth0", self.devices(host))
        self.assertRaises((RuntimeError, BrokenPipeError), network.wan.counters)

    def test_a_device_that_is_removed(self):
        """What is sent there is lost, and the others go on."""
        network = self.make(["a", "b", "c"])
        a, b, c = network.hosts
        made = self.sockets(a, b, c)
        subprocess.run(["ip", "-n", c.namespace, "link", "delete", c.device], check=True)
        made[0].sendto(b"hello", made[2].getsockname())
        travel(made[0], made[1])


class Firewalls(Internet):
    def setUp(self):
        reason = Site.hindrance()
        if reason:
            self.skipTest(reason)

    def test_two_private_sites_and_a_public_one(self):
        """Both reach the public one, with their gateways' addresses; nobody reaches them, nor they each other."""
        network = self.make(["public", Site("home", ["laptop"]), Site("lab", ["n1", "n2"])], delay="1ms")
        public, home, lab = network.hosts
        (laptop,), (n1, n2) = home.inner, lab.inner
        self.assertEqual(self.check_tcp(laptop, public), home.address)
        self.assertEqual(self.check_tcp(n1, public), lab.address)
        self.assertEqual(self.check_tcp(n2, n1), n2.address)  # inside, nothing is in between
        self.check_tcp(n1, lab)
        self.check_tcp(public, lab)
        for client, gateway, server in ((public, lab, n1), (laptop, lab, n1), (n1, home, laptop)):
            with listener(server, SSH), calling(client, (server.address, SSH)):
                outer = client.gateway or client
                # Out there, its private address is nobody's, and behind the gateway's there is no server.
                self.assertTrue(namespaces.wait_until(lambda: network.wan.nowhere(outer) > 0, PATIENCE))
                self.assertRaises(ConnectionRefusedError, connect, client, (gateway.address, SSH))

    def test_who_finds_the_way_to_private_addresses_does_not_get_in(self):
        network = namespaces.Network(["public", Site("lab", ["n1"])])
        self.addCleanup(network.close)
        public, lab = network.hosts
        n1, = lab.inner
        public.run(["ip", "route", "add", f"{lab.subnet}.0/24", "via", lab.address], check=True)
        with listener(n1, SSH):
            self.check_refused(public, lab, (n1.address, SSH))
        self.assertEqual(self.check_tcp(n1, public), lab.address)

    def test_only_one_port_comes_in(self):
        network = self.make(["public", Site("lab", ["n1"], ports=[SSH])], delay="1ms")
        public, lab = network.hosts
        n1, = lab.inner
        with listener(lab, SSH) as listening, connect(public, listening.getsockname()), listener(lab) as other:
            self.check_refused(public, lab, other.getsockname())
            with connect(n1, other.getsockname()):
                pass
        self.check_tcp(lab, public)
        self.check_tcp(n1, public)

    def test_a_guarded_host_without_others_behind_it(self):
        network = self.make(["public", Site("lab", ports=[])], delay="1ms")
        public, lab = network.hosts
        with listener(lab) as listening:
            self.check_refused(public, lab, listening.getsockname())
        self.check_tcp(lab, public)

    def test_private_addresses_may_be_the_same(self):
        network = self.make(["public", *(Site(name, [f"{name}1"], subnet="192.168.1") for name in ("home", "lab"))])
        public, home, lab = network.hosts
        self.assertEqual(home.inner[0].address, lab.inner[0].address)
        for site in (home, lab):
            self.assertEqual(self.check_tcp(site.inner[0], public), site.address)

    def test_a_gateway_at_a_switch(self):
        network = namespaces.Network(["public", Site("lab", ["n1"])])
        self.addCleanup(network.close)
        public, lab = network.hosts
        self.assertEqual(self.check_tcp(lab.inner[0], public), lab.address)


if __name__ == "__main__":
    reason = namespaces.hindrance() or Wan.hindrance()
    if reason:
        print(f"skipped: {reason}")
        sys.exit(77)
    namespaces.enclose()
    result = unittest.main(argv=[sys.argv[0], *sys.argv[2:]], exit=False, verbosity=2).result
    sys.exit(not (result.testsRun and result.wasSuccessful()))
