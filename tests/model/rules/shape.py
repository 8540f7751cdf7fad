"""A tree as plain tuples, without offsets: two trees are the same when their shapes are."""

from shardbus.rules.tree import (
    AllOf,
    AnyOf,
    Arithmetic,
    Comparison,
    Constant,
    Exists,
    Holds,
    IsIn,
    IsNull,
    Like,
    Lookup,
    NewId,
    Not,
    Parameter,
    RemoveField,
    SetField,
    Sign,
    SystemField,
    UserField,
)
from shardbus.rules.values import Value


def shape(tree: object) -> object:  # noqa: C901 - one line for each node
    """Integers are themselves and texts are in quotes, so that nothing is taken for another."""
    match tree:
        case list():
            return [shape(each) for each in tree]
        case AllOf():
            return ("and", *(shape(part) for part in tree.parts))
        case AnyOf():
            return ("or", *(shape(part) for part in tree.parts))
        case Not():
            return ("not", shape(tree.operand))
        case Comparison() | Arithmetic():
            return (tree.operator, shape(tree.left), shape(tree.right))
        case IsNull():
            return ("is null", shape(tree.field))
        case Exists():
            return ("exists", shape(tree.field))
        case IsIn():
            return ("in", shape(tree.value), *(shape(choice) for choice in tree.choices))
        case Like():
            escape = "no escape" if tree.escape is None else shape(tree.escape)
            return ("like", shape(tree.value), shape(tree.pattern), escape)
        case Holds():
            return ("holds", shape(tree.expression))
        case Sign():
            return (f"sign {tree.operator}", shape(tree.operand))
        case Lookup():
            return ("property", shape(tree.name))
        case SetField():
            return ("set", shape(tree.field), shape(tree.expression))
        case RemoveField():
            return ("remove", shape(tree.field))
        case _:
            return _leaf(tree)


def _leaf(tree: object) -> object:
    match tree:
        case Constant():
            return _constant(tree.value)
        case UserField():
            return f"user {tree.name}"
        case SystemField():
            return f"sys {tree.property.name}"
        case Parameter():
            return f"@{tree.name}"
        case NewId():
            return "newid"
        case _:
            raise AssertionError(f"no node of a tree: {tree!r}")


def _constant(value: Value) -> object:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        return f"'{value}'"
    return value if isinstance(value, int) else repr(value)
