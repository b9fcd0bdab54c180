# SPDX-License-Identifier: MIT
"""Wraps pages of text to the width of the documentation."""

import re
import textwrap

WIDTH = 118
KEPT = re.compile(r"#|\||!\[|<!--|    |```")  # titles, tables, pictures, comments, code


def wrapped(text):
    """The same Markdown with paragraphs and list items filled to WIDTH. KEPT lines stay as they are."""
    lines, paragraph = [], []

    def flush():
        if paragraph:
            indent = "  " if paragraph[0].startswith("- ") else ""
            lines.append(
                textwrap.fill(
                    " ".join(line.strip() for line in paragraph),
                    WIDTH,
                    subsequent_indent=indent,
                    break_long_words=False,
                    break_on_hyphens=False,
                )
            )
            paragraph.clear()

    code = False
    for line in text.split("\n"):
        if line.startswith("```"):
            code = not code
        if code or not line.strip() or KEPT.match(line):
            flush()
            lines.append(line)
            continue
        if line.startswith("- "):
            flush()
        paragraph.append(line)
    flush()
    return "\n".join(lines)
