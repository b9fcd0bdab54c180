# SPDX-License-Identifier: MIT
"""Every header compiles alone, because it includes what it needs. Public C headers compile as C and as C++.

If a header's own source file includes it first, the build already proves this; then only its guard is checked here.
"""

import concurrent.futures
import os
import re
import subprocess

WARNINGS = ["-Wall", "-Wextra", "-Wundef", "-Werror"]


def commands(repository, compiler, path):
    public = path.parts[0] == "include"
    folders = ["include"] if public else ["include", "src", str(path.parent)]
    includes = [f"-I{folder}" for folder in folders]
    if public and "compat" in path.parts:
        includes.append(f"-I{path.parent}")
    base = [compiler, "-fsyntax-only", *WARNINGS, *includes]
    # -include reads the header twice as an included file, so a missing guard shows too.
    twice = ["-include", str(path), "-include", str(path), "/dev/null"]
    yield [*base, "-std=c++20", "-x", "c++", *twice]
    if path.suffix == ".h":
        yield [*base, "-std=c11", "-x", "c", *twice]


def compile_alone(root, command):
    run = subprocess.run(command, cwd=root, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return None if run.returncode == 0 else f"{' '.join(command)}\n{run.stdout}"


def is_proven(repository, path):
    source = repository.root / path.with_suffix(".cpp")
    if path.parts[0] == "include" or not source.exists():
        return False
    guarded = re.search(r"^#pragma once$", (repository.root / path).read_text(), re.MULTILINE)
    first = re.search(r'^#include "(.*)"$|^#include <', source.read_text(), re.MULTILINE)
    return bool(guarded and first and first[1] and str(path).endswith("/" + first[1]))


def check_headers(repository, arguments):
    roots = {arguments.only} if arguments.only else {"include", "src", "apps", "bench"}
    work = [command for path in repository.headers() if path.parts[0] in roots and not is_proven(repository, path)
            for command in commands(repository, arguments.compiler, path)]
    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        results = pool.map(lambda command: compile_alone(repository.root, command), work)
    return [result for result in results if result is not None]
