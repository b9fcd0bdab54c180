#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""usage: examples_test.py CMAKE BUILD_FOLDER

Types the examples of README.md and docs/ as they stand there, as a stranger would: with an installed APlib, in an empty
folder, by a user who is not root. What an example takes for granted (sources, data, commands, lab.toml) is laid there
first. Each block of a page that is a command or a program is either typed here or excused, with the reason: a new one
must be added.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[3]
CMAKE, BUILD = sys.argv[1:3]
NOBODY = 65534
BLOCK = re.compile(r"^```(sh|c|cpp)\n(.*?)^```", re.MULTILINE | re.DOTALL)

HOSTS = """
[machine]
cells = 2
program = "PROGRAM"
[[host]]
name = "localhost"
launch = "local"
"""
RANK = """
#include <mpi.h>
#include <stdio.h>
int main(int count, char** words) {
  int rank;
  MPI_Init(&count, &words);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  printf("rank %d\\n", rank);
  return MPI_Finalize();
}
"""
RANK_FORTRAN = """
program hello
  use mpi
  integer :: rank, error
  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  print '(a, i0)', 'rank ', rank
  call MPI_Finalize(error)
end program
"""
PLAIN = '#include <stdio.h>\nint main(void) { puts("plain"); return 0; }\n'
SORT = """
#include <stdio.h>
int main(int count, char** words) {
  FILE* file = count == 2 ? fopen(words[1], "r") : NULL;
  if (file == NULL) return perror("sort"), 1;
  printf("%s is there\\n", words[1]);
  return fclose(file);
}
"""
SOLVE = """
double solve(int n, double eps) { return n * eps; }
void greet(const char* name) { (void)name; }
double norm(int n, const double* x) { return n > 0 ? x[0] : 0; }
"""
FIT = '#!/bin/sh\necho "fit $*"\n'
LAME = '#!/bin/sh\ncp "$1" "$2"\n'
SOLVE_LIBRARY = "cc -g -shared -fPIC solve.c -o libsolve.so"

# By page and number of the block: what lies there, what is done before and after, and what the output says. The blocks
# of a page are typed in one folder, one after the other.
TYPED = {
    ("README.md", 1): {"saved": "hello.cpp", "after": "g++ -std=c++20 hello.cpp -o hello "
                       "$(pkg-config --cflags --libs aplib) && APLIB_CELLS=4 ./hello",
                       "says": ["4 cells, sum of squares 14"]},
    ("README.md", 2): {"files": {"sort.c": SORT, "data": "", **{f"data.{i}": "" for i in range(8)}},
                       "says": ["data.0 is there", "data.7 is there", "data is there"]},
    ("README.md", 3): {"files": {"cluster.toml": HOSTS.replace("PROGRAM", "./plain"), "plain.c": PLAIN},
                       "before": "apcc plain.c -o plain", "after": "aprun --in cluster; apctl down cluster",
                       "ends": {"apctl status": 1}, "says": ["plain", "localhost"]},
    ("docs/apcc.md", 0): {"files": {"prog.c": PLAIN}, "count": {"plain": 17}},
    ("docs/cellos.md", 0): {"saved": "squares.c", "after": "apcc squares.c -o squares && aprun -n 4 ./squares",
                            "says": ["cell 0 says 14", "cell 3 says 14"]},
    ("docs/farm.md", 0): {"files": {"a.log": "a", "b.log": "b", "x.wav": "x", "fit": FIT, "long": FIT, "list": "1\n2\n",
                                    "bin/lame": LAME, "y.data": "y", "lab.toml": HOSTS.replace("PROGRAM", "./fit")},
                          "before": "apctl up -f lab.toml",
                          "after": "test -f a.log.gz && test -f x.mp3 && apctl down lab",
                          "says": ["a 1\tfit a 1", "b 2\tfit b 2", "fit 2", "fit y.data"]},
    ("docs/farm.md", 1): {"files": {"solve.c": SOLVE}, "before": SOLVE_LIBRARY, "count": {"solve = ": 6}},
    ("docs/farm.md", 2): {"says": ["fit y.data"], "before": "rm -f log"},
    ("docs/farm.md", 3): {"after": "cat y.out; apctl down lab", "says": ["fit y.data"]},
    ("docs/gridrpc.md", 1): {"saved": "client.c"},
    ("docs/gridrpc.md", 0): {"says": ["6"]},
    ("docs/gridrpc.md", 2): {"files": {"solve.c": SOLVE}, "before": SOLVE_LIBRARY,
                             "after": "test -s libsolve_server.c && test -s norm.idl"},
    ("docs/mpi.md", 0): {"files": {"hello.c": RANK}, "says": ["rank 0", "rank 7"]},
    ("docs/mpi.md", 1): {"files": {"hello.f90": RANK_FORTRAN}, "needs": "gfortran",
                         "before": "export PATH=~/aplib/lib/aplib/mpi/bin:$PATH", "says": ["rank 0", "rank 7"]},
    ("docs/one-sided.md", 0): {"saved": "put.c", "after": "apcc put.c -o put && aprun -n 4 ./put",
                               "says": ["cell 0 has 3", "cell 3 has 2"]},
    ("docs/pool.md", 0): {"files": {"lab.toml": HOSTS.replace("PROGRAM", "./solve"), "plain.c": PLAIN},
                          "before": "apcc plain.c -o solve", "says": ["plain", "localhost"]},
}
EXCUSED = {
    ("README.md", 0): "sets the computer up and builds: scripts/systems types it",
    ("docs/apcc.md", 1): "a makefile of the reader's",
    ("docs/debian-mpi.md", 0): "hours; some of its programs are tests",
    ("docs/debugging.md", 0): "replayed by debugging/gdb",
    ("docs/debugging.md", 1): "lines for a program of the reader's; MpiProgram.ThreadSanitizerSeesTheProgramAlone",
    ("docs/farm.md", 4): "lines out of a program; tests/farm has them",
    ("docs/farm.md", 5): "hours of benchmarks",
    ("docs/one-sided.md", 1): "lines out of a program; tests/cell has them",
    ("docs/pool.md", 1): "needs a batch system: machine-BySlurm, machine-ByGridEngine",
    ("docs/pool.md", 2): "changes the user's systemd",
    ("docs/third-party.md", 0): "a makefile of Lua's: third-party/lua",
    ("docs/third-party.md", 1): "of the source tree: the tests third-party/*",
}


def blocks_of(page):
    return [match.group(2) for match in BLOCK.finditer((SOURCE / page).read_text())]


class Examples(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.top = pathlib.Path(tempfile.mkdtemp(prefix="aplib-examples-"))
        cls.top.chmod(0o755)
        cls.home = cls.top / "home"
        cls.home.mkdir()
        install = [CMAKE, "--install", BUILD, "--prefix", str(cls.home / "aplib")]
        done = subprocess.run(install, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(install)} failed:\n{done.stdout}{done.stderr}")
        prefix = cls.home / "aplib"
        packages = ":".join(str(each) for each in prefix.glob("**/pkgconfig"))
        libraries = str(next(prefix.glob("**/libaplib.so")).parent)
        cls.environment = {"HOME": str(cls.home), "PATH": f"bin:{prefix}/bin:/usr/local/bin:/usr/bin:/bin",
                           "PKG_CONFIG_PATH": packages, "LD_LIBRARY_PATH": libraries, "TMPDIR": "/tmp",
                           "LANG": "C.UTF-8"}

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.top, ignore_errors=True)

    def type_in(self, folder, text):
        """Status and output of these lines, of which each must succeed."""
        user = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
        try:
            ran = subprocess.run(["bash", "-e", "-c", text], cwd=folder, env=self.environment, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=240, check=False,
                                 **user)
        except subprocess.TimeoutExpired as late:
            return 124, (late.stdout or b"").decode(errors="replace")
        return ran.returncode, ran.stdout

    def try_block(self, page, number, folder):
        what = TYPED[page, number]
        block = blocks_of(page)[number]
        if shutil.which(what.get("needs", "sh")) is None:
            print(f"{page}, block {number}: left out: there is no {what['needs']}")
            return
        for name, text in what.get("files", {}).items():
            file = folder / name
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)
            file.chmod(0o755 if text.startswith("#!") else 0o644)
        if "saved" in what:
            (folder / what["saved"]).write_text(block)
            block = ""
        # A command that has nothing to look at says so by its status.
        lines = [next((f"{line} || [ $? -eq {status} ]" for start, status in what.get("ends", {}).items()
                       if line.startswith(start)), line) for line in block.splitlines()]
        lines = [re.sub(r"\s+#[^'\"]*?( \|\| \[.*)?$", r"\1", line) for line in lines]
        text = "\n".join([what.get("before", ":"), *lines, what.get("after", ":")])
        if os.geteuid() == 0:
            for each in [self.home, folder, *folder.rglob("*")]:
                os.chown(each, NOBODY, NOBODY)
        status, output = self.type_in(folder, text)
        self.assertEqual(status, 0, f"{page}, block {number}:\n{text}\n--- said\n{output}")
        for said in what.get("says", []):
            self.assertIn(said, output, f"{page}, block {number}")
        for said, count in what.get("count", {}).items():
            self.assertEqual(output.count(said), count, f"{page}, block {number}: {output}")

    def test_examples(self):
        for page in dict.fromkeys(page for page, _ in TYPED):
            with tempfile.TemporaryDirectory(prefix=pathlib.Path(page).stem + "-", dir=self.top) as name:
                pathlib.Path(name).chmod(0o755)
                for number in [number for at, number in TYPED if at == page]:
                    with self.subTest(page=page, block=number):
                        self.try_block(page, number, pathlib.Path(name))

    def test_each_block_is_typed_or_excused(self):
        pages = ["README.md", *(f"docs/{page.name}" for page in sorted((SOURCE / "docs").glob("*.md")))]
        found = {(page, number) for page in pages for number in range(len(blocks_of(page)))}
        self.assertEqual(found, TYPED.keys() | EXCUSED.keys())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
