"""Values of rules as columns: one column for each type that a value may have.

Where the type of a value is known, as for a constant, the others are absent, so that comparing it
makes few expressions. Of the columns of a value at most one is not null in a row; if all are null
the value is unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from decimal import Decimal
from typing import Final, final

from pyspark.sql import Column
from pyspark.sql import functions as F

from shardbus_spark.rules.decimals import sort_key

WHOLE: Final = "decimal(20,0)"
"""Holds every signed and unsigned number of 64 bits."""
TICKS: Final = "decimal(24,0)"

_WHOLE_KINDS: Final = ("ubyte", "ushort", "uint", "ulong", "byte", "short", "int", "long")
_TEXT_KINDS: Final = ("string", "symbol", "uri", "char")
_MOMENT_KINDS: Final = ("timestamp", "datetime-offset", "timestamp-unzoned")
_FLOATING_KINDS: Final = ("float", "double")


@final
@dataclass(frozen=True, slots=True)
class Alternatives:
    """A value. `decimal` is a text that is ordered like the number (see `decimals`), `binary` and
    `guid` are digits in base 16, `moment` and `duration` are ticks of 100 ns. `fails` is true where
    computing the value is an error in the bus; absent where that is impossible.
    """

    boolean: Column | None = None
    whole: Column | None = None
    double: Column | None = None
    decimal: Column | None = None
    text: Column | None = None
    binary: Column | None = None
    guid: Column | None = None
    moment: Column | None = None
    duration: Column | None = None
    fails: Column | None = None

    def known(self) -> list[Column]:
        """The columns of all types that the value may have."""
        columns = [getattr(self, each.name) for each in fields(self) if each.name != "fails"]
        return [column for column in columns if column is not None]


UNKNOWN: Final = Alternatives()


def constant(kind: str, text: str) -> Alternatives:
    """The value that a document of a rule has for a constant."""
    if kind == "decimal":
        return Alternatives(decimal=F.lit(sort_key(Decimal(text))))
    if kind == "null":
        return UNKNOWN
    return _by_kind(kind, F.lit(text))


def _by_kind(kind: str, text: Column) -> Alternatives:
    for kinds, name, read in _READERS:
        if kind in kinds:
            return Alternatives(**{name: read(text)})
    raise AssertionError(f"there is no kind {kind}")


def typed(value: Column) -> Alternatives:
    """The value of a column that is a struct of `kind` and `text`."""
    kind, text = value["kind"], value["text"]

    def found(kinds: tuple[str, ...], read: Callable[[Column], Column]) -> Column:
        return F.when(kind.isin(*kinds), read(text))

    return Alternatives(**{name: found(kinds, read) for kinds, name, read in _READERS})


def text(value: Column) -> Alternatives:
    """The value of a column of texts."""
    return Alternatives(text=value)


def either(left: Column | None, right: Column | None) -> Column | None:
    """True where one of them is; absent where neither can be."""
    if left is None or right is None:
        return right if left is None else left
    return left | right


def _whole(text: Column) -> Column:
    return text.try_cast(WHOLE)


def _double(text: Column) -> Column:
    return text.try_cast("double")


def _ticks(text: Column) -> Column:
    return text.try_cast(TICKS)


def _same(text: Column) -> Column:
    return text


def _boolean(text: Column) -> Column:
    return text == F.lit("true")


_READERS: Final[tuple[tuple[tuple[str, ...], str, Callable[[Column], Column]], ...]] = (
    (("boolean",), "boolean", _boolean),
    (_WHOLE_KINDS, "whole", _whole),
    (_FLOATING_KINDS, "double", _double),
    (("decimal",), "decimal", _same),
    (_TEXT_KINDS, "text", _same),
    (("binary",), "binary", _same),
    (("uuid",), "guid", _same),
    (_MOMENT_KINDS, "moment", _ticks),
    (("timespan",), "duration", _ticks),
)
