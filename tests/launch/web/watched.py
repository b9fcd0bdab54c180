# SPDX-License-Identifier: MIT
"""A runtime folder of its own, with machines, farms, and apctl web, which looks at them.

    with watched.Place(BIN) as place:
        place.start_machine(watched.WAITING, "-f", place.two_hosts())
        page = place.serve()
        state = page.wait_for(lambda state: state["machines"])
"""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

PATIENCE = 60

# Waits for a message that never comes.
WAITING = r"""
#include <aplib/cellos.h>
#include <stdio.h>
int main(void) {
  printf("cell %d waits\n", getcid());
  fflush(stdout);
  for (;;) xy_recv(0, 0, 1);
}
"""
# Cell 1 fails when there is a file "fail" in the folder.
FAILING = r"""
#include <aplib/cellos.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(void) {
  printf("cell %d waits\n", getcid());
  fflush(stdout);
  if (getcid() != 1) for (;;) xy_recv(0, 0, 1);
  while (access("fail", F_OK) != 0) usleep(1000);
  abort();
}
"""


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=PATIENCE)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(PATIENCE)
        self.sock.connect(self.path)


class Page:
    """A running apctl web."""

    def __init__(self, process):
        self.process = process
        line = process.stdout.readline()
        found = re.fullmatch(r"http://(127\.0\.0\.1:(\d+)|localhost)/([0-9a-f]{32})/(?: at (.*))?\n", line)
        assert found, (line, process.stderr.read() if not line else "")
        self.url = line.split()[0]
        self.port = found[2] and int(found[2])
        self.token = found[3]
        self.path = found[4]

    def connection(self):
        return UnixConnection(self.path) if self.path else http.client.HTTPConnection("127.0.0.1", self.port,
                                                                                      timeout=PATIENCE)

    def ask(self, target, method="GET", **headers):
        """(status, headers, body) of an answer. The target begins with a slash, or is below the token."""
        connection = self.connection()
        path = target if target.startswith("/") else f"/{self.token}/{target}"
        try:
            connection.request(method, path, headers={name.replace("_", "-"): text for name, text in headers.items()})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read().decode()
        finally:
            connection.close()

    def state(self):
        status, headers, body = self.ask("state.json")
        assert (status, headers["Content-Type"]) == (200, "application/json"), (status, body)
        return json.loads(body)

    def wait_for(self, what):
        """The first state of which what(state) is true."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            state = self.state()
            if what(state):
                return state
            time.sleep(0.05)
        raise AssertionError(f"it never came: {state}")

    def end(self):
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(PATIENCE)


class Place:
    def __init__(self, bin_folder):
        self.bin = Path(bin_folder)
        self.kept = []

    def __enter__(self):
        self.temporary = tempfile.TemporaryDirectory(prefix="apweb")
        self.folder = Path(self.temporary.name)
        self.runtime = self.folder / "run"
        self.runtime.mkdir(mode=0o700)
        self.environment = {**os.environ, "XDG_RUNTIME_DIR": str(self.runtime), "APLIB_DEADLOCK_REPORT": "off"}
        return self

    def __exit__(self, *_):
        for process in self.kept:
            process.kill()
            process.communicate()
        self.temporary.cleanup()

    def write(self, name, text):
        (self.folder / name).write_text(text)
        return name

    def two_hosts(self):
        return self.write("m.toml", '[machine]\ngrid = "2x2"\n[[host]]\nname = "ws1"\nlaunch = "local"\nthreads = 1\n'
                          'cells = 1\n[[host]]\nname = "ws2"\nlaunch = "local"\nthreads = 1\ncells = 3\n')

    def start(self, *words, **options):
        made = subprocess.Popen([self.bin / words[0], *map(str, words[1:])], stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder,
                                env=self.environment, **options)
        self.kept.append(made)
        return made

    def run(self, *words):
        return subprocess.run([self.bin / words[0], *map(str, words[1:])], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, cwd=self.folder, env=self.environment, timeout=PATIENCE)

    def compile(self, name, source):
        self.write(name + ".c", source)
        done = self.run("apcc", "-O1", name + ".c", "-o", name)
        assert done.returncode == 0, done.stderr
        return "./" + name

    def start_machine(self, name, source, cells, *words):
        """aprun, when all cells wait."""
        machine = self.start("aprun", *words, self.compile(name, source))
        for _ in range(cells):
            line = machine.stdout.readline()
            assert line.endswith("waits\n"), (line, machine.stderr.read())
        return machine

    def serve(self, *words):
        return Page(self.start("apctl", "web", *words))
