# SPDX-License-Identifier: MIT
"""The files that the rules look at."""
import pathlib
import subprocess

# Folders in which new files count before they are tracked. Elsewhere they are scratch files.
FOLDERS = {"apps", "bench", "cmake", "docs", "examples", "include", "scripts", "src", "tests"}
CXX_SUFFIXES = {".c", ".cpp", ".h", ".hpp"}
SCRIPT_SUFFIXES = {".py", ".sh", ".cmake", ".in"}


class Skip(Exception):
    """This rule cannot be checked here. The text says why."""


class Repository:
    def __init__(self, root):
        self.root = root
        self.files = sorted(self._tracked() or self._walked())

    def _tracked(self):
        """Tracked files, and new files in our folders that git does not ignore: the content of a commit."""
        try:
            tracked, new = self._listed("--cached"), self._listed("--others", "--exclude-standard")
        except (OSError, subprocess.CalledProcessError):
            return None
        paths = tracked + [path for path in new if path.parts[0] in FOLDERS]
        return [path for path in paths if (self.root / path).is_file()]

    def _listed(self, *which):
        run = subprocess.run(
            ["git", "-c", f"safe.directory={self.root}", "-C", str(self.root), "ls-files", "-z", *which],
            check=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        return [pathlib.PurePosixPath(name) for name in run.stdout.decode().split("\0") if name]

    def _walked(self):
        """Without git (in an unpacked archive): everything except build output."""
        found = []
        for path in self.root.rglob("*"):
            relative = pathlib.PurePosixPath(path.relative_to(self.root).as_posix())
            if path.is_file() and relative.parts[0] not in {"build", "out", ".git"}:
                found.append(relative)
        return found

    def text(self, path):
        return (self.root / path).read_text(encoding="utf-8")

    def cxx(self):
        return [path for path in self.files if path.suffix in CXX_SUFFIXES]

    def headers(self):
        return [path for path in self.files if path.suffix in {".h", ".hpp"}]

    def is_script(self, path):
        if path.suffix in SCRIPT_SUFFIXES or path.name == "CMakeLists.txt":
            return True
        return path.suffix == "" and (self.root / path).read_bytes()[:2] == b"#!"
