"""The words, signs and constants of a condition, each with its position."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

from shardbus_spark.errors import OptionError

END: Final = "end"
WORD: Final = "word"
NUMBER: Final = "number"
TEXT: Final = "text"
QUOTED: Final = "quoted"
SIGN: Final = "sign"
COMMENT: Final = "comment"

_TOKEN: Final = re.compile(
    r"""
    (?P<space>[ \t\r\n]+)
  | (?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
  | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<text>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
  | (?P<quoted>`(?:[^`]|``)+`)
  | (?P<comment>--|/\*|\*/)
  | (?P<sign><=>|==|<>|!=|<=|>=|->|=>|::|\|\||\|>|[=<>+\-*/%&|^~()\[\],.:])
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_ESCAPE: Final = re.compile(
    r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|(.))", re.DOTALL
)
# The meaning of a backslash before a letter; before any other character it has none.
_LETTERS: Final = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}
_WILDCARDS: Final = "%_"


@final
@dataclass(frozen=True, slots=True)
class Token:
    kind: str
    text: str
    at: int

    @property
    def word(self) -> str:
        """In lower case; empty for anything else."""
        return self.text.lower() if self.kind == WORD else ""

    @property
    def sign(self) -> str:
        return self.text if self.kind == SIGN else ""

    @property
    def end(self) -> int:
        return self.at + len(self.text)


def refused(what: str, at: int, why: str) -> OptionError:
    """The error for an unsupported part, with its position (counted from 1) and the reason."""
    return OptionError(f"where has {what!r} at character {at + 1}: {why}")


def tokens_of(text: str) -> Sequence[Token]:
    """All tokens, and one for the end. OptionError for an invalid one."""
    found: list[Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            raise refused(text[at : at + 10], at, "it cannot be read")
        token = Token(match.lastgroup, match.group(), at)
        before = found[-1] if found else None
        # 1L and 1e are one token to Spark.
        is_joined = before is not None and before.kind == NUMBER and before.end == at
        if before is not None and is_joined and token.kind in (WORD, NUMBER, TEXT):
            raise refused(before.text + token.text, before.at, "put a space between them")
        if match.lastgroup != "space":
            found.append(token)
        at = match.end()
    return [*found, Token(END, "", len(text))]


def text_of(token: Token) -> str:
    """The value of a quoted text, with the escapes of Spark's SQL.

    A backslash before a wildcard of `like` stays, because `like` needs it.
    """
    quote = token.text[0]
    return _ESCAPE.sub(_unescaped, token.text[1:-1].replace(quote * 2, quote))


def name_of(token: Token) -> str:
    """The name between backticks."""
    return token.text[1:-1].replace("``", "`")


def _unescaped(match: re.Match[str]) -> str:
    short, long, octal, plain = match.groups()
    if short or long:
        code = int(short or long, 16)
        return chr(code) if code <= 0x10FFFF and not 0xD800 <= code < 0xE000 else match.group()
    if octal:
        return chr(int(octal, 8))
    if plain in _WILDCARDS:
        return str(match.group())
    return _LETTERS.get(plain, plain)
