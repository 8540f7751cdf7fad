"""Builds columns from documents of filters, which the bus makes from the rules of subscriptions.

The result agrees with the bus for every message: three-valued logic, types, errors, and that AND
and OR stop at the first part that decides.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final, final

from pyspark.sql import Column
from pyspark.sql import functions as F

from shardbus_spark.conditions.columns import named
from shardbus_spark.errors import OptionError
from shardbus_spark.rules import values
from shardbus_spark.rules.arithmetic import compare, compute, signed
from shardbus_spark.rules.exact import same
from shardbus_spark.rules.values import Alternatives, either

ESCAPE: Final = "\\"


@final
@dataclass(frozen=True, slots=True)
class Truth:
    """A condition: null where it is unknown. `fails` is true where deciding it is an error in the
    bus, which then treats the rule as not matching; absent where that is impossible.
    """

    holds: Column
    fails: Column | None = None

    def matches(self) -> Column:
        """Whether the rule matches; never null."""
        found = F.coalesce(self.holds, F.lit(False))
        if self.fails is None:
            return found
        # Decided before the rest, so that what Spark cannot compute always ends the query.
        return F.when(self.fails, F.lit(False)).otherwise(found)


@final
class RuleColumns:
    """Builds conditions over the columns of a table and the view of its messages.

    `view` is the column that `view.with_view` adds; `columns` are the names of the others.
    """

    def __init__(self, columns: Collection[str], view: str) -> None:
        self._columns = columns
        self._properties = named(view)["properties"]
        self._system = named(view)["system"]
        self._conditions: dict[str, Callable[[Sequence[object]], Truth]] = {
            "all": self._all,
            "any": self._any,
            "not": self._not,
            "compare": self._compare,
            "same": self._same,
            "null": self._null,
            "exists": self._exists,
            "in": self._in,
            "like": self._like,
            "holds": self._holds,
            "constant": self._fixed,
        }
        self._values: dict[str, Callable[[Sequence[object]], Alternatives]] = {
            "constant": lambda parts: values.constant(_text(parts[0]), _text(parts[1])),
            "user": lambda parts: values.typed(self._property(F.lit(_text(parts[0])))),
            "message": lambda parts: values.typed(F.try_element_at(self._system, F.lit(parts[0]))),
            "column": self._column,
            "lookup": self._lookup,
            "sign": lambda parts: signed(_text(parts[0]), self._value(parts[1])),
            "compute": self._compute,
        }

    def matching(self, lists: str) -> Column:
        """Whether a message matches one filter of each list; OptionError for invalid ones."""
        try:
            found = F.lit(True)
            for filters in json.loads(lists):
                found = found & self._one_of(filters)
        except (ValueError, KeyError, IndexError, TypeError, RecursionError) as error:
            raise OptionError(f"filters cannot be read: {error!r}") from error
        return found

    def _one_of(self, filters: Sequence[object]) -> Column:
        found = F.lit(False)
        for document in filters:
            found = found | self.condition(document).matches()
        return found

    def condition(self, document: object) -> Truth:
        word, *parts = _list(document)
        return self._conditions[_text(word)](parts)

    def _value(self, document: object) -> Alternatives:
        word, *parts = _list(document)
        return self._values[_text(word)](parts)

    # Conditions.

    def _all(self, parts: Sequence[object]) -> Truth:
        return _joined([self.condition(part) for part in parts], decides=False)

    def _any(self, parts: Sequence[object]) -> Truth:
        return _joined([self.condition(part) for part in parts], decides=True)

    def _not(self, parts: Sequence[object]) -> Truth:
        truth = self.condition(parts[0])
        return Truth(~truth.holds, truth.fails)

    def _compare(self, parts: Sequence[object]) -> Truth:
        left, right = self._value(parts[1]), self._value(parts[2])
        return Truth(compare(_text(parts[0]), left, right), either(left.fails, right.fails))

    def _same(self, parts: Sequence[object]) -> Truth:
        _, kind, text = _list(parts[1])
        return Truth(same(self._value(parts[0]), _text(kind), _text(text)))

    def _null(self, parts: Sequence[object]) -> Truth:
        return Truth(~_is_known(self._value(parts[0])))

    def _exists(self, parts: Sequence[object]) -> Truth:
        word, *names = _list(parts[0])
        if word == "user":
            return Truth(F.map_contains_key(self._properties, _text(names[0])))
        return Truth(_is_known(self._value(parts[0])))

    def _in(self, parts: Sequence[object]) -> Truth:
        """Compute the choices one after another until one is equal."""
        value, *choices = [self._value(part) for part in parts]
        fails = value.fails
        found = F.lit(False)
        for choice in choices:
            if choice.fails is not None:
                is_open = ~found & _is_known(value)
                fails = either(fails, F.when(is_open, choice.fails).otherwise(F.lit(False)))
            found = found | F.coalesce(compare("=", value, choice), F.lit(False))
        return Truth(F.when(_is_known(value), found), fails)

    def _like(self, parts: Sequence[object]) -> Truth:
        value = self._value(parts[0])
        word, *pieces = _list(parts[1])
        if word == "pattern":
            pattern = values.text(F.lit(_pattern(pieces)))
        else:
            computed = self._value(parts[1])
            plain = None if computed.text is None else _without_escapes(computed.text)
            pattern = Alternatives(text=plain, fails=computed.fails)
        fails = either(value.fails, pattern.fails)
        if value.text is None or pattern.text is None:
            return Truth(F.lit(None).cast("boolean"), fails)
        return Truth(F.like(value.text, pattern.text), fails)

    def _holds(self, parts: Sequence[object]) -> Truth:
        value = self._value(parts[0])
        nothing = F.lit(None).cast("boolean")
        return Truth(nothing if value.boolean is None else value.boolean, value.fails)

    def _fixed(self, parts: Sequence[object]) -> Truth:
        return Truth(F.lit(parts[1] == "true"))

    # Values.

    def _property(self, name: Column) -> Column:
        return F.try_element_at(self._properties, name)

    def _column(self, parts: Sequence[object]) -> Alternatives:
        column, name = _text(parts[0]), _text(parts[1])
        if column not in self._columns:
            raise OptionError(
                f"the rule uses sys.{name}, and the table has no column {column}, which would show "
                "it"
            )
        return values.text(named(column))

    def _lookup(self, parts: Sequence[object]) -> Alternatives:
        name = self._value(parts[0])
        if name.text is None:
            return Alternatives(fails=name.fails)
        found = values.typed(self._property(F.lower(name.text)))
        return Alternatives(
            found.boolean,
            found.whole,
            found.double,
            found.decimal,
            found.text,
            found.binary,
            found.guid,
            found.moment,
            found.duration,
            name.fails,
        )

    def _compute(self, parts: Sequence[object]) -> Alternatives:
        return compute(_text(parts[0]), self._value(parts[1]), self._value(parts[2]))


def _joined(parts: Sequence[Truth], *, decides: bool) -> Truth:
    """AND, which a false part decides, or OR, which a true part decides."""
    first, *others = parts
    holds, fails = first.holds, first.fails
    for part in others:
        if part.fails is not None:
            # Parts after the one that decides are not computed.
            is_open = ~holds.eqNullSafe(F.lit(decides))
            fails = either(fails, F.when(is_open, part.fails).otherwise(F.lit(False)))
        holds = holds | part.holds if decides else holds & part.holds
    return Truth(holds, fails)


def _is_known(value: Alternatives) -> Column:
    found = F.lit(False)
    for column in value.known():
        found = found | column.isNotNull()
    return found


def _pattern(pieces: Sequence[object]) -> str:
    """A pattern of Spark: texts, 0 for any character, 1 for any run of them."""
    wild = {0: "_", 1: "%"}
    return "".join(
        _escaped(each) if isinstance(each, str) else wild[_number(each)] for each in pieces
    )


def _escaped(text: str) -> str:
    return "".join(ESCAPE + letter if letter in f"%_{ESCAPE}" else letter for letter in text)


def _without_escapes(pattern: Column) -> Column:
    """A computed pattern, in which a backslash is a letter like any other."""
    return F.replace(pattern, F.lit(ESCAPE), F.lit(ESCAPE * 2))


def _list(document: object) -> list[object]:
    if not isinstance(document, list) or not document:
        raise TypeError("a part of the document is not a list")
    return document


def _text(part: object) -> str:
    if not isinstance(part, str):
        raise TypeError("a part of the document is not a text")
    return part


def _number(part: object) -> int:
    if not isinstance(part, int):
        raise TypeError("a part of the document is not a number")
    return part
