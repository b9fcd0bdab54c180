# SPDX-License-Identifier: MIT
"""Programs that read programs: interpreters and translators."""

import pathlib
import re

from program import Program
from running import Run

WORDS = (
    "cell grid message task host processor slot mapping text data symbol version relocation library instance thread "
    "ring barrier sum torus broadcast receive send wait park wake"
).split()


def sentence(random, words=9):
    return " ".join(random.choice(WORDS) for _ in range(words))


# ---- lua, with the module lpeg loaded by dlopen
# -------------------------------------------------------------------------------

LUA_SCRIPT = r"""
package.cpath = "./?.so"
local lpeg = require "lpeg"
local cid = tonumber(arg[1])
math.randomseed(SEED)
print(_VERSION, arg[0], #arg, os.getenv("PROGRAM_TEST"), os.setlocale(nil), os.setlocale("C"))
print(os.date("!%Y-%m-%d %H:%M:%S %a %b", SEED * 86400), os.time{year = 2000 + cid, month = 1, day = 1, hour = 0})

-- garbage, closures, strings, coroutines
local function queens(n)
  local found, columns, up, down = 0, {}, {}, {}
  local function place(row)
    if row > n then found = found + 1 return end
    for c = 1, n do
      if not (columns[c] or up[row + c] or down[row - c]) then
        columns[c], up[row + c], down[row - c] = true, true, true
        place(row + 1)
        columns[c], up[row + c], down[row - c] = nil, nil, nil
      end
    end
  end
  place(1)
  return found
end
print("queens", queens(5 + cid % 4))

local numbers = {}
for i = 1, 2000 do numbers[i] = math.random(1, 100000) end
table.sort(numbers, function(a, b) return a < b end)
print(numbers[1], numbers[1000], numbers[2000], string.format("%.14g %a", math.sin(SEED) / 3, 1 / (cid + 1)))

local primes = coroutine.wrap(function()
  local composite = {}
  for n = 2, 20000 do
    if not composite[n] then
      coroutine.yield(n)
      for m = n * n, 20000, n do composite[m] = true end
    end
  end
end)
local count, sum = 0, 0
for p in primes do count, sum = count + 1, sum + p end
print("primes", count, sum)

-- errors thrown and caught: setjmp and longjmp
local caught = 0
for i = 1, 500 do
  local good, message = pcall(function() if i % 2 == cid % 2 then error({code = i}) end return i end)
  if not good then caught = caught + message.code end
end
print("caught", caught, select(2, pcall(function() local t = nil; return t.x end)))
print(select(2, pcall(string.rep, "x", -1)), select(2, load("x = = 1", "chunk")))

-- the module
local number = lpeg.R("09") ^ 1 / tonumber
local list = lpeg.Cf(lpeg.Ct("") * lpeg.P { number * ("," * number) ^ 0 }, function(t, v) t[#t + 1] = v * 2 return t end)
print("lpeg", lpeg.version and (type(lpeg.version) == "function" and lpeg.version() or lpeg.version),
      table.concat(list:match(cid .. ",2,3,44,505"), " "))

-- input, files
local lines = 0
for line in io.lines() do
  lines = lines + 1
  io.write(lines, ": ", (line:gsub("(%w+)", function(w) return w:len() % 2 == 0 and w:upper() or w:reverse() end)), "\n")
end
local file <close> = assert(io.open("dir/" .. cid .. "/result.txt", "w"))
file:setvbuf("full", 64)
for i = 1, 200 do file:write(i * SEED, i % 10 == 0 and "\n" or " ") end
file:seek("set", 10)
file:write("[", cid, "]")
assert(os.rename("dir/" .. cid .. "/old.txt", "dir/" .. cid .. "/new.txt"))
io.stderr:write("cell ", cid, " was here\n")
setmetatable({}, {__gc = function() print("collected at the end of", cid) end})
"""
LUA_ENDINGS = (
    "",
    "error('no luck in ' .. cid)",
    "os.exit(cid % 7 + 1)",
    "os.exit(true, true)",
    "local function f() return f() + 1 end f()",
    "error(setmetatable({}, {__tostring = function() return 'odd' end}))",
    "os.exit(false)",
    "io.stdout:close() print('x')",
)


def build_lua(tree, archives):
    tree.unpack(archives[0])
    # The Makefile's own rules. On Linux it asks for dlopen and exports the program's symbols for modules.
    tree.make("-C", "src", "linux", f"CC={tree.cc} -std=gnu99")
    tree.unpack(archives[1], under="lpeg")
    tree.make("-C", "lpeg", "linux", f"CC={tree.cc}", "LUADIR=../src/")


def documented_study():
    """The script of docs/third-party.md, which must work as shown there."""
    page = (pathlib.Path(__file__).resolve().parents[3] / "docs" / "third-party.md").read_text(encoding="utf-8")
    return re.search(r"```lua\n(.*?)```", page, re.DOTALL)[1]


def lua_inputs(own, cid, random, _):
    (own / "study.lua").write_text(documented_study(), encoding="utf-8")
    script = LUA_SCRIPT.replace("SEED", str(random.randrange(1, 5000))) + LUA_ENDINGS[cid % len(LUA_ENDINGS)] + "\n"
    (own / "script.lua").write_text(script, encoding="utf-8")
    (own / "old.txt").write_text(sentence(random), encoding="utf-8")
    (own / "stdin").write_text("".join(sentence(random) + "\n" for _ in range(20 + cid)), encoding="utf-8")


LUA = Program(
    name="lua", kind="interpreter; dlopens a module", language="C", build_system="its Makefile, CC=apcc",
    packages=("lua5.4", "lua-lpeg"), build=build_lua, inputs=lua_inputs, counted=("src/lua", "lpeg/lpeg.so"),
    runs=(Run("script", ("dir/{cid}/script.lua", "{cid}"), "src/lua", beside=("lpeg/lpeg.so",), stdin="stdin",
              environment=(("PROGRAM_TEST", "yes"),)),
          Run("study", ("dir/{cid}/study.lua", "{cid}"), "src/lua")))


# ---- mawk
# ---------------------------------------------------------------------------------------------------------------------

AWK_SCRIPT = r"""
function fibonacci(n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2) }
BEGIN {
  srand(seed); srand(seed)
  for (i = 0; i < 5; i++) printf "%.6f ", rand()
  printf "\n%s %s %s\n", ARGV[0], ENVIRON["PROGRAM_TEST"], fibonacci(15 + cell % 6)
  split("the quick brown fox", parts); print toupper(substr(parts[2], 2)), index("torus", "r"), length(parts)
  FS = "[ \t]+"
}
{
  for (i = 1; i <= NF; i++) { words[$i]++; lengths += length($i) }
  gsub(/[aeiou]+/, "<&>"); print NR ": " $0 > out
  if (match($0, /s<[a-z]+>/)) matched += RSTART * RLENGTH
}
NR % 50 == 0 { printf "at %d\n", NR > "/dev/stderr" }
END {
  close(out)
  while ((getline line < out) > 0) lines++
  n = 0
  for (w in words) names[++n] = w
  for (i = 2; i <= n; i++) for (j = i; j > 1 && names[j - 1] > names[j]; j--) { t = names[j]; names[j] = names[j - 1]; names[j - 1] = t }
  for (i = 1; i <= n; i++) printf "%-12s %5d %8.3e %x\n", names[i], words[names[i]], words[names[i]] / NR, words[names[i]] * 77
  print lines, lengths, matched, sin(seed), exp(1), int(-3.7), sprintf("%c%5.2f|%-6s|", 65 + cell % 26, atan2(1, seed), "ab")
  for (i = 0; i < 20000; i++) x = (x * 1103 + i) % 65521
  print x, rand(), int(rand() * 1000)
  if (cell % 8 == 5) print substr("x", 1, 2) / 0
  exit cell % 5
}
"""


def build_mawk(tree, archives):
    tree.unpack(archives[0])
    # configure runs programs it has compiled, to learn how floating-point exceptions behave. Where it finds
    # arc4random, awk's random numbers take no seed, and no two runs would be equal.
    tree.run("./configure", CC=tree.cc, CPPFLAGS="-Darc4random=no_such_function")
    tree.make("mawk", f"CC={tree.cc}")


def mawk_inputs(own, cid, random, _):
    (own / "script.awk").write_text(AWK_SCRIPT, encoding="utf-8")
    (own / "stdin").write_text("".join(sentence(random, random.randrange(1, 14)) + "\n" for _ in range(150 + 10 * cid)),
                               encoding="utf-8")


MAWK = Program(
    name="mawk",
    kind="interpreter",
    language="C",
    build_system="configure (own), CC=apcc",
    packages=("mawk",),
    build=build_mawk,
    inputs=mawk_inputs,
    counted=("mawk",),
    runs=(
        Run(
            "script",
            ("-v", "cell={cid}", "-v", "seed=1{cid}", "-v", "out=dir/{cid}/marked", "-f", "dir/{cid}/script.awk"),
            "mawk",
            stdin="stdin",
            environment=(("PROGRAM_TEST", "yes"),),
        ),
    ),
)


# ---- f2c
# ----------------------------------------------------------------------------------------------------------------------

def build_f2c(tree, archives):
    tree.unpack(archives[0])
    tree.make("-C", "src", "-f", "makefile.u", "f2c", f"CC={tree.cc}")


def f2c_inputs(own, cid, random, _):
    size = random.randrange(10, 90)
    lines = [f"      PROGRAM P{cid}", f"      INTEGER N, I, J{cid}", f"      PARAMETER (N={size})",
             f"      DOUBLE PRECISION A(N,N), B(N), S{cid}", f"      COMMON /BLK{cid}/ A, B",
             "      REAL E(4)", "      INTEGER K(4)", "      EQUIVALENCE (E, K)", "      SAVE E",
             f"      CHARACTER*{cid + 8} T", f"      DATA E /4*{cid}.5/", f"      T = '{random.choice(WORDS)[:8]}'"]
    label = 10
    for _ in range(6 + cid):
        lines += [
            f"      DO {label} I = 1, N",
            f"        B(I) = B(I) + {random.random():.4f}D0*A(I,{random.randrange(1, size)})",
            f"        IF (B(I) .GT. {random.randrange(9)}) S{cid} = S{cid} + SQRT(B(I))",
            f" {label:3}  CONTINUE",
            f"      WRITE (6, {label + 5}) T, S{cid}, K({random.randrange(1, 5)})",
            f" {label + 5:3}  FORMAT (A, F10.{cid % 9}, I6)",
        ]
        label += 10
    lines += [
        f"      CALL SUB{cid}(A, N, *900)",
        " 900  STOP",
        "      END",
        f"      SUBROUTINE SUB{cid}(A, N, *)",
        "      INTEGER N",
        "      DOUBLE PRECISION A(N,*)",
        "      ENTRY OTHER(A, N, *)",
        f"      A(1,1) = N**{cid % 5 + 2}",
        "      RETURN 1",
        "      END",
    ]
    if cid % 8 == 3:
        lines.insert(12, "      GO TO 12345")
    if cid % 8 == 6:
        lines.insert(9, "      INTEGR BAD (")
    (own / "source.f").write_text("\n".join(lines) + "\n", encoding="utf-8")


F2C = Program(
    name="f2c",
    kind="translator from Fortran to C",
    language="C",
    build_system="its Makefile, CC=apcc",
    packages=("f2c",),
    build=build_f2c,
    inputs=f2c_inputs,
    counted=("src/f2c",),
    runs=(
        Run("translate", ("-A", "-P", "-r8", "-ddir/{cid}", "dir/{cid}/source.f"), "src/f2c"),
        Run("standard output", ("-g", "-C"), "src/f2c", stdin="source.f", in_folder=True),
    ),
)
