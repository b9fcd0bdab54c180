#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks the repository's own rules; status 77 means skipped.

    tidy.py RULE --source ROOT [--compiler CXX] [--only FOLDER]
"""
import argparse
import pathlib
import shutil
import sys

sys.dont_write_bytecode = True

import compile_headers
import layers
import name_rules
import repository
import shape_rules
import text_rules


def main():
    rules = {
        "fences": text_rules.check_fences,
        "files": shape_rules.check_files,
        "format": text_rules.check_format,
        "functions": shape_rules.check_functions,
        "glossary": name_rules.check_glossary,
        "headers": compile_headers.check_headers,
        "layers": layers.check_layers,
        "licence": text_rules.check_licence,
        "noexcept": shape_rules.check_noexcept,
        "pairs": shape_rules.check_pairs,
        "paths": name_rules.check_paths,
        "readme": text_rules.check_readme,
        "size": shape_rules.check_size,
        "width": text_rules.check_width,
        "words": text_rules.check_words,
    }
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rule", choices=sorted(rules))
    parser.add_argument("--source", type=pathlib.Path, required=True)
    parser.add_argument("--compiler", default=shutil.which("c++"))
    parser.add_argument("--only", default="", help="of headers: those under this folder")
    arguments = parser.parse_args()

    try:
        complaints = rules[arguments.rule](repository.Repository(arguments.source.resolve()), arguments)
    except repository.Skip as reason:
        print(f"[  SKIPPED ] tidy/{arguments.rule}: {reason}")
        sys.exit(77)
    for complaint in complaints:
        print(complaint)
    print(f"tidy/{arguments.rule}: {len(complaints)} complaints")
    sys.exit(1 if complaints else 0)


main()
