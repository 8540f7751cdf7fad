"""Trees back to text, in one spelling: what is parsed from it is the same tree again."""

from __future__ import annotations

from typing import Final

from shardbus.rules.parser import ACTION_RESERVED, RESERVED
from shardbus.rules.tree import (
    MINUS,
    PLUS,
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
    Not,
    Parameter,
    SetField,
    Sign,
    Statement,
    SystemField,
    UserField,
)
from shardbus.rules.values import Value

# How tightly each form binds, as the parser has it: an operand that binds less gets parentheses.
_OR: Final = 1
_AND: Final = 2
_NOT: Final = 3
_TEST: Final = 4
_SUM: Final = 5
_PRODUCT: Final = 6
_UNARY: Final = 7


def render_filter(condition: Condition) -> str:
    return _condition(condition, 0)


def render_action(statements: list[Statement]) -> str:
    return "; ".join(_statement(statement) for statement in statements)


def _statement(statement: Statement) -> str:
    if isinstance(statement, SetField):
        return f"SET {_field(statement.field)} = {_expression(statement.expression, _SUM)}"
    return f"REMOVE {_field(statement.field)}"


def _condition(tree: Condition, power_min: int) -> str:
    if isinstance(tree, AnyOf):
        text = " OR ".join(_condition(part, _AND) for part in tree.parts)
        return _within(text, _OR, power_min)
    if isinstance(tree, AllOf):
        text = " AND ".join(_condition(part, _NOT) for part in tree.parts)
        return _within(text, _AND, power_min)
    if isinstance(tree, Not):
        return _within(f"NOT {_condition(tree.operand, _NOT)}", _NOT, power_min)
    if isinstance(tree, Holds):
        return _expression(tree.expression, power_min)
    if isinstance(tree, Exists):
        return f"EXISTS({_field(tree.field)})"
    return _within(_test(tree), _TEST, power_min)


def _test(tree: Condition) -> str:
    if isinstance(tree, Comparison):
        left, right = _expression(tree.left, _SUM), _expression(tree.right, _SUM)
        return f"{left} {tree.operator} {right}"
    if isinstance(tree, IsNull):
        return f"{_field(tree.field)} IS NULL"
    if isinstance(tree, IsIn):
        choices = ", ".join(_expression(choice, _SUM) for choice in tree.choices)
        return f"{_expression(tree.value, _SUM)} IN ({choices})"
    assert isinstance(tree, Like)
    text = f"{_expression(tree.value, _SUM)} LIKE {_expression(tree.pattern, _SUM)}"
    return text if tree.escape is None else f"{text} ESCAPE {_expression(tree.escape, _SUM)}"


def _expression(tree: Expression, power_min: int) -> str:
    if isinstance(tree, Constant):
        return _constant(tree.value)
    if isinstance(tree, (UserField, SystemField)):
        return _field(tree)
    if isinstance(tree, Parameter):
        return f"@{_name(tree.name)}"
    if isinstance(tree, NewId):
        return "newid()"
    if isinstance(tree, Lookup):
        return f"property({_expression(tree.name, _SUM)})"
    if isinstance(tree, Sign):
        return _within(f"{tree.operator}{_signed(tree)}", _UNARY, power_min)
    assert isinstance(tree, Arithmetic)
    power = _SUM if tree.operator in (PLUS, MINUS) else _PRODUCT
    left, right = _expression(tree.left, power), _expression(tree.right, power + 1)
    return _within(f"{left} {tree.operator} {right}", power, power_min)


def _signed(tree: Sign) -> str:
    operand = _expression(tree.operand, _UNARY)
    is_number = isinstance(tree.operand, Constant) and operand[:1].isdigit()
    # Without parentheses the minus would become the number's own.
    return f"({operand})" if is_number and tree.operator == MINUS else operand


def _within(text: str, power: int, power_min: int) -> str:
    return text if power >= power_min else f"({text})"


def _constant(value: Value) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        quoted = value.replace("'", "''")
        return f"'{quoted}'"
    assert isinstance(value, (int, float)), "an expression has no constants of other types"
    return repr(value)


def _field(field: Field) -> str:
    if isinstance(field, SystemField):
        return f"sys.{field.property.name}"
    return _name(field.name)


def _name(name: str) -> str:
    is_bare = name[0].isalpha() and all(_continues(letter) for letter in name)
    if is_bare and name.upper() not in RESERVED | ACTION_RESERVED:
        return name
    escaped = name.replace("]", "]]")
    return f"[{escaped}]"


def _continues(letter: str) -> bool:
    return letter.isalpha() or letter.isdecimal() or letter == "_"
