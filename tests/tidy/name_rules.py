# SPDX-License-Identifier: MIT
"""Rules about names: the paths that comments and pages name exist, links lead somewhere, and each thing has one word in
code and prose (the glossary of ARCHITECTURE.md)."""

import ast
import re

PATH = re.compile(r"(?<![\w/.$~<{*-])(?:src|tests|docs|include|apps|bench|examples|scripts|cmake)/[\w./*-]*[\w*]")
FILE = re.compile(r"(?<![\w/.$~<{*-])(?:[\w-]+/)*\w[\w-]*\.(?:cpp|hpp|h|c|py|md)\b(?![\w*])")
QUOTED_FILE = re.compile(r"`((?:[\w-]+/)*\w[\w-]*\.(?:cpp|hpp|h|c|py|md))`")  # on pages
# Files that comments name: of others, and mpi.h and mpif.h, which the build makes.
FOREIGN = {"elf.h", "kex.c", "libgomp_g.h", "mpi.h", "mpif.h", "packet.c", "ssh.c", "sshconnect.c"}
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


def docstring_lines(text):
    """Numbers of the lines of the documentation inside of Python code."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, documented)]
    pages = [node.body[0] for node in nodes if ast.get_docstring(node) is not None]
    return {number for page in pages for number in range(page.lineno, page.end_lineno + 1)}


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
    documentation = docstring_lines(text) if path.suffix == ".py" else set()
    for number, line in enumerate(text.splitlines(), 1):
        match = mark.search(line)
        if number in documentation:
            yield number, line
        elif match:
            yield number, match[0]


def anchors(text):
    """The names by which links reach the titles of a page."""
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def broken_links(repository, path):
    """Links of a page that lead nowhere: to a file or folder that does not exist, or to a title that its page lacks."""
    for number, line in comments(path, repository.text(path)):
        for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", line):
            name, _, title = link.partition("#")
            target = repository.root / path.parent / name if name else repository.root / path
            if not target.exists():
                yield f"{path}:{number}: links to {link}, which does not exist"
            elif title and title not in anchors(target.read_text(encoding="utf-8")):
                yield f"{path}:{number}: links to {link}, but that page has no such title"


def check_paths(repository, _):
    names = known_names(repository)
    complaints = []
    for path in repository.files:
        if NOT_OURS.match(str(path)):
            continue
        if not (path.suffix in {".c", ".cpp", ".h", ".hpp", ".md"} or repository.is_script(path)):
            continue
        if path.suffix == ".md":
            complaints += broken_links(repository, path)
        for number, comment in comments(path, repository.text(path)):
            found = set(PATH.findall(comment))
            files = (QUOTED_FILE if path.suffix == ".md" else FILE).findall(comment)
            found |= {name for name in files if name not in FOREIGN}
            for name in sorted(found):
                exists = any(repository.root.glob(name)) if "*" in name else name in names
                if not exists:
                    complaints.append(f"{path}:{number}: names {name}, which does not exist")
    return complaints


ANYWHERE = ("src", "include", "apps")  # where a forbidden name without folders counts


def glossary(text):
    """What stands in the last column of the table in the section "Glossary": names and phrases.

    Names are {word: (the right one, folders)}, from "`part`" or "`part` (src/kernel)". A word in small letters is
    forbidden as a part of names, one with a capital (`Part`) as a whole name. Phrases are {phrase: the right one}, from
    "green thread" in quotation marks: they are forbidden in prose.
    """
    section = re.search(r"^## Glossary\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    names, phrases = {}, {}
    for row in re.findall(r"^\|(.+)\|$", section[1] if section else "", re.MULTILINE):
        cells = [cell.strip() for cell in row.split("|")]
        for word, folders in re.findall(r"`(\w+)`(?: \(([^)]*)\))?", cells[-1]):
            names[word] = (cells[0], tuple(folders.split(", ")) if folders else ANYWHERE)
        for phrase in re.findall(r'"([^"]+)"', cells[-1]):
            phrases[phrase] = cells[0]
    return names, phrases


def prose_patterns(path, names, phrases):
    """[(pattern, wrong word, right word)] for the prose of this file.

    Names in small letters are words of English too, so they count only in their folders. A name with one capital is
    also how a sentence may begin, so it counts only where it is marked as a name; one with several (`PartRun`) counts
    everywhere.
    """
    patterns = []
    for word, (right, folders) in names.items():
        if word.islower():
            if str(path).startswith(tuple(folder + "/" for folder in folders)):
                patterns.append((rf"(?i)(?<![\w.`-]){word}s?(?![\w(`-])", word, right))
        elif len(re.findall("[A-Z]", word)) > 1:
            patterns.append((rf"\b{word}\b", word, right))
        else:
            patterns.append((rf"`{word}`|\b{word}::", word, right))
    for phrase, right in phrases.items():
        words = r"[ -]".join(phrase.split())
        case = "(?i)" if " " in phrase else ""  # Plugin, the class, is no prose
        patterns.append((rf"{case}(?<![\w.:`/-]){words}(?:e?s)?(?![\w`/-]|::)", phrase, right))
    return patterns


def prose_complaints(repository, names, phrases):
    """Forbidden words in comments, documentation of Python code, and pages; code blocks and the glossary itself are
    left out."""
    complaints = []
    for path in repository.files:
        if str(path).startswith("tests/tidy/") or path.name == "LICENSE":
            continue
        if not (path.suffix in {".c", ".cpp", ".h", ".hpp", ".md"} or repository.is_script(path)):
            continue
        text = repository.text(path)
        if str(path) == GLOSSARY:
            text = re.sub(r"(?ms)^## Glossary\n.*?(?=^## |\Z)", lambda match: "\n" * match[0].count("\n"), text)
        patterns = prose_patterns(path, names, phrases)
        for number, comment in comments(path, text):
            for pattern, wrong, right in patterns:
                if re.search(pattern, comment):
                    complaints.append(f"{path}:{number}: say {right} instead of {wrong} ({GLOSSARY}, Glossary)")
    return complaints


# Forbidden words that stand in names of others: (word, text around it).
OTHERS_NAMES = [
    ("front", r"(?:\.|->)(?:front|pop_front|push_front|emplace_front)\(|\b(?:pop|push|emplace)_front\b"),
]
STRING = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)+\'')


def parts_of(identifier):
    """overseer_of, OverseerOf and kOverseerOf are made of the words overseer and of."""
    return {part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", identifier)}


def check_glossary(repository, _):
    words, phrases = glossary(repository.text(GLOSSARY))
    if not words:
        return [
            f"{GLOSSARY}: has no glossary; a section \"Glossary\" with a table whose last column names the words not to"
            " be used"
        ]
    complaints = prose_complaints(repository, words, phrases)
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
