# SPDX-License-Identifier: MIT
"""Numerical and combinatorial programs."""

from interpreters import WORDS
from program import Program
from running import Run


# ---- glpk: the solver in a shared library of its own
# ---------------------------------------------------------------------------

def build_glpk(tree, archives):
    tree.unpack(archives[0])
    tree.run("./configure", "--disable-static", f"--prefix={tree.folder}/installed", f"CC={tree.cc}", "CFLAGS=-O0")
    tree.make("install")


GLPK_MODEL = """
param m, integer, > 0; param n, integer, > 0;
set I := 1..m; set J := 1..n;
param a{I, J} := Uniform(1, 20); param b{i in I} := sum{j in J} a[i, j] * KIND; param c{J} := Irand224() mod 100 + 1;
var x{J} >= 0 VARIABLE;
maximize value: sum{j in J} c[j] * x[j];
s.t. limit{i in I}: sum{j in J} a[i, j] * x[j] <= b[i];
EXTRA
solve;
printf "value %.8g\\n", value;
printf{j in J: x[j] > 0.001} "x[%d] = %.6g\\n", j, x[j];
printf{i in I} "%s%.4f", (if i = 1 then "dual " else " "), limit[i].dual;
printf "\\n";
data;
param m := ROWS; param n := COLUMNS;
end;
"""


def glpk_inputs(own, cid, random, _):
    extra = {5: "s.t. never: sum{j in J} x[j] <= -1;", 6: "s.t. wrong: sum{j in K} x[j] <= 1;"}.get(cid % 8, "")
    text = GLPK_MODEL.replace("KIND", f"0.{random.randrange(2, 6)}").replace("EXTRA", extra)
    text = text.replace("VARIABLE", ", <= 1, integer" if cid % 2 else "").replace("ROWS", str(5 + cid % 5))
    (own / "model.mod").write_text(text.replace("COLUMNS", str(18 + cid % 7)), encoding="utf-8")


GLPK = Program(
    name="glpk",
    kind="linear and integer optimiser",
    language="C",
    build_system="autoconf and libtool, CC=apcc; shared library",
    packages=("glpk",),
    build=build_glpk,
    inputs=glpk_inputs,
    counted=("installed/bin/glpsol", "installed/lib/libglpk.so"),
    runs=(
        Run(
            "solve",
            (
                "--seed",
                "1{cid}",
                "--cuts",
                "--math",
                "dir/{cid}/model.mod",
                "-o",
                "dir/{cid}/solution",
                "--wlp",
                "dir/{cid}/lp",
                "--log",
                "dir/{cid}/log",
            ),
            "installed/bin/glpsol",
            ignored=(r"^Time used:.*$", r"^Memory used:.*$"),
        ),
    ),
)


# ---- qhull
# --------------------------------------------------------------------------------------------------------------------

def build_qhull(tree, archives):
    tree.unpack(archives[0], under="source")
    tree.run("cmake", "-S", "source", "-B", "made", "-DCMAKE_C_FLAGS=-O0", "-DCMAKE_CXX_FLAGS=-O0", "-Wno-dev",
             f"-DCMAKE_C_COMPILER={tree.cc}", f"-DCMAKE_CXX_COMPILER={tree.cxx}")
    tree.run(
        "cmake",
        "--build",
        "made",
        "--parallel",
        "2",
        "--target",
        "qconvex",
        "qvoronoi",
        "qdelaunay",
        "rbox",
        "user_eg3",
    )


def qhull_inputs(own, cid, random, _):
    dimension = 2 + cid % 4
    points = [[random.gauss(0, 1 + cid) for _ in range(dimension)] for _ in range(120 if dimension > 3 else 900)]
    if cid % 8 == 6:
        points = [[1, *point[1:]] for point in points]  # flat: an error that is reported by longjmp
    lines = [f"{dimension} cell {cid}", str(len(points)), *(" ".join(map(repr, point)) for point in points)]
    (own / "stdin").write_text("\n".join(lines) + "\n", encoding="utf-8")


TIMES = (r"run-id \d+", r"CPU seconds.*$", r"(?:compute hull|convex hull)[^\n]*seconds[^\n]*$")
QHULL = Program(
    name="qhull",
    kind="computational geometry",
    language="C",
    build_system="CMake, CMAKE_C_COMPILER=apcc",
    packages=("qhull",),
    build=build_qhull,
    inputs=qhull_inputs,
    counted=("made/qconvex",),
    needs=("cmake", "make", "tar"),
    runs=(
        Run(
            "hull",
            ("s", "n", "Fa", "Fx", "QR1{cid}", "TO", "dir/{cid}/hull"),
            "made/qconvex",
            stdin="stdin",
            ignored=TIMES,
        ),
        Run("Voronoi", ("s", "o", "Fv"), "made/qvoronoi", stdin="stdin", ignored=TIMES),
        Run("generate", ("D3", "1{cid}0", "s", "W0.1", "t1{cid}"), "made/rbox"),
        Run(
            "C++",
            ("rbox", "3{cid} D3 t1{cid}", "qhull-cout", "d QR1{cid} s p", "facets", "eg-100"),
            "made/user_eg3",
            ignored=TIMES,
        ),
    ),
)


# ---- minisat
# ------------------------------------------------------------------------------------------------------------------

def build_minisat(tree, archives):
    tree.unpack(archives[0])
    # The code is older than C++11, so it needs options. The Makefile links with --static unless told otherwise.
    tree.make(
        "r", f"CXX={tree.cxx}", "MINISAT_REL=-O2 -D NDEBUG -std=gnu++98 -fpermissive", "MINISAT_LDFLAGS=-Wall -lz"
    )


def minisat_inputs(own, cid, random, _):
    variables = 110 + 3 * cid
    clauses = int(variables * (4.1 + 0.02 * (cid % 16)))
    lines = [f"c cell {cid}", f"p cnf {variables} {clauses}"]
    for _ in range(clauses):
        lines.append(
            " ".join(str(random.choice((1, -1)) * v) for v in random.sample(range(1, variables + 1), 3)) + " 0"
        )
    if cid % 8 == 5:
        lines.append("1 2 x 0")
    (own / "problem.cnf").write_text("\n".join(lines) + "\n", encoding="utf-8")


MINISAT = Program(
    name="minisat",
    kind="satisfiability solver",
    language="C++",
    build_system="its Makefile, CXX=apc++",
    packages=("minisat2",),
    build=build_minisat,
    inputs=minisat_inputs,
    counted=("build/release/bin/minisat",),
    runs=(
        Run(
            "solve",
            ("-verb=2", "-rnd-freq=0.02", "-rnd-seed=9{cid}.5", "dir/{cid}/problem.cnf", "dir/{cid}/model"),
            "build/release/bin/minisat",
            ignored=(r"^.*(?:CPU|Parse|Simplification) time\b.*$", r"^Memory used .*$", r"\([^()]*/sec\)"),
        ),
        Run("help", ("--help-verb",), "build/release/bin/minisat"),
    ),
)


# ---- gperf
# --------------------------------------------------------------------------------------------------------------------

def build_gperf(tree, archives):
    tree.unpack(archives[0])
    tree.run("./configure", f"CC={tree.cc}", f"CXX={tree.cxx}", "CFLAGS=-O0", "CXXFLAGS=-O0")
    tree.make("-C", "lib")
    tree.make("-C", "src")


def gperf_inputs(own, cid, random, _):
    words = sorted({random.choice(WORDS) + random.choice(("", "_", "s", "er", "ing")) + str(random.randrange(9 + cid))
                    for _ in range(30 + 2 * cid)})
    if cid % 8 == 4:
        words.append(words[0])
    head = f"%{{\n#include <cell{cid}.h>\n%}}\nstruct entry {{ const char *name; int value; }};\n%%\n"
    (own / "words.gperf").write_text(head + "".join(f"{word}, {i}\n" for i, word in enumerate(words)), encoding="utf-8")


GPERF = Program(
    name="gperf",
    kind="perfect hash generator",
    language="C++",
    build_system="autoconf, CC=apcc CXX=apc++",
    packages=("gperf",),
    build=build_gperf,
    inputs=gperf_inputs,
    counted=("src/gperf",),
    runs=(
        Run("generate", ("-t", "-G", "-C", "-L", "C++", "-Z", "Cell{cid}", "-d", "dir/{cid}/words.gperf"), "src/gperf"),
        Run(
            "file",
            ("-t", "-j1", "-m3", "-l", "-c", "--output-file=dir/{cid}/hash.c", "dir/{cid}/words.gperf"),
            "src/gperf",
        ),
    ),
)


# ---- boolstuff: C++ streams and exceptions
# -------------------------------------------------------------------------------------

def build_boolstuff(tree, archives):
    tree.unpack(archives[0])
    tree.run("./configure", "--disable-shared", f"CC={tree.cc}", f"CXX={tree.cxx}", "CXXFLAGS=-O1 -std=gnu++14")
    tree.make()


def boolean(random, depth):
    if depth == 0 or random.random() < 0.15:
        return random.choice(("", "", "!")) + random.choice("abcdefgh")
    return f"({boolean(random, depth - 1)} {random.choice('&|')} {boolean(random, depth - 1)})"


def boolstuff_inputs(own, cid, random, _):
    lines = [boolean(random, 3 + cid % 2) for _ in range(12 + cid)]
    for at in range(cid % 5, len(lines) if cid % 3 == 0 else 0, 5):
        lines[at] = random.choice(("a & ", "(a | b", "a b", "& c", "!"))
    (own / "stdin").write_text("\n".join(lines) + "\n", encoding="utf-8")


BOOLSTUFF = Program(
    name="boolstuff",
    kind="boolean algebra; C++ streams, exceptions",
    language="C++",
    build_system="automake and libtool, CXX=apc++",
    packages=("boolstuff",),
    build=build_boolstuff,
    inputs=boolstuff_inputs,
    counted=("src/commands/booldnf",),
    runs=(Run("normal form", (), "src/commands/booldnf", stdin="stdin"),),
)
