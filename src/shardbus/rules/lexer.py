"""Splits the text of an expression into tokens, in one pass."""

from __future__ import annotations

from typing import Final, final

from shardbus.core.errors import INVALID_ARGUMENT, Refused
from shardbus.rules.limits import EXPRESSION_CHARACTERS_MAX
from shardbus.rules.values import Value

WORD: Final = 0
"""A keyword or a bare name; `text` is in capitals."""
NAME: Final = 1
"""A name in brackets or double quotes."""
PARAMETER: Final = 2
NUMBER: Final = 3
STRING: Final = 4
SIGN: Final = 5
"""An operator or punctuation; `text` is the sign, `<>` for `!=`."""
END: Final = 6

_DIGITS: Final = frozenset("0123456789")
_PAIRS: Final = frozenset({"<>", "!=", "<=", ">="})
_SIGNS: Final = frozenset("=<>+-*/%(),;.")
_CLOSING: Final[dict[str, str]] = {"[": "]", '"': '"', "'": "'"}
# One digit more than the largest integer has: enough to see that a number is too large.
_INTEGER_DIGITS_MAX: Final = 20


@final
class Token:
    """A token of the expression; `value` is that of a name or constant, `source` its spelling."""

    def __init__(self, kind: int, text: str, value: Value, offset: int, source: str) -> None:
        self.kind = kind
        self.text = text
        self.value = value
        self.offset = offset
        self.source = source

    def name(self) -> str:
        """What is named, for a word, name or parameter."""
        assert isinstance(self.value, str)
        return self.value

    def shown(self) -> str:
        """The token as error texts show it."""
        return "the end of the expression" if self.kind == END else f"{self.source!r}"


@final
class Mistake(Refused):
    """An error in an expression, and its place."""

    def __init__(self, what: str, line: int, column: int) -> None:
        super().__init__(
            INVALID_ARGUMENT,
            f"There was an error parsing the SQL expression at line {line}, column {column}: "
            f"{what}.",
        )
        self.line = line
        self.column = column


def mistake(expression: str, offset: int, what: str) -> Refused:
    """The refusal of an expression because of an error at the offset."""
    before = expression[:offset]
    line = before.count("\n") + 1
    column = offset - (before.rfind("\n") + 1) + 1
    return Mistake(what, line, column)


def tokens_of(expression: str) -> list[Token]:
    """All tokens and an END. Refuses a text that is too long or has an invalid token."""
    if len(expression) > EXPRESSION_CHARACTERS_MAX:
        raise Refused(
            INVALID_ARGUMENT,
            f"The SQL expression has {len(expression)} characters; at most "
            f"{EXPRESSION_CHARACTERS_MAX} are allowed.",
        )
    return _Lexer(expression).tokens()


@final
class _Lexer:
    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._at = 0

    def tokens(self) -> list[Token]:
        found: list[Token] = []
        while True:
            self._skip_space()
            if self._at == len(self._expression):
                found.append(Token(END, "", None, self._at, ""))
                return found
            found.append(self._next())

    def _skip_space(self) -> None:
        while self._peek().isspace():
            self._at += 1

    def _peek(self, ahead: int = 0) -> str:
        at = self._at + ahead
        return self._expression[at] if at < len(self._expression) else ""

    def _next(self) -> Token:
        start, first = self._at, self._peek()
        if first.isalpha():
            word = self._word()
            return Token(WORD, word.upper(), word, start, word)
        if first in _DIGITS:
            return self._number()
        if first == "'":
            return self._made(STRING, start, self._quoted("text"))
        if first in '["':
            return self._made(NAME, start, self._name())
        if first == "@":
            self._at += 1
            return self._made(PARAMETER, start, self._name())
        return self._sign()

    def _made(self, kind: int, start: int, value: Value) -> Token:
        return Token(kind, "", value, start, self._expression[start : self._at])

    def _sign(self) -> Token:
        start = self._at
        text = self._peek() + self._peek(1)
        if text not in _PAIRS:
            text = text[:1]
            if text not in _SIGNS:
                raise mistake(self._expression, start, f"{text!r} is not allowed here")
        self._at += len(text)
        return Token(SIGN, "<>" if text == "!=" else text, None, start, text)

    def _word(self) -> str:
        start = self._at
        while self._peek().isalpha() or self._peek().isdecimal() or self._peek() == "_":
            self._at += 1
        return self._expression[start : self._at]

    def _name(self) -> str:
        first = self._peek()
        if first.isalpha():
            return self._word()
        if first not in _CLOSING or first == "'":
            raise mistake(self._expression, self._at, "expected a name after '@'")
        start = self._at
        name = self._quoted("name")
        if not name:
            raise mistake(self._expression, start, "a name is empty")
        return name

    def _quoted(self, what: str) -> str:
        """The text between quotes; two quotes in a row mean one."""
        start = self._at
        closing = _CLOSING[self._peek()]
        parts: list[str] = []
        self._at += 1
        while True:
            end = self._expression.find(closing, self._at)
            if end < 0:
                raise mistake(self._expression, start, f"the {what} that starts here does not end")
            parts.append(self._expression[self._at : end])
            self._at = end + 1
            if self._peek() != closing:
                return closing.join(parts)
            self._at += 1

    def _number(self) -> Token:
        start = self._at
        self._digits()
        is_integer = True
        if self._peek() == ".":
            self._at += 1
            is_integer = False
            self._some_digits("expected a digit after the decimal point")
        if self._peek() in ("e", "E"):
            self._at += 2 if self._peek(1) in ("+", "-") else 1
            is_integer = False
            self._some_digits("expected the digits of an exponent")
        if self._peek().isalpha() or self._peek() == "_":
            raise mistake(self._expression, start, "a number is followed directly by a name")
        return self._made(NUMBER, start, self._number_value(start, is_integer))

    def _number_value(self, start: int, is_integer: bool) -> Value:
        text = self._expression[start : self._at]
        if is_integer:
            digits = text.lstrip("0")[:_INTEGER_DIGITS_MAX]
            return int(digits or "0")
        value = float(text)
        if value == float("inf"):
            raise mistake(self._expression, start, f"{text} is too large for a double")
        return value

    def _digits(self) -> None:
        while self._peek() in _DIGITS:
            self._at += 1

    def _some_digits(self, otherwise: str) -> None:
        before = self._at
        self._digits()
        if self._at == before:
            raise mistake(self._expression, self._at, otherwise)
