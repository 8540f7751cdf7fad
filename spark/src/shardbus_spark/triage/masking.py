"""Masks the parts of texts that vary between letters: ids, numbers, moments, quoted texts."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

READ_CHARACTERS_MAX: Final = 1_200
"""Number of characters of a text that are used."""
MASKED_CHARACTERS_MAX: Final = 300

# Each expression examines a bounded number of characters from any position, so that no text takes
# long. Patterns that contain digits come before numbers.
_RULES: Final = (
    (re.compile(r"(?<!\w)(?:'[^'\n]{0,300}'|\"[^\"\n]{0,300}\"|`[^`\n]{0,300}`)(?!\w)"), "<text>"),
    (
        re.compile(
            r"(?<![0-9A-Za-z])[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
            r"(?![0-9A-Za-z])",
            re.IGNORECASE,
        ),
        "<uuid>",
    ),
    (
        re.compile(
            r"(?<![0-9])[0-9]{4}-[0-9]{2}-[0-9]{2}"
            r"(?:[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]{1,9})?)?"
            r"(?: ?(?:Z|[+-][0-9]{2}:?[0-9]{2}))?)?(?![0-9])"
        ),
        "<time>",
    ),
    (re.compile(r"(?<![0-9])[0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]{1,9})?(?![0-9])"), "<time>"),
    (
        re.compile(
            r"\b0x[0-9a-f]{1,64}\b|\b(?=[0-9]{0,64}[a-f])(?=[a-f]{0,64}[0-9])[0-9a-f]{8,64}\b",
            re.IGNORECASE | re.ASCII,
        ),
        "<hex>",
    ),
    # Digits, letters and digits again in one word: a generated name, such as A1B2C3D4.
    (re.compile(r"\b(?=[A-Za-z]{0,32}[0-9]{1,32}[A-Za-z]{1,32}[0-9])[0-9A-Za-z]{8,64}\b"), "<id>"),
    (re.compile(r"[0-9]+(?:[.,][0-9]+)*"), "<n>"),
)


# No rule distinguishes one digit from another, and none is left: texts that differ in digits alone
# have the same result, which is computed once.
_ANY_DIGIT: Final = str.maketrans("123456789", "000000000")
_KNOWN_MAX: Final = 10_000


def masked(text: str) -> str:
    """The text with marks for the parts that vary, cut to MASKED_CHARACTERS_MAX characters."""
    return _masked(text[:READ_CHARACTERS_MAX].translate(_ANY_DIGIT))


@lru_cache(maxsize=_KNOWN_MAX)
def _masked(found: str) -> str:
    for rule, mark in _RULES:
        found = rule.sub(mark, found)
    return found[:MASKED_CHARACTERS_MAX]
