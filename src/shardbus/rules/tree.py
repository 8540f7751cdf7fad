"""A parsed expression: the tree that the compiler and every other back end walk.

A `Condition` is true, false or unknown; an `Expression` has a value. Each node knows its offset in
the text it was parsed from. `x IS NOT NULL`, `NOT IN` and `NOT LIKE` are a `Not` around the rest.
"""

from __future__ import annotations

from typing import Final, TypeAlias, final

from shardbus.rules.system import SystemProperty
from shardbus.rules.values import Value

EQUAL: Final = "="
NOT_EQUAL: Final = "<>"
LESS: Final = "<"
LESS_OR_EQUAL: Final = "<="
GREATER: Final = ">"
GREATER_OR_EQUAL: Final = ">="

PLUS: Final = "+"
MINUS: Final = "-"
TIMES: Final = "*"
DIVIDE: Final = "/"
REMAINDER: Final = "%"


class Node:
    """A part of an expression."""

    def __init__(self, offset: int, depth: int) -> None:
        self.offset = offset
        self.depth = depth
        """Levels from here down, including this node."""


class Expression(Node):
    """Has a value; an unknown one is None."""


class Condition(Node):
    """Is true, false or unknown."""


@final
class Constant(Expression):
    """A number, text, TRUE, FALSE or NULL. A minus before a number belongs to the number."""

    def __init__(self, offset: int, value: Value) -> None:
        super().__init__(offset, 1)
        self.value = value


@final
class UserField(Expression):
    """An application property, in the spelling of the expression."""

    def __init__(self, offset: int, name: str) -> None:
        super().__init__(offset, 1)
        self.name = name


@final
class SystemField(Expression):
    """A property of the bus."""

    def __init__(self, offset: int, property: SystemProperty) -> None:
        super().__init__(offset, 1)
        self.property = property


Field: TypeAlias = UserField | SystemField


@final
class Parameter(Expression):
    """A value given beside the expression; `name` is without the @."""

    def __init__(self, offset: int, name: str) -> None:
        super().__init__(offset, 1)
        self.name = name


@final
class NewId(Expression):
    """`newid()`: a new Guid each time it is computed."""

    def __init__(self, offset: int) -> None:
        super().__init__(offset, 1)


@final
class Lookup(Expression):
    """`property(name)`: the application property with a computed name."""

    def __init__(self, offset: int, name: Expression) -> None:
        super().__init__(offset, 1 + name.depth)
        self.name = name


@final
class Sign(Expression):
    """PLUS or MINUS before an operand."""

    def __init__(self, offset: int, operator: str, operand: Expression) -> None:
        super().__init__(offset, 1 + operand.depth)
        self.operator = operator
        self.operand = operand


@final
class Arithmetic(Expression):
    """PLUS, MINUS, TIMES, DIVIDE or REMAINDER between two operands."""

    def __init__(self, offset: int, operator: str, left: Expression, right: Expression) -> None:
        super().__init__(offset, 1 + max(left.depth, right.depth))
        self.operator = operator
        self.left = left
        self.right = right


@final
class AllOf(Condition):
    """Two conditions or more between ANDs."""

    def __init__(self, offset: int, parts: list[Condition]) -> None:
        super().__init__(offset, 1 + max(part.depth for part in parts))
        self.parts = parts


@final
class AnyOf(Condition):
    """Two conditions or more between ORs."""

    def __init__(self, offset: int, parts: list[Condition]) -> None:
        super().__init__(offset, 1 + max(part.depth for part in parts))
        self.parts = parts


@final
class Not(Condition):
    """The opposite; of unknown, unknown."""

    def __init__(self, offset: int, operand: Condition) -> None:
        super().__init__(offset, 1 + operand.depth)
        self.operand = operand


@final
class Comparison(Condition):
    """EQUAL, NOT_EQUAL, LESS, LESS_OR_EQUAL, GREATER or GREATER_OR_EQUAL."""

    def __init__(self, offset: int, operator: str, left: Expression, right: Expression) -> None:
        super().__init__(offset, 1 + max(left.depth, right.depth))
        self.operator = operator
        self.left = left
        self.right = right


@final
class IsNull(Condition):
    """The property is missing or null; never unknown."""

    def __init__(self, offset: int, field: Field) -> None:
        super().__init__(offset, 2)
        self.field = field


@final
class Exists(Condition):
    """The property exists, if only as a null; never unknown."""

    def __init__(self, offset: int, field: Field) -> None:
        super().__init__(offset, 2)
        self.field = field


@final
class IsIn(Condition):
    """The value equals one of the choices; unknown only when the value is."""

    def __init__(self, offset: int, value: Expression, choices: list[Expression]) -> None:
        deepest = max(choice.depth for choice in choices)
        super().__init__(offset, 1 + max(value.depth, deepest))
        self.value = value
        self.choices = choices


@final
class Like(Condition):
    """The whole text matches a pattern of % and _."""

    def __init__(
        self, offset: int, value: Expression, pattern: Expression, escape: Expression | None
    ) -> None:
        deepest = max(pattern.depth, 0 if escape is None else escape.depth)
        super().__init__(offset, 1 + max(value.depth, deepest))
        self.value = value
        self.pattern = pattern
        self.escape = escape


@final
class Holds(Condition):
    """An expression used as a condition: its value must be TRUE."""

    def __init__(self, expression: Expression) -> None:
        super().__init__(expression.offset, 1 + expression.depth)
        self.expression = expression


@final
class SetField:
    """SET field = expression."""

    def __init__(self, offset: int, field: Field, expression: Expression) -> None:
        self.offset = offset
        self.field = field
        self.expression = expression


@final
class RemoveField:
    """REMOVE field: an application property, never one of the bus."""

    def __init__(self, offset: int, field: UserField) -> None:
        self.offset = offset
        self.field = field


Statement: TypeAlias = SetField | RemoveField
