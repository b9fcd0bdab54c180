#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Each rule complains about a small repository that breaks it, and about nothing else in it. usage: self_test.py
COMPILER"""

import pathlib
import sys
import tempfile
import types

sys.dont_write_bytecode = True

import compile_headers
import layers
import name_rules
import repository
import shape_rules
import text_rules

LICENCE = "// SPDX-License-Identifier: MIT\n"
GOOD = LICENCE + "#pragma once\n"
GLOSSARY = (
    "## Glossary\n\n| word | meaning | not |\n| --- | --- | --- |\n| process | of a machine | `part`; `front`"
    " (src/kernel) |\n| task | of a cell | `Way`; `TaskWay`; \"green thread\" |\n"
)

# rule, files, how many complaints, what one of them says
CASES = [
    (
        layers.check_layers,
        {"src/base/a.hpp": GOOD + '#include "cell/b.hpp"\n', "src/cell/b.hpp": GOOD},
        1,
        "src/base may include",
    ),
    (layers.check_layers, {"src/cell/b.hpp": GOOD + '#include "base/a.hpp"\n', "src/base/a.hpp": GOOD}, 0, ""),
    (layers.check_layers, {"include/aplib/a.hpp": GOOD + "#include <fmt/format.h>\n"}, 1, "standard library alone"),
    (
        layers.check_layers,
        {"apps/x/a.cpp": LICENCE + '#include "kernel/api.hpp"\n', "src/kernel/api.hpp": GOOD},
        1,
        "apps may include",
    ),
    (
        layers.check_layers,
        {"src/cellos/a.cpp": LICENCE + '#include "kernel/m.hpp"\n', "src/kernel/m.hpp": GOOD},
        1,
        "of src/kernel",
    ),
    (
        layers.check_layers,
        {"src/loader/a.cpp": LICENCE + '#include "cell/cell.hpp"\n', "src/cell/cell.hpp": GOOD},
        1,
        "src/loader may include",
    ),
    (layers.check_layers, {"src/odd/a.cpp": LICENCE}, 1, "not in the table"),
    (layers.check_layers, {"src/cell/a.cpp": LICENCE + "#include <boost/context/fiber.hpp>\n"}, 1, "only src/task"),
    (
        layers.check_layers,
        {
            "src/base/a.cpp": LICENCE + "// fmt::print\nauto b = fmt::format(c);\n",
            "src/base/b.hpp": GOOD + "#include <fmt/format.h>\n",
            "src/base/b.cpp": LICENCE + '#include "base/b.hpp"\nauto b = fmt::format(c);\n',
        },
        1,
        "a.cpp: names fmt::",
    ),
    (compile_headers.check_headers, {"src/base/a.hpp": GOOD + "std::string f();\n"}, 1, "string"),
    (
        compile_headers.check_headers,
        {"include/aplib/a.h": "/* SPDX-License-Identifier: MIT */\nstruct a { int i; };\n"},
        2,
        "redefinition",
    ),
    (compile_headers.check_headers, {"include/aplib/a.hpp": GOOD + "#include <string>\nstd::string f();\n"}, 0, ""),
    (
        text_rules.check_licence,
        {"src/a.cpp": "int a;\n", "scripts/b": "#!/bin/sh\n# SPDX-License-Identifier: MIT\n"},
        1,
        "src/a.cpp:1",
    ),
    (text_rules.check_fences, {"a.md": "```\nx\n```\n\n```sh\nx\n```\n"}, 0, ""),
    (text_rules.check_fences, {"a.md": "x\n```\ny ```\n\nz\n"}, 2, "a.md:3: ``` beside text"),
    (text_rules.check_fences, {"a.md": "x\n```\ny\n```\n```\nz\n"}, 1, "a.md:5: the block"),
    (
        shape_rules.check_size,
        {"include/a.hpp": "\n" * 301, "src/a.hpp": "\n" * 300, "src/a.cpp": "\n" * 901},
        2,
        "301 lines, the limit is 300",
    ),
    (shape_rules.check_files, {f"src/{number}.cpp": "" for number in range(shape_rules.SOURCE_FILES_MAX + 1)}, 1,
     f"{shape_rules.SOURCE_FILES_MAX + 1} files"),
    (
        shape_rules.check_pairs,
        {"src/a.hpp": GOOD, "src/a.cpp": '#include "a.hpp"\n', "src/b.cpp": '#include "a.hpp"\n'},
        1,
        "only src/b.cpp",
    ),
    (
        shape_rules.check_pairs,
        {"src/a.hpp": GOOD, "src/a.cpp": '#include "a.hpp"\n' * 118, "src/b.cpp": '#include "a.hpp"\n'},
        0,
        "",
    ),
    (
        shape_rules.check_pairs,
        {"src/a.hpp": GOOD, "src/a.cpp": "", "src/b.cpp": '#include "a.hpp"\n', "src/c.cpp": '#include "a.hpp"\n'},
        0,
        "",
    ),
    (
        shape_rules.check_noexcept,
        {
            "src/a.cpp": "void f() noexcept {\n  a.push_back(1);\n}\n"
            "void A::g(int b) const noexcept {\n  if (b) list->emplace(1, 2);\n}\n",
            "src/a.hpp": "class A {\n  void f() noexcept { a.insert(1); }\n};\n",
        },
        3,
        "src/a.cpp:5",
    ),
    (
        shape_rules.check_noexcept,
        {
            "src/a.cpp": "void f() {\n  a.push_back(1);\n}\n"
            "void g() noexcept(false) {\n  a.push_back(1);\n}\n"
            "void h() noexcept {\n  a.push_back(1);  // reserved by f()\n  push_back(1);  // a.push_back(1)\n"
            "  try {\n    a.push_back(1);\n  } catch (...) {\n  }\n}\n",
            "tests/a.cpp": "void f() noexcept {\n  a.push_back(1);\n}\n",
        },
        0,
        "",
    ),
    (shape_rules.check_functions, {"src/a.cpp": "void f() {\n" + "  g();\n" * 70 + "}\n"}, 0, ""),
    (
        shape_rules.check_functions,
        {"src/a.cpp": "int A::f(int b,\n         int c) const {\n" + "  g();\n" * 71 + "}\n"},
        1,
        ":1: A::f has 71",
    ),
    (
        shape_rules.check_functions,
        {"src/a.hpp": "class A {\n  A(int b) : b_(b) {\n" + "    g();\n" * 71 + "  }\n};\n"},
        1,
        "A has 71",
    ),
    (
        shape_rules.check_functions,
        {"src/a.hpp": "struct A {\n" + "  int a();\n" * 71 + "};\nnamespace b {\n" + "int a();\n" * 71 + "}\n"},
        0,
        "",
    ),
    (
        text_rules.check_width,
        {"src/a.cpp": "x" * 121 + "\n", "a.py": "#" * 120, "docs/a.md": "|" * 121, "b.md": "https://" * 20},
        1,
        "121 columns",
    ),
    (text_rules.check_width, {"docs/a.md": "```\n" + "x" * 121 + "\n```\n" + "y" * 122}, 1, "a.md:4: 122"),
    (
        name_rules.check_paths,
        {"src/a.cpp": "// See src/b.cpp, a.cpp and c.hpp.\n", "docs/b.md": "`src/*.cpp`, `src/*.hpp`\n"},
        3,
        "src/b.cpp",
    ),
    (
        name_rules.check_paths,
        {"src/a.cpp": "", "docs/b.md": "`a.cpp`, `b/a.cpp`, a.hpp\n```\n`c.cpp`\n```\n`d.c7.h`\n"},
        1,
        "names b/a.cpp",
    ),
    (
        name_rules.check_paths,
        {
            "docs/a.md": "# A title, `a`\n[b](b.md) [c](c.md) [d](#a-title-a) [e](b.md#one) [f](b.md#two)\n",
            "docs/b.md": "## One\n[g](https://a.org/b) [h](../docs)\n",
        },
        2,
        "links to b.md#two, but that page has no such title",
    ),
    (
        name_rules.check_glossary,
        {"ARCHITECTURE.md": GLOSSARY, "src/a.cpp": "PartRun run;  // one of all\n"},
        1,
        "PartRun: say process",
    ),
    (  # words in small letters: in comments of their folders, and nowhere else
        name_rules.check_glossary,
        {
            "ARCHITECTURE.md": GLOSSARY,
            "src/a.cpp": "// Both parts know; `part`, part() and counterparts do not count.\n",
            "src/kernel/b.hpp": "int a;  // in Front of it\n",
            "src/cell/c.hpp": "int a;  // in front of it\n",
            "tests/d.cpp": "// a part of it\n",
            "docs/e.md": "A part of it.\n",
        },
        2,
        "src/a.cpp:1: say process",
    ),
    (  # names with a capital: where they are marked as names, or can be nothing else
        name_rules.check_glossary,
        {
            "ARCHITECTURE.md": GLOSSARY,
            "docs/a.md": "Way down, a TaskWay\nis a `Way`.\n```\nTaskWay\n```\n",
            "tests/b.py": "# Way::go()\n",
        },
        3,
        "docs/a.md:1: say task instead of TaskWay",
    ),
    (  # phrases: everywhere in prose
        name_rules.check_glossary,
        {
            "ARCHITECTURE.md": GLOSSARY + "\n## More\n\nA green thread.\n",
            "tests/a.cpp": 'int green_thread = f("green thread");  // Green-threads run.\n',
            "b.py": '"""Runs\na green thread."""\na = "a green thread"\n',
            "docs/c.md": "evergreen threads\n",
        },
        3,
        "b.py:2: say task instead of green thread",
    ),
    (
        name_rules.check_glossary,
        {"ARCHITECTURE.md": GLOSSARY, "src/kernel/a.cpp": 'Front* front;\nint b = list.front() + f("front");\n'},
        2,
        "a.cpp:1",
    ),
    (name_rules.check_glossary, {"ARCHITECTURE.md": GLOSSARY, "src/a.cpp": "int partial, departure, front;\n"}, 0, ""),
    (name_rules.check_glossary, {"ARCHITECTURE.md": "# A\n"}, 1, "has no glossary"),
    (
        text_rules.check_words,
        {"src/a.cpp": "int a;  // FIXME\nvolatile int b;\n", "tests/b.cpp": "volatile int b;\n"},
        2,
        "atomic",
    ),
    (text_rules.check_words, {"docs/a.md": "in /home/someone/x\n"}, 1, "one's own machine"),
    (
        text_rules.check_format,
        {"src/a.cpp": "int  a;\n", "src/b.cpp": "int b;\n", ".clang-format": "BasedOnStyle: Google\n"},
        1,
        "src/a.cpp",
    ),
    (
        text_rules.check_words,
        {
            "src/a.cpp": '#if defined(__x86_64__)\nvoid f() { asm("nop"); }\n#endif\n',
            "src/arch/b/c.hpp": 'void g() { asm volatile("nop"); }\n',
        },
        2,
        "only src/arch",
    ),
]


def main():
    failures = 0
    for rule, files, count, text in CASES:
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, content in files.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(content)
            try:
                complaints = rule(repository.Repository(root), types.SimpleNamespace(compiler=sys.argv[1], only=""))
            except repository.Skip as reason:
                print(f"skipped: {rule.__name__}: {reason}")
                continue
            if len(complaints) != count or not (count == 0 or any(text in complaint for complaint in complaints)):
                print(
                    f"{rule.__name__} on {list(files)}: expected {count} complaint(s) with \"{text}\", got {complaints}"
                )
                failures += 1
    print(f"tidy rules: {len(CASES)} cases, {failures} failures")
    sys.exit(1 if failures else 0)


main()
