"""LIKE patterns, compiled once: `%` matches any run, `_` one character, the rest itself.

The pieces between `%` are searched one after another, each at its first occurrence, because a later
one gains nothing. So matching is never slower than pattern length times text length.
"""

from __future__ import annotations

import re
from typing import final

from shardbus.rules.errors import EvaluationError


@final
class _Piece:
    """The part of a pattern between two `%`: `length` characters, some of which match anything."""

    def __init__(self, letters: list[str | None]) -> None:
        self.length = len(letters)
        self._literal: str | None = None
        self._pattern: re.Pattern[str] | None = None
        if None not in letters:
            self._literal = "".join(letter for letter in letters if letter is not None)
        else:
            source = "".join("." if letter is None else re.escape(letter) for letter in letters)
            self._pattern = re.compile(source, re.DOTALL)

    def find(self, text: str, start: int, end: int) -> int:
        """The first occurrence between start and end, or -1."""
        if self._literal is not None:
            return text.find(self._literal, start, end)
        assert self._pattern is not None
        found = self._pattern.search(text, start, end)
        return -1 if found is None else found.start()

    def is_at(self, text: str, start: int) -> bool:
        if self._literal is not None:
            return text.startswith(self._literal, start)
        assert self._pattern is not None
        return self._pattern.match(text, start) is not None


@final
class LikePattern:
    """A pattern; `escape` is empty, or the character that makes the next one literal.

    An escape that is not one character, or with no character after it, is an EvaluationError.
    """

    def __init__(self, pattern: str, escape: str | None) -> None:
        self.pattern = pattern
        self.escape = escape
        pieces = [_Piece(letters) for letters in _split(pattern, escape)]
        self._first = pieces[0]
        self._inner = [piece for piece in pieces[1:-1] if piece.length]
        self._last = pieces[-1] if len(pieces) > 1 else None

    def matches(self, text: str) -> bool:
        """Whether the whole text matches."""
        if self._last is None:
            return len(text) == self._first.length and self._first.is_at(text, 0)
        end = len(text) - self._last.length
        at = self._first.length
        if end < at or not self._first.is_at(text, 0) or not self._last.is_at(text, end):
            return False
        for piece in self._inner:
            found = piece.find(text, at, end)
            if found < 0:
                return False
            at = found + piece.length
        return True


def _split(pattern: str, escape: str | None) -> list[list[str | None]]:
    """The pieces between `%` as characters; None stands for any character."""
    if escape is not None and len(escape) != 1:
        raise EvaluationError(f"ESCAPE must have one character, not {len(escape)}.")
    pieces: list[list[str | None]] = [[]]
    at = 0
    while at < len(pattern):
        letter = pattern[at]
        at += 1
        if letter == escape:
            if at == len(pattern):
                raise EvaluationError("A LIKE pattern ends with its escape character.")
            pieces[-1].append(pattern[at])
            at += 1
        elif letter == "%":
            pieces.append([])
        else:
            pieces[-1].append(None if letter == "_" else letter)
    return pieces
