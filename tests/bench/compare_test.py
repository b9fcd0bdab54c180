#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tests of bench/compare: its command line, arithmetic and texts, on made-up figures. Nothing is measured."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))

from comparing import (
    building,
    fabric,
    figures,
    globus,
    internet,
    link,
    machine,
    markdown,
    mpi,
    noise,
    page,
    peers,
    picture,
    sources,
    table,
    wan,
)  # noqa: E402 (the path must be set first)

LATENCY_8 = ("latency", "two-processors", 8)


def compare(*words):
    """Without what is installed: nothing is measured."""
    return subprocess.run(
        [sys.executable, "-B", str(BENCH / "compare"), *words],
        env={**os.environ, "PATH": "/nowhere"},
        capture_output=True,
        text=True,
        check=False,
    )


def a_round(**values):
    """One round with the 8 B latency of each source."""
    return {(source, *LATENCY_8): (value, "ns") for source, value in values.items()}


def noise_of(repeats, busy=0.5):
    """What a run with these repeats of the reference says."""
    reference = noise.Reference(pathlib.Path("/nowhere"))
    reference.busy = [busy] * len(repeats)
    reference.repeats = {"cache-line": list(repeats), "memcpy": [50, 50.1, 50.2]}
    return reference.facts()


def facts(**not_measured):
    described = {
        "processor": "A processor",
        "virtual": True,
        "cores": 2,
        "system": "A system",
        "kernel": "Linux 6.1",
        "compiler": "gcc 12.2.0",
        "libc": "glibc 2.36",
    }
    return {
        "date": "2026-01-01 00:00 UTC",
        "machine": described,
        "rounds": 2,
        "noise": noise_of([100, 101, 102]),
        "touch": False,
        "part": "all",
        "versions": {"MPICH": "4.0.2"},
        "not_measured": not_measured,
    }


class CommandLine(unittest.TestCase):
    def test_help_names_the_options(self):
        done = compare("--help")
        self.assertEqual(done.returncode, 0)
        for word in ("--build", "--rounds", "--write-docs", "--touch", "--mpi", "--wan", "--quick"):
            self.assertIn(word, done.stdout)

    def test_unknown_peer_is_refused_with_the_known_ones(self):
        done = compare("--peers", "openmpi,lam")
        self.assertEqual(done.returncode, 2)
        self.assertIn("no peer is called 'lam'; known: openmpi, mpich, ampi, oshmem", done.stderr)

    def test_without_apbench_it_says_how_to_build_it(self):
        with tempfile.TemporaryDirectory() as folder:
            done = compare("--build", folder, "--out", folder)
        self.assertEqual(done.returncode, 2)
        self.assertIn("cmake --preset release", done.stderr)
        self.assertIn("compare: not built: apbench, apcc, aprun, scg, ", done.stderr)
        self.assertRegex(done.stdout, r"(?s)figure +APlib +best peer.*8 B.*not measured")

    def test_mpi_is_compared_by_its_own_figures_and_needs_its_compiler(self):
        with tempfile.TemporaryDirectory() as folder:
            done = compare("--build", folder, "--out", folder, "--mpi", "--peers", "")
            self.assertTrue(pathlib.Path(folder, "compare-mpi.json").exists())
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stdout, "APlib's MPI is not measured: .*/mpicc is not installed; build it with: cmake")
        self.assertRegex(done.stdout, r"alltoall of 64 KiB +- .*<= 0.4 x best peer +-")
        self.assertEqual(compare("--mpi", "--one-sided").returncode, 2)

    def test_what_long_ways_need_is_said_with_the_table(self):
        with tempfile.TemporaryDirectory() as folder:
            done = compare("--build", folder, "--out", folder, "--wan", "--quick", "--peers", "scp")
            self.assertTrue(pathlib.Path(folder, "compare-wan.json").exists())
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stdout, r"put of 100 MB at 100 ms +- .*<= 1 x best peer +-\n +<= 2 s +-\n")
        self.assertRegex(done.stdout, "\nAPlib is not measured: needs .*\n(.*\n)*scp is not measured: needs ")
        self.assertIn("apctl apkeeper", done.stderr)
        self.assertEqual([compare(*words).returncode for words in (("--quick",), ("--wan", "--quick", "--write-docs"))],
                         [2, 2])  # fmt: skip
        known = "known: scp, rsync, tar, gridftp, iperf3, ssh, globusrun, socat"
        self.assertIn(known, compare("--wan", "--peers", "ftp").stderr)

    def test_what_fails_on_the_way_is_no_end_without_a_table(self):
        with tempfile.TemporaryDirectory() as folder:
            programs = pathlib.Path(folder, "bin")
            programs.mkdir()
            for name in building.PROGRAMS:
                programs.joinpath(name).write_text("#!/bin/sh\necho '{no JSON'\n", encoding="ascii")
                programs.joinpath(name).chmod(0o755)
            done = compare("--build", folder, "--out", folder, "--peers", "", "--rounds", "1")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("compare: APlib: JSONDecodeError", done.stderr)
        self.assertRegex(done.stdout, r"(?s)figure +APlib +best peer.*APlib is not measured: JSONDecodeError")


class Building(unittest.TestCase):
    """Building with a stand-in for cmake, which makes the programs or fails to."""

    def make(self, script):
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(
            os.environ, {"PATH": f"{folder}/tools:/usr/bin:/bin"}
        ):
            tools, build = pathlib.Path(folder, "tools"), pathlib.Path(folder, "build", "release")
            tools.mkdir()
            tools.joinpath("cmake").write_text(f"#!/bin/sh\n{script}\n", encoding="ascii")
            tools.joinpath("cmake").chmod(0o755)
            fault = building.make(build, pathlib.Path(folder), pathlib.Path(folder, "log"))
            return fault, building.missing(build)

    def test_what_is_not_there_is_built_and_nothing_else(self):
        programs = " ".join(building.PROGRAMS)
        script = f"""case "$*" in
          "--preset release") ;;
          "--build "*" --target bench-programs") mkdir -p build/release/bin; cd build/release/bin; touch {programs} ;;
          *) exit 1 ;;
        esac"""
        self.assertEqual(self.make(script), ("", []))

    def test_a_build_that_is_stopped_is_no_end(self):
        with mock.patch.object(subprocess, "run", side_effect=KeyboardInterrupt):
            fault, missing = self.make("exit 1")
        self.assertEqual(missing, building.PROGRAMS)
        self.assertIn("the build was stopped", fault)

    def test_what_cannot_be_built_is_named(self):
        programs = " ".join(building.PROGRAMS[1:])
        script = f"mkdir -p build/release/bin; cd build/release/bin; touch {programs}; exit 1"
        fault, missing = self.make(script)
        self.assertEqual(missing, ["apbench"])
        self.assertIn("apbench could not be built (see ", fault)


class Noise(unittest.TestCase):
    def test_the_median_lies_within_an_interval_that_narrows_with_the_rounds(self):
        for count, k in ((1, 1), (4, 1), (7, 1), (8, 2), (10, 2), (11, 3), (20, 6)):
            self.assertEqual(noise.interval(range(count, 0, -1)), (k, count + 1 - k), count)

    def test_a_target_within_the_interval_is_open(self):
        lower = {"yes": [0.5, 0.6, 0.55], "NO": [0.8, 0.9, 0.81], "open: 0.5 to 0.9": [0.5, 0.6, 0.9], "-": []}
        for word, values in lower.items():
            self.assertEqual(noise.judgement(values, 0.7, False), word)
        self.assertEqual(noise.judgement([0.8, 0.7], 0.7, True), "yes")
        self.assertEqual(noise.judgement([0.6, 0.5], 0.7, True), "NO")
        self.assertEqual(noise.count(["yes", "NO", "open: 0.5 to 0.9", "-", "yes"]),
                         "2 of 5 targets met, 1 open, 1 not measured")  # fmt: skip

    def test_a_few_bad_rounds_leave_a_target_as_it_is(self):
        self.assertEqual(noise.judgement([0.5] * 8 + [0.9], 0.7, False), "yes")

    def test_a_run_without_doubt_is_published(self):
        self.assertEqual(noise.complaint(noise_of([100, 500]), 7, ["yes", "NO"] * 2 + ["open: 1 to 2"]), "")
        self.assertEqual(noise.complaint(noise_of([100]), 7, []), "")

    def test_a_run_that_leaves_much_open_is_refused_with_the_number(self):
        said = noise.complaint(noise_of([100]), 7, ["yes", "open: 1 to 2", "NO", "-"])
        self.assertIn("1 of 4 targets are open, more than 20 %", said)

    def test_a_run_beside_others_is_refused_with_the_number(self):
        said = noise.complaint(noise_of([100] * 9, busy=12.3), 7, [])
        self.assertIn("other programs used 12.3 % of this machine", said)
        self.assertTrue(0 <= machine.busy_percent(0.05) <= 100)

    def test_a_short_run_is_refused(self):
        self.assertIn("it has 6 rounds, fewer than 7", noise.complaint(noise_of([100] * 9), 6, []))
        done = compare("--write-docs", "--rounds", "3")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--write-docs: fewer than 7 rounds are not published", done.stderr)

    def test_without_its_reference_a_run_is_refused(self):
        nothing = noise.Reference(pathlib.Path("/nowhere")).facts()
        self.assertIn("could not be measured", noise.complaint(nothing, 7, []))

    def test_the_reference_is_repeated_before_the_turns_of_every_kind(self):
        with tempfile.TemporaryDirectory() as folder:
            programs = pathlib.Path(folder, "bin")
            programs.mkdir()
            line = '{"bench":"floors","case":"memcpy","bytes":1048576,"value":50,"unit":"GB/s"}'
            for name in building.PROGRAMS:
                programs.joinpath(name).write_text(f"#!/bin/sh\necho '{line}'\n", encoding="ascii")
                programs.joinpath(name).chmod(0o755)
            done = compare("--build", folder, "--out", folder, "--peers", "", "--rounds", "2")
            outcome = json.loads(pathlib.Path(folder, "compare.json").read_text(encoding="utf-8"))
        kinds = len(re.findall(r"^round ", done.stderr, re.MULTILINE))
        self.assertGreater(kinds, 2)
        self.assertEqual(outcome["noise"]["repeats"], kinds)


class Turns(unittest.TestCase):
    """Who has turns in a round, of which kind, and in which order. No program runs."""

    def kinds(self, round_number, part="all"):
        build, programs = pathlib.Path("/nowhere"), (BENCH / "peers", pathlib.Path("/nowhere"), False)
        with mock.patch.multiple(peers.Peer, find=mock.DEFAULT, build=mock.DEFAULT):
            everybody = [sources.Aplib(build, False), peers.AplibMpi(build, *programs)]
            everybody += [peer(*programs) for peer in peers.KNOWN.values()]
        everybody += [sources.Floors(build), sources.Hosts(build), sources.Wires(build), sources.InProcess(build)]
        everybody += [sources.Module(build, module) for module in sources.MODULES]
        with mock.patch.object(fabric, "hindrance"), mock.patch.object(link, "hindrance"):
            everybody += [sources.Fabric(build), sources.Link(build)]
        with mock.patch.object(pathlib.Path, "exists", return_value=True):  # bench-fabric
            turns = sources.by_kind([one for one in everybody if part in one.parts], round_number, part)
        return {kind: [source.name for source, _ in of_kind] for kind, of_kind in turns.items()}

    def test_what_targets_compare_is_of_one_kind(self):
        together = {kind: set(names) for kind, names in self.kinds(1).items()}
        mpi_peers = {"openmpi", "mpich", "ampi"}
        self.assertEqual(together, {
            "messages": {"aplib", "floors", *mpi_peers},
            "put and get": {"aplib", "floors", "shm", "openmpi", "mpich", "oshmem"},
            "streams": {"aplib", *mpi_peers},
            "collectives": {"aplib", *mpi_peers},
            "messages over tcp": {"hosts", "wires", "openmpi"},
            "streams over tcp": {"hosts", "wires", "openmpi"},
            "encrypted streams": {"hosts", "wires"},
            "shm": {"shm", "inprocess", *mpi_peers},
            **{f"{what} over {module}": {module, "fabric"}
               for what in ("frames", "writes") for module in ("rdma-tcp", "rdma-shm")},
        })  # fmt: skip

    def test_the_order_of_turns_changes_by_round(self):
        orders = [self.kinds(number)["streams"] for number in range(4)]
        self.assertEqual({order[0] for order in orders}, {"aplib", "openmpi", "mpich", "ampi"})
        self.assertEqual(orders[1], orders[0][1:] + orders[0][:1])

    def test_what_no_target_compares_has_few_turns(self):
        more = [set(self.kinds(number)) - set(self.kinds(1)) for number in range(5)]
        self.assertEqual(more[0], more[3] | {"idle", "load"})
        self.assertEqual(more[3], sources.SELDOM_KINDS)
        self.assertEqual(more[1:3] + more[4:], [set()] * 3)

    def test_put_get_and_modules_are_a_part(self):
        self.assertEqual(set(self.kinds(3)) - set(self.kinds(3, "one-sided")), {
            "messages", "streams", "collectives", "messages over tcp", "streams over tcp", "encrypted streams", "scg",
            "several processes", "a link",
        })  # fmt: skip

    def test_libraries_of_mpi_have_turns_of_the_same_kinds(self):
        together = self.kinds(2, "mpi")
        for kind in ("messages", "streams", "large collectives", "collectives", "32 ranks", "start"):
            self.assertEqual(set(together[kind]) - {"aplib", "mpich"}, {"aplib-mpi", "openmpi", "ampi"})
        self.assertIn("aplib", together["messages"])
        self.assertEqual([kind for kind, names in together.items() if "mpich" not in names],
                         ["processes over tcp", "8 ranks", "32 ranks"])
        self.assertEqual(set(together["processes over tcp"]), {"aplib-mpi", "openmpi"})
        for kind in ("put and get", "processes"):
            self.assertEqual(set(together[kind]), {"aplib-mpi", "openmpi", "mpich"})
        files = self.kinds(3, "mpi")["files"]
        self.assertEqual(set(files), {"aplib-mpi", "openmpi", "mpich"})

    def test_each_case_of_a_module_has_one_kind(self):
        for module in sources.MODULES:
            named = []
            for _, function in sources.Module(pathlib.Path("/nowhere"), module).turns(0):
                words = function.args[0]
                if "--bytes" not in words:
                    named += words[words.index("--case") + 1].split(",")
            self.assertEqual(sorted(named), sorted(f"{module}-{case}" for case in sources.MODULE_CASES))
        self.assertEqual([case for _, _, case, _ in page.MODULE_CASES], sources.MODULE_CASES)


class Picture(unittest.TestCase):
    def test_every_target_has_room_for_its_name_and_the_title_for_itself(self):
        judged = figures.Verdict("<= 1 x fi_pingpong", 1.0, 0.9, "yes")
        rows = [figures.Row(one, 1.0, "", None, None, None, None, [judged]) for one in figures.all_figures()]
        script = "\n".join(picture.script("a.png", figures.Run([a_round(aplib=70)], []), rows))
        width, height = map(int, re.search(r"pngcairo size (\d+),(\d+)", script).groups())
        panel_width, panel_height = map(float, re.findall(r"^set size (\S+),(\S+)", script, re.MULTILINE)[-1])
        left, right = (float(re.search(rf"set {side}margin at screen (\S+)", script)[1]) for side in "lr")
        longest = max(len(f"{row.figure.name}: {judged.text}") for row in rows)
        self.assertEqual(panel_width, 1)
        self.assertGreater(left * width, 7 * longest)  # 9 points take less than 7 pixels a character
        self.assertGreater((right - left) * width, 600)  # the title takes 300, above the bars
        self.assertGreater(panel_height * height / len(rows), 18)
        self.assertRegex(script, "set ytics noenhanced .*fi_pingpong")


class MissingPeers(unittest.TestCase):
    def fault(self, kind, **environment):
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(
            os.environ, {"PATH": folder, **environment}, clear=True
        ):
            return kind(BENCH / "peers", pathlib.Path(folder), False).fault

    def test_packages_are_installed_by_the_script(self):
        self.assertEqual(self.fault(peers.OpenMpi), "mpicc.openmpi is not installed; run scripts/peers")
        self.assertEqual(self.fault(peers.Mpich), "mpicc.mpich is not installed; run scripts/peers")
        self.assertEqual(self.fault(peers.OpenShmem), "oshcc is not installed; run scripts/peers")

    def test_ampi_needs_charm_home(self):
        self.assertIn("CHARM_HOME is not set; in a checkout of Charm++ run './build AMPI", self.fault(peers.Ampi))
        self.assertIn("is not installed", self.fault(peers.Ampi, CHARM_HOME="/nowhere"))


class Arithmetic(unittest.TestCase):
    def row(self, rounds, names):
        return figures.evaluate(figures.Run(rounds, names))[0]

    def test_ratios_are_made_inside_a_round(self):
        # The computer halves its speed in the middle round. The medians of the values alone would give 60/110.
        rounds = [a_round(aplib=50, openmpi=100), a_round(aplib=100, openmpi=200), a_round(aplib=60, openmpi=110)]
        row = self.row(rounds, ["openmpi"])
        self.assertEqual(row.value, 60)
        self.assertAlmostEqual(row.peer_ratio, 0.5)
        self.assertEqual([v.judgement for v in row.verdicts], ["open: 50 to 100", "yes"])

    def test_the_best_peer_is_the_fastest(self):
        row = self.row([a_round(aplib=90, openmpi=110, mpich=100)], ["openmpi", "mpich"])
        self.assertEqual(row.best_peer, "mpich")
        self.assertAlmostEqual(row.peer_ratio, 0.9)
        self.assertEqual([v.judgement for v in row.verdicts], ["NO", "NO"])

    def test_what_was_not_measured_is_neither_met_nor_missed(self):
        row = self.row([a_round(aplib=70)], [])
        self.assertEqual([v.judgement for v in row.verdicts], ["yes", "-"])
        self.assertIn("not measured", noise.count(table.judgements([row])))

    def test_higher_is_better_where_it_is(self):
        goal = figures.Goal(60)
        figure = next(f for f in figures.all_figures() if f.name == "messages of 8 B")
        for rate, met in ((59, "NO"), (61, "yes")):
            run = figures.Run([{("aplib", "rate", "two-processors", 8): (rate, "M/s")}], [])
            row = next(r for r in figures.evaluate(run) if r.figure.name == figure.name)
            self.assertEqual(figures.judge(run, figure, goal, row).judgement, met)

    def test_posted_bandwidth_stands_beside_memcpy(self):
        size = 1 << 20
        run = figures.Run(
            [
                {
                    ("aplib", "latency", "two-processors-posted", size): (size / 110, "ns"),
                    ("floors", "floors", "memcpy", size): (55, "GB/s"),
                }
            ],
            [],
        )
        row = next(r for r in figures.evaluate(run) if r.figure.name == "1 MiB into a posted buffer")
        self.assertAlmostEqual(row.value, 110)
        self.assertAlmostEqual(row.floor_ratio, 2)

    def test_a_put_of_much_stands_beside_memcpy_of_the_same_run(self):
        size = 1 << 20
        rounds = [
            {("aplib", "put", "stream", size): (speed, "GB/s"), ("aplib", "put", "memcpy", size): (50, "GB/s")}
            for speed in (48, 49)
        ]
        row = next(r for r in figures.evaluate(figures.Run(rounds, [])) if r.figure.name == "puts of 1 MiB")
        self.assertAlmostEqual(row.floor_ratio, 0.97)
        self.assertEqual([v.judgement for v in row.verdicts], ["yes"])

    def test_messages_over_shm_stand_beside_those_of_one_process(self):
        values = {
            ("shm", "module", "shm-cells-latency", 8): (150, "ns"),
            ("inprocess", "latency", "two-processors", 8): (70, "ns"),
        }
        row = next(
            r
            for r in figures.evaluate(figures.Run([values], []))
            if r.figure.name == "8 B one way, two processes over shm"
        )
        self.assertEqual([v.judgement for v in row.verdicts], ["NO"])

    def test_larger_messages_over_shm_have_twice_the_time_of_those_in_one_process(self):
        size = 1 << 20
        values = {
            ("shm", "module", "shm-cells-latency", size): (19000, "ns"),
            ("inprocess", "latency", "two-processors", size): (10000, "ns"),
        }
        rows = {row.figure.name: row for row in figures.evaluate(figures.Run([values], []))}
        self.assertEqual([v.judgement for v in rows["1 MiB one way, two processes over shm"].verdicts], ["yes"])
        self.assertEqual([v.judgement for v in rows["64 KiB one way, two processes over shm"].verdicts], ["-"])

    def test_a_word_of_another_process_that_can_be_mapped_has_twice_the_time_of_open_mpi(self):
        values = {
            ("openmpi", "get", "two-processors", 8): (50, "ns"),
            ("tcp", "module", "tcp-cells-get", 8): (9000, "ns"),
        }
        for time, met in ((99, "yes"), (101, "NO")):
            values["shm", "module", "shm-cells-get", 8] = (time, "ns")
            rows = {row.figure.name: row for row in figures.evaluate(figures.Run([values], ["openmpi"]))}
            self.assertEqual([v.judgement for v in rows["8 B get, two processes over shm"].verdicts], [met])
            self.assertEqual(rows["8 B get, two processes over tcp"].verdicts, [])

    def test_fi_pingpong_is_read(self):
        text = """bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec
8       10k     =10k     156k        0.17s      0.92       8.70       0.11
"""
        self.assertAlmostEqual(fabric.microseconds(text, 8), 8.7)
        with self.assertRaises(fabric.Failed):
            fabric.microseconds("fi_getinfo: -61", 8)

    def test_quantities_for_people(self):
        self.assertEqual(figures.quantity(71.84, "ns"), "71.8 ns")
        self.assertEqual(figures.quantity(1070, "ns"), "1.07 us")
        self.assertEqual(figures.quantity(264e6, "ns"), "264 ms")
        self.assertEqual(figures.quantity(None, "ns"), "-")


class Mpi(unittest.TestCase):
    """The figures of --mpi."""

    def rows(self, values, *names):
        run = figures.Run([{key: (value, "ns") for key, value in values.items()}], names)
        return {row.figure.name: row for row in figures.evaluate(run, mpi.all_figures())}

    def met(self, row):
        return [verdict.judgement for verdict in row.verdicts]

    def test_messages_stand_beside_the_best_peer(self):
        latency = ("latency", "two-processors", 8)
        rows = self.rows({("aplib-mpi", *latency): 75, ("openmpi", *latency): 200, ("mpich", *latency): 99}, "mpich")
        self.assertEqual(self.met(rows["8 B one way"]), ["NO"])
        self.assertEqual(self.met(rows["1 KiB one way"]), ["-"])

    def test_crowds_stand_beside_open_mpi_and_ampi_each(self):
        barrier = ("barrier", "32-on-2", 0)
        rows = self.rows({("aplib-mpi", *barrier): 5, ("openmpi", *barrier): 51, ("ampi", *barrier): 12}, "openmpi",
                         "ampi")
        self.assertEqual(self.met(rows["barrier, 32 ranks on 2 cores"]), ["yes", "NO"])

    def test_vectors_stand_beside_the_plain_loop_too(self):
        case = ("two-processors", 65536)
        values = {("aplib-mpi", "vector", *case): 19, ("mpich", "vector", *case): 100}
        for loop, met in ((10, "yes"), (9, "NO")):
            values["aplib-mpi", "vector-loop", *case] = loop
            self.assertEqual(self.met(self.rows(values, "mpich")["every second float, 64 KiB one way"]), ["yes", met])

    def test_the_layer_is_what_is_above_the_api(self):
        latency = ("latency", "one-processor", 8)
        rows = self.rows({("aplib-mpi", *latency): 70, ("aplib", *latency): 40})
        row = rows["what MPI adds to 8 B one way, one processor"]
        self.assertEqual((row.value, self.met(row)), (30, ["NO"]))

    def test_memory_is_that_of_one_further_rank(self):
        memory = {("mpich", "memory", "2-on-2", 0): 1000, ("mpich", "memory", "32-on-2", 0): 301000,
                  ("aplib-mpi", "memory", "2-on-2", 0): 1000, ("aplib-mpi", "memory", "32-on-2", 0): 4000}
        row = self.rows(memory, "mpich")["memory of a further rank"]
        self.assertEqual((row.value, row.peer_value, self.met(row)), (100, 10000, ["yes"]))

    def test_its_page_has_its_figures(self):
        run = figures.Run([{("aplib-mpi", "start", "1000-ranks", 0): (0.4e9, "ns")}], [])
        with tempfile.TemporaryDirectory() as folder:
            mpi.write(pathlib.Path(folder), figures.evaluate(run, mpi.all_figures()), {**facts(), "part": "mpi"})
            text = pathlib.Path(folder, "mpi-performance.md").read_text(encoding="utf-8")
        self.assertIn("| hello of 1,000 ranks | 400 ms | - | - | - | - | <= 500 ms | yes |", text)
        self.assertRegex(text, "2026-01-01 00:00 UTC, 2 rounds: 1 of [0-9]+ targets met")
        self.assertNotIn("{", text)


class Wan(unittest.TestCase):
    def rows(self, values, *names):
        rows = figures.evaluate(figures.Run([values], list(names)), wan.all_figures(wan.FULL))
        return {row.figure.name: row for row in rows}

    def met(self, row):
        return [verdict.judgement for verdict in row.verdicts]

    def test_the_best_peer_of_a_field_counts(self):
        field = ("100 ms", 100 * wan.MB)
        values = {(name, "get", *field): (seconds, "s") for name, seconds in (("aplib", 2.5), ("scp", 8), ("rsync", 5))}
        row = self.rows(values, "scp", "rsync")["get of 100 MB at 100 ms"]
        self.assertEqual((row.best_peer, row.peer_ratio, self.met(row)), ("rsync", 0.5, ["yes", "NO"]))

    def test_a_hello_is_counted_without_its_round_trips(self):
        values = {("aplib", "hello", "100 ms", 0): (0.42, "s"), ("aplib", "hello", "0 ms", 0): (0.025, "s"),
                  ("globusrun", "hello", "100 ms", 0): (4, "s"), ("globusrun", "hello", "0 ms", 0): (1, "s"),
                  ("ssh", "hello", "0 ms", 0): (0.1, "s")}  # fmt: skip
        rows = self.rows(values, "ssh", "globusrun")
        self.assertAlmostEqual(rows["hello at 100 ms, beyond 4 round trips"].value, 20)
        row = rows["hellos on two hosts a second, without delay"]
        self.assertEqual((row.value, row.peer_ratio, self.met(row)), (40, 4, ["yes", "yes"]))
        self.assertEqual(self.met(rows["hello on two hosts at 100 ms"]), ["NO"])

    def test_messages_are_beside_iperf3_and_one_connection(self):
        values = {(name, "messages", "0.1 ms", figures.MIB): (rate, "Mb/s")
                  for name, rate in (("aplib", 930), ("one", 920), ("iperf3", 990))}  # fmt: skip
        row = self.rows(values, "iperf3")["500 messages of 1 MiB at 0.1 ms"]
        self.assertEqual(self.met(row), ["NO", "yes"])

    def taking_part(self, **found):
        with mock.patch.object(internet, "hindrance", return_value=None), mock.patch("shutil.which", **found):
            net = internet.Internet(pathlib.Path("/nowhere"))
            own, others = wan.make_sources(net, wan.FULL, wan.PEERS)
            return own + others, sources.by_kind(own + others, 0, "wan")

    def test_what_targets_compare_is_of_one_kind(self):
        _, kinds = self.taking_part()
        together = {kind: [source.name for source, _ in turns] for kind, turns in kinds.items()}
        self.assertEqual(len(together), 2 * 4 * 5 + 1 + 2 + 3 + 1)
        self.assertEqual(together["put of 1 MB at 0.2 ms"], ["aplib", "scp", "rsync", "gridftp"])
        self.assertEqual(together["small files at 100 ms"], ["aplib", "rsync", "tar"])
        self.assertEqual(together["messages at 0.1 ms"], ["aplib", "one", "iperf3"])
        self.assertEqual(together["hello at 0 ms"], ["aplib", "ssh", "globusrun"])
        self.assertEqual(together["relays"], ["aplib", "ssh", "socat"])

    def test_who_is_much_slower_than_another_peer_is_not_measured_again(self):
        seconds = {"aplib": 5, "scp": 40, "rsync": 10, "gridftp": 6}
        with mock.patch.object(internet, "hindrance", return_value=None), mock.patch("shutil.which"):
            net = internet.Internet(pathlib.Path("/nowhere"))
            own, others = wan.make_sources(net, wan.FULL, wan.PEERS)
        net.at = lambda delay: None

        def measured():
            """Whom a round has, in the order of the sources."""
            names = []
            for source, lines in sources.by_kind(own + others, 0, "wan")["put of 500 MB at 200 ms"]:
                net.transfer = lambda *_, name=source.name: seconds[name]
                names += [source.name for _ in lines()]
            return names

        self.assertEqual(measured(), ["aplib", "scp", "rsync", "gridftp"])
        self.assertEqual(measured(), ["aplib", "rsync", "gridftp"])
        seconds["rsync"] = 13
        self.assertEqual([measured(), measured()], [["aplib", "rsync", "gridftp"], ["aplib", "gridftp"]])

    def test_globus_url_copy_goes_on_with_as_many_connections_as_were_the_fastest(self):
        grid = globus.Grid(mock.Mock(round_trip_ms=100))
        seconds = {1: 7, 4: 5, 8: 4, 16: 6}
        with mock.patch.object(grid, "set_up"), mock.patch.object(grid, "url_copy") as copy:
            copy.side_effect = lambda *words: seconds[words[-1]]
            times = [grid.by_url_copy("put", pathlib.Path("file"), "/nowhere") for _ in range(2)]
        self.assertEqual((times, copy.call_count), ([4, 4], 6))

    def test_a_missing_peer_is_named_with_its_package(self):
        everybody, _ = self.taking_part(return_value=None)
        faults = {source.name: source.fault for source in everybody}
        self.assertEqual(faults["scp"], "scp is not installed; run scripts/peers, or apt-get install openssh-client")
        self.assertEqual(
            faults["gridftp"],
            "globus-url-copy, globus-gridftp-server, grid-proxy-init, openssl are not installed; apt-get install "
            "--no-install-recommends globus-gass-copy-progs globus-gridftp-server-progs globus-proxy-utils openssl",
        )
        self.assertEqual(faults["aplib"], "there is no /nowhere/bin/apbench")

    def test_its_page_has_its_figures_and_ranges(self):
        rounds = [{("aplib", "put", "50 ms", wan.MB): (seconds, "s")} for seconds in (0.25, 0.5)]
        run = figures.Run(rounds, ["scp"])
        words = {**facts(), "part": "wan", "congestion_control": "reno"}
        with tempfile.TemporaryDirectory() as folder:
            wan.write(folder, figures.evaluate(run, wan.all_figures(wan.FULL)), run, words)
            text = pathlib.Path(folder, "wan-performance.md").read_text(encoding="utf-8")
        self.assertIn("| put of 1 MB at 50 ms | 0.38 s | - | - | - | - | <= 1 x best peer | - |", text)
        self.assertIn("| put of 1 MB at 50 ms | 0.25 s to 0.50 s | - |", text)
        self.assertIn("with reno as their congestion control", text.replace("\n", " ").replace("   ", " "))
        self.assertNotIn("{", text)


class Texts(unittest.TestCase):
    def test_table_names_what_is_missing(self):
        rows = figures.evaluate(figures.Run([a_round(aplib=70, mpich=100)], ["mpich"]))
        text = table.text(rows, facts(AMPI="CHARM_HOME is not set; do this"))
        self.assertIn("<= 0.75 x Open MPI", text)
        self.assertIn("AMPI is not measured: CHARM_HOME is not set; do this", text)

    def test_page_has_date_machine_and_tables(self):
        run = figures.Run([a_round(aplib=70, mpich=100)], ["mpich"])
        with tempfile.TemporaryDirectory() as folder:
            page.write(pathlib.Path(folder), figures.evaluate(run), run, facts(), None)
            text = (pathlib.Path(folder) / "performance.md").read_text(encoding="utf-8")
        for words in (
            "2026-01-01 00:00 UTC",
            "A processor (virtual machine), 2 cores",
            "MPICH 4.0.2",
            "| 8 | 70.0 ns |",
        ):
            self.assertIn(words, text)

    def test_page_sets_put_and_get_beside_peers_and_modules_side_by_side(self):
        values = {
            ("aplib", "put", "two-processors", 8): (60, "ns"),
            ("openmpi", "put", "two-processors", 8): (290, "ns"),
            ("mpich", "latency", "two-processors", 8): (120, "ns"),
            ("tcp", "module", "tcp-latency", 8): (4000, "ns"),
            ("shm", "module", "shm-latency", 8): (80, "ns"),
        }
        run = figures.Run([values], ["openmpi", "mpich"])
        self.assertIn("| put, to visibility | 8 | 60.0 ns | 290 ns |", page.one_sided(run))
        self.assertIn("| frame of 8 B, one way | 4.00 us | 80.0 ns |", page.modules(run))

    def test_a_run_of_put_and_get_alone_leaves_the_other_rows(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            run = figures.Run([a_round(aplib=70, mpich=100)], ["mpich"])
            page.write(folder, figures.evaluate(run), run, facts(), None)
            run = figures.Run([{("aplib", "put", "two-processors", 8): (50, "ns")}], ["mpich"])
            later = {**facts(), "date": "2026-02-02 00:00 UTC", "part": "one-sided", "noise": noise_of([100, 103, 106])}
            page.write(folder, figures.evaluate(run), run, later, None)
            text = (folder / "performance.md").read_text(encoding="utf-8")
        self.assertIn("| 8 B one way, two processors | 70.0 ns | 100 ns MPICH |", text)
        self.assertIn("| 8 | 70.0 ns |", text)
        self.assertIn("| 8 B put, to visibility | 50.0 ns |", text)
        self.assertRegex(text, "(?m)^2026-01-01 00:00 UTC, 2 rounds: 2 of .* targets met")
        self.assertIn("Put, get and modules: 2026-02-02 00:00 UTC, 2 rounds", text)
        self.assertIn("the reference (cache-line) lay within 2.9 %", text.replace("\n", " "))

    def test_lines_of_pages_are_as_long_as_those_of_the_documentation(self):
        text = "# A title " + "x" * 120 + "\n\n" + "- " + "word " * 60 + "\n- next\n\n| " + "cell " * 40 + "|\n"
        lines = markdown.wrapped(text).split("\n")
        self.assertEqual(
            [line for line in lines if len(line) > 120], ["# A title " + "x" * 120, "| " + "cell " * 40 + "|"]
        )
        self.assertEqual(lines[2][:6] + lines[3][:6] + lines[-4], "- word  word- next")
        self.assertEqual(" ".join(" ".join(lines).split()), " ".join(text.split()))

    def test_table_and_page_say_how_noisy_the_machine_was(self):
        run = figures.Run([a_round(aplib=70)], [])
        words = {**facts(), "noise": noise_of([100, 104, 108, 112], busy=3)}
        said = (
            "others used 3 % of the machine; the middle half of 4 repeats of the reference (cache-line) lay within "
            "5.7 %"
        )
        self.assertIn(said, table.text(figures.evaluate(run), words))
        with tempfile.TemporaryDirectory() as folder:
            page.write(pathlib.Path(folder), figures.evaluate(run), run, words, None)
            text = (pathlib.Path(folder) / "performance.md").read_text(encoding="utf-8")
        self.assertIn(f"Noise: {said}.", text.replace("\n", " "))

    def test_the_machine_is_described_without_its_name(self):
        described = machine.describe(pathlib.Path("/nowhere"))
        self.assertGreaterEqual(described["cores"], 1)
        self.assertNotIn(os.uname().nodename, machine.sentence(described))


if __name__ == "__main__":
    unittest.main()
