# SPDX-License-Identifier: MIT
"""Collectives and a ring through mpi4py, each of which checks its result; prints the JSON lines of crowd_peer.

mpirun -n 4 python3 calls.py CASE SAMPLES SAMPLE_MS [NAME...]
"""

import json
import statistics
import sys
import time

import numpy
from mpi4py import MPI

FIRST_SECONDS = 0.2  # as crowd_peer
WORLD = MPI.COMM_WORLD
RANK, RANKS = WORLD.rank, WORLD.size
SUM_OF_RANKS = RANKS * (RANKS - 1) // 2


def allreduce(size):
    mine, total = numpy.full(size, RANK, dtype="d"), numpy.empty(size)

    def call():
        WORLD.Allreduce(mine, total)
        assert total[0] == total[-1] == SUM_OF_RANKS, total

    return call


def ring():
    mine, got = numpy.full(1, RANK, dtype="d"), numpy.empty(1)

    def call():
        WORLD.Sendrecv(mine, (RANK + 1) % RANKS, 0, got, (RANK - 1) % RANKS, 0)
        assert got[0] == (RANK - 1) % RANKS, got

    return call


def bcast():
    assert WORLD.bcast({"from": RANK}, 0) == {"from": 0}


CALLS = {
    "py-allreduce": allreduce(1),
    "py-allreduce-800k": allreduce(100_000),
    "py-barrier": WORLD.Barrier,
    "py-ring": ring(),
    "py-bcast": bcast,
}


def seconds_of(call, count):
    WORLD.Barrier()
    start = time.monotonic()
    for _ in range(count):
        call()
    WORLD.Barrier()
    return time.monotonic() - start


def main():
    case, samples, sample_ms, *names = sys.argv[1:]
    for name in names or CALLS:
        seconds_of(CALLS[name], 1)  # ranks begin
        begin = time.monotonic()  # the first ones make connections
        while WORLD.bcast(time.monotonic() - begin < FIRST_SECONDS, 0):
            seconds_of(CALLS[name], 3)
        once = seconds_of(CALLS[name], 3) / 3
        count = WORLD.bcast(max(3, min(int(float(sample_ms) / 1e3 / once), 100_000)), 0)
        values = [seconds_of(CALLS[name], count) / count * 1e9 for _ in range(int(samples))]
        if RANK == 0:
            value, worst = statistics.median(values), max(values)
            print(json.dumps({"bench": name, "case": case, "bytes": 0, "value": value, "max": worst, "unit": "ns"}))


if __name__ == "__main__":
    main()
