#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What apctl web answers, about real machines and farms, to those who may ask and to strangers.

    web_test.py BIN [NAME]          BIN has aprun, apctl, apfarm and apcc"""
import re
import signal
import socket
import sys
import unittest
from pathlib import Path

import watched

BIN = Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()


class PlaceTest(unittest.TestCase):
    def setUp(self):
        self.place = self.enterContext(watched.Place(BIN)) if hasattr(self, "enterContext") else self.enter()

    def enter(self):  # before Python 3.11
        place = watched.Place(BIN).__enter__()
        self.addCleanup(place.__exit__)
        return place


class Machines(PlaceTest):
    def test_life_of_a_machine_of_two_hosts(self):
        machine = self.place.start_machine("waiting", watched.WAITING, 4, "-f", self.place.two_hosts())
        page = self.place.serve("--control")
        state = page.wait_for(lambda state: state["machines"] and state["machines"][0]["cell_states"] == "WWWW")
        shown, = state["machines"]
        self.assertEqual((shown["job"], shown["state"], shown["grid"]), (machine.pid, "running", [2, 2]))
        self.assertEqual([(each["name"], each["cells"]) for each in shown["processes"]], [("ws1", 1), ("ws2", 3)])
        self.assertEqual([each["cell"] for each in shown["tasks"]], [0, 1, 2, 3])
        self.assertRegex(shown["tasks"][3]["text"], "^task 0: waits in xy_recv for a message")
        grown = page.wait_for(lambda state: len(state["machines"][0]["history"]["time"]) >= 3)
        history = grown["machines"][0]["history"]
        self.assertEqual(sorted(history["time"]), history["time"])
        self.assertGreater(grown["machines"][0]["processes"][0]["cpu_seconds"], 0)
        for rate in ("sends", "receives", "cores_busy"):
            self.assertLess(grown["machines"][0]["processes"][0][rate], 1e9)

        self.assertEqual(page.ask("stop?job=1", "POST")[0], 404)
        self.assertEqual(page.ask(f"stop?job={machine.pid}", "POST")[0], 202)
        ended, = page.wait_for(lambda state: state["machines"][0]["ended"])["machines"]
        self.assertEqual((ended["state"], ended["end"]), ("ended", {"status": 130, "reason": "stopped by apctl"}))
        self.assertEqual(machine.wait(watched.PATIENCE), 130)
        events = [(each["who"], each["kind"]) for each in page.state()["events"]]
        self.assertIn((f"job {machine.pid}", "failure"), events)
        self.assertEqual(page.ask(f"stop?job={machine.pid}", "POST")[0], 404)
        self.assertEqual(page.end(), 0)

    def test_reasons(self):
        page = self.place.serve()
        self.assertEqual(page.state()["machines"], [])
        failing = self.place.start_machine("failing", watched.FAILING, 2, "-n", 2)
        alone = page.wait_for(lambda state: state["machines"] and state["machines"][0]["grid"] == [2, 1])
        page.wait_for(lambda state: state["machines"][0]["no_tasks"])
        self.assertEqual(alone["machines"][0]["cell_states"], "")
        self.place.write("fail", "")
        ended, = page.wait_for(lambda state: state["machines"][0]["ended"])["machines"]
        self.assertEqual(ended["end"]["status"], failing.wait(watched.PATIENCE))
        self.assertIn("cell 1", ended["end"]["reason"])
        killed = self.place.start_machine("waiting", watched.WAITING, 2, "-n", 2)
        page.wait_for(lambda state: [True for each in state["machines"]
                                     if each["job"] == killed.pid and each["process_count"]])
        killed.kill()
        state = page.wait_for(lambda state: all(each["ended"] for each in state["machines"]))
        gone, = [each for each in state["machines"] if each["job"] == killed.pid]
        self.assertEqual(gone["end"], {"status": None, "reason": "its process has gone without a word"})


class Farms(PlaceTest):
    def test_life_of_an_apfarm(self):
        page = self.place.serve("--control")
        go = self.place.folder / "go"
        farm = self.place.start("apfarm", "-j", "3",
                                f"test {{}} = 2 && exit 7; while ! test -e {go}; do sleep 0.01; done", ":::", *range(8))
        state = page.wait_for(lambda state: state["farms"] and state["farms"][0]["failed"] == 1)
        shown, = state["farms"]
        self.assertEqual((shown["pid"], shown["kind"], shown["state"], shown["workers"], shown["total"]),
                         (farm.pid, "apfarm", "running", 3, 8))
        shown, = page.wait_for(lambda state: state["farms"][0]["running"] == 3)["farms"]
        self.assertEqual((shown["queued"], shown["done"]), (4, 0))
        self.assertRegex(shown["title"], "^test {} = 2 ")
        failure, = shown["failures"]
        self.assertRegex(failure["text"], "^job 3 ended with 7: test 2 = 2 ")
        go.write_text("")
        ended, = page.wait_for(lambda state: state["farms"][0]["ended"])["farms"]
        self.assertEqual(farm.wait(watched.PATIENCE), 1)
        self.assertEqual((ended["done"], ended["failed"], ended["running"], ended["queued"]), (7, 1, 0, 0))
        self.assertEqual(ended["end"], {"status": 1, "reason": "1 of 8 jobs failed"})
        self.assertEqual(list((self.place.runtime / "aplib").glob("*.farm")), [])

    def test_ends_of_farms(self):
        page = self.place.serve("--control")
        stopped = self.place.start("apfarm", "sleep", ":::", "1000")
        killed = self.place.start("apfarm", "sleep", ":::", "2000")
        state = page.wait_for(lambda state: sum(each["running"] for each in state["farms"]) == 2)
        identity, = [each["id"] for each in state["farms"] if each["pid"] == stopped.pid]
        self.assertEqual(page.ask("stop?farm=x", "POST")[0], 404)
        self.assertEqual(page.ask(f"stop?farm={identity}", "POST")[0], 202)
        self.assertEqual(stopped.wait(watched.PATIENCE), 128 + signal.SIGTERM)
        killed.kill()
        state = page.wait_for(lambda state: len(state["farms"]) == 2 and all(each["ended"] for each in state["farms"]))
        ends = {each["pid"]: each["end"] for each in state["farms"]}
        self.assertEqual(ends[stopped.pid], {"status": 143, "reason": "ended by signal 15"})
        self.assertEqual(ends[killed.pid], {"status": None, "reason": "its process has gone without a word"})
        again = self.place.serve()
        left, = again.wait_for(lambda state: state["farms"])["farms"]
        self.assertEqual((left["state"], left["title"]), ("ended", "sleep"))

    def test_what_is_no_tally_is_left_out(self):
        folder = self.place.runtime / "aplib"
        folder.mkdir(mode=0o700)
        (folder / "1-abc.farm").write_bytes(b"x" * 100000)
        (folder / "2-abc.farm").write_bytes(b"")
        (folder / "3-abc.farm").mkdir()
        (folder / "4-abc.farm").symlink_to("/dev/zero")
        page = self.place.serve()
        for _ in range(3):
            self.assertEqual(page.state()["farms"], [])


class Clients(PlaceTest):
    def test_strangers_are_refused_and_counted(self):
        page = self.place.serve()
        own = f"127.0.0.1:{page.port}"
        for target, headers, status, counts in [
            ("/", {}, 403, 1),
            ("/favicon.ico", {}, 403, 1),
            ("/" + page.token, {}, 403, 1),
            ("/" + "0" * 32 + "/", {}, 403, 1),
            ("/" + page.token[:-1] + "/", {}, 403, 1),
            ("", {"Host": "evil.example"}, 403, 1),
            ("", {"Host": f"evil.example:{page.port}"}, 403, 1),
            ("", {"Host": "127.0.0.1.evil.example"}, 403, 1),
            ("", {"Host": "localhost:x"}, 403, 1),
            ("state.json", {"Sec_Fetch_Site": "cross-site"}, 403, 1),
            ("state.json", {"Sec_Fetch_Site": "same-site"}, 403, 1),
            ("state.json", {"Origin": "http://evil.example"}, 403, 1),
            ("state.json", {"Origin": "null"}, 403, 1),
            ("state.json", {"Origin": "http://" + own, "Sec_Fetch_Site": "same-origin"}, 200, 0),
            ("state.json", {"Host": "localhost:8080"}, 200, 0),
            ("state.json", {"Host": "[::1]"}, 200, 0),
            ("", {"Sec_Fetch_Site": "cross-site"}, 200, 0),  # a link in a mail to oneself
            ("other", {}, 404, 0),
        ]:
            before = page.state()["refused"]
            answer, got, _ = page.ask(target, **headers)
            self.assertEqual(answer, status, (target, headers))
            self.assertEqual(page.state()["refused"], before + counts, (target, headers))
            self.assertIsNone(got["Access-Control-Allow-Origin"])
            self.assertEqual(got["Cache-Control"], "no-store")
            self.assertIn("default-src 'none'", got["Content-Security-Policy"])
        self.assertEqual(page.ask("", "DELETE")[0], 405)
        self.assertEqual(page.ask("state.json", "POST")[0], 405)
        self.assertEqual(page.ask("stop?job=1")[0], 405)
        status, _, text = page.ask("stop?job=1", "POST")
        self.assertEqual((status, "--control" in text), (403, True))

    def test_the_page_has_its_own_script_alone(self):
        page = self.place.serve()
        nonces = set()
        for _ in range(2):
            status, headers, text = page.ask("")
            self.assertEqual((status, headers["Content-Type"]), (200, "text/html; charset=utf-8"))
            nonce, = set(re.findall(r'nonce="([0-9a-f]+)"', text))
            self.assertIn(f"script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'", headers["Content-Security-Policy"])
            self.assertNotIn("@NONCE@", text)
            self.assertNotRegex(text.replace("http://www.w3.org/2000/svg", ""), r"https?://|@import|\bsrc=")
            nonces.add(nonce)
        self.assertEqual(len(nonces), 2)
        status, headers, text = page.ask("", "HEAD")
        self.assertEqual((status, text), (200, ""))
        self.assertGreater(int(headers["Content-Length"]), 1000)

    def test_silent_slow_and_broken_ones_keep_nobody_out(self):
        page = self.place.serve()
        friend = page.connection()  # stays open
        friend.request("GET", f"/{page.token}/state.json")
        self.assertEqual(friend.getresponse().read()[:1], b"{")
        silent = []
        for i in range(100):  # more than it keeps
            made = socket.create_connection(("127.0.0.1", page.port))
            self.addCleanup(made.close)
            made.sendall((b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: ")[i % 3])
            silent.append(made)
        self.assertEqual(page.state()["machines"], [])
        friend.request("GET", f"/{page.token}/state.json")
        self.assertEqual(friend.getresponse().status, 200, "of all clients, those who know the token are dropped last")
        friend.close()
        silent[0].settimeout(watched.PATIENCE)
        self.assertEqual(silent[0].recv(1), b"", "the oldest was dropped")
        refused = page.state()["refused"]
        for bad in [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200), b"GET /" + b"a" * 20000,
                    b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 3000,
                    b"POST / HTTP/1.1\r\nContent-Length: 1000000000\r\n\r\nx"]:
            with socket.create_connection(("127.0.0.1", page.port), timeout=watched.PATIENCE) as made:
                try:
                    made.sendall(bad)
                    self.assertEqual(made.recv(1), b"")
                except ConnectionError:
                    pass
        self.assertEqual(page.state()["refused"], refused + 4)
        self.assertEqual(page.end(), 0)

    def test_unix_socket(self):
        path = self.place.folder / "page.socket"
        page = self.place.serve("--socket", path)
        self.assertEqual(path.stat().st_mode & 0o077, 0)
        self.assertEqual(page.state()["machines"], [])
        self.assertEqual(page.ask("/")[0], 403)
        again = self.place.run("apctl", "web", "--socket", path)
        self.assertEqual((again.returncode, "somebody listens there" in again.stderr), (1, True))
        page.process.send_signal(signal.SIGTERM)
        self.assertEqual(page.process.wait(watched.PATIENCE), 0)
        self.assertFalse(path.exists())
        path.write_text("mine")
        refused = self.place.run("apctl", "web", "--socket", path)
        self.assertEqual((refused.returncode, "a file that is no socket is there" in refused.stderr), (1, True))
        self.assertEqual(path.read_text(), "mine")
        beside = self.place.folder / "other.socket.new"
        beside.write_text("mine, too")
        refused = self.place.run("apctl", "web", "--socket", self.place.folder / "other.socket")
        self.assertEqual((refused.returncode, "with .new behind it" in refused.stderr), (1, True))
        self.assertEqual(beside.read_text(), "mine, too")

    def test_command_line(self):
        page = self.place.serve()
        taken = self.place.run("apctl", "web", "--port", page.port)
        self.assertEqual(taken.returncode, 1)
        self.assertRegex(taken.stderr, r"^apctl: cannot listen at 127\.0\.0\.1, port \d+: .*; use another one, or none")
        both = self.place.run("apctl", "web", "--port", "1", "--socket", "x")
        self.assertEqual((both.returncode, both.stderr), (2, "apctl: --socket and --port contradict each other\n"))
        self.assertEqual(self.place.run("apctl", "web", "--port", "70000").returncode, 2)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
