# SPDX-License-Identifier: MIT
"""Pages of text, with lines as long as the documentation's."""

import re
import textwrap

WIDTH = 118
KEPT = re.compile(r"#|\||!\[|<!--|    |```")  # titles, tables, pictures, comments, code


def wrapped(text):
    """The same Markdown, its paragraphs and list items filled to WIDTH. Tables and what must stay as it is stay."""
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
