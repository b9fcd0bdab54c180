# SPDX-License-Identifier: MIT
"""Source archives of the distribution's packages, fetched by apt from the mirrors that this computer is configured for.

This does not change the computer's own apt state and needs no root: lists and archives are in the cache folder.
"""

import contextlib
import fcntl
import os
import pathlib
import re
import shutil
import subprocess
import time


class Unavailable(Exception):
    """The sources or a tool are not available here. The text is the reason, in one line."""


LISTS_FRESH_SECONDS = 7 * 86400


class Sources:
    """The source archives in `folder`, fetched at first use."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)

    def archive(self, package):
        """The upstream archive of a source package: (path, upstream version). Raises Unavailable."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._lock():
            found = self._found(package)
            if found is None:
                self._fetch(package)
                found = self._found(package)
        if found is None:
            raise Unavailable(f"needs sources from apt: it fetched no upstream archive of {package}")
        return found

    def _found(self, package):
        pattern = re.compile(re.escape(package) + r"_(.+?)(?:\.orig)?\.tar\.(?:gz|bz2|xz|zst)")
        for path in sorted(self.folder.iterdir(), reverse=True):
            match = pattern.fullmatch(path.name)
            if match and not path.name.startswith(f"{package}_{match[1]}.debian"):
                return path, match[1]
        return None

    @contextlib.contextmanager
    def _lock(self):
        """Updates the lists, which tests of several programs share while they run at once."""
        with open(self.folder / "lock", "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _fetch(self, package):
        if shutil.which("apt-get") is None:
            raise Unavailable("needs sources from apt: there is no apt-get here; put the archives "
                              f"({package}_VERSION.orig.tar.*) into {self.folder}")
        options = self._options()
        stamp = self.folder / "apt" / "updated"
        fresh = stamp.exists() and time.time() - stamp.stat().st_mtime < LISTS_FRESH_SECONDS
        if not fresh:
            self._update(options, stamp)
        run = self._apt([*options, "--download-only", "--tar-only", "--only-source", "source", package])
        if run.returncode != 0 and fresh:  # the mirror may have newer versions by now
            self._update(options, stamp)
            run = self._apt([*options, "--download-only", "--tar-only", "--only-source", "source", package])
        if run.returncode != 0:
            raise Unavailable(f"needs sources from apt: it cannot fetch {package}: {last_error(run.stdout)}")

    def _update(self, options, stamp):
        run = self._apt([*options, "update"])
        # One mirror of several may fail. What counts is whether the package is found afterwards.
        if not any((self.folder / "apt" / "lists").glob("*Sources*")):
            raise Unavailable(f"needs sources from apt: it cannot fetch their lists: {last_error(run.stdout)}")
        if run.returncode == 0:
            stamp.touch()

    def _apt(self, words):
        return subprocess.run(
            ["apt-get", "-q", *words],
            cwd=self.folder,
            env=plain_environment(),
            check=False,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def _options(self):
        """The apt options that keep everything in our folder and ask the computer's mirrors for sources."""
        base = self.folder / "apt"
        for name in ("lists/partial", "cache/archives/partial", "sources.d"):
            (base / name).mkdir(parents=True, exist_ok=True)
        count = write_source_lists(base / "sources.d")
        if count == 0:
            raise Unavailable("needs sources from apt: it has no package mirrors configured")
        return [f"-o{key}={value}" for key, value in {
            "Dir::Etc::sourcelist": "/dev/null",
            "Dir::Etc::sourceparts": base / "sources.d",
            "Dir::State::lists": base / "lists",
            "Dir::Cache": base / "cache",
            "APT::Sandbox::User": "root",  # the sandbox user may not use our folders
            "Acquire::Retries": "2",
            "Acquire::http::Timeout": "20",
            "Acquire::https::Timeout": "20",
        }.items()]


def plain_environment():
    return {**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}


def last_error(text):
    """apt's last error message, in one line."""
    lines = text.splitlines()
    for kind in ("E:", "W:", ""):
        for line in lines:
            if line.startswith(kind) and line.strip():
                return line.removeprefix(kind).strip()
    return "no message"


def write_source_lists(folder):
    """The machine's list of mirrors with every entry turned into one for sources. Returns how many entries there
    are."""
    run = subprocess.run(["apt-config", "shell", "LIST", "Dir::Etc::sourcelist/f", "PARTS", "Dir::Etc::sourceparts/d"],
                         check=False, text=True, stdout=subprocess.PIPE)
    found = dict(re.findall(r"(\w+)='([^']*)'", run.stdout))
    files = [pathlib.Path(found.get("LIST", "/etc/apt/sources.list"))]
    parts = pathlib.Path(found.get("PARTS", "/etc/apt/sources.list.d"))
    if parts.is_dir():
        files += sorted(parts.iterdir())

    lines, stanzas = set(), set()
    for path in files:
        try:
            text = path.read_text(encoding="utf-8")
        except OSError:
            continue
        if path.suffix == ".list":
            lines |= one_line_sources(text)
        elif path.suffix == ".sources":
            stanzas |= stanza_sources(text)
    (folder / "mirrors.list").write_text("".join(line + "\n" for line in sorted(lines)), encoding="utf-8")
    (folder / "mirrors.sources").write_text("\n".join(sorted(stanzas)), encoding="utf-8")
    return len(lines) + len(stanzas)


def one_line_sources(text):
    """deb [options] uri suite components..."""
    entries = re.findall(r"^\s*deb(?:-src)?\s+(?!cdrom)([^#\n]+)", text, re.MULTILINE)
    return {"deb-src " + re.sub(r"\barch=[^\s\]]+\s*", "", entry.strip()) for entry in entries if "cdrom:" not in entry}


def stanza_sources(text):
    """deb822: paragraphs of fields; the comment lines inside are dropped."""
    found = set()
    for paragraph in re.split(r"\n\s*\n", text):
        kept = [line for line in paragraph.splitlines() if line.strip() and not line.startswith("#")]
        fields = "\n".join(kept)
        if not re.search(r"^URIs:", fields, re.MULTILINE | re.IGNORECASE):
            continue
        if re.search(r"^Enabled:\s*(no|false|0)", fields, re.MULTILINE | re.IGNORECASE):
            continue
        fields = re.sub(r"^Types:.*$", "Types: deb-src", fields, flags=re.MULTILINE | re.IGNORECASE)
        fields = re.sub(r"^Architectures:.*\n?", "", fields, flags=re.MULTILINE | re.IGNORECASE)
        found.add(fields.strip() + "\n")
    return found
