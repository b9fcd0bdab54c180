# SPDX-License-Identifier: MIT
"""A program: prints how long a command takes from its start to its end, as a JSON line.

    start.py CASE COMMAND...
"""

import json
import subprocess
import sys
import time


def main():
    case, *command = sys.argv[1:]
    begun = time.monotonic()
    done = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    value = (time.monotonic() - begun) * 1e9
    print(json.dumps({"bench": "start", "case": case, "bytes": 0, "value": value, "unit": "ns"}))
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
