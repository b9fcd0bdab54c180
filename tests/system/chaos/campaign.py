#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Many machines of real processes, each with a fault at random (faults.py): every one ends clearly and in time, with
the right status and one message, delivers no wrong message, and leaves nothing behind.

    campaign.py BIN [--cases N] [--seed S] [--jobs J]     BIN has aprun, apctl and apcc
    campaign.py BIN --seed S --from NUMBER --cases N      those from a number on, up to N
    campaign.py BIN --seed S --only NUMBER                one case again
    campaign.py BIN --kind cut_pair --module rdma         of one kind
    campaign.py BIN --each                                one of each kind

It needs root: hosts are network namespaces. Each job has processes, network, mounts and temporary folders of its own.
"""

import argparse
import json
import os
import random as randoms
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import faults
from faults import FAULTS, Run, Setup, Wrong
from machine import namespaces

HERE = Path(__file__).resolve().parent
WATCHED = ("/dev/shm", "/tmp", "/var/tmp", "/run/aptest")


def left_over(run):
    """Whatever a run may have left: processes, files of any kind, namespaces, mounts, shared memory of System V."""
    found = [f"process {line}" for line in namespaces.processes().values()]
    for folder in (*WATCHED, run.folder):
        for path in Path(folder).rglob("*"):
            ours = path == run.folder or path.is_relative_to(run.folder) and Path(folder) != run.folder
            known = path in (run.file, run.folder / "stop", run.folder / "aplib", run.folder / "full")
            if not ours and not known:
                found.append(f"file {path}")
    hosts = {host.namespace for host in run.network.hosts} | {run.network.switch}
    found += [f"namespace {name}" for name in os.listdir("/run/netns") if name not in hosts]
    found += [f"mount {line}" for line in Path("/proc/self/mounts").read_text().splitlines() if str(run.folder) in line]
    for kind in ("shm", "sem", "msg"):
        table = Path("/proc/sysvipc", kind)
        if table.exists():
            found += [f"sysv {kind} {line.split()[1]}" for line in table.read_text().splitlines()[1:]]
    return found


def check_left(run, before):
    def left():
        return [thing for thing in left_over(run) if thing not in before]

    if not namespaces.wait_until(lambda: not left(), faults.SLACK, 0.05):
        raise Wrong(f"left behind: {left()}\n{run.describe()}")


def each_kind(options):
    return [fault.name for fault in FAULTS if fault.name not in options.without]


def draw(seed, number, kind, module):
    """The case of that number, and its own random numbers."""
    random = randoms.Random(f"{seed}/{number}")
    while True:
        setup = Setup.drawn(random)
        fault = random.choices(FAULTS, [one.weight for one in FAULTS])[0]
        if fault.suits(setup) and kind in (None, fault.name) and module in (None, setup.module):
            break
    if fault.arguments:
        setup.arguments = list(random.choice(fault.arguments))
    return random, setup, fault


def run_case(options, programs, number):
    kind = each_kind(options)[number] if options.each else options.kind
    random, setup, fault = draw(options.seed, number, kind, options.module)
    result = {"number": number, "kind": fault.name, "module": setup.module, "secure": setup.secure, "text": ""}
    started = time.monotonic()
    run = None
    try:
        before = {f"process {line}" for line in namespaces.processes().values()}
        before |= {f"file {path}" for folder in WATCHED for path in Path(folder).rglob("*")}
        run = Run(options.bin, programs, setup, random, **fault.start(random))
        fault.injure(run)
        check_left(run, before)
        result["after"] = run.ended_after
    except (AssertionError, OSError, subprocess.SubprocessError) as error:
        result["text"] = f"{type(error).__name__}: {error}"
    finally:
        if run:
            run.close()
    result["seconds"] = time.monotonic() - started
    return result


def work(options):
    """A job: cases from --first on, each --jobs-th, told as lines of JSON."""
    namespaces.enclose()
    programs = Path("/run/aptest-programs")
    programs.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "none", programs], check=True)
    (programs / "traffic").write_bytes((options.programs / "traffic").read_bytes())
    (programs / "traffic").chmod(0o755)
    for folder in ("/dev/shm", "/var/tmp", "/tmp"):
        if not any(path.is_relative_to(folder) for path in (options.bin, HERE)):
            subprocess.run(["mount", "-t", "tmpfs", "none", folder], check=True)
    for number in range(options.first, options.cases, options.jobs):
        print(json.dumps(run_case(options, programs, number)), flush=True)


def tell(options, result, counts):
    entry = counts.setdefault(result["kind"], [0, 0, 0.0])
    entry[0] += 1
    entry[1] += bool(result["text"])
    entry[2] = max(entry[2], result.get("after") or 0)
    what = f"case {result['number']}: {result['kind']}, {result['module']}, {result['secure']}"
    if result["text"]:
        again = f"--kind {options.kind} " if options.kind else ""
        again += f"--module {options.module} " if options.module else ""
        again += "--each " if options.each else ""
        again += "".join(f"--without {kind} " for kind in options.without)
        print(f"BAD {what}: {result['text']}\n  again: campaign.py {options.bin} --seed {options.seed} {again}"
              f"--only {result['number']}", flush=True)
    elif options.verbose:
        print(f"ok  {what}: {result['seconds']:.1f} s", flush=True)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", type=lambda text: Path(text).resolve())
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--from", dest="begin", type=int, default=0, help="leave out the cases before this number")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1000000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", type=int, help="the case of this number alone")
    parser.add_argument("--each", action="store_true", help="case N is of the Nth kind")
    parser.add_argument("--without", action="append", default=[], help="a kind that --each leaves out")
    parser.add_argument("--kind", choices=[fault.name for fault in FAULTS])
    parser.add_argument("--module", choices=list(Setup.COMM))
    parser.add_argument("--seconds", type=float, help="begin no case after so long")
    parser.add_argument("--log", type=Path, help="a line of JSON for each case is appended")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--first", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--programs", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only is not None:
        options.jobs = 1
    elif options.each and options.first is None:
        options.cases = len(each_kind(options))
    return options


def main():
    options = parse()
    for number in (signal.SIGHUP, signal.SIGINT):  # a shell's background job ignores them, and aprun then does so too
        signal.signal(number, signal.SIG_DFL)
    if options.first is not None:
        return work(options)
    reason = namespaces.hindrance()
    if reason:
        print(f"skipped: {reason}")
        return 77
    print(f"seed {options.seed}", flush=True)
    counts, ended = {}, time.monotonic() + (options.seconds or 1e9)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([options.bin / "apcc", "-O1", HERE / "traffic.c", "-o", f"{folder}/traffic"], check=True)
        words = [sys.executable, "-B", __file__, str(options.bin), "--programs", folder, "--seed", str(options.seed)]
        words += ["--kind", options.kind] if options.kind else []
        words += ["--module", options.module] if options.module else []
        words += ["--each"] if options.each else []
        words += [word for kind in options.without for word in ("--without", kind)]
        first = options.begin if options.only is None else options.only
        last = first + 1 if options.only is not None else options.cases
        jobs = [
            subprocess.Popen(
                [*words, "--first", str(first + job), "--cases", str(last), "--jobs", str(options.jobs)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                text=True,
            )
            for job in range(options.jobs)
        ]
        collect(options, jobs, counts, ended)
    print(f"{'kind':38} cases  bad  longest end")
    for kind, (cases, bad, longest) in sorted(counts.items()):
        print(f"{kind:38} {cases:5} {bad:4} {longest:10.1f} s")
    cases, bad = (sum(entry[i] for entry in counts.values()) for i in (0, 1))
    print(f"seed {options.seed}: {cases} cases, {bad} bad")
    wanted = last - first
    return 1 if bad or cases == 0 or (cases < wanted and options.seconds is None) else 0


def collect(options, jobs, counts, ended):
    lock = threading.Lock()

    def read(job):
        for line in job.stdout:
            try:
                result = json.loads(line)
            except json.JSONDecodeError:
                print(line, end="", flush=True)
                continue
            with lock:
                tell(options, result, counts)
                if options.log:
                    with options.log.open("a", encoding="utf-8") as log:
                        log.write(json.dumps({"seed": options.seed, **result}) + "\n")
            if time.monotonic() > ended:
                job.kill()
        job.wait()

    readers = [threading.Thread(target=read, args=(job,)) for job in jobs]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()


if __name__ == "__main__":
    sys.exit(main())
