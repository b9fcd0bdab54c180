# SPDX-License-Identifier: MIT
"""Compressors and a database."""

import bz2
import subprocess

from interpreters import WORDS, sentence
from program import Program
from running import Run


def mixture(random, size):
    """Text, runs and noise, which compressors treat differently."""
    parts, length = [], 0
    while length < size:
        kind = random.randrange(4)
        if kind == 0:
            part = random.randbytes(random.randrange(1, 4000))
        elif kind == 1:
            part = random.randbytes(1) * random.randrange(1, 9000)
        else:
            part = (sentence(random, random.randrange(1, 500)) + "\n").encode()
        parts.append(part)
        length += len(part)
    return b"".join(parts)[:size]


def damaged(data, cid):
    """Archives, of which every fourth is damaged."""
    if cid % 8 == 7:
        middle = len(data) * 2 // 3
        return data[:middle] + bytes([data[middle] ^ 0x5A]) + data[middle + 1:]
    return data[:len(data) * 3 // 4] if cid % 8 == 3 else data


# ---- bzip2
# --------------------------------------------------------------------------------------------------------------------

def build_bzip2(tree, archives):
    tree.unpack(archives[0])
    tree.make("bzip2", f"CC={tree.cc}")


def bzip2_inputs(own, cid, random, _):
    (own / "data").write_bytes(mixture(random, 20000 + 9000 * cid))
    (own / "packed.bz2").write_bytes(damaged(bz2.compress(mixture(random, 60000 + 3000 * cid), cid % 9 + 1), cid))


BZIP2 = Program(
    name="bzip2", kind="compressor", language="C", build_system="its Makefile, CC=apcc", packages=("bzip2",),
    build=build_bzip2, inputs=bzip2_inputs, counted=("bzip2",),
    runs=(Run("compress", ("-kvv9", "dir/{cid}/data"), "bzip2"),
          Run("decompress", ("-dkv", "dir/{cid}/packed.bz2"), "bzip2")))


# ---- lzip
# ---------------------------------------------------------------------------------------------------------------------

def build_lzip(tree, archives):
    tree.unpack(archives[0])
    tree.run("./configure", f"CXX={tree.cxx}")
    tree.make()


def lzip_inputs(own, cid, random, native):
    data = mixture(random, 15000 + 3000 * cid)
    (own / "data").write_bytes(data)
    packed = subprocess.run(
        [native.folder / "lzip", f"-{cid % 10}", "-c"], input=data[:40000], check=True, stdout=subprocess.PIPE
    )
    (own / "packed.lz").write_bytes(damaged(packed.stdout, cid))


LZIP = Program(
    name="lzip",
    kind="compressor, exceptions",
    language="C++",
    build_system="configure (own), CXX=apc++",
    packages=("lzip",),
    build=build_lzip,
    inputs=lzip_inputs,
    counted=("lzip",),
    runs=(
        Run("compress", ("-k", "-v", "-b", "100000", "dir/{cid}/data"), "lzip"),
        Run("decompress", ("-d", "-k", "-vvv", "dir/{cid}/packed.lz"), "lzip"),
        Run("test", ("-t", "-vv", "dir/{cid}/packed.lz", "dir/{cid}/missing", "-"), "lzip"),
    ),
)


# ---- sqlite3
# ------------------------------------------------------------------------------------------------------------------

def build_sqlite3(tree, archives):
    tree.unpack(archives[0])
    tree.run("./configure", "--disable-tcl", "--disable-readline", "--disable-shared", "CFLAGS=-O0", f"CC={tree.cc}")
    tree.make("sqlite3")


def sqlite3_inputs(own, cid, random, _):
    rows = ",\n".join(
        f"({i}, '{random.choice(WORDS)}', {random.randrange(10 ** random.randrange(1, 12))}, {random.random()!r})"
        for i in range(300 + 10 * cid)
    )
    (own / "stdin").write_text(
        f"""
.headers on
.mode {('column', 'csv', 'line', 'json', 'table', 'quote', 'html', 'markdown')[cid % 8]}
PRAGMA journal_mode = {('delete', 'wal', 'memory', 'truncate')[cid % 4]};
PRAGMA cache_size = {10 + cid};
CREATE TABLE words(id INTEGER PRIMARY KEY, word TEXT, number INTEGER, fraction REAL);
INSERT INTO words VALUES {rows};
CREATE INDEX by_word ON words(word, number);
CREATE VIEW sums AS SELECT word, count(*) AS n, sum(number) AS total, avg(fraction) AS mean FROM words GROUP BY word;
SELECT * FROM sums ORDER BY total DESC LIMIT 8;
SELECT word, number, rank() OVER (PARTITION BY word ORDER BY number) AS place FROM words WHERE id % 40 = {cid} ORDER BY 1, 2;
WITH RECURSIVE mandelbrot(x, y, cx, cy, i) AS (
  SELECT 0.0, 0.0, -0.{cid + 10}, 0.{cid + 40}, 0
  UNION ALL SELECT x*x - y*y + cx, 2*x*y + cy, cx, cy, i + 1 FROM mandelbrot WHERE x*x + y*y < 4 AND i < 500)
SELECT max(i), printf('%.9f', max(x)), printf('%.9f', min(y)) FROM mandelbrot;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) SELECT sum(i * i % {97 + cid}) FROM n;
BEGIN; DELETE FROM words WHERE id % 3 = 0; SELECT changes(), total_changes(); {('ROLLBACK', 'COMMIT')[cid % 2]};
CREATE TABLE log(message TEXT); CREATE TRIGGER t AFTER UPDATE ON words BEGIN INSERT INTO log VALUES (old.word || '>' || new.word); END;
UPDATE words SET word = upper(word) WHERE id IN (1, 2, {cid + 4}, 77);
SELECT group_concat(message, ' ') FROM log;
SELECT json_extract('{{"a": [1, 2, {{"b": {cid}}}]}}', '$.a[2].b'), hex(zeroblob(3)), strftime('%Y-%m-%d %w %j', {cid} * 86400, 'unixepoch');
{f'SELECT * FROM missing_{cid}; SELECT abs(-9223372036854775808);' if cid % 3 == 0 else ''}
.output dir/{cid}/dump.sql
.dump
.output
VACUUM;
PRAGMA integrity_check;
{'.exit 5' if cid % 4 == 2 else ''}
""",
        encoding="utf-8",
    )


SQLITE3 = Program(
    name="sqlite3",
    kind="database shell",
    language="C",
    build_system="autoconf and libtool, CC=apcc",
    packages=("sqlite3",),
    build=build_sqlite3,
    inputs=sqlite3_inputs,
    counted=("sqlite3",),
    needs=("make", "tar", "tclsh"),
    runs=(Run("script", ("-batch", "dir/{cid}/test.db"), "sqlite3", stdin="stdin"),),
)
