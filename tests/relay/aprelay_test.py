#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""aprelay as its user runs it: the standing relay, and what it tells people.

aprelay_test.py BIN [-k NAME]"""

import os
import re
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path

BIN = Path(sys.argv[1]).resolve()
PATIENCE = 120  # seconds for what takes a moment


class Standing(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="aprelay-test-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.environment = dict(os.environ, XDG_RUNTIME_DIR=str(self.folder))
        (self.folder / "aplib").mkdir(mode=0o700)

    def serve(self, files):
        """Starts one whose soft limit of open files is so low. Returns its port."""
        def limit():
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

        relay = subprocess.Popen([BIN / "aprelay", "--serve", "--loopback"], env=self.environment, text=True,
                                 stdout=subprocess.PIPE, preexec_fn=limit)
        self.addCleanup(relay.communicate)
        self.addCleanup(relay.terminate)
        return int(re.fullmatch(r"aprelay: ready at 127\.0\.0\.1:(\d+)\n", relay.stdout.readline())[1])

    def status(self):
        return subprocess.run([BIN / "aprelay", "--status"], env=self.environment, capture_output=True, text=True,
                              timeout=PATIENCE)

    def test_silent_strangers_take_no_file_from_others(self):
        port = self.serve(files=32)
        strangers = [socket.create_connection(("127.0.0.1", port)) for _ in range(100)]
        done = self.status()
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, r"(?m)^strangers \d+$")
        for stranger in strangers:
            stranger.close()

    def test_an_answer_that_does_not_come_is_no_success(self):
        for answer in (b"", b"aprelay count pairs 1\n"):
            with self.subTest(answer=answer), socket.socket(socket.AF_UNIX) as relay:
                path = self.folder / "aplib" / "relay"
                path.unlink(missing_ok=True)
                relay.bind(str(path))
                relay.listen()

                def serve(relay=relay, answer=answer):
                    caller, _ = relay.accept()
                    caller.recv(100)
                    caller.sendall(answer)
                    caller.close()

                server = threading.Thread(target=serve)
                server.start()
                done = self.status()
                server.join()
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertRegex(done.stderr, r"^aprelay: the relay .* gave no whole answer: .* \(ulimit -n\)\n$")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
