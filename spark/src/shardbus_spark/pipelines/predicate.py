"""Conditions that people write for a table, let through only as far as they are understood.

A condition comes over the network from who may manage the bus, and Spark's SQL can call any method
of Java, read any file in a subquery and put secrets of the process into texts. So it is read here
first: columns of the table, literals, a list of operators and a list of functions; whatever else
there is, is refused by name. What passes is given to Spark as it is.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, final

from shardbus_spark.errors import OptionError

CHARACTERS_MAX: Final = 4_096
DEPTH_MAX: Final = 32

_FUNCTIONS: Final = """
    abs bigint bit_length boolean cast ceil ceiling char_length character_length coalesce concat
    concat_ws contains crc32 date date_add date_format date_sub date_trunc datediff day dayofmonth
    dayofweek dayofyear decimal decode double element_at endswith float floor get_json_object
    greatest hash hour if ifnull initcap instr int isnan isnotnull isnull least left length like
    locate lower ltrim map_contains_key md5 minute mod month nullif nvl nvl2 octet_length pmod
    quarter regexp_like right round rtrim second sha2 sign size smallint split_part startswith
    string substr substring timestamp to_date to_timestamp trim trunc try_cast try_element_at
    try_to_number try_to_timestamp unix_timestamp upper weekday xxhash64 year
"""
FUNCTIONS: Final = frozenset(_FUNCTIONS.split())
_KEYWORDS: Final = """
    and between case else end escape false ilike in is like not null or regexp rlike then true
    when
"""
KEYWORDS: Final = frozenset(_KEYWORDS.split())
_TYPES: Final = """
    bigint binary boolean date decimal double float int integer long short smallint string
    timestamp tinyint
"""
TYPES: Final = frozenset(_TYPES.split())
# Words that begin or join queries, or mean something without parentheses: a column of such a name
# needs backticks.
_RESERVED: Final = """
    all any anti array as asc at by collate cross cube current_catalog current_database
    current_date current_schema current_time current_timestamp current_user desc describe distinct
    except exists extract filter for from full group grouping having identifier inner insert
    intersect interval into join lateral left limit localtime localtimestamp map minus natural now
    offset on order outer over overlaps partition pivot reduce right row rows select semi
    session_user set sets some sql struct table tablesample timestampadd timestampdiff transform
    union unique unnest unpivot user using values view where window with within
"""
RESERVED: Final = frozenset(_RESERVED.split())
_SIGNS: Final = "= == <=> <> != < <= > >= + - * / % || & | ^ ~ ( ) [ ] , ."
_OPERATORS: Final = frozenset(_SIGNS.split())
_TOKEN: Final = re.compile(
    r"""
    (?P<space>[ \t\r\n]+)
  | (?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
  | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
  | (?P<quoted>`(?:[^`]|``)+`)
  | (?P<comment>--|/\*|\*/)
  | (?P<operator><=>|==|<>|!=|<=|>=|->|=>|::|\|\||\|>|[=<>+\-*/%&|^~()\[\],.])
    """,
    re.VERBOSE | re.DOTALL,
)


@final
@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    at: int

    @property
    def word(self) -> str:
        return self.text.lower() if self.kind == "word" else ""

    @property
    def end(self) -> int:
        return self.at + len(self.text)


_NOTHING: Final = _Token("end", "", -1)


def check_predicate(text: str, columns: Collection[str]) -> None:
    """OptionError, which names what is not allowed, for a condition that is not let through."""
    if len(text) > CHARACTERS_MAX:
        raise OptionError(f"where has more than {CHARACTERS_MAX} characters")
    # Spark puts variables of the environment in their place also inside texts.
    if "${" in text:
        raise _refused("${", "variables are not allowed")
    tokens = _tokens(text)
    if not tokens:
        raise OptionError("where is empty: leave it out")
    known = {column.lower() for column in columns}
    around = [_NOTHING, *tokens, _NOTHING]
    for token, before, after in zip(tokens, around, around[2:], strict=False):
        _check_token(token, before, after, known)
    _check_depth(tokens)


def _check_depth(tokens: Sequence[_Token]) -> None:
    depth = 0
    for token in tokens:
        if token.kind == "operator":
            depth += (token.text in "([") - (token.text in ")]")
        if depth > DEPTH_MAX:
            raise OptionError(f"where has more than {DEPTH_MAX} parentheses in each other")
        if depth < 0:
            raise _refused(token.text, "nothing was opened that it could close")
    if depth:
        raise OptionError("where has a parenthesis that is not closed")


def _tokens(text: str) -> Sequence[_Token]:
    found: list[_Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            raise _refused(text[at : at + 10], "it cannot be read")
        if match.lastgroup != "space":
            found.append(_Token(match.lastgroup, match.group(), at))
        at = match.end()
    return found


def _check_token(token: _Token, before: _Token, after: _Token, known: Collection[str]) -> None:
    if token.kind == "comment":
        raise _refused(token.text, "comments are not allowed")
    if token.kind == "operator" and token.text not in _OPERATORS:
        raise _refused(token.text, "this operator is not allowed")
    # 1L, r'..' and x'..' are one token to Spark and two to us: nobody needs them.
    is_joined = before.kind in ("word", "number") and before.end == token.at
    if is_joined and token.kind in ("word", "text", "number"):
        raise _refused(before.text + token.text, "put a space between them")
    if token.kind == "quoted":
        _check_column(token.text[1:-1].replace("``", "`"), token, before, after, known)
    if token.kind == "word":
        _check_word(token, before, after, known)


def _check_word(token: _Token, before: _Token, after: _Token, known: Collection[str]) -> None:
    word = token.word
    if before.text == ".":
        _check_column(token.text, token, before, after, known)
    elif word == "as" or before.word == "as":
        # Only in cast(... as type).
        if word != "as" and word not in TYPES:
            raise _refused(token.text, f"a cast is to one of {', '.join(sorted(TYPES))}")
    elif after.text == "(":
        if word not in FUNCTIONS and word not in KEYWORDS:
            raise _refused(token.text, f"functions are {', '.join(sorted(FUNCTIONS))}")
    elif word in KEYWORDS:
        return
    elif after.kind == "text":
        if word not in ("date", "timestamp"):
            raise _refused(token.text, "only date and timestamp may stand before a text")
    elif word in RESERVED:
        raise _refused(
            token.text,
            f"queries are not allowed; a column that is called so is written `{token.text}`",
        )
    else:
        _check_column(token.text, token, before, after, known)


def _check_column(
    name: str, token: _Token, before: _Token, after: _Token, known: Collection[str]
) -> None:
    if after.text == "(":
        raise _refused(token.text, "functions have plain names without dots or backticks")
    if before.text != "." and name.lower() not in known:
        raise _refused(token.text, f"the table has the columns {', '.join(sorted(known))}")


def _refused(what: str, why: str) -> OptionError:
    return OptionError(f"where has {what!r}: {why}")
