"""Parses tokens to a tree: recursive descent by binding power, without backtracking.

A parenthesis may hold a value or a condition, which is only known behind it. So both are parsed
alike, and the required type is checked where the result is used: time stays linear in the length of
the expression.
"""

from __future__ import annotations

from typing import Final, final

from shardbus.core.errors import Refused
from shardbus.rules import system
from shardbus.rules.lexer import (
    END,
    NAME,
    NUMBER,
    PARAMETER,
    SIGN,
    STRING,
    WORD,
    Token,
    mistake,
    tokens_of,
)
from shardbus.rules.limits import DEPTH_MAX, INTEGER_MAX, STATEMENTS_MAX
from shardbus.rules.tree import (
    AllOf,
    AnyOf,
    Arithmetic,
    Comparison,
    Condition,
    Constant,
    Exists,
    Expression,
    Field,
    Holds,
    IsIn,
    IsNull,
    Like,
    Lookup,
    NewId,
    Node,
    Not,
    Parameter,
    RemoveField,
    SetField,
    Sign,
    Statement,
    SystemField,
    UserField,
)
from shardbus.rules.values import Value

RESERVED: Final = frozenset(
    {"AND", "OR", "NOT", "IN", "LIKE", "ESCAPE", "IS", "NULL", "TRUE", "FALSE", "EXISTS"}
)
"""Words that are names only in brackets or quotes."""
ACTION_RESERVED: Final = frozenset({"SET", "REMOVE"})
"""Reserved in actions, where they start a statement; ordinary names in filters."""

_CONSTANTS: Final[dict[str, Value]] = {"TRUE": True, "FALSE": False, "NULL": None}

# Binding powers, loosest first.
_OR: Final = 1
_AND: Final = 2
_NOT: Final = 3
_TEST: Final = 4
_SUM: Final = 5
_PRODUCT: Final = 6
_UNARY: Final = 7
_POWERS: Final[dict[str, int]] = {
    "OR": _OR,
    "AND": _AND,
    "NOT": _TEST,
    "IN": _TEST,
    "LIKE": _TEST,
    "IS": _TEST,
    "=": _TEST,
    "<>": _TEST,
    "<": _TEST,
    "<=": _TEST,
    ">": _TEST,
    ">=": _TEST,
    "+": _SUM,
    "-": _SUM,
    "*": _PRODUCT,
    "/": _PRODUCT,
    "%": _PRODUCT,
}


def parse_filter(expression: str) -> Condition:
    """The condition of a SQL filter. Refuses an invalid one with the position of the error."""
    parser = _Parser(expression, RESERVED)
    condition = parser.condition()
    parser.finish("AND, OR or the end of the expression")
    return condition


def parse_action(expression: str) -> list[Statement]:
    """The statements of a SQL action in order. Refuses an invalid one with the position of the
    error.
    """
    parser = _Parser(expression, RESERVED | ACTION_RESERVED)
    statements = parser.statements()
    parser.finish("SET, REMOVE or the end of the expression")
    return statements


@final
class _Parser:
    def __init__(self, expression: str, reserved: frozenset[str]) -> None:
        self._expression = expression
        self._reserved = reserved
        self._tokens = tokens_of(expression)
        self._at = 0
        self._nesting = 0
        self._token = self._tokens[0]

    def finish(self, expected: str) -> None:
        if self._token.kind != END:
            raise self._unexpected(expected)

    def condition(self) -> Condition:
        return self._as_condition(self._parse(0))

    def statements(self) -> list[Statement]:
        statements = [self._statement()]
        while self._token.kind != END:
            if self._takes_sign(";") or self._takes_sign(","):
                if self._token.kind == END:
                    break
            elif not self._is_word("SET") and not self._is_word("REMOVE"):
                break
            if len(statements) == STATEMENTS_MAX:
                raise self._mistake(self._token.offset, f"more than {STATEMENTS_MAX} statements")
            statements.append(self._statement())
        return statements

    def _statement(self) -> Statement:
        start = self._token
        if self._takes_word("SET"):
            field = self._field("the property to set")
            self._expect_sign("=")
            self._check_settable(field)
            return SetField(start.offset, field, self._expression_at(_SUM))
        if self._takes_word("REMOVE"):
            field = self._field("the property to remove")
            if isinstance(field, UserField):
                return RemoveField(start.offset, field)
            raise self._mistake(field.offset, "a system property cannot be removed")
        raise self._unexpected("SET or REMOVE")

    def _check_settable(self, field: Field) -> None:
        if isinstance(field, SystemField) and not field.property.is_settable:
            raise self._mistake(field.offset, f"sys.{field.property.name} cannot be set")

    def _parse(self, power_min: int) -> Node:
        """A value or condition of operators that bind at least as tightly as `power_min`."""
        self._nesting += 1
        if self._nesting > DEPTH_MAX:
            raise self._mistake(self._token.offset, f"more than {DEPTH_MAX} levels deep")
        left = self._prefix()
        power = self._infix_power()
        while power >= max(power_min, _OR):
            left = self._infix(left, power)
            self._check_depth(left)
            power = self._infix_power()
        self._check_depth(left)
        self._nesting -= 1
        return left

    def _check_depth(self, node: Node) -> None:
        if node.depth > DEPTH_MAX:
            raise self._mistake(node.offset, f"more than {DEPTH_MAX} levels deep")

    def _infix_power(self) -> int:
        if self._token.kind == SIGN or self._token.kind == WORD:
            return _POWERS.get(self._token.text, 0)
        return 0

    def _prefix(self) -> Node:
        token = self._token
        if token.kind == SIGN:
            return self._prefix_sign(token)
        if token.kind == NUMBER:
            self._advance()
            return self._number(token, token.value)
        if token.kind == STRING:
            self._advance()
            return Constant(token.offset, token.value)
        if token.kind == PARAMETER:
            self._advance()
            return Parameter(token.offset, token.name())
        if token.kind == WORD:
            return self._prefix_word(token)
        return self._field("a value")

    def _prefix_sign(self, token: Token) -> Node:
        if self._takes_sign("("):
            inner = self._parse(0)
            self._expect_sign(")")
            return inner
        if token.text != "+" and token.text != "-":
            raise self._unexpected("a value")
        self._advance()
        number = self._token
        if token.text == "-" and number.kind == NUMBER:
            self._advance()
            assert isinstance(number.value, (int, float))
            return self._number(token, -number.value)
        return Sign(token.offset, token.text, self._expression_at(_UNARY))

    def _number(self, token: Token, value: Value) -> Constant:
        if isinstance(value, int) and not -INTEGER_MAX - 1 <= value <= INTEGER_MAX:
            raise self._mistake(token.offset, "an integer has more than 64 bits")
        return Constant(token.offset, value)

    def _prefix_word(self, token: Token) -> Node:
        if self._takes_word("NOT"):
            return Not(token.offset, self._as_condition(self._parse(_NOT)))
        if self._takes_word("EXISTS"):
            self._expect_sign("(")
            field = self._field("a property")
            self._expect_sign(")")
            return Exists(token.offset, field)
        if token.text in _CONSTANTS:
            self._advance()
            return Constant(token.offset, _CONSTANTS[token.text])
        if self._tokens[self._at + 1].text == "(" and token.text not in self._reserved:
            return self._function(token)
        return self._field("a value")

    def _function(self, token: Token) -> Expression:
        if token.text not in ("NEWID", "PROPERTY", "P"):
            known = "newid(), property() and p()"
            raise self._mistake(
                token.offset, f"there is no function {token.source!r}; the functions are {known}"
            )
        self._advance()
        self._expect_sign("(")
        if token.text == "NEWID":
            self._expect_sign(")")
            return NewId(token.offset)
        name = self._expression_at(0)
        self._expect_sign(")")
        return Lookup(token.offset, name)

    def _infix(self, left: Node, power: int) -> Node:
        token = self._token
        if power == _OR:
            return AnyOf(token.offset, self._parts(left, "OR", _AND))
        if power == _AND:
            return AllOf(token.offset, self._parts(left, "AND", _NOT))
        value = self._as_expression(left)
        if token.kind == WORD:
            return self._test(token, value)
        self._advance()
        right = self._expression_at(power + 1)
        if power == _TEST:
            return Comparison(token.offset, token.text, value, right)
        return Arithmetic(token.offset, token.text, value, right)

    def _test(self, token: Token, value: Expression) -> Condition:
        if self._takes_word("IS"):
            return self._is_null(token, value)
        if self._takes_word("NOT"):
            return Not(token.offset, self._membership(token, value))
        return self._membership(token, value)

    def _parts(self, first: Node, word: str, power: int) -> list[Condition]:
        parts = [self._as_condition(first)]
        while self._takes_word(word):
            parts.append(self._as_condition(self._parse(power)))
        return parts

    def _is_null(self, token: Token, value: Expression) -> Condition:
        is_negated = self._takes_word("NOT")
        if not self._takes_word("NULL"):
            raise self._unexpected("NULL" if is_negated else "NULL or NOT NULL")
        if not isinstance(value, (UserField, SystemField)):
            raise self._mistake(value.offset, "IS NULL can test only a property")
        condition = IsNull(token.offset, value)
        return Not(token.offset, condition) if is_negated else condition

    def _membership(self, token: Token, value: Expression) -> Condition:
        if self._takes_word("LIKE"):
            pattern = self._expression_at(_SUM)
            escape = self._expression_at(_SUM) if self._takes_word("ESCAPE") else None
            return Like(token.offset, value, pattern, escape)
        if not self._takes_word("IN"):
            raise self._unexpected("IN or LIKE")
        self._expect_sign("(")
        choices = [self._expression_at(_SUM)]
        while self._takes_sign(","):
            choices.append(self._expression_at(_SUM))
        self._expect_sign(")")
        return IsIn(token.offset, value, choices)

    def _field(self, expected: str) -> Field:
        token = self._token
        if token.kind != NAME and (token.kind != WORD or token.text in self._reserved):
            raise self._unexpected(expected)
        self._advance()
        if token.kind == NAME or self._token.text != ".":
            return UserField(token.offset, token.name())
        if token.text not in ("SYS", "USER"):
            what = (
                f"{token.source!r} is neither sys nor user: write a name that contains a dot as "
                "[a.b]"
            )
            raise self._mistake(token.offset, what)
        self._advance()
        return self._scoped(token)

    def _scoped(self, scope: Token) -> Field:
        token = self._token
        if token.kind != NAME and (token.kind != WORD or token.text in self._reserved):
            raise self._unexpected(f"a name after {scope.source}.")
        self._advance()
        if scope.text == "USER":
            return UserField(scope.offset, token.name())
        found = system.find(token.name())
        if found is None:
            raise self._mistake(token.offset, f"there is no system property {token.name()!r}")
        return SystemField(scope.offset, found)

    def _expression_at(self, power: int) -> Expression:
        return self._as_expression(self._parse(power))

    def _as_expression(self, node: Node) -> Expression:
        if not isinstance(node, Expression):
            raise self._mistake(node.offset, "expected a value, found a condition")
        return node

    def _as_condition(self, node: Node) -> Condition:
        if isinstance(node, Condition):
            return node
        assert isinstance(node, Expression)
        return Holds(node)

    def _advance(self) -> None:
        self._at += 1
        self._token = self._tokens[self._at]

    def _is_word(self, word: str) -> bool:
        return self._token.kind == WORD and self._token.text == word

    def _takes_word(self, word: str) -> bool:
        if not self._is_word(word):
            return False
        self._advance()
        return True

    def _takes_sign(self, sign: str) -> bool:
        if self._token.kind != SIGN or self._token.text != sign:
            return False
        self._advance()
        return True

    def _expect_sign(self, sign: str) -> None:
        if not self._takes_sign(sign):
            raise self._unexpected(f"{sign!r}")

    def _mistake(self, offset: int, what: str) -> Refused:
        return mistake(self._expression, offset, what)

    def _unexpected(self, expected: str) -> Refused:
        found = self._token.shown()
        if self._token.kind == WORD and self._token.text in self._reserved:
            found = f"the reserved word {found}"
        return self._mistake(self._token.offset, f"expected {expected}, found {found}")
