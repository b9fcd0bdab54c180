#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What the page of apctl web shows in a real browser, of a real machine and a real farm.

    browser_test.py BIN [PNG]       PNG: a picture of it, too"""
import html
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import watched

BIN = Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
PICTURE = sys.argv[2] if len(sys.argv) > 2 else None
BROWSERS = ("chromium", "chromium-headless-shell", "google-chrome")
BROWSER = next((name for name in BROWSERS if shutil.which(name)), None)


def browse(url, *words):
    """What the browser writes: its document, and what it says of scripts."""
    with tempfile.TemporaryDirectory() as profile:
        done = subprocess.run(
            [BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             f"--user-data-dir={profile}", "--enable-logging=stderr", "--virtual-time-budget=4000",
             "--window-size=1280,1500", *words, url],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=watched.PATIENCE,
            env={**os.environ, "HOME": profile})
        return done.stdout, "\n".join(re.findall(r".*CONSOLE.*", done.stderr))


def text_of(document):
    """As a reader sees it, with blanks between elements."""
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]*>", " ", document)))


def part(document, name):
    return re.search(rf'<div id="{name}">(.*?)</section>', document, re.DOTALL)[1]


class Browser(unittest.TestCase):
    def test_a_machine_that_runs_and_one_that_has_failed(self):
        with watched.Place(BIN) as place:
            page = place.serve()
            place.start_machine("waiting<b>", watched.WAITING, 4, "-f", place.two_hosts())
            failing = place.start_machine("failing", watched.FAILING, 2, "-n", 2)
            page.wait_for(lambda state: sum(each["process_count"] for each in state["machines"]) == 3)
            place.write("fail", "")
            page.wait_for(lambda state: [True for each in state["machines"] if each["ended"]]
                          and [True for each in state["machines"] if each["cell_states"] == "WWWW"])
            document, complaints = browse(page.url, "--dump-dom")
            self.assertEqual(complaints, "", "the browser complains")
            if PICTURE:
                browse(page.url, f"--screenshot={PICTURE}", "--hide-scrollbars")
            machines = text_of(part(document, "machines"))
            for shown in ["waiting<b>", "running", "ws1", "ws2", "4 2 x 2", "waits: 4", "Tasks (4)",
                          "task 0: waits in xy_recv for a message", f"job {failing.pid}", "failed", "cell 1"]:
                self.assertIn(shown, machines)
            self.assertRegex(machines, r"status \d+: .*cell 1")
            self.assertNotIn("<b>", part(document, "machines"), "names are text")
            self.assertRegex(text_of(part(document, "times")), rf"job {failing.pid} fails: status \d+")
            self.assertIn("live, ", text_of(document))
            self.assertNotIn("refused", text_of(re.search(r"<header.*?</header>", document, re.DOTALL)[0]))


    def test_a_farm_with_failures(self):
        with watched.Place(BIN) as place:
            page = place.serve("--control")
            go = place.folder / "go"
            farm = place.start("apfarm", "-j", "2", f"test {{}} -ge 30 || exit $(({{}} % 5)); "
                               f"until test -e {go}; do sleep 0.1; done", ":::", *range(1, 40))
            page.wait_for(lambda state: state["farms"] and state["farms"][0]["running"] == 2
                          and state["farms"][0]["failed"] == 24)
            document, complaints = browse(page.url, "--dump-dom")
            self.assertEqual(complaints, "", "the browser complains")
            if PICTURE:
                browse(page.url, f"--screenshot={PICTURE}.farm.png", "--hide-scrollbars")
            farms = text_of(part(document, "farms"))
            for shown in [f"process {farm.pid}", "running", "done 5 of 39", "failed 24", "running 2 on 2 workers",
                          "waiting 8", "The last of 24 failures", "job 29 ended with 4: test 29", "End it"]:
                self.assertIn(shown, farms)
            self.assertIn("No machine of this user runs", text_of(part(document, "machines")))
            go.write_text("")
            page.wait_for(lambda state: state["farms"][0]["ended"])
            document, _ = browse(page.url, "--dump-dom")
            self.assertIn("status 24: 24 of 39 jobs failed", text_of(part(document, "farms")))
            self.assertNotIn("End it", text_of(part(document, "farms")))


if __name__ == "__main__":
    if BROWSER is None:
        print(f"skipped: needs the tool {' or '.join(BROWSERS)}")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
