#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""apfarm --in: jobs on the hosts of a pool, which are this computer with several keepers; what is killed on the way.

    pool_farm_test.py BIN [NAME]         BIN has apfarm, apctl and apkeeper
    TEST_FARM_KILLS=60 pool_farm_test.py BIN Deaths        a worker is killed each second, for a minute"""
import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "launch" / "start"))
import driver  # noqa: E402
import servers  # noqa: E402
from servers import namespaces  # noqa: E402

PATIENCE = 120
KILLS = int(os.environ.get("TEST_FARM_KILLS", "3"))
HOSTS = ("a", "b", "c")


def parent_of(pid):
    """The name of its parent; empty if it has gone."""
    try:
        parent = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1]
        return Path(f"/proc/{parent}/comm").read_text().strip()
    except OSError:
        return ""


def with_words(*words):
    """The processes whose command lines have all of these."""
    return sorted(pid for pid, line in namespaces.processes().items() if all(word in line for word in words))


def workers(host=""):
    """Those of all hosts, or of one; without their guards and jobs that begin, which have the same command lines."""
    return [pid for pid in with_words("apfarm", "--worker", f"{host}/apfarm") if parent_of(pid) == "apkeeper"]


class PoolFarmTest(unittest.TestCase):
    """A pool of three hosts, with two slots each."""

    def setUp(self):
        self.folder = servers.Folder("farm")
        self.addCleanup(self.folder.remove)
        self.addCleanup(self.end_all)
        text = '[comm]\npeer-timeout = "5s"\n'
        for host in HOSTS:
            # Of other programs it is another computer, by what the launcher knows.
            programs = self.folder.path / host
            programs.mkdir()
            for name in ("apfarm", "apkeeper", "aprun"):
                (programs / name).symlink_to(driver.BIN / name)
            text += f'[[host]]\nname = "{host}"\nlaunch = "local"\naprun = "{programs}/aprun"\nfolder = "{programs}"\n'
        self.temporary = self.folder.path / "tmp"  # of the hosts, not of what runs here
        self.temporary.mkdir()
        done = subprocess.run([driver.BIN / "apctl", "up", "-f", self.folder.write("p.toml", text)],
                              env=self.host_environment(), capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual((done.stdout, done.stderr), ("pool p: 3 hosts stand ready\n", ""))

    def host_environment(self):
        """As that of a login by ssh, with a ~/.bashrc that says what reads it."""
        (self.folder.path / ".bashrc").write_text("echo bashrc\nexit 0\n")
        made = dict(os.environ, TMPDIR=str(self.temporary), HOME=str(self.folder.path),
                    SSH_CLIENT="10.0.0.1 40000 22", SSH2_CLIENT="10.0.0.1 40000 22")
        made.pop("SHLVL", None)
        return made

    def end_all(self):
        for pid in [*with_words("apkeeper"), *workers()]:
            with contextlib.suppress(ProcessLookupError):  # it may have ended by itself
                os.kill(pid, signal.SIGKILL)
        subprocess.run(["rm", "-rf", "/run/aptest/aplib"], check=True)

    shell = "/bin/sh"

    def start(self, *words, jobs="2", cwd=None):
        made = subprocess.Popen(
            [driver.BIN / "apfarm", "--in", "p", f"-j{jobs}", *map(str, words)], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ, PARALLEL_SHELL=self.shell),
            cwd=cwd or self.folder.path,
        )
        self.addCleanup(made.communicate)
        self.addCleanup(made.kill)
        return made

    def run_it(self, *words, status=0, jobs="2"):
        made = self.start(*words, jobs=jobs)
        out, errors = made.communicate(timeout=PATIENCE)
        self.assertEqual(made.returncode, status, (words, out, errors))
        return out, errors

    def check_nothing_left(self, word="--worker"):
        self.assertTrue(namespaces.wait_until(lambda: not with_words(word), PATIENCE), namespaces.processes())

    def joblog(self):
        """{number: (host, exit value, signal)} of the file "log"."""
        lines = (self.folder.path / "log").read_text().splitlines()[1:]
        rows = [line.split("\t") for line in lines]
        self.assertEqual(len({row[0] for row in rows}), len(rows), "a line for each job")
        return {int(row[0]): (row[1], int(row[6]), int(row[7])) for row in rows}


class Words(PoolFarmTest):
    def test_outputs_and_hosts(self):
        out, errors = self.run_it("-k", "--tag", "--joblog", "log", "echo $PARALLEL_SEQ; echo e{} >&2; exit {}", ":::",
                                  *(["0"] * 20), "3", status=1)
        self.assertEqual(out, "".join(f"0\t{i}\n" for i in range(1, 21)) + "3\t21\n")
        self.assertEqual(sorted(errors.splitlines()), ["0\te0"] * 20 + ["3\te3"])
        log = self.joblog()
        self.assertEqual(sorted(log), list(range(1, 22)))
        self.assertEqual([log[i][1:] for i in (1, 21)], [(0, 0), (3, 0)])
        self.assertLessEqual({host for host, _, _ in log.values()}, set(HOSTS))
        self.assertEqual(self.run_it("-k", "--resume", "--joblog", "log", "echo {}", ":::", *range(23))[0], "21\n22\n")
        line = json.loads(self.run_it("--json", "printf {}; kill -9 $$", ":::", "x", status=1)[0])
        self.assertEqual((line["Signal"], line["Stdout"], line["Host"] in HOSTS), (9, "x", True))
        self.check_nothing_left()

    def test_shells_do_not_read_the_startup_file_again(self):
        self.shell = "/bin/bash"
        self.assertEqual(self.run_it("-k", "echo {}; exit {}", ":::", "0", "3", status=1), ("0\n3\n", ""))

    def test_every_host_works_in_its_folder(self):
        # The first six do not end before all have begun.
        here = self.folder.path / "here"
        wait = f"echo {{}} > {here}-{{}}; while [ $(ls {here}-* | wc -l) -lt 6 ]; do sleep 0.01; done; pwd"
        out, _ = self.run_it(wait, ":::", *range(6))
        self.assertEqual(sorted(out.split()), sorted(str(self.folder.path / host) for host in HOSTS * 2))
        self.assertEqual(self.run_it("--wd", "/", "pwd", ":::", "1")[0], "/\n")
        _, errors = self.run_it("--wd", "/no/such", "pwd", ":::", "1", status=255)
        self.assertEqual(errors.count("/no/such"), 3, errors)
        self.assertRegex(errors, "apfarm: no host of the pool can be reached\n$")

    def test_functions(self):
        library = self.folder.path / "libf.so"
        source = "static int calls; double half(double value) { return ++calls == 1 ? value / 2 : -1; }"
        subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", library], input=source, text=True, check=True)
        out, _ = self.run_it("-k", "--entry", "half(double)->double", library, ":::", *range(12))
        self.assertEqual([float(line.removeprefix("half = ")) for line in out.splitlines()], [i / 2 for i in range(12)])

    def test_large_outputs_stay_whole(self):
        out, _ = self.run_it("-k", "head -c 3000000 /dev/zero | tr '\\0' {}", ":::", "a", "b", "c", "d")
        self.assertEqual(out, "".join(c * 3000000 for c in "abcd"))
        made = self.start("head -c 300000 /dev/zero; : {}", ":::", *range(300))  # a reader that is slow
        time.sleep(0.5)
        self.assertEqual(len(made.communicate(timeout=PATIENCE)[0]), 90_000_000)
        self.assertEqual(made.returncode, 0)

    def test_output_is_lost_where_there_is_no_room(self):
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", self.temporary], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", self.temporary], check=True)
        command = "head -c {} /dev/zero | tr '\\0' x; :"
        self.run_it(command, ":::", 99)
        out, errors = self.run_it("--joblog", "log", command, ":::", 200_000, status=1)
        self.assertLess(len(out), 200_000)
        self.assertRegex(errors, f"host '[abc]': what job 1 has written may be lost in part: {self.temporary}: "
                                 "No space left on device; make room there, or set TMPDIR to a folder that has more")
        self.assertEqual(self.joblog()[1][1:], (255, 0))

    def test_limits(self):
        out, errors = self.run_it("--timeout", "0.3", "--joblog", "log", "sleep {}; echo {}", ":::", 77, status=1)
        self.assertEqual(out, "")
        self.assertRegex(errors, "job 1 was ended, because it ran longer than --timeout")
        self.assertEqual(self.joblog()[1][1:], (-1, 15))
        self.check_nothing_left("sleep 77")
        self.assertEqual(self.run_it("--timeout", PATIENCE, "echo {}", ":::", 0)[0], "0\n")
        again = self.folder.path / "again"
        self.run_it("--retries", "3", f"echo >> {again}; test $(wc -l < {again}) = 3 || exit {{}}", ":::", "1")
        _, errors = self.run_it("--halt", "now,fail=1", "sleep {}; exit 7", ":::", "0.1", "78", "79", status=7)
        self.check_nothing_left("sleep 7")
        # Job 1 fails when job 2 has begun, which goes on; few others have begun by then.
        begun = self.folder.path / "begun"
        command = (f"if [ {{}} = 1 ]; then while [ ! -e {begun} ]; do sleep 0.01; done; exit 1; fi; "
                   f"[ {{}} != 2 ] || touch {begun}; sleep 0.6; echo {{}}")
        out, _ = self.run_it("--halt", "soon,fail=1", command, ":::", *range(1, 400), status=1)
        self.assertIn("2\n", out)
        self.assertLess(out.count("\n"), 200)

    def test_files_that_all_jobs_need(self):
        source = self.folder.path / "here"
        (source / "common").mkdir(parents=True)
        (source / "common" / "data").write_bytes(bytes(range(256)) * 8000)
        (source / "one").write_text("1\n")
        words = ("--basefile", "common", "--bf", "one", "cat one; wc -c < common/data; : {}", ":::", *range(12))
        made = self.start(*words, cwd=source)
        self.assertEqual(made.communicate(timeout=PATIENCE), ("1\n2048000\n" * 12, ""))
        before = [(self.folder.path / host / "common" / "data").stat() for host in HOSTS]
        self.assertEqual(len({each.st_ino for each in before}), 3, "a file on each host")
        (source / "one").write_text("2\n")
        made = self.start(*words, cwd=source)
        self.assertEqual(made.communicate(timeout=PATIENCE), ("2\n2048000\n" * 12, ""))
        after = [(self.folder.path / host / "common" / "data").stat() for host in HOSTS]
        self.assertEqual([each.st_ino for each in after], [each.st_ino for each in before], "what is the same is kept")
        _, errors = self.run_it("--basefile", "/no/such", "true", ":::", "1", status=255)
        self.assertRegex(errors, "^apfarm: --basefile: .*/no/such")

    def left_on_hosts(self):
        return sorted(str(path.relative_to(self.folder.path)) for host in HOSTS
                      for path in (self.folder.path / host).rglob("*") if path.is_file() and not path.is_symlink())

    def test_files_of_jobs(self):
        source = self.folder.path / "here"
        (source / "in").mkdir(parents=True)
        for i in range(30):
            (source / "in" / f"{i}.txt").write_bytes(f"{i}\n".encode() * (100_000 if i % 10 == 0 else 1))
        before = self.left_on_hosts()
        command = "mkdir -p out; wc -l <{} >out/{/.} && cat {} >>out/{/.}"
        made = self.start("-k", "--trc", "out/{/.}", command, ":::", *(f"in/{i}.txt" for i in range(30)), cwd=source)
        out, errors = made.communicate(timeout=PATIENCE)
        self.assertEqual((made.returncode, out), (0, ""), errors)
        for i in range(30):
            data = (source / "in" / f"{i}.txt").read_bytes()
            self.assertEqual((source / "out" / str(i)).read_bytes(), f"{data.count(10)}\n".encode() + data)
        self.assertEqual(self.left_on_hosts(), before, "all is removed")

        # A folder goes and comes; without --cleanup it stays.
        made = self.start("--tf", "in", "--return", "all-{}", "cp -r in all-{}", ":::", "a", "b", cwd=source)
        self.assertEqual(made.communicate(timeout=PATIENCE), ("", ""))
        self.assertEqual(len(list((source / "all-a").iterdir())), 30)
        self.assertEqual((source / "all-b" / "3.txt").read_text(), "3\n")
        self.assertIn("/in/3.txt", "".join(self.left_on_hosts()))

    def test_cleanup_leaves_what_was_there(self):
        source = self.folder.path / "here"
        for folder in (source, *(self.folder.path / host for host in HOSTS)):
            (folder / "set").mkdir(parents=True, exist_ok=True)
        for name, here, there in (("same", "same\n", "same\n"), ("differs", "new\n", "the only copy\n"),
                                  ("set/a", "a\n", "a\n"), ("made", None, "before\n")):
            for host in HOSTS:
                (self.folder.path / host / name).write_text(there)
            if here is not None:
                (source / name).write_text(here)
        (source / "set" / "new").write_text("new\n")
        (source / "alone").write_text("new\n")
        before = self.left_on_hosts()
        for words in (("--tf", "{}", "--return", "{}.other", "--cleanup", "test -e {} && echo {} >{}.other", ":::",
                       "same", "differs", "set", "alone"),
                      ("--return", "made", "--cleanup", "echo {} >>made", ":::", "1")):
            made = self.start(*words, cwd=source)
            out, errors = made.communicate(timeout=PATIENCE)
            self.assertEqual((made.returncode, out, errors), (0, "", ""), errors)
            self.assertEqual(self.left_on_hosts(), before)
        self.assertEqual((source / "made").read_text(), "before\n1\n")
        self.assertTrue((source / "alone.other").exists())

    def test_files_of_jobs_that_are_not_there(self):
        source = self.folder.path / "here"
        source.mkdir()
        (source / "a").write_text("a\n")
        words = ("-k", "--joblog", self.folder.path / "log")
        made = self.start(*words, "-I", ",,", "--transfer", "cat ,,", ":::", "a", "no/such", cwd=source)
        out, errors = made.communicate(timeout=PATIENCE)
        self.assertEqual((made.returncode, out), (1, "a\n"))
        self.assertRegex(errors, "^apfarm: --transferfile: .*no/such")
        self.assertEqual(self.joblog()[2][1:], (255, 0))
        made = self.start("--return", "{}.out", "test {} = a && touch a.out; test {} != c", ":::", *"abc", cwd=source)
        out, errors = made.communicate(timeout=PATIENCE)
        self.assertEqual((made.returncode, (source / "a.out").exists()), (2, True), errors)
        self.assertRegex(errors, "(?s)^apfarm: .*b.out", "a job that did well without its result has failed")
        self.assertNotIn("c.out", errors)
        made = self.start("--return", "../x", "true", ":::", "1", cwd=source)
        self.assertRegex(made.communicate(timeout=PATIENCE)[1], "../x is not below the current folder")

    def test_interrupt(self):
        made = self.start("echo {}; sleep 76", ":::", "1", "2", "3")
        self.assertTrue(namespaces.wait_until(lambda: len(with_words("sleep 76")) >= 3, PATIENCE))
        made.send_signal(signal.SIGINT)
        made.communicate(timeout=PATIENCE)
        self.assertEqual(made.returncode, 130)
        self.check_nothing_left("sleep 76")
        self.check_nothing_left()

    def test_bad_words(self):
        self.assertRegex(self.run_it("-u", "true", ":::", "1", status=255)[1], "it does not go with --in")
        self.assertRegex(self.run_it("--in", "q", "true", ":::", "1", status=255)[1], "no pool q|--in")
        self.assertRegex(self.run_it("true", ":::", "1", jobs="x", status=255)[1], "-j x: use a number of jobs")


class Deaths(PoolFarmTest):
    def test_killed_apfarm_leaves_nothing(self):
        made = self.start("sleep 75", ":::", *range(8))
        self.assertTrue(namespaces.wait_until(lambda: len(with_words("sleep 75")) >= 6, PATIENCE))
        made.kill()
        self.check_nothing_left("sleep 75")
        self.check_nothing_left()

    def test_killed_worker_leaves_nothing_and_comes_back(self):
        made = self.start("--joblog", "log", "sleep 0.01; echo {}", ":::", *range(600))
        self.assertTrue(namespaces.wait_until(lambda: len(workers()) == 3, PATIENCE))
        victim, = workers("/a")
        os.kill(victim, signal.SIGKILL)
        self.assertTrue(namespaces.wait_until(lambda: workers("/a") not in ([], [victim]), PATIENCE), "it is back")
        out, errors = made.communicate(timeout=PATIENCE)
        self.assertEqual(made.returncode, 0, errors)
        self.assertEqual(sorted(map(int, out.split())), list(range(600)))
        self.assertEqual(errors, "apfarm: host 'a': its worker was killed by signal 9 (Killed)\n")
        self.assertEqual(len(self.joblog()), 600)

    def test_random_workers(self):
        """Each second one is killed. Each job has one result, and few jobs run twice: at most those that were killed,
        and 2 %."""
        seed = int(os.environ.get("TEST_FARM_SEED", random.randrange(1 << 30)))
        chance = random.Random(seed)
        runs = self.folder.path / "runs"
        count = KILLS * 6 * 20  # 50 ms each in six slots: the time of all kills
        made = self.start(f"echo {{}} >> {runs}; sleep 0.05; echo {{}}", ":::", *range(count))
        reader = []
        thread = threading.Thread(target=lambda: reader.extend(made.communicate()))
        thread.start()
        killed = 0
        while killed < KILLS and made.poll() is None:
            time.sleep(1)
            if now := workers():
                os.kill(chance.choice(now), signal.SIGKILL)
                killed += 1
        thread.join(PATIENCE)
        out, errors = reader
        self.assertEqual(made.returncode, 0, errors)
        self.assertEqual(sorted(map(int, out.split())), list(range(count)), f"seed {seed}")
        extra = len(runs.read_text().split()) - count
        self.assertEqual(errors.count("killed by signal 9"), killed)
        self.assertLessEqual(extra, killed * 2 + count // 50, f"seed {seed}, {killed} kills")  # two slots each
        print(f"{killed} kills, {count} jobs, {extra} ran again", file=sys.stderr)

    def test_a_slow_host_gets_little(self):
        """One host is ten times slower."""
        command = "case $PWD in */c) sleep 0.2;; *) sleep 0.02;; esac; pwd"
        out, _ = self.run_it(command, ":::", *range(200))
        self.assertEqual(out.count("\n"), 200)
        self.assertLess(out.count("/c\n"), 40)

    def test_copies_of_what_hangs(self):
        # One host has not begun to work before others have ended some jobs, and never ends one.
        hangs = self.folder.path / "a"
        job = f'case $PWD in {hangs}) echo $$ >>{hangs}/pids; sleep 1000;; *) sleep 0.05; echo {{}};; esac'
        out, _ = self.run_it("-k", "--copies", "--joblog", "log", job, ":::", *range(30))
        self.assertEqual(out, "".join(f"{i}\n" for i in range(30)))
        self.assertEqual({host for host, _, _ in self.joblog().values()}, {"b", "c"})
        self.assertGreater(len((hangs / "pids").read_text().split()), 0)
        self.check_nothing_left()

    def test_all_lost(self):
        made = self.start("sleep 0.3; echo {}", ":::", "1", "2", "3", "4")
        self.assertTrue(namespaces.wait_until(lambda: len(with_words("sleep 0.3")) >= 4, PATIENCE))
        for pid in workers():
            os.kill(pid, signal.SIGKILL)
        out, errors = made.communicate(timeout=PATIENCE)
        self.assertEqual((made.returncode, sorted(out.split())), (0, ["1", "2", "3", "4"]), errors)
        for pid in with_words("apkeeper"):
            os.kill(pid, signal.SIGKILL)
        _, errors = self.run_it("true", ":::", "1", status=255)
        # A connection may just be made then.
        lost = r"host '.': (the way to its keeper is closed|its keeper has closed the connection)"
        self.assertEqual(len(re.findall(lost, errors)), 3, errors)


class Callables(PoolFarmTest):
    """Farms of aplib/farm.hpp."""

    PROGRAM = driver.BIN / "farm-pool-program"

    def begin(self, *words, **more):
        environment = dict(os.environ, PATH=f"{driver.BIN}:{os.environ['PATH']}", **more)
        made = subprocess.Popen([self.PROGRAM, *map(str, words)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, env=environment, cwd=self.folder.path)
        self.addCleanup(made.communicate)
        self.addCleanup(made.kill)
        return made

    def end(self, made, status=0):
        out, errors = made.communicate(timeout=PATIENCE)
        self.assertEqual(made.returncode, status, (out, errors))
        self.assertTrue(namespaces.wait_until(lambda: not with_words(str(self.PROGRAM)), PATIENCE),
                        namespaces.processes())
        return out.splitlines(), errors.splitlines()

    def far_workers(self):
        return [pid for pid in with_words(str(self.PROGRAM)) if parent_of(pid) == "apkeeper"]

    def test_results_and_output(self):
        out, errors = self.end(self.begin("p", 6, "squares"))
        self.assertEqual(out, ["main", "6 workers", "332833500", "1 processes, 0 of them this one"])
        self.assertEqual((errors.count("main"), set(errors)), (6, {"main", "printed in a task"}))
        self.assertGreaterEqual(errors.count("printed in a task"), 40)  # idle workers run the last ones, too

    def test_output_without_a_newline(self):
        _, errors = self.end(self.begin("p", 6, "rests"))
        self.assertGreaterEqual("".join(errors).count("<rest>"), 40)

    def test_a_task_that_kills_its_workers(self):
        out, _ = self.end(self.begin("p", 3, "deaths"))
        self.assertEqual(out, ["main", "3 workers", "332833500", "given up: 1"])

    def test_a_task_that_hangs_ends_with_its_time_or_its_farm(self):
        out, _ = self.end(self.begin("p", 3, "hang"))
        self.assertEqual(out, ["main", "3 workers", "ran too long: 1", "332833500"])

    def test_workers_and_keepers_that_are_killed(self):
        made = self.begin("p", 6, "slow")
        self.assertEqual([made.stdout.readline() for _ in range(3)], ["main\n", "6 workers\n", "begun\n"])
        for pid in with_words("apkeeper", f"{self.folder.path}/b/")[:1]:
            os.kill(pid, signal.SIGKILL)
        for pid in self.far_workers()[:3]:
            os.kill(pid, signal.SIGKILL)
        self.assertEqual(self.end(made)[0], ["19900"])

    def test_as_many_as_the_pool_has_cores(self):
        cores = len(os.sched_getaffinity(0))
        self.assertEqual(self.end(self.begin("p", 0, "squares"))[0][1], f"{3 * cores} workers")

    def test_what_is_wrong_is_said(self):
        _, errors = self.end(self.begin("p", 2, "squares", OTHER_BUILD="1"), status=1)
        self.assertRegex(errors[-1], "^refused: a host of pool p has another build of .*: bring it there with apctl")
        _, errors = self.end(self.begin("nowhere", 2, "squares"), status=1)
        self.assertIn("nowhere", errors[0])
        self.assertRegex(errors[-1], "^refused: no worker begins in pool nowhere: apctl exec ended with status 2, and")
        _, errors = self.end(self.begin("nowhere", 0, "squares"), status=1)
        self.assertRegex(errors[-1], "^refused: farm: apctl hosts 'nowhere' --json shows no host, ")


if __name__ == "__main__":
    if namespaces.hindrance() is None:
        namespaces.enclose()
    driver.run_tests(namespaces.hindrance())
