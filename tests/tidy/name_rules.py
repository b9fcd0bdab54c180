# SPDX-License-Identifier: MIT
"""Rules about names: the paths that comments and pages name exist, and each thing has one word (the glossary of
ARCHITECTURE.md)."""

import re

PATH = re.compile(r"(?<![\w/.$~<{*-])(?:src|tests|docs|include|apps|bench|examples|scripts|cmake)/[\w./*-]*[\w*]")
FILE = re.compile(r"(?<![\w/.$~<{*-])(?:[\w-]+/)*\w[\w-]*\.(?:cpp|hpp|h|c|py|md)\b(?![\w*])")
# Files of others that comments name.
FOREIGN = {"elf.h", "kex.c", "libgomp_g.h", "packet.c", "ssh.c", "sshconnect.c"}
# Where names are examples, or come into being while something runs.
NOT_OURS = re.compile(r"^(?:tests/tidy/|CHANGELOG\.md)")

GLOSSARY = "ARCHITECTURE.md"


def known_names(repository):
    """Every file and folder, by its path and by each end of it."""
    names = set()
    for path in repository.files:
        for end in range(1, len(path.parts) + 1):
            for begin in range(end):
                names.add("/".join(path.parts[begin:end]))
    return names


def comments(path, text):
    """(line number, comment) of a source file or script; of a page, every line outside of code blocks."""
    if path.suffix == ".md":
        shown = False
        for number, line in enumerate(text.splitlines(), 1):
            shown ^= line.lstrip().startswith("```")
            if not shown:
                yield number, line
        return
    mark = re.compile(r"//.*|/\*.*|^\s*\*.*" if path.suffix in {".c", ".cpp", ".h", ".hpp"} else r"(?:^|\s)#.*")
    for number, line in enumerate(text.splitlines(), 1):
        match = mark.search(line)
        if match:
            yield number, match[0]


def check_paths(repository, _):
    names = known_names(repository)
    complaints = []
    for path in repository.files:
        if NOT_OURS.match(str(path)):
            continue
        if not (path.suffix in {".c", ".cpp", ".h", ".hpp", ".md"} or repository.is_script(path)):
            continue
        for number, comment in comments(path, repository.text(path)):
            found = set(PATH.findall(comment))
            if path.suffix != ".md":
                found |= {name for name in FILE.findall(comment) if name not in FOREIGN}
            for name in sorted(found):
                exists = any(repository.root.glob(name)) if "*" in name else name in names
                if not exists:
                    complaints.append(f"{path}:{number}: names {name}, which does not exist")
    return complaints


def glossary(text):
    """{forbidden word: (the right one, folders)} of the table in the section "Glossary": what stands in its last
    column, "`part`" or "`part` (src/kernel)". A word in small letters is forbidden as a part of names, one with a
    capital (`Part`) as a whole name.
    """
    section = re.search(r"^## Glossary\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    words = {}
    for row in re.findall(r"^\|(.+)\|$", section[1] if section else "", re.MULTILINE):
        cells = [cell.strip() for cell in row.split("|")]
        for word, folders in re.findall(r"`(\w+)`(?: \(([^)]*)\))?", cells[-1]):
            words[word] = (cells[0], tuple(folders.split(", ")) if folders else ("src", "include", "apps"))
    return words


# Forbidden words that stand in names of others: (word, text around it).
OTHERS_NAMES = [
    ("front", r"(?:\.|->)(?:front|pop_front|push_front|emplace_front)\(|\b(?:pop|push|emplace)_front\b"),
]
STRING = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)+\'')


def parts_of(identifier):
    """overseer_of, OverseerOf and kOverseerOf are made of the words overseer and of."""
    return {part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", identifier)}


def check_glossary(repository, _):
    words = glossary(repository.text(GLOSSARY))
    if not words:
        return [
            f"{GLOSSARY}: has no glossary; a section \"Glossary\" with a table whose last column names the words not to"
            " be used"
        ]
    complaints = []
    for path in repository.cxx():
        mine = {
            word: right
            for word, (right, folders) in words.items()
            if str(path).startswith(tuple(f + "/" for f in folders))
        }
        if not mine:
            continue
        for number, line in enumerate(repository.text(path).splitlines(), 1):
            code = STRING.sub('""', line).split("//")[0]
            if code.lstrip().startswith(("*", "/*")):
                continue
            for other, around in OTHERS_NAMES:
                if other in mine:
                    code = re.sub(around, "", code)
            for identifier in re.findall(r"[A-Za-z_]\w*", code):
                for word in sorted((parts_of(identifier) | {identifier}) & mine.keys()):
                    complaints.append(
                        f"{path}:{number}: {identifier}: say {mine[word]} instead of {word} ({GLOSSARY}, Glossary)"
                    )
    return complaints
