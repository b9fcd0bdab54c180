#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Machines where something is scarce or missing: each runs right, or ends with one message that says what.

limits.py BIN [-k NAME]         BIN has aprun, apctl, apfarm, apgen and apcc"""

import itertools
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))
import namespaces  # noqa: E402

HERE = Path(__file__).resolve().parent
BIN = Path(sys.argv[1]).resolve()
PROGRAMS = Path("/run/aptest-programs")
NOTICE = "apctl cannot see this machine"  # and it runs all the same
PATIENCE = 120  # seconds for what takes one or two
MPI = BIN.parent / "lib" / "aplib" / "mpi" / "bin"
STRANGER = 54321  # a user without processes
MODULES = {
    "tcp": 'module = "tcp"',
    "shm": 'module = "shm"',
    "rdma": 'module = "rdma"\nprovider = "tcp"',
    "auto": 'module = "auto"',
}


class MemoryLimit:
    """A control group whose processes have so many bytes of memory together. Version 1 or 2."""

    def __init__(self, size):
        one, two = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
        own = self.own_group(one)
        base, file = (one / own, "memory.limit_in_bytes") if own is not None else (two, "memory.max")
        self.folder = base / f"aptest-{os.getpid()}-{time.monotonic_ns()}"
        self.folder.mkdir()
        (self.folder / file).write_text(str(size))

    @staticmethod
    def own_group(mount):
        if not (mount / "memory.limit_in_bytes").exists():
            return None
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            words = line.split(":", 2)
            if "memory" in words[1].split(",") and (mount / words[2].lstrip("/")).exists():
                return words[2].lstrip("/")
        return ""

    def command(self, words):
        enter = f'echo $$ > {self.folder}/cgroup.procs && exec "$@"'
        return ["sh", "-c", enter, "sh", *words]

    def close(self):
        namespaces.wait_until(lambda: not (self.folder / "cgroup.procs").read_text(), PATIENCE)
        self.folder.rmdir()


def unlimited(words):
    return ["sh", "-c", 'ulimit -s unlimited && exec "$@"', "sh", *words]


class Limits(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="aplib-limits-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def cluster(self, module, processes=2, cells=2):
        file = self.folder / f"{module}.toml"
        file.write_text(f'[machine]\n[[host]]\nlaunch = "local"\ncount = {processes}\ncells = {cells}\nthreads = 1\n'
                        f"[comm]\n{MODULES[module]}\n")
        return [BIN / "aprun", "-f", file]

    def starts(self):
        """Ways to start four cells: name, command line, environment. Of C, C++ and MPI, with aprun and without, on one
        process and two."""
        ring, cells = [PROGRAMS / "ring", 20, 8], [PROGRAMS / "cells"]
        if not cells[0].exists():  # compiled only here: it takes longer than all others together
            subprocess.run([BIN / "apc++", "-std=c++20", "-O1", HERE / "cells.cpp", "-o", cells[0]], check=True)
        four = {"APLIB_CELLS": "4"}
        return [("aprun", [BIN / "aprun", "-n", 4, *ring], {}), ("C++", [BIN / "aprun", "-n", 4, *cells], {}),
                ("MPI", [MPI / "mpiexec", "-n", 4, PROGRAMS / "mpi"], {}),
                ("executed", ring, four), ("C++ executed", cells, four),
                *((module, [*self.cluster(module), *ring], {}) for module in MODULES)]

    def check_start(self, name, result, told):
        """It has run, or it says in one message what it lacks."""
        status, output, errors = result
        refused = [line for line in errors if NOTICE not in line]
        if status == 0:
            self.assertEqual((refused, output.count("4 cells: all done")), ([], 1), (name, result))
            return True
        # 127: the system's own loader did not get as far as our code.
        self.assertIn(status, (1, 2, 72, 126, 127), (name, result))
        self.assertEqual(len(refused), 1, (name, result))
        self.assertRegex(refused[0], told, (name, result))
        return False

    def run_it(self, words, files=None, space=None, processes=None, wrap=None, **options):
        """(status, output, lines of errors); it ends in time and leaves no process."""
        words = [str(word) for word in words]
        words = wrap(words) if wrap else words
        environment = dict(os.environ, **options.pop("environment", {}))

        def limit():
            if files:
                resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
            if space:
                resource.setrlimit(resource.RLIMIT_AS, (space, space))
            if processes:
                resource.setrlimit(resource.RLIMIT_NPROC, (processes, processes))
                os.setgroups([])
                os.setresgid(STRANGER, STRANGER, STRANGER)
                os.setresuid(STRANGER, STRANGER, STRANGER)

        try:
            done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE,
                                  preexec_fn=limit, env=environment, cwd=self.folder, **options)
        except BlockingIOError:  # the system does not let a user begin a program who has too many processes already
            self.assertIsNotNone(processes)
            return 127, "", []
        left = []

        def none_left():
            left[:] = [line for line in namespaces.processes().values() if "/apkeeper --pool" not in line]
            return not left

        self.assertTrue(namespaces.wait_until(none_left, PATIENCE), f"left behind by {words}: {left}")
        return done.returncode, done.stdout, done.stderr.splitlines()

    def check_ring(self, cells, result, text=""):
        status, output, errors = result
        self.assertEqual((status, errors, output.count("all done")), (0, [], 1), f"{text}: {output[-500:]}")
        self.assertIn(f"{cells} cells", output)

    def check_benches(self, **limits):
        """Every bench has a figure."""
        words = [BIN / "apbench", "all", "--json", "--bytes", "8", "--samples", "1", "--sample-ms", "1"]
        status, output, errors = self.run_it(words, **limits)
        self.assertEqual((status, errors), (0, []), output)
        benches = {json.loads(line)["bench"] for line in output.splitlines()}
        self.assertLessEqual({"latency", "bandwidth", "barrier", "put", "get", "spawn"}, benches)

    def test_little_memory(self):
        """A gigabyte is enough for many cells, and for large messages one after the other."""
        limit = MemoryLimit(1 << 30)
        self.addCleanup(limit.close)
        ring = PROGRAMS / "ring"
        self.check_ring(64, self.run_it([MPI / "mpiexec", "-n", "64", PROGRAMS / "mpi"], wrap=limit.command))
        self.check_benches(wrap=limit.command)
        self.check_ring(64, self.run_it([BIN / "aprun", "-n", "64", ring, 30, 1 << 20], wrap=limit.command))
        self.check_ring(1024, self.run_it([BIN / "aprun", "-n", "1024", ring, 20, 8], wrap=limit.command))
        for module in MODULES:
            words = [*self.cluster(module), ring, 30, 1 << 20]
            self.check_ring(4, self.run_it(words, wrap=limit.command), module)

    def test_too_little_memory(self):
        """Who is killed for memory is named, and the others end."""
        limit = MemoryLimit(200 << 20)
        self.addCleanup(limit.close)
        status, _, errors = self.run_it([*self.cluster("tcp"), PROGRAMS / "hog"], wrap=limit.command)
        if status == -signal.SIGKILL:  # the system may choose aprun
            return
        self.assertEqual(status, 72, errors)
        self.assertEqual(len(errors), 1, errors)
        self.assertRegex(errors[0], r"is lost: its process was killed by signal 9 \(Killed\); the machine stops$")

    def test_few_files(self):
        """64 open files, as the strictest systems give."""
        ring = PROGRAMS / "ring"
        self.check_ring(16, self.run_it([BIN / "aprun", "-n", "16", ring, 20, 8], files=64))
        self.check_benches(files=64)
        for module in MODULES:
            self.check_ring(4, self.run_it([*self.cluster(module), ring, 20, 8], files=64), module)

    def test_fewer_and_fewer_files(self):
        """At each number it runs, or says that files are too few. Few are enough for one process."""
        told = r"ulimit -n|cannot open shared object"
        numbers = (3, 4, 5, 7, 9, 12, 16, 20, 30, 64, 128)
        for (name, words, environment), files in itertools.product(self.starts(), numbers):
            with self.subTest(name=name, files=files):
                runs = self.check_start(name, self.run_it(words, files=files, environment=environment), told)
                if files >= 64:
                    self.assertTrue(runs)

    def test_little_address_space(self):
        """At each size it runs, or says that there is too little."""
        # The others where the system's own loader cannot load a library.
        told = r"ulimit -v|failed to map segment|error while loading shared libraries: .*Cannot allocate memory"
        for (name, words, environment), power in itertools.product(self.starts(), range(24, 33)):
            with self.subTest(name=name, mebibytes=1 << (power - 20)):
                # What libfabric's provider cannot have once it runs, it does not say; then a peer is lost.
                silent = "|lost its connection to it" if name == "rdma" else ""
                # A further process of the machine that the system cannot load any more gets SIGKILL from it.
                silent += r"|not ready: its process was killed by signal 9 \(Killed\)" if name in MODULES else ""
                result = self.run_it(words, space=1 << power, environment=environment)
                runs = self.check_start(name, result, told + silent)
                if power >= 30:
                    self.assertTrue(runs)

    def commands(self):
        """What is no start of cells, or one in a pool: name, command, and the command that makes things ready for it,
        or None."""
        (self.folder / "lab.toml").write_text("".join(
            f'[[host]]\nname = "{name}"\nlaunch = "local"\ncells = 1\n' for name in "ab"))
        (self.folder / "s.idl").write_text('Module s;\nDefine f(IN double a, OUT double b[1])\nCalls "C" f(a, b);\n')
        (self.folder / "file").write_text("text")
        up, down = ["apctl", "up", "-f", "lab.toml"], ["apctl", "down", "lab"]
        farm, jobs = ["apfarm", "-k", "-j2"], [":::", 1, 2, 3]
        in_pool = [
            ("hosts", ["apctl", "hosts", "lab"]),
            ("put", ["apctl", "put", "file", f"lab:{self.folder}/to"]),
            ("get", ["apctl", "get", f"lab:{self.folder}/file", "got"]),
            ("exec", ["apctl", "exec", "lab", "echo", "well"]),
            ("aprun --in", ["aprun", "--in", "lab", PROGRAMS / "ring", 2, 8]),
            ("apfarm --in", [*farm, "--in", "lab", "echo", *jobs]),
        ]
        return [
            ("processes", ["aprun", "--processes", "-n", 2, "echo", "well"], None),
            ("list", ["apctl", "list"], None),
            ("net", ["apctl", "net", "-f", "lab.toml", "--seconds", 0.1], None),
            ("apfarm", [*farm, "echo", *jobs], None),
            ("apfarm --cells", [*farm, "--cells", "echo", *jobs], None),
            ("apfarm --entry", [*farm, "--entry", "twice(double)->double", PROGRAMS / "twice.so", *jobs], None),
            ("apgen", ["apgen", "-o", "s.c", "s.idl"], None),
            ("aprelay", ["aprelay", "--session"], None),
            ("gridrpc", ["pi_client", BIN / "pi_server"], None),
            *((name, words, up) for name, words in in_pool),
            ("down", down, up),
            ("up", up, down),
        ]

    def check_commands(self, told, limits, folder=BIN, most=1, **without):
        """Under each limit, each command runs, or ends soon with a documented status and a message, `most` at most.
        Under the last one, it runs. `without`: what has no limit."""
        def run(words, **limit):
            return self.run_it([folder / words[0], *words[1:]], **limit)

        # A host that is lost has its line (of net each of the two), cells speak themselves, and so do servers of
        # GridRPC: one for each of eight sessions, and that of the handle.
        lines = {"net": 4, "apfarm --in": 2, "apfarm --entry": 3, "gridrpc": 10}
        for name, words, before in self.commands():
            for limit in limits:
                if before and (before[1] == "down" or name == "down" or limit == limits[0]):
                    run(before, **without)
                with self.subTest(name, **limit):
                    status, output, errors = run(words, **limit)
                    refused = [line for line in errors if NOTICE not in line and "rounds take about" not in line]
                    if status == 0:
                        self.assertEqual(refused, [])
                        if words[0] == "apfarm":
                            self.assertEqual(len(output.splitlines()), 3, "each job has run")
                    elif status != 127:  # else the system's own loader did not get as far as our code
                        self.assertIn(status, (1, 2, 3, 255) if words[0] == "apfarm" else (1, 2, 72), (output, errors))
                        # A node without memory for a connection, or for words, ends without them.
                        silent = "|lost its connection to it|its process ended with status" if name == "net" else ""
                        self.assertRegex("\n".join(refused) or output, told + silent)
                        self.assertNotRegex("\n".join(refused), "killed by signal|somebody meddles")
                        self.assertNotRegex("\n".join(refused), r"(ulimit -\w).*\1|ulimit .*apctl up repairs")
                        self.assertLessEqual(len(refused), max(most, lines.get(name, 1)), refused)
            self.assertEqual(status, 0, (name, output, errors))
        run(["apctl", "down", "lab"], **without)

    def test_commands_with_few_files(self):
        numbers = (*range(4, 17), 18, 20, 24, 28, 32, 36, 40, 64)
        self.check_commands("ulimit -n", [{"files": number} for number in numbers])

    def test_jobs_of_apfarm_with_few_files(self):
        """Those that find no room begin when others have ended."""
        joblog = self.folder / "joblog"
        words = [BIN / "apfarm", "-j", "40", "--joblog", joblog, "true", "{}", ":::", *map(str, range(100))]
        status, output, errors = self.run_it(words, files=64)
        self.assertEqual((status, output, errors), (0, "", []))
        self.assertEqual(len(joblog.read_text().splitlines()), 101)

    def test_commands_with_little_address_space(self):
        sizes = (1 << 23, 1 << 24, 3 << 23, 1 << 25, 3 << 24, 1 << 26, 3 << 25, 1 << 27, 1 << 28, 1 << 30)
        self.check_commands("ulimit -v", [{"space": size} for size in sizes])

    def test_commands_with_few_processes(self):
        """Of a user who has no others. The programs are where that user can read them."""
        public = Path("/run/aptest/build")
        public.mkdir()
        subprocess.run(["mount", "--bind", BIN.parent, public], check=True)
        os.chown(self.folder, STRANGER, STRANGER)
        for name in ("HOME", "TMPDIR", "XDG_RUNTIME_DIR"):
            before = os.environ.get(name)
            self.addCleanup(os.environ.__setitem__ if before else os.environ.pop, name, before)
            os.environ[name] = str(self.folder)
        numbers = (*range(1, 17), 20, 24, 28, 32, 64)
        told = r"ulimit -u|sessions failed: .*grpc_get_error\(\) has the reasons"
        limits = [{"processes": number} for number in numbers]
        # Two processes of a machine may hit the limit at the same time.
        self.check_commands(told, limits, public / "bin", most=2, processes=4096)

    def threads(self, count):
        """So many can be had."""
        return {"LD_PRELOAD": str(PROGRAMS / "threads.so"), "TEST_THREADS": str(count)}

    def test_fewer_and_fewer_threads(self):
        """At each number it runs, or says that there are too few."""
        for (name, words, environment), count in itertools.product(self.starts(), range(12)):
            with self.subTest(name=name, threads=count):
                result = self.run_it(words, environment=dict(environment, **self.threads(count)))
                self.check_start(name, result, r"ulimit -u")

    def test_end_by_force_without_a_thread(self):
        """A program that makes no calls is cut off all the same, and what it has printed comes."""
        for count in range(8):
            with self.subTest(threads=count):
                status, output, errors = self.run_it([BIN / "aprun", "-n", "1", "--timeout", "0.1", PROGRAMS / "spin"],
                                                     environment=self.threads(count))
                if status == 124:
                    self.assertEqual(output, "spins\n")
                else:
                    self.assertIn(status, (1, 2), errors)
                    self.assertRegex(errors[-1], "ulimit -u")
        self.assertEqual(status, 124, errors)

    def test_files_to_a_pool_without_threads(self):
        """Each host gets them, or a line says why not."""
        (self.folder / "pool.toml").write_text('[[host]]\nname = "a"\nlaunch = "local"\ncells = 1\n')
        (self.folder / "file").write_text("text")

        def command(*words, **more):
            here = {"XDG_RUNTIME_DIR": str(self.folder), "HOME": str(self.folder)}
            return subprocess.run([BIN / "apctl", *words], cwd=self.folder, env=dict(os.environ, **here, **more),
                                  capture_output=True, text=True, timeout=PATIENCE)

        up = command("up", "-f", "pool.toml")
        self.addCleanup(command, "down", "pool")
        self.assertEqual(up.returncode, 0, up)
        for count in range(8):
            done = command("put", "file", f"pool:{self.folder}/to{count}", **self.threads(count))
            if done.returncode != 0:
                self.assertIn(done.returncode, (1, 2), done)
                self.assertRegex(done.stderr, "ulimit -u")
        self.assertEqual(done.returncode, 0, done)

    def test_no_shared_memory_folder(self):
        ring = PROGRAMS / "ring"
        hide = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o ro,size=4k none /dev/shm && exec "$@"', "sh"]
        gone = ["unshare", "--mount", "sh", "-c",
                'mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3 && mknod -m 666 /dev/zero c 1 5 && '
                'mknod -m 666 /dev/urandom c 1 9 && mknod -m 666 /dev/random c 1 8 && exec "$@"', "sh"]
        for prefix in (hide, gone):
            for module in MODULES:
                words = [*self.cluster(module), ring, 20, 100000]
                result = self.run_it(words, wrap=lambda words, prefix=prefix: [*prefix, *words])
                self.check_ring(4, result, f"{prefix[5][:30]} {module}")
            self.check_benches(wrap=lambda words, prefix=prefix: [*prefix, *words])

    def test_read_only_temporary_folders(self):
        """apctl's folder is at home then; where that cannot be written either, it is told, and all runs."""
        ring = PROGRAMS / "ring"
        hide = ["unshare", "--mount", "sh", "-c",
                'for f in /tmp /var/tmp; do mount -t tmpfs -o ro none $f; done && unset TMPDIR XDG_RUNTIME_DIR && '
                'exec "$@"', "sh"]
        self.check_benches(wrap=lambda words: [*hide, *words])
        for start in ([BIN / "aprun", "-n", "4"], *(self.cluster(module) for module in MODULES)):
            for home, told in ((self.folder, []), ("/proc", [True])):
                words = [*start, ring, 20, 100000]
                status, output, errors = self.run_it(words, wrap=lambda words: [*hide, *words],
                                                     environment={"HOME": str(home)})
                self.assertEqual((status, output.count("all done")), (0, 1), (words, output, errors))
                self.assertEqual([NOTICE in line for line in errors], told, errors)

    def test_no_proc(self):
        """As in a bare chroot. The system's loader finds our library beside the program by /proc alone."""
        hide = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o ro none /proc && exec "$@"', "sh"]
        library = {"LD_LIBRARY_PATH": str(BIN.parent / "lib")}

        def run(words, **environment):
            return self.run_it(words, wrap=lambda words: [*hide, *words], environment={**library, **environment})

        for name, words, environment in self.starts():
            with self.subTest(name):
                runs = self.check_start(name, run(words, **environment), "/proc is not mounted")
                self.assertEqual(runs, name != "shm")
        processes = run([BIN / "aprun", "--processes", "-n", 2, "echo", "well"])
        self.assertEqual(processes, (0, "well\nwell\n", []))
        made = self.folder / "ring"
        self.assertEqual(run([BIN / "apcc", HERE / "ring.c", "-o", made]), (0, "", []))
        self.check_ring(4, run([made, 20, 8], APLIB_CELLS="4"))
        self.assertEqual(run([BIN / "apfarm", "-k", "echo", ":::", 1, 2]), (0, "1\n2\n", []))
        self.assertEqual(run([BIN / "apctl", "list"])[0], 0)

    def test_full_disk(self):
        """What cannot be written is told with its file and the cause, and nothing stays that looks whole."""
        full = self.folder / "full"
        full.mkdir()
        (self.folder / "lab.toml").write_text('[[host]]\nname = "a"\nlaunch = "local"\ncells = 1\n'
                                              '[[host]]\nname = "b"\nlaunch = "local"\ncells = 1\n')
        (self.folder / "s.idl").write_text("Module s;\n" + "".join(
            f'Define f{i}(IN double a, OUT double b[1])\nCalls "C" f{i}(a, b);\n' for i in range(100)))
        room = "No space left on device"
        many = range(200)
        # (command, status, message, its environment); of 8 KiB
        cases = [
            (["aprun", "--processes", "-n", 1, "--output", "full/out", "seq", 9999], 1, f"write full/out: {room}"),
            (["apfarm", "--joblog", "full/log", "true", ":::", *many], 255, f"full/log: cannot write it: {room}"),
            (["apfarm", "--results", "full/r", "seq", ":::", 9999], 255, f"cannot write full/r/1/9999/stdout: {room}"),
            (["apfarm", "seq", ":::", 9999], 1, f"may be lost in part: {full}: {room}", {"TMPDIR": str(full)}),
            (["apgen", "-o", "full/s.c", "s.idl"], 2, f"full/s.c: cannot be written: {room}"),
            (["aprun", "-n", 1, PROGRAMS / "file", "full/data"], 3, "MPI_ERR_NO_SPACE: the device is full"),
            (["apcc", "-g3", HERE / "ring.c", "-o", "full/ring"], 1, room),
            (["apctl", "net", "-f", "lab.toml", "--seconds", 0.1, "--json", "full/n.json"], 2,
             f"the file full/n.json cannot be written: {room}"),
            (["apctl", "up", "-f", "lab.toml"], 1, f"lab.pool/cluster.toml: {room}", {"XDG_RUNTIME_DIR": str(full)}),
        ]
        if shutil.which("gnuplot"):
            picture = ["apctl", "net", "-f", "lab.toml", "--seconds", 0.1, "--png", "full/n.png"]
            cases.append((picture, 2, "gnuplot could not write all of full/n.png: is the disk full"))
        for words, status, told, *environment in cases:
            fill = 4096 if words[0] != "apctl" else 8192
            hide = ["unshare", "--mount", "sh", "-c", f"mount -t tmpfs -o size=8k none {full} && "
                    f'mkdir -m 700 full/aplib && head -c {fill} /dev/zero >full/fill && "$@"; s=$?; '
                    f"(cd full && ls -A . aplib) | sed '/^[.a].*:$/d' >left; exit $s", "sh"]
            with self.subTest(words[0], told=told):
                result = self.run_it([BIN / words[0], *words[1:]], wrap=lambda words, hide=hide: [*hide, *words],
                                     environment=environment[0] if environment else {})
                self.assertEqual(result[0], status, result)
                self.assertIn(told, "\n".join(result[2]), result)
                left = set((self.folder / "left").read_text().split()) - {"fill", "aplib"}
                self.assertLessEqual(left, {"out", "log", "r", "data"}, "what grows while others may read it")

    def test_program_that_may_not_be_mapped(self):
        """Its file system is mounted noexec: that is said before anything begins."""
        folder = self.folder / "noexec"
        folder.mkdir()
        hide = ["unshare", "--mount", "sh", "-c",
                f'mount -t tmpfs -o noexec none {folder} && cp {PROGRAMS}/ring {folder} && exec "$@"', "sh"]
        for start in ([BIN / "aprun", "-n", "4"], *(self.cluster(module) for module in MODULES)):
            status, output, errors = self.run_it([*start, folder / "ring", 20, 8], wrap=lambda words: [*hide, *words])
            self.assertEqual((status, output, len(errors)), (2, "", 1), errors)
            self.assertRegex(errors[0], r"ring: cannot map .*: Operation not permitted; .*noexec")

    def test_closed_standard_streams(self):
        """Of those of aprun, aprun -f and apctl: nothing gets into other files, and nobody crashes."""
        ring = PROGRAMS / "ring"
        starts = [[BIN / "aprun", "-n", "4", ring, 20, 8], [BIN / "apctl", "list"],
                  [MPI / "mpiexec", "-n", "4", PROGRAMS / "mpi"],
                  *([*self.cluster(module), ring, 20, 8] for module in MODULES)]
        for closed in itertools.chain.from_iterable(itertools.combinations(range(3), n) for n in (1, 2, 3)):
            redirect = " ".join(f"{fd}{'<' if fd == 0 else '>'}&-" for fd in closed)
            for words in starts:
                with self.subTest(closed=closed, words=[Path(words[0]).name, *map(str, words[1:])]):
                    start = ["sh", "-c", f'exec "$@" {redirect}', "sh"]
                    status, output, errors = self.run_it(words, wrap=lambda words, start=start: [*start, *words])
                    # What nobody can read may count as output that is lost.
                    self.assertIn(status, (0, 1, 141) if 1 in closed else (0,), (output, errors))
                    if 1 not in closed and "list" not in words:
                        self.assertIn("all done", output)
                    self.assertLessEqual(len(errors), 1, errors)

    def test_unlimited_stack(self):
        """The system then maps libraries from below; slots are there all the same."""
        ring = PROGRAMS / "ring"
        self.check_ring(4, self.run_it([BIN / "aprun", "-n", "4", ring, 20, 8], wrap=unlimited))
        self.check_ring(2048, self.run_it([BIN / "aprun", "-n", "2048", ring, 3, 8], wrap=unlimited))
        self.check_ring(4, self.run_it([ring, 20, 8], wrap=unlimited, environment={"APLIB_CELLS": "4"}))
        below = self.run_it([BIN / "aprun", "-n", "2048", ring, 3, 8], wrap=lambda words: ["setarch", "-L", *words])
        self.check_ring(2048, below)
        # The program and what it starts have the limit that they were given.
        limit = self.run_it([BIN / "aprun", "-n", "1", PROGRAMS / "limit"], wrap=unlimited)
        self.assertEqual(limit, (0, "unlimited, no variable of ours\n", []))
        for module in MODULES:
            self.check_ring(4, self.run_it([*self.cluster(module), ring, 20, 100000], wrap=unlimited), module)

    def test_most_cells_with_an_unlimited_stack(self):
        """Every slot is free. Half of the cells are in each process: one alone may not have so many mappings."""
        cells = int(os.environ.get("APLIB_TEST_CELLS", "16384"))
        words = [*self.cluster("tcp", cells=cells // 2), "--heap", "slot", PROGRAMS / "ring", 1, 8]
        self.check_ring(cells, self.run_it(words, wrap=unlimited))


def setUpModule():
    for name in ("mpi", "file"):
        subprocess.run([MPI / "mpicc", "-O1", HERE / f"{name}.c", "-o", PROGRAMS / name], check=True)
    for name in ("threads", "twice"):
        subprocess.run(["cc", "-O1", "-fPIC", "-shared", HERE / f"{name}.c", "-o", PROGRAMS / f"{name}.so"], check=True)


if __name__ == "__main__":
    programs = ("ring.c", "hog.c", "limit.c", "spin.c")
    namespaces.run_tests(BIN / "apcc", [HERE / name for name in programs], PROGRAMS)
