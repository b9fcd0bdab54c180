# SPDX-License-Identifier: MIT
"""Rules about the shape of the tree: how long a file, a header and a function may be, how many files there are, and
which are too small."""

import posixpath
import re

from layers import INCLUDE, resolve

FILE_LINES_MAX = 900
HEADER_LINES_MAX = 300
SOURCE_FILES_MAX = 504  # of src/, without the libraries of their own
OWN_LIBRARIES = {"gridrpc", "mpi"}
FUNCTION_LINES_MAX = 70
PAIR_LINES_MIN = 120  # of a header and its source file, where one file includes them

# Files that may be longer, with the reason.
LONG_FILES = {}
# Functions that may be longer: (file, name), with the reason.
LONG_FUNCTIONS = {}
# Small pairs with one includer that stand by themselves, by their header, with the reason.
SMALL_PAIRS = {
    "src/arch/x86_64/elf.hpp": "src/arch/elf.hpp chooses it among the machines'",
    "src/kernel/errand.hpp": "front ends see the kernel's API alone (layers.py)",
}


def check_size(repository, _):
    complaints = []
    for path in repository.files:
        if not (path.suffix in {".c", ".cpp", ".h", ".hpp"} or repository.is_script(path)) or str(path) in LONG_FILES:
            continue
        limit = HEADER_LINES_MAX if path.suffix in {".h", ".hpp"} else FILE_LINES_MAX
        count = len(repository.text(path).splitlines())
        if count > limit:
            complaints.append(f"{path}: {count} lines, the limit is {limit}; split it by noun")
    return complaints


def check_files(repository, _):
    count = sum(path.parts[0] == "src" and path.parts[1] not in OWN_LIBRARIES for path in repository.files)
    return (
        [f"src/: {count} files, the limit is {SOURCE_FILES_MAX}; merge what is read together"]
        if count > SOURCE_FILES_MAX
        else []
    )


def check_pairs(repository, _):
    """A small header and source file that only one file includes are read with it, and belong into it."""
    files = {str(path) for path in repository.files}
    includers = {}
    for path in map(str, repository.cxx()):
        for match in INCLUDE.finditer(repository.text(path)):
            target = resolve(files, path, match[2])
            if target is not None and posixpath.splitext(target)[0] != posixpath.splitext(path)[0]:
                includers.setdefault(target, set()).add(path)
    complaints = []
    for header in sorted(path for path in files if path.startswith("src/") and path.endswith(".hpp")):
        source = header[: -len(".hpp")] + ".cpp"
        users = {user for user in includers.get(header, ()) if user.startswith("src/")}
        # A test that uses the pair alone is a second reader.
        if source not in files or header in SMALL_PAIRS or len(users) != 1 or len(includers[header]) != 1:
            continue
        count = sum(len(repository.text(path).splitlines()) for path in (header, source))
        if count < PAIR_LINES_MIN:
            complaints.append(
                f"{header}: with {posixpath.basename(source)} {count} lines, and only {users.pop()} includes it; merge"
                " them there, or give the reason in SMALL_PAIRS of tests/tidy/shape_rules.py"
            )
    return complaints


NO_FUNCTION = re.compile(
    r"\s*(?:namespace|class|struct|union|enum|extern|if|for|while|switch|else|do|try|catch|case|default|return|"
    r"template ?<[^(]*> (?:class|struct)|constexpr|INSTANTIATE_TEST_SUITE_P)\b|\s*[}\"]"
)
RAW_STRING = re.compile(r'R"(\w*)\(.*?\)\1"', re.DOTALL)
TEXT = "\x00"  # a line of a program within a program
BEFORE_HEAD = re.compile(r"^$|.*[;{}]$|\s*(?:#|//|/\*|\*|public:|private:|protected:)")


def functions(text):
    """(line, name, head, body) of the functions in formatted C and C++: what begins at most 4 columns in, holds a
    parameter list and ends with a brace, up to the brace at the same depth. The body is its lines, without those of
    programs in raw strings."""
    lines = RAW_STRING.sub(lambda match: '""' + f"\n{TEXT}" * match[0].count("\n"), text).split("\n")
    for number, line in enumerate(lines):
        if not line.endswith("{") or "//" in line:
            continue
        begin = number
        while begin > 0 and not BEFORE_HEAD.match(lines[begin - 1]):
            begin -= 1
        head = " ".join(lines[begin : number + 1])
        indent = re.match(" *", head)[0]
        name = re.search(r"([~\w:]+(?: ?[=<>!+\-*/\[\]&|]+)?)\s*\(", head)
        if name is None or len(indent) > 4 or NO_FUNCTION.match(head):
            continue
        test = re.match(r"\s*TEST\w*\((\w+), (\w+)\)", head)
        for end in range(number + 1, len(lines)):
            if lines[end].startswith(indent + "}"):
                body = [(place + 1, lines[place]) for place in range(number + 1, end) if TEXT not in lines[place]]
                yield begin + 1, f"{test[1]}.{test[2]}" if test else name[1], head, body
                break


def check_functions(repository, _):
    complaints = []
    for path in repository.cxx():
        for line, name, _, body in functions(repository.text(path)):
            if len(body) > FUNCTION_LINES_MAX and (str(path), name) not in LONG_FUNCTIONS:
                complaints.append(
                    f"{path}:{line}: {name} has {len(body)} lines, the limit is {FUNCTION_LINES_MAX}; give its steps"
                    " names of their own"
                )
    return complaints


NOEXCEPT = re.compile(r"\) (?:const )?noexcept\b(?! ?\()")
SHORT_NOEXCEPT = re.compile(r"\) (?:const )?noexcept (?:override )?\{.*\}")
GROWS = re.compile(r"(?:\.|->)(?:push_back|emplace_back|emplace|try_emplace|insert)\(")


def check_noexcept(repository, _):
    """What grows a container may find no memory, and then ends the process in a function that is noexcept. Room is
    reserved beforehand, where it may fail; "reserved" on the line says so, and where. Or a try catches it."""
    complaints = []
    for path in repository.cxx():
        if path.parts[0] != "src":
            continue
        suspects = [
            (number, line)
            for number, line in enumerate(repository.text(path).split("\n"), 1)
            if SHORT_NOEXCEPT.search(line)
        ]
        for _, _, head, body in functions(repository.text(path)):
            catches = None  # the indent of a try around the line
            for number, line in body if NOEXCEPT.search(head) else []:
                indent = len(line) - len(line.lstrip())
                if catches is None and line.endswith(" try {"):
                    catches = indent
                elif indent == catches:
                    catches = None
                elif catches is None:
                    suspects.append((number, line))
        for number, line in sorted(set(suspects)):
            if GROWS.search(line.split("//")[0]) and "reserved" not in line:
                complaints.append(
                    f"{path}:{number}: may find no memory, in a function that is noexcept; reserve room where that may"
                    ' fail, and say "reserved by ..." on the line, or catch it'
                )
    return complaints
