# SPDX-License-Identifier: MIT
"""One file that has a build, its benchmarks and tests, the peers and their programs, with all libraries that they need,
and runs on any Linux on x86-64: a shell script with an archive behind it, which it runs in a root of its own."""

import os
import pathlib
import shutil
import subprocess
import tempfile

from comparing import crowd, machine, peers

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = "/usr/bin/python3"
LIBRARIES = ("aplib", "openmpi", "mpich")
PROGRAMS = ("lulesh2.0", "xhpcg", "graph500_reference_bfs")
TOOLS = "sh bash cat cp mv rm mkdir ls env sleep grep sed hostname uname nproc true false kill ssh".split()
TESTS = "cell_test kernel_test mpi_test comm_shm_test placement_test processes_test mpi_placement_test".split()
BENCHES = ["aprun", "apbench", "scg"]
SYSTEM = """/usr/bin/mpirun.openmpi /usr/bin/orterun /usr/bin/orted /usr/lib/x86_64-linux-gnu/openmpi/lib/openmpi3
/usr/share/openmpi /etc/openmpi /usr/lib/x86_64-linux-gnu/pmix2/lib/pmix /usr/lib/x86_64-linux-gnu/pmix2/share
/usr/bin/mpirun.mpich /usr/bin/mpiexec.hydra /usr/bin/hydra_pmi_proxy /etc/passwd /etc/group /etc/nsswitch.conf
/etc/hosts /etc/os-release /lib64/ld-linux-x86-64.so.2""".split()
LEFT_OUT = {"__pycache__", "test", "idlelib", "tkinter", "lib2to3", "ensurepip", "pydoc_data", "dist-packages",
            "CMakeFiles", "config-3.11-x86_64-linux-gnu"}  # folders of Python and of the build
OBJECTS = (".o", ".a", ".gch", ".cmake", ".pyc")
COMPILERS = ("mpic", "mpiC", "mpif")  # without them, programs that are built stay as they are

HEADER = """\
#!/bin/sh
# Measures APlib beside Open MPI and MPICH on this computer; scripts/many-cores of APlib has made this file.
# usage: sh FILE [--seconds N] [--out FILE.json] [scg] [collectives] [programs] [crowd] [tests]
# Everything is in this file. It needs root or user namespaces, and removes what it has unpacked.
set -eu
PATH=$PATH:/usr/sbin:/sbin seconds=540 out=many-cores.json begun=$(date +%s)
while [ $# -gt 0 ]; do
  case $1 in
    --seconds) seconds=$2 && shift 2 ;;
    --out) out=$2 && shift 2 ;;
    -*) sed -n 2,4p "$0" >&2 && exit 2 ;;
    *) break ;;
  esac
done
: >"$out"
file=$(readlink -f "$0") out=$(readlink -f "$out")
for flags in -m -Urm none; do
  [ $flags = none ] && echo "many-cores: needs root, or user namespaces (unshare -Urm)" >&2 && exit 1
  unshare $flags true 2>/dev/null && break
done
root=$(mktemp -d "${TMPDIR:-/tmp}/many-cores.XXXXXX")
trap 'rm -rf --one-file-system "$root"' EXIT
trap 'kill $! 2>/dev/null; exit 143' TERM INT
tail -n +@LINES@ "$file" | gzip -dc | tar xf - -C "$root"
unshare $flags sh -c '
  root=$1 out=$2 && shift 2
  for each in proc sys dev; do mount --rbind /$each "$root/$each"; done
  mount --bind "$(dirname "$out")" "$root/out"
  exec chroot "$root" @PYTHON@ -B @DRIVE@ --out "/out/$(basename "$out")" "$@"
' sh "$root" "$out" --seconds $((seconds - $(date +%s) + begun)) "$@" &
status=0
wait $! || status=$?
exit $status
"""


class Root:
    """A folder that becomes the root of what runs."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        for name in ("lib", "lib64", "bin", "sbin"):
            (self.folder / "usr" / name).mkdir(parents=True)
            (self.folder / name).symlink_to(f"usr/{name}")
        for name in ("tmp", "proc", "sys", "dev", "root", "out"):
            (self.folder / name).mkdir()
        self.done = set()

    def place(self, path):
        """Where the path lies here: /lib is in /usr."""
        merged = "/usr" + path if path.split("/")[1] in ("lib", "lib64", "bin", "sbin") else path
        place = self.folder / merged[1:]
        place.parent.mkdir(parents=True, exist_ok=True)
        return place

    def put(self, path, strip=("-g",)):
        """The file and the libraries that it needs. Links within the tree stay links: programs find their own files by
        where they are; others become a second name."""
        path = os.path.abspath(path)
        if path in self.done or not os.path.isfile(path):
            return
        self.done.add(path)
        place, real = self.place(path), os.path.realpath(path)
        if os.path.islink(path) and path.startswith(str(ROOT)):
            place.symlink_to(os.readlink(path))
            self.put(os.path.join(os.path.dirname(path), os.readlink(path)))
        elif real != path:
            self.put(real)
            if not place.exists():
                os.link(self.place(real), place)
        elif not place.exists():
            shutil.copy2(path, place)
            subprocess.run(["strip", *strip, str(place)], stderr=subprocess.DEVNULL, check=False)
        if real == path:
            self.put_libraries(path)

    def put_libraries(self, path):
        with open(path, "rb") as file:
            if file.read(4) != b"\x7fELF":
                return
        listed = subprocess.run(["ldd", path], capture_output=True, text=True, check=False).stdout
        for word in listed.split():
            if word.startswith("/"):
                self.put(word)

    def put_all(self, path):
        """What is below a folder, without what only compilers read."""
        if not os.path.isdir(path):
            self.put(path)
            return
        for base, folders, names in os.walk(path):
            folders[:] = [name for name in folders if name not in LEFT_OUT]
            for name in names:
                if not name.endswith(OBJECTS) and not name.startswith(COMPILERS):
                    self.put(os.path.join(base, name))


def build_peers(build, out):
    """The programs of bench/crowd and bench/compare. Returns what is missing."""
    folders = ROOT / "bench" / "peers", out / "peers"
    made = [library(build, *folders) for library in crowd.OWN.values()]
    made += [library(*folders) for library in crowd.PEERS.values()]
    made += [peers.AplibMpi(build, *folders, False), peers.OpenMpi(*folders, False), peers.Mpich(*folders, False)]
    return [f"{each.title}: {each.fault}" for each in made if each.fault]


def find_program(name, library, folders):
    """A program that somebody has built by the library's compiler, or None: scripts/mpi-programs keeps its own in
    folders with these names, too."""
    found = [path for folder in folders for path in sorted(pathlib.Path(folder).glob(f"{library}/**/{name}"))
             if path.is_file() and os.access(path, os.X_OK)]
    return found[0] if found else None


def put_programs(root, out, folders):
    """Returns what is missing."""
    missing = []
    for name in PROGRAMS:
        for library in LIBRARIES:
            path = find_program(name, library, folders)
            if path is None:
                missing.append(f"{name} by {library}")
                continue
            copy = out / "programs" / library / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, copy)
            root.put(str(copy))
    return missing


def fill(root, build, out, folders):
    """Returns what is missing."""
    missing = build_peers(build, out)
    for name in filter(None, map(shutil.which, TOOLS)):
        root.put(name)
    for path in SYSTEM:
        root.put_all(path)
    root.put(PYTHON)
    ask = "import sysconfig; print(sysconfig.get_path('stdlib'))"
    root.put_all(subprocess.run([PYTHON, "-c", ask], capture_output=True, text=True, check=True).stdout.strip())
    for folder in ("bench", "tests/support"):
        root.put_all(f"{ROOT}/{folder}")
    root.put_all(f"{build}/lib")
    for name in BENCHES:
        root.put(f"{build}/bin/{name}")
    for name in TESTS:  # they look for their programs where they were built
        root.put(f"{build}/bin/{name}", strip=("-s",))
    root.put_all(f"{build}/tests")
    root.put_all(str(out / "peers"))
    (root.place(str(out / "programs" / "none"))).touch()
    missing += put_programs(root, out, folders)
    return missing + [name for name in [*BENCHES, *TESTS] if not (build / "bin" / name).exists()]


def pack(file, build, out, folders):
    """Writes the file. Returns what it lacks."""
    drive = pathlib.Path(__file__).with_name("drive.py")
    options = f"--build {build} --programs {out} --compiler \"{machine.compiler(build)}\""
    words = {"@PYTHON@": PYTHON, "@DRIVE@": f"{drive} {options}"}
    header = HEADER.replace("@LINES@", str(HEADER.count("\n") + 1))
    for word, value in words.items():
        header = header.replace(word, value)
    with tempfile.TemporaryDirectory() as folder:
        root = Root(folder)
        missing = fill(root, build, out, folders)
        with open(file, "wb") as packed:
            packed.write(header.encode())
            packed.flush()
            subprocess.run(["sh", "-c", 'tar cf - -C "$1" . | gzip', "sh", folder], stdout=packed, check=True)
    os.chmod(file, 0o755)
    return missing
