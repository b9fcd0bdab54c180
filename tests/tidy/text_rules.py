# SPDX-License-Identifier: MIT
"""Rules that look at one file's text: formatting, licence line, width, words, and that the README shows what it
says."""

import ast
import re
import shutil
import subprocess

from repository import Skip

COLUMNS_MAX = 120

# (pattern, where it counts, what to do instead)
CODE, PRODUCT, ALL = "code", "product", "all"  # C and C++; the same without tests and benchmarks; every text
FORBIDDEN = [
    (
        r"/(?:home|work|root|Users)/\w",
        ALL,
        "a path of one's own machine: take it as an argument or from the environment",
    ),
    (r"\bFIXME\b|\bXXX\b", ALL, "finish it, or file an issue and say what is missing"),
    (r"\busing namespace std;", CODE, "write std:: where it is meant"),
    (r"\b(?:sprintf|strcpy|strcat|gets)\s*\(", CODE, "use fmt, std::string or std::memcpy with a size"),
    (r"\b(?:std::)?rand\s*\(\)", CODE, "use a seeded std::mt19937_64 and print the seed"),
    (r"\bvolatile\b", PRODUCT, "use std::atomic with a named memory order"),
    (
        r"\b__(?:x86_64|i386|aarch64|arm)__\b|\b\w*mmintrin\b|\bR_X86_64_|\bR_AARCH64_|\bEM_X86_64\b|\bREG_R[A-Z0-9]+\b"
        r"|\b__builtin_ia32_|\basm\b|\b__asm__ volatile\b",
        PRODUCT,
        "only src/arch knows the machine",
    ),
    (r"\bstd::endl\b", PRODUCT, "write '\\n'; flush where it is meant"),
]
# Where a forbidden word is right, with its reason.
EXCEPTIONS = [
    (r"^tests/tidy/", r".*", "the rules name what they forbid"),
    (
        r"^(?:src/arch|apps/scg|tests|bench)/",
        r"__asm__ volatile|asm volatile",
        "the compiler's own word for inline assembly with effects",
    ),
    (
        r"^(?:src/arch|apps/scg)/",
        r"__x86_64__|\w*mmintrin|R_X86_64_|EM_X86_64|REG_R|__builtin_ia32_|asm\(",
        "src/arch knows the machine, and so do the kernels of scg",
    ),
    (r".*", r"asm\(\"\" :", "no instruction: the optimizer must not know what a value is"),
    (r".*", r"volatile (?:std::)?sig_atomic_t", "what the standard asks for in a signal handler"),
    (
        r"^(?:include/aplib|src/cellos)/(?:cellos_)?one_sided\.",
        r"volatile (?:int|long long)\*",
        "C programs may declare their flags so",
    ),
]


def check_format(repository, _):
    tool = shutil.which("clang-format-15")
    if tool is None:
        raise Skip("needs the tool clang-format-15: other versions format differently")
    files = [str(path) for path in repository.cxx()]
    run = subprocess.run(
        [tool, "--dry-run", "--Werror", *files], cwd=repository.root, text=True, stderr=subprocess.PIPE
    )
    wrong = sorted(set(re.findall(r"^(\S+?):\d+:\d+: error:", run.stderr, re.MULTILINE)))
    complaints = [f"{path}: not formatted; run clang-format-15 -i {path}" for path in wrong]
    return complaints or ([run.stderr] if run.returncode != 0 else [])


def check_licence(repository, _):
    complaints = []
    for path in repository.files:
        if not (
            path.suffix in {".c", ".cpp", ".h", ".hpp"} or repository.is_script(path) or path.name == ".clang-format"
        ):
            continue
        lines = repository.text(path).splitlines()[:2]
        if lines and lines[0].startswith("#!"):
            lines = lines[1:]
        if not lines or not re.match(r"(//|#|/\*) SPDX-License-Identifier: MIT( \*/)?$", lines[0]):
            complaints.append(
                f"{path}:1: the first line must be '// SPDX-License-Identifier: MIT' in the file's comment syntax"
            )
    return complaints


def lines_of_texts(path, text):
    """Numbers of the lines inside raw strings of C++, and inside texts of Python that are not documentation: programs
    and messages, whose lines must not be broken."""
    numbers = set()
    if path.suffix in {".cpp", ".hpp"}:
        for match in re.finditer(r'R"(\w*)\(.*?\)\1"', text, re.DOTALL):
            begin = text[: match.start()].count("\n") + 1
            numbers |= set(range(begin, begin + match[0].count("\n") + 1))
    elif path.suffix == ".py":
        tree = ast.parse(text)
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
        documents = [node for node in ast.walk(tree) if isinstance(node, documented)]
        pages = {node.body[0].value for node in documents if ast.get_docstring(node) is not None}
        lines = text.splitlines()
        for node in ast.walk(tree):
            if not isinstance(node, (ast.Constant, ast.JoinedStr)) or node in pages:
                continue
            if node.end_lineno > node.lineno and '"""' in lines[node.lineno - 1]:
                numbers |= set(range(node.lineno, node.end_lineno + 1))
    return numbers


def check_width(repository, _):
    """Checks the width of lines. Rows of tables and code in pages, and lines with an address, may be longer."""
    complaints = []
    cxx = set(repository.cxx())
    for path in repository.files:
        if not (path in cxx or repository.is_script(path) or path.suffix in {".md", ".json", ".toml"}):
            continue
        if all(len(line) <= COLUMNS_MAX for line in repository.text(path).splitlines()):
            continue
        texts = lines_of_texts(path, repository.text(path))
        shown = False  # inside of a code block of a page: what a program prints stays as it is
        for number, line in enumerate(repository.text(path).splitlines(), 1):
            shown ^= path.suffix == ".md" and line.lstrip().startswith("```")
            if len(line) <= COLUMNS_MAX or shown or number in texts or "http://" in line or "https://" in line:
                continue
            if path.suffix == ".md" and line.startswith(("|", "    ")):
                continue
            complaints.append(f"{path}:{number}: {len(line)} columns, the limit is {COLUMNS_MAX}")
    return complaints


def check_fences(repository, _):
    """A line of ``` that joins its neighbour makes code of all the text behind it: for readers, and for these rules."""
    complaints = []
    for path in repository.files:
        if path.suffix != ".md":
            continue
        opened = None
        for number, line in enumerate(repository.text(path).splitlines(), 1):
            if "```" not in line:
                continue
            if not re.fullmatch(r" *```[\w+-]*" if opened is None else r" *```", line):
                complaints.append(f"{path}:{number}: ``` beside text; it begins or ends a block on a line of its own")
            elif opened is None:
                opened = number
            else:
                opened = None
        if opened is not None:
            complaints.append(f"{path}:{opened}: the block that begins here does not end; close it by ```")
    return complaints


def check_words(repository, _):
    complaints = []
    cxx = set(repository.cxx())
    for path in repository.files:
        if not (path in cxx or repository.is_script(path) or path.suffix in {".md", ".json", ".txt"}):
            continue
        for number, line in enumerate(repository.text(path).splitlines(), 1):
            for pattern, where, instead in FORBIDDEN:
                if where != ALL and path not in cxx or where == PRODUCT and path.parts[0] in {"tests", "bench"}:
                    continue
                code = line if where == ALL else line.split("//")[0]
                if not re.search(pattern, code):
                    continue
                if any(re.match(name, str(path)) and re.search(text, line) for name, text, _ in EXCEPTIONS):
                    continue
                complaints.append(f"{path}:{number}: {line.strip()}\n    {instead}")
    return complaints


def check_readme(repository, _):
    """The README's program and its output are examples/hello.cpp and hello.expected. Another test runs the program and
    compares."""
    readme = repository.text("README.md")
    blocks = re.findall(r"```cpp\n(.*?)```", readme, re.DOTALL)
    program = repository.text("examples/hello.cpp").split("\n", 1)[1].lstrip("\n")
    complaints = []
    if program not in blocks:
        complaints.append(
            "README.md: its program differs from examples/hello.cpp (from the second line on); copy the file into it"
        )
    if f"```text\n{repository.text('examples/hello.expected')}```" not in readme:
        complaints.append(
            "README.md: the program's output differs from examples/hello.expected, which a test compares with a run"
        )
    if len(program.splitlines()) > 15:
        complaints.append(
            f"examples/hello.cpp: {len(program.splitlines())} lines after the licence line; 15 are promised"
        )
    for command in ("scripts/demo", "scripts/test"):
        if command not in readme:
            complaints.append(f"README.md: does not name {command}")
    return complaints
