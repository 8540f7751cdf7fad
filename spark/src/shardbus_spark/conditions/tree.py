"""The parts of a condition. Each means the same as in Spark's SQL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import final


@final
@dataclass(frozen=True, slots=True)
class Literal:
    """A constant; None is SQL's null. A Decimal has the digits that were written."""

    value: bool | int | float | Decimal | str | None


@final
@dataclass(frozen=True, slots=True)
class Moment:
    """`date '...'` or `timestamp '...'`, by default in the zone of the session."""

    kind: str
    text: str


@final
@dataclass(frozen=True, slots=True)
class Name:
    """A column of the table, in the table's spelling."""

    name: str


@final
@dataclass(frozen=True, slots=True)
class Item:
    """The element of a map, array or struct: `base[key]`, `base.key`."""

    base: Expression
    key: Expression


@final
@dataclass(frozen=True, slots=True)
class Call:
    """One of the functions of `vocabulary`, in lower case."""

    function: str
    arguments: Sequence[Expression]


@final
@dataclass(frozen=True, slots=True)
class Cast:
    value: Expression
    kind: str
    is_try: bool


@final
@dataclass(frozen=True, slots=True)
class Unary:
    """`not`, `-`, `+` or `~`."""

    operator: str
    value: Expression


@final
@dataclass(frozen=True, slots=True)
class Binary:
    """`and`, `or`, or one of the signs of `vocabulary`."""

    operator: str
    left: Expression
    right: Expression


@final
@dataclass(frozen=True, slots=True)
class Between:
    value: Expression
    low: Expression
    high: Expression


@final
@dataclass(frozen=True, slots=True)
class In:
    value: Expression
    choices: Sequence[Expression]


@final
@dataclass(frozen=True, slots=True)
class Match:
    """`like`, `ilike` or `rlike`; `escape` is one character, or empty for the usual one."""

    how: str
    value: Expression
    pattern: Expression
    escape: str


@final
@dataclass(frozen=True, slots=True)
class Is:
    """Whether a value is null (None), true or false; the result is never null."""

    value: Expression
    what: bool | None


@final
@dataclass(frozen=True, slots=True)
class Case:
    """The result of the first branch whose condition holds, or equals `subject` if there is one."""

    subject: Expression | None
    branches: Sequence[tuple[Expression, Expression]]
    otherwise: Expression | None


@final
@dataclass(frozen=True, slots=True)
class Query:
    """`select`, `from` a view and `where`; an expression without a name is all columns.

    `more` is the query after `union all`.
    """

    columns: Sequence[tuple[str, Expression | None]]
    where: Expression | None
    view: str = "messages"
    more: Query | None = None


Expression = (
    Literal | Moment | Name | Item | Call | Cast | Unary | Binary | Between | In | Match | Is | Case
)
