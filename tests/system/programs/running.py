# SPDX-License-Identifier: MIT
"""Runs a program alone, input by input, and as cells of one process, and compares all results."""

import dataclasses
import difflib
import os
import pathlib
import re
import shutil
import signal
import subprocess

TIMEOUT_SECONDS = 120


@dataclasses.dataclass(frozen=True)
class Run:
    """One command, the same for all cells except for {cid}. Paths are relative to the run's folder, where `dir/{cid}`
    is the cell's own folder with its input files."""

    name: str
    arguments: tuple[str, ...]
    program: str  # inside the build tree
    beside: tuple[str, ...] = ()  # further files of the build tree that the program needs in the current folder
    stdin: str = ""  # the file of dir/{cid} for standard input
    in_folder: bool = False  # start in dir/{cid} instead of the run's folder
    environment: tuple[tuple[str, str], ...] = ()
    aprun: tuple[str, ...] = ()  # more options of aprun
    ignored: tuple[
        str, ...
    ] = ()  # regular expressions of what may differ between two runs alone (times, memory); not compared


@dataclasses.dataclass
class Outcome:
    """The results of one cell: its exit status, and the files that it wrote or changed."""

    status: int | None = None
    files: dict[str, bytes] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Comparison:
    title: str
    cells: int
    files: int = 0
    bytes: int = 0
    nonzero: int = 0
    different: int = 0  # different outcomes among the cells; a program that always prints the same proves little
    complaints: list[str] = dataclasses.field(default_factory=list)

    def line(self):
        equal = "all equal" if not self.complaints else f"{len(self.complaints)} CELLS DIFFER"
        return (
            f"{self.title}: {self.cells} cells ({self.different} different), {self.files} outputs of {self.bytes:,}"
            f" bytes and {self.cells} exit statuses ({self.nonzero} not 0): {equal}"
        )


class Place:
    """The folder of one run: dir/, out/, err/ and links to the program."""

    def __init__(self, folder, run, tree, inputs):
        self.folder = pathlib.Path(folder)
        self.run = run
        self.inputs = pathlib.Path(inputs)
        shutil.rmtree(self.folder, ignore_errors=True)
        for name in ("out", "err"):
            (self.folder / name).mkdir(parents=True)
        shutil.copytree(inputs, self.folder / "dir")
        # The same name in the same place for both builds, because programs print argv[0].
        self.program = pathlib.Path(run.program).name
        for path in (run.program, *run.beside):
            (self.folder / pathlib.Path(path).name).symlink_to((tree.folder / path).resolve())

    def environment(self):
        # The user's settings must not change what programs print.
        return {**os.environ, "LC_ALL": "C", "TZ": "UTC", **dict(self.run.environment)}

    def outcome(self, cid, status):
        result = Outcome(status, {"standard output": self._read("out", cid), "standard error": self._read("err", cid)})
        own = self.folder / "dir" / str(cid)
        for path in sorted(own.rglob("*")):
            name = path.relative_to(own)
            if not path.is_file():
                continue
            data = path.read_bytes()
            given = self.inputs / str(cid) / name
            if not given.exists() or given.read_bytes() != data:
                result.files[str(name)] = self._blanked(data)
        return result

    def _read(self, what, cid):
        path = self.folder / what / str(cid)
        return self._blanked(path.read_bytes()) if path.exists() else b""

    def _blanked(self, data):
        for pattern in self.run.ignored:
            data = re.sub(pattern.encode(), b"...", data, flags=re.MULTILINE)
        return data


def alone(place, cells):
    """Runs the program in one process for each input, as a shell would. Returns outcomes by cell."""
    outcomes = {}
    for cid in range(cells):
        own = place.folder / "dir" / str(cid)
        words = [f"../../{place.program}" if place.run.in_folder else f"./{place.program}"]
        words += [word.replace("{cid}", str(cid)) for word in place.run.arguments]
        with open(own / place.run.stdin if place.run.stdin else os.devnull, "rb") as source:
            run = subprocess.run(
                words,
                cwd=own if place.run.in_folder else place.folder,
                env=place.environment(),
                check=False,
                timeout=TIMEOUT_SECONDS,
                stdin=source,
                capture_output=True,  # by pipes, like the outputs of cells, because Fortran buffers if they are files
            )
        (place.folder / "out" / str(cid)).write_bytes(run.stdout)
        (place.folder / "err" / str(cid)).write_bytes(run.stderr)
        status = run.returncode if run.returncode >= 0 else 128 - run.returncode
        outcomes[cid] = place.outcome(cid, status)
    return outcomes


def together(place, cells, aprun, threads):
    """Runs all inputs at once, as cells of one process. Returns outcomes by cell, and aprun's own messages."""
    words = [str(aprun), "-n", str(cells), "--expand", "--timeout", str(TIMEOUT_SECONDS), "--output", "out/{cid}",
             "--error", "err/{cid}"]
    if threads:
        words += ["--threads", str(threads)]
    if place.run.in_folder:
        words += ["--wd", "dir/{cid}"]
    if place.run.stdin:
        words += ["--input", f"dir/{{cid}}/{place.run.stdin}"]
    words += [*place.run.aprun, f"./{place.program}", *place.run.arguments]
    log = place.folder / "aprun.txt"
    with open(log, "wb") as output, subprocess.Popen(
        words,
        cwd=place.folder,
        env=place.environment(),
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
    ) as process:
        late = ""
        try:
            process.wait(TIMEOUT_SECONDS + 30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            late = "\n(it did not end in time and was killed)"
    said = log.read_text(encoding="utf-8", errors="replace") + late
    log.write_text(f"$ {' '.join(words)}\n{said}[{process.returncode}]\n", encoding="utf-8")
    statuses = statuses_in(said, cells, process.returncode)
    return {cid: place.outcome(cid, statuses.get(cid)) for cid in range(cells)}, said


def statuses_in(said, cells, status):
    """Exit statuses by cell from aprun's summary, 'cells 0-3, 7: status 0; cell 5: status 2'. Without one all have
    aprun's own."""
    statuses = {}
    for cell_list, value in re.findall(r"cells? ([0-9, -]+): status (\d+)", said):
        for first, last in re.findall(r"(\d+)(?:-(\d+))?", cell_list):
            statuses.update(dict.fromkeys(range(int(first), int(last or first) + 1), int(value)))
    return statuses or dict.fromkeys(range(cells), status)


def compare(title, expected, got, said):
    """Compares everything in `expected` with `got`, cell by cell."""
    result = Comparison(title, len(expected))
    for cid, alone_outcome in expected.items():
        result.files += len(alone_outcome.files)
        result.bytes += sum(map(len, alone_outcome.files.values()))
        result.nonzero += alone_outcome.status != 0
        complaint = first_difference(alone_outcome, got[cid])
        if complaint:
            result.complaints.append(f"cell {cid}: {complaint}")
    result.different = len({(outcome.status, *outcome.files.values()) for outcome in expected.values()})
    if result.complaints and said is not None:
        result.complaints.append("aprun said:\n" + indented(said.splitlines()[-20:] or ["(nothing)"]))
    return result


def first_difference(expected, got):
    names = sorted(expected.files.keys() | got.files.keys())
    for name in names:
        if name not in got.files:
            return f"{name} is missing"
        if name not in expected.files:
            return f"{name} is there, which the program alone does not write"
        if expected.files[name] != got.files[name]:
            return f"{name} differs: {described_difference(expected.files[name], got.files[name])}"
    if expected.status != got.status:
        return f"exit status {got.status}, alone {expected.status}"
    return ""


def described_difference(expected, got):
    sizes = f"{len(got):,} bytes, alone {len(expected):,}"
    at = next((i for i, (a, b) in enumerate(zip(expected, got)) if a != b), min(len(expected), len(got)))
    if b"\0" in expected[:4096] + got[:4096]:
        return f"{sizes}; from byte {at} on"
    lines = list(
        difflib.unified_diff(
            expected.decode(errors="replace").splitlines(),
            got.decode(errors="replace").splitlines(),
            "alone",
            "as a cell",
            lineterm="",
            n=1,
        )
    )
    return f"{sizes}\n{indented([line[:200] for line in lines[:14]])}"


def indented(lines):
    return "\n".join("    " + line for line in lines)
