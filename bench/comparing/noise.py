# SPDX-License-Identifier: MIT
"""How noisy the computer is during a run. Before each turn of a source, when nothing of ours runs, a reference is
measured that no library changes: what the bare machine takes for a cache line, a switch and a copy. On a quiet computer
all repeats give the same, and others use nothing in the pauses. A virtual machine may change under a run, when its
processors are moved to other cores: the rounds in which it was not as in most others are disturbed."""

import dataclasses
import statistics

from . import machine, sources

BUSY_PERCENT_MAX = 5  # of the computer, by others
SPREAD_PERCENT_MAX = 10  # between the quartiles of a reference's repeats, over their median
ROUNDS_MIN = 7  # of a run that may be published
PAUSE = 0.1  # seconds in which others are looked for
COPY = 1 << 20  # bytes


def spread_percent(values):
    """The distance of the quartiles over the median: what a disturbance in less than a quarter of a run leaves alone,
    as it leaves the medians of the rounds alone."""
    if len(values) < 2:
        return 0.0
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return 100 * (high - low) / middle


@dataclasses.dataclass
class Round:
    busy: list = dataclasses.field(default_factory=list)  # per cent, by pause
    repeats: dict = dataclasses.field(default_factory=dict)  # by case of the reference: its values


def joined(rounds):
    """The repeats of several rounds, by case."""
    repeats = {}
    for each in rounds:
        for case, values in each.repeats.items():
            repeats.setdefault(case, []).extend(values)
    return repeats


class Reference(sources.Apbench):
    name = "reference"
    title = "the reference for noise"

    def __init__(self, build, cases="cache-line,context-switch,memcpy"):
        super().__init__(build)
        self.cases = cases
        self.rounds = []

    def commands(self, round_number):
        yield self.line("floors", "--case", self.cases, "--bytes", str(COPY))

    def begin_round(self):
        self.rounds.append(Round())

    def listen(self):
        """One repeat."""
        now = self.rounds[-1]
        now.busy.append(machine.busy_percent(PAUSE))
        try:
            lines = [] if self.fault else self.measure(0)
        except ValueError as error:  # no JSON
            self.fault, lines = str(error), []
        for line in lines:
            now.repeats.setdefault(line["case"], []).append(line["value"])

    def undisturbed(self):
        """The numbers of the rounds in which three of four repeats are near the median of the whole run."""
        middles = {case: statistics.median(values) for case, values in joined(self.rounds).items()}

        def near(case, values):
            limit = middles[case] * SPREAD_PERCENT_MAX / 100
            return 4 * sum(abs(value - middles[case]) <= limit for value in values) >= 3 * len(values)

        return [
            number
            for number, each in enumerate(self.rounds)
            if all(near(case, values) for case, values in each.repeats.items())
        ]

    def facts(self, numbers):
        """For the page and the table, of these rounds: what others used, and the reference that varied most."""
        rounds = [self.rounds[number] for number in numbers]
        repeats = joined(rounds)
        busy = [percent for each in rounds for percent in each.busy]
        spreads = {case: round(spread_percent(values), 1) for case, values in repeats.items()}
        worst = max(spreads, key=spreads.get, default="")
        return {
            "busy_percent": round(statistics.mean(busy), 1) if busy else 0.0,
            "reference": worst,
            "spread_percent": spreads.get(worst, 0.0),
            "repeats": len(repeats.get(worst, [])),
            "left_out": len(self.rounds) - len(rounds),
        }


def sentence(noise):
    if not noise["reference"]:
        return "noise: not measured"
    return (
        f"noise: others used {noise['busy_percent']:g} % of the machine; the middle half of {noise['repeats']} repeats "
        f"of the reference ({noise['reference']}) lay within {noise['spread_percent']:g} %; disturbed rounds left out: "
        f"{noise['left_out']}"
    )


def complaint(noise, rounds):
    """Why this run is not published, or an empty text."""
    if not noise["reference"]:
        return "its noise could not be measured"
    if noise["busy_percent"] > BUSY_PERCENT_MAX:
        return (
            f"other programs used {noise['busy_percent']:g} % of this machine, more than {BUSY_PERCENT_MAX} %: end them"
        )
    if noise["spread_percent"] > SPREAD_PERCENT_MAX:
        return (
            f"the middle half of {noise['repeats']} repeats of the reference ({noise['reference']}) lay within "
            f"{noise['spread_percent']:g} %, more than {SPREAD_PERCENT_MAX} %: run it on a quiet machine"
        )
    if rounds < ROUNDS_MIN:
        return f"it has {rounds} rounds, fewer than {ROUNDS_MIN}: give it more --seconds"
    return ""
