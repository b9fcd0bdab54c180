# SPDX-License-Identifier: MIT
"""How sure a run is. A ratio is formed within each round, and the rounds say between which values its median lies for
sure, however the computer was. A target that lies there, too, is open.

Before the turns of each kind, when nothing of ours runs, a reference is measured that no library changes: what the
bare machine takes for a cache line, a switch and a copy, and what other programs use in a pause. A virtual machine may
change under a run, when its processors are moved to other cores."""

import math
import statistics

from . import machine, sources

BUSY_PERCENT_MAX = 5  # of the computer, by others
OPEN_PERCENT_MAX = 20  # of the targets
CONFIDENCE_PERCENT = 90  # in the verdict on a target
OPEN = "open"
ROUNDS_MIN = 7  # of a run that may be published
PAUSE = 0.1  # seconds in which others are looked for
COPY = 1 << 20  # bytes


def interval(values):
    """Where the median lies with that confidence, whatever the distribution is (sign test): between the k-th smallest
    and the k-th largest value."""
    values, count = sorted(values), len(values)
    k = 1
    while 2 * sum(math.comb(count, below) for below in range(k + 1)) * 100 <= (100 - CONFIDENCE_PERCENT) * 2**count:
        k += 1
    return values[k - 1], values[-k]


def judgement(values, limit, higher_is_better):
    """The word on a target: "yes", "NO", "open: 0.96 to 0.98", or "-" if there are no values."""
    if not values:
        return "-"
    ends = interval(values)
    met = [end >= limit if higher_is_better else end <= limit for end in ends]
    if met[0] != met[1]:
        return f"{OPEN}: {ends[0]:.3g} to {ends[1]:.3g}"
    return "yes" if met[0] else "NO"


def count(judgements):
    """ "3 of 4 targets met, 1 open"."""
    words = [word.partition(":")[0] for word in judgements]
    met, missed, undecided, unknown = (words.count(word) for word in ("yes", "NO", OPEN, "-"))
    said = f"{met} of {met + missed + undecided + unknown} targets met"
    return said + (f", {undecided} open" if undecided else "") + (f", {unknown} not measured" if unknown else "")


def spread_percent(values):
    """The distance of the quartiles over the median."""
    if len(values) < 2:
        return 0.0
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return 100 * (high - low) / middle


class Reference(sources.Apbench):
    name = "reference"
    title = "the reference for noise"

    def __init__(self, build, cases="cache-line,context-switch,memcpy"):
        super().__init__(build)
        self.cases = cases
        self.busy = []  # per cent, by pause
        self.repeats = {}  # by case: its values

    def listen(self):
        """One repeat."""
        self.busy.append(machine.busy_percent(PAUSE))
        try:
            command = self.line("floors", "--case", self.cases, "--bytes", str(COPY))
            lines = [] if self.fault else sources.run_for_lines(command)
        except (sources.Unusable, ValueError) as error:  # the latter: no JSON
            self.fault, lines = str(error), []
        for line in lines:
            self.repeats.setdefault(line["case"], []).append(line["value"])

    def facts(self):
        """For the page and the table: what others used, and the reference that varied most."""
        spreads = {case: round(spread_percent(values), 1) for case, values in self.repeats.items()}
        worst = max(spreads, key=spreads.get, default="")
        return {
            "busy_percent": round(statistics.mean(self.busy), 1) if self.busy else 0.0,
            "reference": worst,
            "spread_percent": spreads.get(worst, 0.0),
            "repeats": len(self.repeats.get(worst, [])),
        }


def sentence(noise):
    if not noise["reference"]:
        return "noise: not measured"
    return (
        f"noise: others used {noise['busy_percent']:g} % of the machine; the middle half of {noise['repeats']} repeats "
        f"of the reference ({noise['reference']}) lay within {noise['spread_percent']:g} %"
    )


def limits():
    """For the words of a page."""
    return {
        "busy_max": BUSY_PERCENT_MAX,
        "open_max": OPEN_PERCENT_MAX,
        "confidence": CONFIDENCE_PERCENT,
        "rounds_min": ROUNDS_MIN,
    }


def complaint(noise, rounds, judgements=()):
    """Why a run with these words on its targets is not published, or an empty text."""
    if not noise["reference"]:
        return "its noise could not be measured"
    if noise["busy_percent"] > BUSY_PERCENT_MAX:
        return (
            f"other programs used {noise['busy_percent']:g} % of this machine, more than {BUSY_PERCENT_MAX} %: end them"
        )
    if rounds < ROUNDS_MIN:
        return f"it has {rounds} rounds, fewer than {ROUNDS_MIN}: give it more --seconds"
    undecided = sum(word.startswith(OPEN) for word in judgements)
    if 100 * undecided > OPEN_PERCENT_MAX * len(judgements):
        return (
            f"{undecided} of {len(judgements)} targets are open, more than {OPEN_PERCENT_MAX} %: measure on a quieter "
            "machine, or more rounds"
        )
    return ""
