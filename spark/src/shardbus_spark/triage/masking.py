"""Texts without what differs from letter to letter: ids, numbers, moments, quoted texts."""

from __future__ import annotations

import re
from typing import Final

READ_CHARACTERS_MAX: Final = 1_200
"""Only the beginning of a text is looked at."""
MASKED_CHARACTERS_MAX: Final = 300

# Each expression looks at a bounded stretch from any place, so that no text takes long. What has
# digits in it is recognised before numbers are.
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
    # Digits, letters and digits again in one word: a made-up name, such as A1B2C3D4.
    (re.compile(r"\b(?=[A-Za-z]{0,32}[0-9]{1,32}[A-Za-z]{1,32}[0-9])[0-9A-Za-z]{8,64}\b"), "<id>"),
    (re.compile(r"[0-9]+(?:[.,][0-9]+)*"), "<n>"),
)


def masked(text: str) -> str:
    """The text with marks in place of what varies, cut to MASKED_CHARACTERS_MAX characters."""
    found = text[:READ_CHARACTERS_MAX]
    for rule, mark in _RULES:
        found = rule.sub(mark, found)
    return found[:MASKED_CHARACTERS_MAX]
