# SPDX-License-Identifier: MIT
"""Fortran programs with COMMON blocks, SAVE variables and units: one of ours, and the tests of the Reference BLAS."""

import pathlib

from interpreters import WORDS
from program import Program
from running import Run

OURS = pathlib.Path(__file__).resolve().parent / "fortran"


# ---- plate: ours
# ---------------------------------------------------------------------------------------------------------------

def build_plate(tree, _):
    tree.run(tree.fc, "-O2", "-std=legacy", "-c", OURS / "plate.f", "-o", "plate.o")
    tree.run(tree.fc, "-O2", "-c", OURS / "report.f90", "-o", "report.o")
    tree.run(tree.fc, "plate.o", "report.o", "-o", "plate")


def plate_inputs(own, cid, random, _):
    n = 10 + cid
    lines = [
        (
            f" &CASE N={n}, KASE={cid}, NSTEP={200 + 5 * cid}, ALPHA={0.5 + cid / 64!r},"
            f" TITLE='{random.choice(WORDS).upper()}' /"
        ),
        str(5 + cid % 3),
    ]
    for _ in range(5 + cid % 3):
        place = random.randrange(2, n) + 64 * random.randrange(1, n - 1)
        lines.append(f"{5000 if cid == 13 else place:5} {random.choice(WORDS)}")
    if cid == 21:
        lines = lines[:-2]
    (own / "stdin").write_text("\n".join(lines) + "\n", encoding="utf-8")


PLATE = Program(
    name="plate",
    kind="heat in a plate (ours): COMMON, SAVE, units",
    language="Fortran 77 and 90",
    build_system="apfort",
    packages=(),
    build=build_plate,
    inputs=plate_inputs,
    counted=("plate",),
    needs=("gfortran",),
    runs=(
        Run("heat", ("cell {cid}",), "plate", stdin="stdin", in_folder=True, environment=(("PROGRAM_TEST", "yes"),)),
    ),
)


# ---- the tests of the Reference BLAS
# --------------------------------------------------------------------------------------------

def build_blas(tree, archives):
    tree.unpack(archives[0])
    (tree.folder / "make.inc").write_text(
        f"FC = {tree.fc}\nFFLAGS = -O1\nFFLAGS_NOOPT = -O0\nFFLAGS_DRV = -O1\nLDFLAGS =\nAR = ar\nARFLAGS = cr\nRANLIB"
        " = ranlib\nBLASLIB = $(TOPSRCDIR)/librefblas.a\n",
        encoding="utf-8",
    )
    tree.make("-C", "BLAS/SRC", "double")
    tree.make("-C", "BLAS/TESTING", "double")


BLAS2_HEAD = """'dir/{cid}/summary'          NAME OF SUMMARY OUTPUT FILE
{unit}                 UNIT NUMBER OF SUMMARY FILE
'dir/{cid}/snap'  NAME OF SNAPSHOT OUTPUT FILE
{snap}            UNIT NUMBER OF SNAPSHOT FILE (NOT USED IF .LT. 0)
F        LOGICAL FLAG, T TO REWIND SNAPSHOT FILE AFTER EACH RECORD.
F        LOGICAL FLAG, T TO STOP ON FAILURES.
{errors}        LOGICAL FLAG, T TO TEST ERROR EXITS.
{threshold}     THRESHOLD VALUE OF TEST RATIO
4                 NUMBER OF VALUES OF N
{sizes}
"""
NAMES = {2: "DGEMV DGBMV DSYMV DSBMV DSPMV DTRMV DTBMV DTPMV DTRSV DTBSV DTPSV DGER DSYR DSPR DSYR2 DSPR2",
         3: "DGEMM DSYMM DTRMM DTRSM DSYRK DSYR2K"}


def blas_inputs(own, cid, random, _):
    folder = {"cid": cid, "unit": 6 + cid % 2, "snap": 9 if cid % 16 == 3 else -1, "errors": "T" if cid % 3 else "F"}
    for level in (2, 3):
        sizes = " ".join(map(str, sorted(random.sample(range(10), 4))))
        text = BLAS2_HEAD.format(sizes=sizes, threshold=16.0 if cid % 8 != 2 else 0.3, **folder)
        if level == 2:
            text += "3\n0 1 2\n4\n1 2 -1 -2\n"
        text += f"3\n0.0 1.0 {random.randrange(1, 99) / 10}\n3\n0.0 1.0 {random.randrange(1, 99) / 10}\n"
        text += "".join(f"{name:6} {'F' if random.random() < 0.2 else 'T'} PUT F FOR NO TEST. SAME COLUMNS.\n"
                        for name in NAMES[level].split())
        (own / f"level{level}").write_text(text, encoding="utf-8")


BLAS = Program(
    name="blas",
    kind="test programs of the Reference BLAS",
    language="Fortran 77",
    build_system="its Makefile, FC=apfort",
    packages=("lapack",),
    build=build_blas,
    inputs=blas_inputs,
    counted=("BLAS/TESTING/xblat2d", "BLAS/TESTING/xblat3d"),
    needs=("gfortran", "make", "tar"),
    runs=(
        Run("level 2", (), "BLAS/TESTING/xblat2d", stdin="level2"),
        Run("level 3", (), "BLAS/TESTING/xblat3d", stdin="level3"),
        Run("level 1", (), "BLAS/TESTING/xblat1d"),
    ),
)
