# SPDX-License-Identifier: MIT
"""Where the sources of the programs come from. Each is pinned: a commit by its name, which git checks, a source package
of the distribution by its version and checksum."""

import dataclasses
import fcntl
import hashlib
import shutil
import subprocess
import tempfile

from sources import Sources, Unavailable

SECONDS_MAX = 300


@dataclasses.dataclass(frozen=True)
class Commit:
    """Of a public repository."""

    name: str
    version: str
    url: str
    commit: str

    def archive(self, cache, fetches=True):
        """The archive, fetched at first use. Raises Unavailable."""
        path = cache / f"{self.name}-{self.commit[:12]}.tar"
        cache.mkdir(parents=True, exist_ok=True)
        with open(cache / "lock", "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not self._is_in(path):
                if not fetches:
                    raise Unavailable(f"needs sources from git: {self.name} has not been fetched (scripts/mpi-programs "
                                      "--fetch)")
                self._fetch(path)
        return path

    def _is_in(self, path):
        if not path.exists():
            return False
        with open(path, "rb") as file:
            found = subprocess.run(["git", "get-tar-commit-id"], stdin=file, capture_output=True, text=True,
                                   check=False)
        return found.stdout.strip() == self.commit

    def _fetch(self, path):
        if shutil.which("git") is None:
            raise Unavailable("needs the tool git: it fetches sources")
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            def git(*words):
                return subprocess.run(["git", "-C", folder, *words], stdin=subprocess.DEVNULL, capture_output=True,
                                      text=True, errors="replace", check=False, timeout=SECONDS_MAX)
            git("init", "--quiet", "--bare")
            try:
                got = git("-c", "credential.helper=", "fetch", "--quiet", "--depth=1", self.url, self.commit)
            except subprocess.TimeoutExpired:
                raise Unavailable(f"needs sources from git: {self.url} did not come within {SECONDS_MAX} s") from None
            if got.returncode != 0:
                last = (got.stderr.strip() or "no message").splitlines()[-1]
                raise Unavailable(f"needs sources from git: it cannot fetch {self.url}: {last}")
            made = git("archive", f"--prefix={self.name}/", "-o", str(path), self.commit)
            if made.returncode != 0 or not self._is_in(path):
                raise Unavailable(f"needs sources from git: {self.url} has no commit {self.commit}")


@dataclasses.dataclass(frozen=True)
class Package:
    """A source package of the distribution."""

    name: str
    version: str
    sha256: str

    def archive(self, cache, fetches=True):
        """The archive, fetched at first use. Raises Unavailable."""
        if not fetches and not any(cache.glob(f"{self.name}_*")):
            raise Unavailable(f"needs sources from apt: {self.name} has not been fetched (scripts/mpi-programs "
                              "--fetch)")
        path, version = Sources(cache).archive(self.name)
        if version != self.version:
            raise Unavailable(f"needs sources from apt: it has {self.name} {version}, and not {self.version}")
        found = hashlib.sha256(path.read_bytes()).hexdigest()
        if found != self.sha256:
            raise Unavailable(f"needs sources from apt: {path} has the SHA-256 {found} instead of {self.sha256}")
        return path
