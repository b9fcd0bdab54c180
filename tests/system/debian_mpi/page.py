# SPDX-License-Identifier: MIT
"""The page of what was found, among the documents."""

import datetime
import json

from comparing import machine, markdown

TEXT = """\
<!-- SPDX-License-Identifier: MIT -->
# Debian's MPI programs as cells

{date}, {runs} runs of each kind: {programs} programs of {packages} packages, {right} with the answers that they give
under Debian's mpirun.

Machine: {processor}, {cores} cores, {system}, {kernel}, {libc}.

Programs that Debian has built with Open MPI 4.1 or MPICH 4.0 run as their packages made them: under Debian's mpirun, as
cells of one process, and as processes. `scripts/debian-mpi --write-docs` writes this page from what it has run.

| program | package | command | {titles} |
| --- | --- | --- | {rules} |
{rows}

- **same**: status, standard output and files are, bit for bit, those of one of Debian's own runs.
- **scatter**: numbers differ by no more than Debian's own runs do among themselves, or than the program's
  algorithm allows (`tolerance` in `tests/system/debian_mpi/cases.py`).
- **process**: the program cannot be cells, and one line says why: its ranks are processes, with the same answers.
- **refused**: the run ends with a message that names what is missing and `--processes`, which has the same answers.
- **-**: not run: Debian's mpirun does not run the case with so many ranks, or takes minutes.
- `wrong 1/5` names how many of the runs were so.

What is read of the outputs leaves out times, dates and amounts of memory; `cases.py` has the patterns, and the inputs.
{notes}
## Repeating it

```sh
scripts/debian-mpi --install        # packages of 2 GB, as root
scripts/debian-mpi                  # all, 5 runs each
scripts/debian-mpi lammps --runs 1
scripts/debian-mpi --list
```

`scripts/test --all` runs the small ones (`--small`), as far as their packages are installed.
"""
RIGHT = {"same", "scatter"}


def cell(result):
    if result is None:
        return "-"
    verdicts = result["verdicts"]
    if set(verdicts) <= RIGHT:
        word = "scatter" if "scatter" in verdicts else "same"
        return "process" if result.get("refused") else word
    if set(verdicts) == {"refused"}:
        return "refused"
    wrong = [verdict for verdict in verdicts if verdict not in RIGHT]
    return f"**{wrong[0]} {len(wrong)}/{len(verdicts)}**"


def escaped(text):
    return text.replace("|", "\\|").replace("<", "\\<").replace("*", "\\*")


def note(case, results):
    """What is to be said of a case: why it is processes, or what went wrong."""
    if case.note:
        return f"- {case.name}: {case.note}"
    reasons = sorted({result["refused"].removeprefix("aprun: ").removesuffix(" (--processes)")
                      for result in results.values() if result.get("refused")})
    return f"- {case.name}: {escaped('; '.join(reasons))}." if reasons else ""


def write(path, cache, cases, build):
    found = {case: json.loads((cache / f"{case.name}.json").read_text(encoding="utf-8"))
             for case in cases if (cache / f"{case.name}.json").exists()}
    titles = ["2 cells", "4 cells", "16 cells", "processes"]
    rows, notes, right = [], [], 0
    for case, entry in found.items():
        results = dict(entry["results"])
        processes = next((title for title in results if title.endswith("processes")), "")
        results["processes"] = results.get(processes)
        if "1 cells" in results and "2 cells" not in results:
            results["2 cells"] = results["1 cells"]
        shown = [cell(results.get(title)) for title in titles]
        right += not any("**" in word for word in shown)
        command = " ".join(word.rpartition("/")[2] for word in case.command.split()[:2])
        rows.append(f"| {case.name} | {case.package} {entry['version']} | `{command}` | {' | '.join(shown)} |")
        notes.append(note(case, entry["results"]))
    facts = machine.describe(build)
    text = TEXT.format(
        date=datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"), programs=len(found),
        packages=len({case.package for case in found}), right=right,
        runs=min(entry["runs"] for entry in found.values()),
        titles=" | ".join(titles), rules=" | ".join("---" for _ in titles), rows="\n".join(rows), **{
            key: facts[key] for key in ("processor", "cores", "system", "kernel", "libc")},
        notes="\n" + "\n".join(filter(None, notes)) + "\n" if any(notes) else "")
    path.write_text(markdown.wrapped(text), encoding="utf-8")
