# SPDX-License-Identifier: MIT
"""A case of a program, as all libraries ran it in all rounds."""

import statistics

from libraries import PEERS
from measuring import differences

JUDGES = ("openmpi", "mpich")  # whose answers are right: their ranks are processes, as the programs expect


class Measured:
    def __init__(self, program, case):
        self.program = program
        self.case = case
        self.rounds = []  # {name of library: figures}
        self.complaints = []
        self.failed = set()  # peers that do not run this case
        self.answers = {}  # name of library: answers of its first good run

    @property
    def name(self):
        return self.case.program.rpartition("/")[2] or self.program.name

    @property
    def title(self):
        return f"{self.name} on {self.case.ranks} rank{'s' if self.case.ranks > 1 else ''}"

    def add(self, library, done):
        """Takes a run; says what is wrong with it. Wrong is only what APlib does: peers may be slow or absent."""
        complaint = done.complaint
        if not complaint:
            self.rounds[-1][library.name] = done.figures
            self.answers.setdefault(library.name, done.answers)
            wrong = differences(self.program, done.answers, self.answers[library.name])
            complaint = ", ".join(wrong) and f"differs from its own first run: {', '.join(wrong)}"
        if complaint:
            print(f"{self.title}: {library.title}: {complaint}\n  {done.command}", flush=True)
            for line in done.output.splitlines()[-8:]:
                print(f"    {line[:300]}")
            if library.name == "aplib":
                self.complaints.append(complaint)
            else:
                self.failed.add(library.name)

    def compare_answers(self):
        for name in PEERS:
            if "aplib" in self.answers and name in self.answers:
                wrong = differences(self.program, self.answers["aplib"], self.answers[name])
                if wrong:
                    complaint = f"otherwise than {name}: {', '.join(wrong)}"
                    print(f"{self.title}: {complaint}")
                    if name in JUDGES:
                        self.complaints.append(complaint)
                    else:  # its speed is worth nothing
                        for figures in self.rounds:
                            figures.pop(name, None)

    def median(self, library, figure):
        values = [done[library][figure.name] for done in self.rounds if figure.name in done.get(library, {})]
        return statistics.median(values) if values else None

    def speed_ups(self, figure):
        """How many times as fast as the best peer, in each round: (ratios, peer), or None."""
        best = None
        for peer in PEERS:
            ratios = [times(figure, done["aplib"][figure.name], done[peer][figure.name]) for done in self.rounds
                      if all(figure.name in done.get(name, {}) for name in ("aplib", peer))]
            if ratios and (best is None or statistics.median(ratios) < statistics.median(best[0])):
                best = ratios, peer
        return best

    def scales(self, figure, base):
        """How many times as fast as another case of the same program, by APlib in the same rounds."""
        return [times(figure, mine["aplib"][figure.name], its["aplib"][figure.name])
                for mine, its in zip(self.rounds, base.rounds)
                if all(figure.name in done.get("aplib", {}) for done in (mine, its))]


def times(figure, value, other):
    """How many times as fast as `other`."""
    return value / other if figure.higher_is_better else other / value
