"""Folds the prose of the documents at 100 characters (`make fmt`).

Tables, code, headings and HTML stay as they are, and so does every paragraph that fits already.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.tidy.source import text_files

LINE_MAX: Final = 100

_ITEM: Final = re.compile(r"\s*([-*+]|\d+[.)])\s+")
_APART: Final = re.compile(r"\s*(\||#|>|<|$)")
_FENCE: Final = re.compile(r"\s*(```|~~~)")
# At the start of a line these would begin something else than a line.
_BEGINNING: Final = re.compile(r"[-*+#>|<]|\d+[.)]$|=+$|```")


def wrapped(text: str) -> str:
    """`text` with every paragraph and list item that is too wide folded anew."""
    lines: list[str] = []
    for block in blocks(text.split("\n")):
        is_wide = _is_prose(block[0]) and any(len(line) > LINE_MAX for line in block)
        lines += _folded(block) if is_wide else block
    return "\n".join(lines)


def blocks(lines: list[str]) -> Iterator[list[str]]:
    """Paragraphs and list items as lists of lines; every other line by itself, code as a whole."""
    block: list[str] = []
    fence: str | None = None
    for line in lines:
        if fence is not None:
            block.append(line)
            if line.strip() == fence:
                yield block
                block, fence = [], None
            continue
        found = _FENCE.match(line)
        if block and (found or _APART.match(line) or _ITEM.match(line)):
            yield block
            block = []
        if found:
            block, fence = [line], found.group(1)
        elif _APART.match(line):
            yield [line]
        else:
            block.append(line)
    if block:
        yield block


def _is_prose(line: str) -> bool:
    return not (_FENCE.match(line) or _APART.match(line))


def _folded(block: list[str]) -> list[str]:
    first = block[0]
    item = _ITEM.match(first)
    start = item.group() if item else first[: len(first) - len(first.lstrip())]
    margin = " " * len(start)
    words = " ".join([first[len(start) :], *block[1:]]).split()
    lines = [start + words[0]]
    for word in words[1:]:
        is_room = len(lines[-1]) + 1 + len(word) <= LINE_MAX
        if is_room or _BEGINNING.match(word):
            lines[-1] += f" {word}"
        else:
            lines.append(margin + word)
    return lines


def documents() -> list[Path]:
    """Every page that people read."""
    return [path for path in text_files() if path.suffix == ".md"]


def main() -> None:
    for path in documents():
        text = path.read_text(encoding="utf-8")
        if (folded := wrapped(text)) != text:
            path.write_text(folded, encoding="utf-8")


if __name__ == "__main__":
    main()
