# SPDX-License-Identifier: MIT
"""Empty tasks by Ray, for bench/farm/compare: prints tasks per second and the round trip in us, as bench-farm does.

    ray_tasks.py WORKERS TASKS TRIPS"""
import os
import secrets
import statistics
import sys
import tempfile
import time

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # it tells nobody
os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)  # else it keeps one in the user's home
import ray  # noqa: E402


@ray.remote
def next_of(value):
    return value + 1


def seconds_of(count):
    begun = time.monotonic()
    ray.get([next_of.remote(value) for value in range(count)])
    return time.monotonic() - begun


def main():
    workers, tasks, trips = map(int, sys.argv[1:])
    with tempfile.TemporaryDirectory(prefix="ray") as folder:
        ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False, object_store_memory=100_000_000,
                 _temp_dir=folder)
        seconds_of(1000)
        print(f"{tasks / seconds_of(tasks):.0f} {statistics.median(seconds_of(1) for _ in range(trips)) * 1e6:.2f}")
        ray.shutdown()


main()
