"""Expressions of ARM templates: `[concat(parameters('name'), '/orders')]`.

Only the functions that messaging templates need are evaluated. Any other function leaves a mark in
the text, so that a template with a generated namespace name can still be read: that name is not
needed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, final

from shardbus.app.setup.node import DEPTH_MAX, Unresolved

TEXT_CHARACTERS_MAX: Final = 24_576
COPIES_MAX: Final = 800
ITEMS_MAX: Final = 10_000
CALLS_MAX: Final = 1_000_000

_TOKEN: Final = re.compile(
    r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<number>-?\d{1,18})|(?P<name>[A-Za-z_]\w*)|(?P<sign>[()\[\].,]))",
    re.ASCII,
)
_MARK: Final = re.compile("\0(\\d+)\0")
_PLACEHOLDER: Final = re.compile(r"\{(\d{1,3})\}|\{\{|\}\}")


class ExpressionError(Exception):
    """An invalid expression, or one that needs a missing value."""


@final
class TemplateScope:
    """The parameters and variables of one template, evaluated on demand."""

    def __init__(self, parameters: dict[str, object], variables: dict[str, object]) -> None:
        """`parameters` are values; an Unresolved one may be mentioned, but not used."""
        self._parameters = {name.lower(): value for name, value in parameters.items()}
        self._variables = {name.lower(): value for name, value in variables.items()}
        self._depth = 0
        self._calls = 0
        self.reasons: list[str] = []
        self.copy_index: int | None = None

    def worked_out(self, value: object) -> object:
        """A value of the template with all its expressions evaluated."""
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, list):
            return [self.worked_out(item) for item in value]
        if isinstance(value, dict):
            return {name: self.worked_out(item) for name, item in value.items()}
        return value

    def name(self, text: str) -> str:
        """The text of a name, with marks for what was not evaluated."""
        value = self._expression(text)
        if not isinstance(value, str):
            raise ExpressionError(f"the value of {text} is not a text")
        return value

    def reason(self, text: str) -> str | None:
        """Why there is a mark in a text; None when there is none."""
        mark = _MARK.search(text)
        return None if mark is None else self.reasons[int(mark.group(1))]

    def parameter(self, name: str) -> object:
        if name.lower() not in self._parameters:
            raise ExpressionError(f"the template has no parameter {name!r}")
        value = self._parameters[name.lower()]
        return self.mark(value.reason) if isinstance(value, Unresolved) else value

    def variable(self, name: str) -> object:
        if name.lower() not in self._variables:
            raise ExpressionError(f"the template has no variable {name!r}")
        return self._nested(self._variables[name.lower()])

    def count_call(self) -> None:
        """Bounds the evaluation: variables may name others several times, recursively."""
        self._calls += 1
        if self._calls > CALLS_MAX:
            raise ExpressionError(f"the template calls functions more than {CALLS_MAX} times")

    def mark(self, reason: str) -> str:
        self.reasons.append(reason)
        return f"\0{len(self.reasons) - 1}\0"

    def _text(self, text: str) -> object:
        try:
            value = self._expression(text)
        except ExpressionError as error:
            return Unresolved(str(error))
        reason = self.reason(value) if isinstance(value, str) else None
        return value if reason is None else Unresolved(reason)

    def _expression(self, text: str) -> object:
        if not (text.startswith("[") and text.endswith("]")):
            return text
        # Two brackets mean a text that begins with one.
        if text.startswith("[["):
            return text[1:]
        if len(text) > TEXT_CHARACTERS_MAX:
            raise ExpressionError(
                f"an expression may have at most {TEXT_CHARACTERS_MAX} characters"
            )
        return _Reader(text[1:-1], self).whole()

    def _nested(self, value: object) -> object:
        if self._depth >= DEPTH_MAX:
            raise ExpressionError("variables refer to each other in a circle")
        self._depth += 1
        try:
            if isinstance(value, str):
                return self._expression(value)
            return self.worked_out(value)
        finally:
            self._depth -= 1


@final
class _Reader:
    """Parses and evaluates one expression."""

    def __init__(self, text: str, scope: TemplateScope) -> None:
        self._text = text
        self._scope = scope
        self._at = 0
        self._depth = 0

    def whole(self) -> object:
        value = self._value()
        if self._text[self._at :].strip():
            raise self._wrong()
        return value

    def _value(self) -> object:
        if self._depth >= DEPTH_MAX:
            raise ExpressionError(f"[{self._text}] is nested too deeply")
        self._depth += 1
        value = self._simple()
        while (sign := self._peek()) in (".", "["):
            self._take(sign)
            value = self._member(value, sign)
        self._depth -= 1
        return value

    def _simple(self) -> object:
        token = _TOKEN.match(self._text, self._at)
        if token is None or token.group("sign"):
            raise self._wrong()
        self._at = token.end()
        if token.group("text"):
            return token.group("text")[1:-1].replace("''", "'")
        if token.group("number"):
            return int(token.group("number"))
        return self._call(token.group("name"), token.start("name"))

    def _call(self, name: str, start: int) -> object:
        self._take("(")
        self._scope.count_call()
        function = _FUNCTIONS.get(name.lower())
        if function is None:
            return self._skipped(name, start)
        arguments: list[object] = []
        while self._peek() != ")":
            arguments.append(self._value())
            if self._peek() != ")":
                self._take(",")
        self._take(")")
        return function(self._scope, arguments)

    def _skipped(self, name: str, start: int) -> str:
        """Skip an unknown function, and everything applied to its result."""
        level = 1
        while level:
            token = _TOKEN.match(self._text, self._at)
            if token is None:
                raise self._wrong()
            self._at = token.end()
            level += {"(": 1, ")": -1}.get(token.group("sign") or "", 0)
        while self._peek() == ".":
            self._take(".")
            self._word()
        called = self._text[start : self._at]
        known = ", ".join(sorted(_FUNCTIONS))
        return self._scope.mark(
            f"[{called}] cannot be evaluated: {name} is not one of the functions {known}"
        )

    def _member(self, value: object, sign: str) -> object:
        if sign == ".":
            return _member_of(value, self._word())
        key = self._value()
        self._take("]")
        return _member_of(value, key)

    def _word(self) -> str:
        token = _TOKEN.match(self._text, self._at)
        if token is None or not token.group("name"):
            raise self._wrong()
        self._at = token.end()
        return token.group("name")

    def _peek(self) -> str:
        token = _TOKEN.match(self._text, self._at)
        return "" if token is None else token.group("sign") or ""

    def _take(self, sign: str) -> None:
        token = _TOKEN.match(self._text, self._at)
        if token is None or token.group("sign") != sign:
            raise self._wrong()
        self._at = token.end()

    def _wrong(self) -> ExpressionError:
        return ExpressionError(
            f"[{self._text}] is not a valid expression from its character {self._at + 1}"
        )


def _member_of(value: object, key: object) -> object:
    if isinstance(value, dict) and isinstance(key, str):
        for name, member in value.items():
            if str(name).lower() == key.lower():
                found: object = member
                return found
        raise ExpressionError(
            f"there is no member {key!r}; the members are {', '.join(map(str, value))}"
        )
    if isinstance(value, list) and isinstance(key, int):
        if not 0 <= key < len(value):
            raise ExpressionError(f"there is no item {key} in a list of {len(value)}")
        item: object = value[key]
        return item
    raise ExpressionError(f"a {type(value).__name__} has no member {key!r}")


def _one_text(arguments: list[object]) -> str:
    if len(arguments) != 1 or not isinstance(arguments[0], str):
        raise ExpressionError("a function that takes one text got something else")
    return arguments[0]


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "True" if value else "False"
    if isinstance(value, str | int):
        return str(value)
    raise ExpressionError(f"a {type(value).__name__} cannot be part of a text")


def _bounded(text: str) -> str:
    if len(text) > TEXT_CHARACTERS_MAX:
        raise ExpressionError(f"a text may have at most {TEXT_CHARACTERS_MAX} characters")
    return text


def _concat(_scope: TemplateScope, arguments: list[object]) -> object:
    if arguments and isinstance(arguments[0], list):
        items = [item for part in arguments if isinstance(part, list) for item in part]
        if len(items) > ITEMS_MAX:
            raise ExpressionError(f"a list may have at most {ITEMS_MAX} items")
        return items
    return _bounded("".join(map(_plain, arguments)))


def _format(_scope: TemplateScope, arguments: list[object]) -> object:
    if not arguments or not isinstance(arguments[0], str):
        raise ExpressionError("the first argument of format must be a text")
    parts = [_plain(argument) for argument in arguments[1:]]

    def put(place: re.Match[str]) -> str:
        if place.group(1) is None:
            return place.group()[0]
        if int(place.group(1)) >= len(parts):
            raise ExpressionError(f"format has no argument for {place.group()}")
        return parts[int(place.group(1))]

    return _bounded(_PLACEHOLDER.sub(put, arguments[0]))


def _if(_scope: TemplateScope, arguments: list[object]) -> object:
    if len(arguments) != 3 or not isinstance(arguments[0], bool):
        raise ExpressionError("if takes a condition and two values")
    return arguments[1] if arguments[0] else arguments[2]


def _equals(_scope: TemplateScope, arguments: list[object]) -> object:
    if len(arguments) != 2:
        raise ExpressionError("equals takes two values")
    return arguments[0] == arguments[1]


def _not(_scope: TemplateScope, arguments: list[object]) -> object:
    if len(arguments) != 1 or not isinstance(arguments[0], bool):
        raise ExpressionError("not takes one condition")
    return not arguments[0]


def _length(_scope: TemplateScope, arguments: list[object]) -> object:
    if len(arguments) != 1 or not isinstance(arguments[0], list | dict | str):
        raise ExpressionError("length takes a list, an object or a text")
    return len(arguments[0])


def _copy_index(scope: TemplateScope, arguments: list[object]) -> object:
    if scope.copy_index is None:
        raise ExpressionError("copyIndex is used outside of a copy")
    offsets = [argument for argument in arguments if isinstance(argument, int)]
    return scope.copy_index + sum(offsets[:1])


_FUNCTIONS: Final[dict[str, Callable[[TemplateScope, list[object]], object]]] = {
    "concat": _concat,
    "copyindex": _copy_index,
    "equals": _equals,
    "false": lambda _scope, _arguments: False,
    "format": _format,
    "if": _if,
    "length": _length,
    "not": _not,
    "null": lambda _scope, _arguments: None,
    "parameters": lambda scope, arguments: scope.parameter(_one_text(arguments)),
    "string": lambda _scope, arguments: "".join(map(_plain, arguments)),
    "tolower": lambda _scope, arguments: _one_text(arguments).lower(),
    "toupper": lambda _scope, arguments: _one_text(arguments).upper(),
    "true": lambda _scope, _arguments: True,
    "variables": lambda scope, arguments: scope.variable(_one_text(arguments)),
}
