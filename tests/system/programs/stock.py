#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Programs of this computer, as their packages made them, on cells. Each line of the table below is run by itself and
as 8 cells of one process; what each cell writes to its streams and its folder, and its status, must be the same.

usage: stock.py BUILD [WORD...]    only the lines that have one of the words
"""

import bz2
import gzip
import json
import lzma
import os
import pathlib
import random
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import running  # noqa: E402 (the path must be set first)

CELLS = 8
AT_LEAST = 100  # so many lines must have been compared

# A command, and after "<" a file of inputs() that it reads. It runs in a folder beside `in`.
PROGRAMS = r"""
addr2line -f -e ../in/sample.o 0
ar t ../in/sample.a
ar p ../in/sample.a words.txt
arch
as -al -o made.o ../in/sample.s
awk '{ s += $2; print $1, length($3) } END { srand(1); print s, rand() < 1 }' ../in/table.txt
b2sum ../in/words.txt ../in/text.txt
base32 ../in/words.txt
base64 -d ../in/sample.b64
basename /a/b/c.txt .txt
basenc --z85 -w 40 ../in/block.bin
bc -l ../in/sum.bc < empty
bc -q < sum.bc
bunzip2 -c ../in/sample.bz2
bzip2 -9c ../in/text.txt
bzip2 -t ../in/sample.gz
c++filt < symbols.txt
cal 9 1752
cat -A ../in/text.txt
cat < words.txt
cat - ../in/table.txt < words.txt
chcon -t x ../in/nothing
chmod 640 ../in/nothing
cksum ../in/words.txt ../in/block.bin
cmake -P ../in/script.cmake
cmake --version
cmp ../in/words.txt ../in/shuffled.txt
cmp -l ../in/block.bin ../in/block2.bin
col -b < text.txt
colrm 3 6 < words.txt
column -t ../in/table.txt
comm ../in/left.txt ../in/right.txt
cp -v ../in/words.txt copied.txt
csplit -f part ../in/words.txt 20 50
ctags -f - --sort=no ../in/sample.c
curl --version
curl -s file:///etc/debian_version
cut -d: -f1,3 ../in/passwd.txt
dash -c 'i=0; while [ $i -lt 5 ]; do i=$((i + 1)); echo $i $1; done; set -- b; printf "%s\n" "$1"' name a
bash --norc -c 'for i in 1 2 3; do a[i]=$((i * i)); done; echo ${a[*]} ${#a[@]}; [[ abc =~ b ]] && echo yes'
date -u -d @1000000000 +%F.%T.%A
date -d '2001-02-30'
dc < rpn.txt
dd if=../in/block.bin bs=64 skip=1 count=3 status=none
df --output=target /proc
diff -u ../in/words.txt ../in/shuffled.txt
diff -r ../in ../in
dir ../in
dircolors -p
dirname /a/b/c.txt d
dpkg --compare-versions 1.2-3 lt 1.10
dpkg-deb --help
dpkg-query -W dpkg
du -b ../in/words.txt
echo a b c
ed -s ../in/words.txt < ed.txt
envsubst < subst.txt
eqn < eqn.txt
expand -t 4 ../in/table.txt
expr 6 '*' 7
expr abcdef : 'ab\(..\)'
factor 1234567890123 97 1000000007
false
fc-pattern serif:size=12
file -b --mime-type ../in/sample.gz ../in/sample.c ../in/block.bin
find ../in -name '*.txt' -size -2k -printf '%f %s\n'
find ../in -maxdepth 1 -type f -regex '.*\.c' -print
flock --help
fmt -w 40 ../in/text.txt
fold -s -w 30 ../in/text.txt
getconf PAGE_SIZE
getent passwd root
getopt -o ab: -l long: -- -b 3 x --long=y -a
gettext 'no such message'
git --version
git hash-object ../in/words.txt
git diff --no-index --no-color ../in/words.txt ../in/shuffled.txt
gpg --version
gprof --version
grep -n -E '([a-z])\1' ../in/words.txt
grep -c the ../in/text.txt ../in/words.txt
grep -P '(?<=e)r\b' ../in/words.txt
grops -v
groups root
grotty -h
gzip -9nc ../in/text.txt
gzip -l ../in/sample.gz
gzip -dc < words.txt
head -n 5 ../in/words.txt ../in/text.txt
head -c 100 < text.txt
hexdump -C ../in/block.bin
hmac256 key ../in/words.txt
hostid
hwloc-calc --version
iconv -f UTF-8 -t UTF-16LE ../in/umlauts.txt
iconv -f UTF-8 -t ASCII ../in/umlauts.txt
id -u
infocmp -1 xterm
infotocap ../in/nothing
install -m 600 ../in/words.txt installed
ipcs -l
join -t : ../in/left.txt ../in/right.txt
jq -S '.rows | map(.value * 2) | add, length' ../in/sample.json
jq . ../in/text.txt
kill -l
last --help
ld -r -o joined.o ../in/sample.o
ld.bfd --version
link ../in/nothing here
ln -sv ../in/words.txt there
locale -k LC_NUMERIC
locale -a
logger --help
look -f th ../in/words.txt
ls -l --time-style=+%Y ../in/sum.bc
ls -1 --sort=size --color=always ../in
lscpu --help
lsblk --version
lz4 -c ../in/text.txt
m4 ../in/sample.m4
m4 -DN=12 < sample.m4
make -n -f ../in/sample.mk all
mawk 'BEGIN { for (i = 0; i < 5; ++i) { printf "%d %s\n", i, substr("abcdefg", i, 3) } }'
md5sum ../in/words.txt ../in/text.txt
mkdir -vp a/b/c
mkfifo --help
mktemp --dry-run --suffix=x nothingXX.y
msgcat -o made.po ../in/sample.po
msgfmt -o made.mo ../in/sample.po
msgunfmt -o made.po ../in/sample.mo
mv -v ../in/nothing there
namei ../in/words.txt
ninja --version
nl -ba ../in/text.txt
nm ../in/sample.o
nproc --all
numfmt --to=iec 1000 1000000 123456789
objcopy -O binary ../in/sample.o made.bin
objdump -d ../in/sample.o
objdump -dr -M intel --no-show-raw-insn ../in/sample.o
od -An -tx4 -w16 ../in/block.bin
openssl dgst -sha256 ../in/words.txt
openssl enc -aes-128-cbc -K 00112233445566778899aabbccddeeff -iv 00 -a -in ../in/words.txt
openssl asn1parse -genstr UTF8:hello
paste -d, ../in/left.txt ../in/right.txt
patch -o patched.txt ../in/words.txt ../in/words.patch
pathchk -p 'a b' ../in/words.txt
perl -e 'my %h; $h{$_ % 7}++ for 1..100; print join(",", map {"$_=$h{$_}"} sort keys %h), "\n"; exit 3'
perl -ne 'print scalar reverse' ../in/words.txt
perl -MData::Dumper -MPOSIX -MList::Util=sum -e '$Data::Dumper::Sortkeys=1; print Dumper({a=>[1..3], b=>floor(2.5), s=>sum(1..9)})'
pic < pic.txt
pinky --help
pkg-config --version
pr -t -2 -l 30 ../in/words.txt
preconv -e utf-8 ../in/umlauts.txt
printenv HOME
printf '%5.2f|%-8s|%x\n' 3.14159 abc 255
ps --version
pslog --help
ptx -w 60 ../in/text.txt
pwd -P --help
ranlib --version
readelf -hlSW ../in/sample.o
readelf -wi ../in/sample.o
readlink -f /usr/bin/../bin
realpath -m --relative-to=/usr/bin /usr/lib/x
rev ../in/words.txt
rm -v ../in/nothing
rmdir nothing
run-parts --version
sed -e 's/\([aeiou]\)/<\1>/g;5,10d' -e '$a the end' ../in/words.txt
sed -n '/e$/{=;p;w made.txt
}' ../in/words.txt
seq -w 1 3 40
setarch --list
sha1sum ../in/words.txt
sha224sum ../in/words.txt
sha256sum -c ../in/sums.txt
sha384sum ../in/words.txt
sha512sum ../in/words.txt
shred --help
shuf --random-source=../in/block.bin -n 5 ../in/words.txt
size -A ../in/sample.o
sleep 0.01
sort -t : -k 3n -k 1 ../in/passwd.txt
sort -u -r --parallel=4 ../in/words.txt
sort -c ../in/shuffled.txt
split -l 40 ../in/words.txt
sqlite3 :memory: < sample.sql
sqlite3 -header -csv made.db 'create table t(a, b); insert into t values (1, 2), (3, 4); select sum(a), total(b) from t;'
ssh -V
ssh-keygen -lf ../in/key.pub
stat -c '%n %s %F' ../in/words.txt
stdbuf --version
strings -n 6 ../in/block.bin
strip -o stripped.o ../in/sample.o
sum -s ../in/words.txt
systemd-escape 'a/b c'
tabs --version
tac ../in/words.txt
tail -n 3 ../in/words.txt ../in/text.txt
tail -c +20 < words.txt
tar -tvf ../in/sample.tar
tar -cf - -C ../in --sort=name --owner=0 --group=0 --mtime=@0 words.txt text.txt
tar -xOf ../in/sample.tar words.txt
taskset --version
tbl < tbl.txt
tclsh < sample.tcl
tee written.txt < words.txt
test 3 -lt 4 -a abc = abc
tic -I ../in/nothing
touch -d 2001-01-01 touched
tput -T xterm cols
tr -s 'a-m' 'A-M' < text.txt
troff -z ../in/nothing
true
truncate -s 1000 cut.bin
tsort ../in/pairs.txt
tty < empty
ul -i ../in/text.txt
uname -s
unexpand -a ../in/expanded.txt
uniq -c ../in/left.txt
unlink nothing
unxz -c ../in/sample.xz
unzip -l ../in/sample.zip
unzip -p ../in/sample.zip words.txt
users ../in/empty
vdir --time-style=+%Y ../in/sum.bc
wc ../in/words.txt ../in/text.txt ../in/block.bin
wc -L < text.txt
wget --version
whereis -l
who ../in/empty
xargs --version
xxd ../in/block.bin
xz -9ec ../in/text.txt
xz -t ../in/sample.xz
xzcat ../in/sample.bz2
yes --version
zdump -v -c 2000,2001 UTC
zip -X made.zip ../in/nothing
zipinfo ../in/sample.zip
zstd -19 -c ../in/text.txt
zstdcat ../in/sample.zst
clang-format-15 ../in/sample.c
ccache --version
gdb --version
tempfile --help
gold -r -o joined.o ../in/sample.o
vim -es -u NONE -c 'echo 6 * 7' -c q < empty
"""

# What cannot run, and what is said.
REFUSED = r"""
/usr/bin/python3 --version : is linked for one fixed address
gcc --version : is linked for one fixed address
node --version : is linked for one fixed address
llc --version : is linked for one fixed address
gunzip --help : is a script
rpcgen -h ../in/sample.x : a program that shares its process with other cells cannot duplicate it
passwd --help : is set-user-ID
su --help : is set-user-ID
newgrp : is set-user-ID
chage --help : is set-user-ID, set-group-ID
ldconfig -p : is linked with its own C library
ldd --version : is a script
"""


def inputs(folder):
    """The files of `in`; the same in every run."""
    folder.mkdir()
    dice = random.Random(7)
    letters = "etaoinshrdlu"
    words = ["".join(dice.choice(letters) for _ in range(dice.randrange(2, 9))) for _ in range(150)]
    text = "".join(" ".join(dice.choice(words) for _ in range(dice.randrange(3, 25))) + ".\n" + "\n" * (i % 4 == 3)
                   for i in range(40))
    files = {
        "words.txt": "\n".join(words) + "\n",
        "shuffled.txt": "\n".join(words[:30] + words[31:60] + ["new"] + words[60:]) + "\n",
        "text.txt": text + "a\tb\x0cc _\bu\n",
        "table.txt": "".join(f"row{i}\t{dice.randrange(1000)}\t{words[i]}\n" for i in range(30)),
        "left.txt": "".join(f"{i:03}:{words[i]}\n" for i in range(0, 60, 2)),
        "right.txt": "".join(f"{i:03}:{words[i]}\n" for i in range(0, 60, 3)),
        "passwd.txt": "".join(f"{words[i]}:x:{dice.randrange(2000)}:{i}\n" for i in range(25)),
        "expanded.txt": "".join(f"{'' if i % 2 else '        '}{words[i]:16}{words[i + 1]}\n" for i in range(20)),
        "umlauts.txt": "Grüße, señor – 日本\n",
        "pairs.txt": "a b\nb c\na d\nd c\n",
        "sum.bc": "scale=30\n4*a(1)\ndefine f(n) { if (n < 2) return 1; return n * f(n - 1); }\nf(50)\nquit\n",
        "rpn.txt": "20 k 2 v p 16 o 255 p q\n",
        "ed.txt": "1,3p\n/the/p\n$=\n2,4d\n,n\nq\nq\n",
        "subst.txt": "$HOME and ${NOTHING}.\n",
        "eqn.txt": ".EQ\nx = {a + b} over c\n.EN\n",
        "pic.txt": ".PS\nbox \"a\"; arrow; circle \"b\"\n.PE\n",
        "tbl.txt": ".TS\nl r.\na\t1\nbc\t23\n.TE\n",
        "symbols.txt": "_ZNSt6vectorIiSaIiEE9push_backEOi\n_Z1fv plain\n",
        "sample.m4": "define(`square', `eval($1 * $1)')square(N) ifdef(`N', `N given', `no N')\n"
            "include(../in/pairs.txt)\n",
        "sample.mk": "all: a b\n\techo $@ $^\na b:\n\techo $@\n",
        "sample.json": json.dumps({"rows": [{"name": w, "value": i} for i, w in enumerate(words[:20])]}),
        "sample.sql": "create table t(a integer, b text);\n" + "".join(
            f"insert into t values ({i}, '{words[i]}');\n" for i in range(40)) + "select b, count(*) from t group by "
            "substr(b, 1, 1);\nselect printf('%.3f', avg(a)) from t;\nselect nothing;\n",
        "sample.po": 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\nmsgid "yes"\nmsgstr "ja"\n',
        "sample.tcl": "for {set i 0} {$i < 10} {incr i} { lappend l [expr {$i ** 2}] }\nputs [lsort -decreasing $l]\n"
            "puts [string toupper abc]\nexit 4\n",
        "sample.x": "struct pair { int a; string b<>; };\nprogram P { version V { pair get(int) = 1; } = 1; } = 77;\n",
        "sample.c": "#include <stdio.h>\n#define N 3\nstruct s { int a; };\n/* said */\n"
            "int add(int a, int b) {return a+b;}\nint main(void) { puts(gettext(\"yes\")); return add(N, 4); }\n",
        "sample.s": ".text\n.globl add\nadd: lea (%rdi,%rsi), %eax\n ret\n.data\nvalue: .quad add\n",
        "script.cmake": "foreach(i RANGE 1 5)\n  math(EXPR s \"${i} * ${i}\")\n  message(STATUS \"${i}: ${s}\")\n"
            "endforeach()\nstring(REGEX REPLACE \"([a-z]+)\" \"<\\\\1>\" r \"ab 12 cd\")\nmessage(\"${r}\")\n"
            "file(SHA256 ${CMAKE_CURRENT_LIST_DIR}/words.txt h)\nmessage(FATAL_ERROR \"${h}\")\n",
        "key.pub": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIE9FI0ZhPRCLoKAMXPCQDMFXpPDEyBzG1yP2Zg0jQ2bK someone\n",
        "empty": "",
    }
    for name, content in files.items():
        (folder / name).write_text(content, encoding="utf-8")
    data = bytes(dice.randrange(256) for _ in range(4096)) + b"some words between" + bytes(100)
    (folder / "block.bin").write_bytes(data[:1000])
    (folder / "block2.bin").write_bytes(data[:500] + b"xyz" + data[503:1000])
    plain = (folder / "text.txt").read_bytes()
    (folder / "sample.gz").write_bytes(gzip.compress(plain, mtime=0))
    (folder / "sample.bz2").write_bytes(bz2.compress(plain))
    (folder / "sample.xz").write_bytes(lzma.compress(plain))
    with tarfile.open(folder / "sample.tar", "w") as tar, zipfile.ZipFile(folder / "sample.zip", "w") as archive:
        for name in ("words.txt", "table.txt"):
            entry = tarfile.TarInfo(name)
            entry.size = (folder / name).stat().st_size
            with open(folder / name, "rb") as file:
                tar.addfile(entry, file)
            archive.writestr(zipfile.ZipInfo(name), (folder / name).read_text())
    made = {
        "sample.o": "as -o sample.o sample.s",
        "sample.a": "ar rcD sample.a sample.o words.txt",
        "sample.mo": "msgfmt -o sample.mo sample.po",
        "sample.zst": "zstd -q text.txt -o sample.zst",
        "sample.b64": "base64 words.txt",
        "sums.txt": "sha256sum ../in/words.txt",
        "words.patch": "diff words.txt shuffled.txt",
    }
    for name, command in made.items():
        if shutil.which(command.split()[0]) is None:
            continue
        ran = subprocess.run(command.split(), cwd=folder, stdout=subprocess.PIPE, check=False)
        if not (folder / name).exists():
            (folder / name).write_bytes(ran.stdout)


class Line:
    """A line of a table: the words of a command, and the file that it reads."""

    def __init__(self, text):
        self.text = text
        self.words = shlex.split(text)
        self.input = "empty"
        if "<" in self.words:
            at = self.words.index("<")
            self.input = self.words[at + 1]
            del self.words[at:]

    def program(self):
        return shutil.which(self.words[0], path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def lines_of(table):
    """Its commands; a line that ends inside quotation marks goes on in the next one."""
    lines, begun = [], ""
    for part in table.strip().splitlines():
        begun += ("\n" if begun else "") + part
        if begun.count("'") % 2 == 0:
            lines.append(begun)
            begun = ""
    return lines


class Bench:
    """Where commands run."""

    def __init__(self, folder, build):
        self.folder = folder
        self.aprun = str(pathlib.Path(build).resolve() / "bin" / "aprun")
        self.environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "TZ": "UTC", "HOME": str(folder),
                            "TERM": "xterm", "COLUMNS": "80"}
        inputs(folder / "in")

    def fresh(self, name):
        path = self.folder / name
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
        return path

    def outcome(self, name, status):
        """What lies in the folder `name` and was written to the streams of that name."""
        own = self.folder / name
        files = {str(path.relative_to(own)): os.readlink(path).encode() if path.is_symlink() else path.read_bytes()
                 for path in own.rglob("*") if path.is_symlink() or path.is_file()}
        for stream in ("out", "err"):
            path = self.folder / f"{stream}.{name}"
            files[f"({stream})"] = path.read_bytes() if path.exists() else b""
            path.unlink(missing_ok=True)
        return running.Outcome(status, files)

    def alone(self, line, program):
        own = self.fresh("alone")
        with open(self.folder / "in" / line.input, "rb") as source, open(self.folder / "out.alone", "wb") as out, \
             open(self.folder / "err.alone", "wb") as err:
            ran = subprocess.run([program, *line.words[1:]], cwd=own, env=self.environment, check=False, stdin=source,
                                 stdout=out, stderr=err, timeout=running.TIMEOUT_SECONDS)
        return self.outcome("alone", ran.returncode if ran.returncode >= 0 else 128 - ran.returncode)

    def cells(self, line, program):
        """Outcomes by cell, and what aprun said itself."""
        for cell in range(CELLS):
            self.fresh(str(cell))
        ran = subprocess.run(
            [self.aprun, "-n", str(CELLS), "--output", "out.{cid}", "--error", "err.{cid}", "--wd", "{cid}", "--input",
             f"in/{line.input}", "--timeout", str(running.TIMEOUT_SECONDS), program, *line.words[1:]],
            cwd=self.folder, env=self.environment, check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, timeout=2 * running.TIMEOUT_SECONDS)
        said = ran.stdout.decode(errors="replace")
        statuses = running.statuses_in(said, CELLS, ran.returncode)
        return {cell: self.outcome(str(cell), statuses.get(cell)) for cell in range(CELLS)}, said


def main(build, *wanted):
    with tempfile.TemporaryDirectory(prefix="aplib-stock-") as name:
        bench = Bench(pathlib.Path(name), build)
        compared, missing, complaints = 0, [], []
        for text in lines_of(PROGRAMS):
            line = Line(text)
            if wanted and not any(word in text for word in wanted):
                continue
            program = line.program()
            if program is None:
                missing.append(line.words[0])
                continue
            expected = bench.alone(line, program)
            got, said = bench.cells(line, program)
            result = running.compare(text, dict.fromkeys(got, expected), got, said)
            compared += 1
            if result.complaints:
                complaints.append("\n  ".join([text, *result.complaints[:1], *result.complaints[-1:]]))
        for text in lines_of(REFUSED):
            command, reason = text.split(" : ")
            line = Line(command)
            program = line.program()
            if wanted and not any(word in text for word in wanted):
                continue
            if program is None:
                missing.append(line.words[0])
                continue
            _, said = bench.cells(line, program)
            if reason not in said:
                complaints.append(f"{command}: not refused with '{reason}', but: {said}")
    print(f"compared: {compared} commands; not on this computer: {' '.join(sorted(set(missing))) or 'none'}")
    if compared < AT_LEAST and not wanted:
        complaints.append(f"at least {AT_LEAST} commands should be here")
    for complaint in complaints:
        print("FAILED:", complaint)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
