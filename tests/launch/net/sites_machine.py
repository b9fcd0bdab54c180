# SPDX-License-Identifier: MIT
"""apctl net between the hosts of a Network: the cluster file, and what it says."""
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))
import namespaces  # noqa: E402,F401


class Measuring:
    """apctl net, started on the first of these hosts, with all of them in its file. `broken` has names of hosts where
    nothing can be started."""

    def __init__(self, bin_folder, hosts, options=(), broken=()):
        self.folder = tempfile.TemporaryDirectory(prefix="aplib-net-")
        folder = Path(self.folder.name)
        self.json = folder / "net.json"
        for name in broken:
            self.mark(name).touch()
        lines = []
        for host in hosts:
            enter = f"test ! -e {self.mark(host.name)} && exec nsenter --net=/run/netns/{host.namespace} -- {{cmd}}"
            lines += ["[[host]]", f'name = "{host.name}"', f'address = "{host.address}"', 'launch = "command"',
                      f'command = "{enter}"']
        (folder / "cluster.toml").write_text("\n".join(lines) + "\n")
        words = [bin_folder / "apctl", "net", "-f", folder / "cluster.toml", "--json", self.json, *options]
        self.process = hosts[0].popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def mark(self, name):
        """A file; while it exists, nothing can be started on that host."""
        return Path(self.folder.name, f"{name}.broken")

    def kill(self, host):
        """Ends all processes of that host, as if its power failed."""
        self.mark(host.name).touch()
        there = subprocess.run(["ip", "netns", "pids", host.namespace], stdout=subprocess.PIPE, text=True, check=True)
        for pid in map(int, there.stdout.split()):
            os.kill(pid, signal.SIGKILL)

    def finish(self):
        """Waits, and gives what it has written: the text, and the pairs of the JSON file by (from, to)."""
        self.text, self.errors = self.process.communicate()
        self.status = self.process.returncode
        self.found = json.loads(self.json.read_text()) if self.json.exists() and self.json.read_text() else {}
        self.pairs = {(pair["from"], pair["to"]): pair for pair in self.found.get("pairs", [])}
        self.folder.cleanup()
        return self
