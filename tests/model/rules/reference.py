"""The meaning of a tree, written as slowly and plainly as it can be said.

It shares with the bus the tree, the values and how a value is written as text or stored as a kind
(those have tables of examples), and nothing else. Conditions are True, False or None.
"""

import math
from collections.abc import Callable
from decimal import Context, Decimal
from fractions import Fraction

from shardbus.rules.conversion import convert
from shardbus.rules.errors import EvaluationError
from shardbus.rules.scope import NewIds
from shardbus.rules.text import text_of
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
    Not,
    Parameter,
    RemoveField,
    Sign,
    Statement,
    SystemField,
    UserField,
)
from shardbus.rules.values import Duration, Moment, Property, Value, kind_of

Truth = bool | None


class World:
    """What a tree is evaluated in: the properties of a message, parameters, and new ids."""

    def __init__(
        self,
        system: dict[int, Value],
        properties: list[Property],
        parameters: list[Property],
        seed: bytes,
    ) -> None:
        self.system = dict(system)
        self.properties = list(properties)
        self.parameters = parameters
        self.new_ids = NewIds(seed)

    def find(self, name: str) -> Property | None:
        for each in reversed(self.properties):
            if each.name.lower() == name.lower():
                return each
        return None

    def drop(self, name: str) -> None:
        self.properties = [each for each in self.properties if each.name.lower() != name.lower()]

    def parameter(self, name: str) -> Property:
        [found] = [each for each in self.parameters if each.name.lower() == name.lower()]
        return found


def truth(tree: Condition, world: World) -> Truth:
    match tree:
        case AllOf():
            return _all_of(tree.parts, world)
        case AnyOf():
            return _opposite(_all_of([Not(0, part) for part in tree.parts], world))
        case Not():
            return _opposite(truth(tree.operand, world))
        case Comparison():
            left, right = value(tree.left, world), value(tree.right, world)
            return _compared(tree.operator, left, right)
        case IsNull():
            return _is_null(tree.field, world)
        case Exists(field=UserField(name=name)):
            return world.find(name) is not None
        case Exists():
            return not _is_null(tree.field, world)
        case IsIn():
            return _is_in(tree, world)
        case Like():
            return _like(tree, world)
        case Holds():
            held = value(tree.expression, world)
            return held if isinstance(held, bool) else None
        case _:
            raise AssertionError(f"no condition: {tree!r}")


def value(tree: Expression, world: World) -> Value:
    match tree:
        case Constant():
            return tree.value
        case UserField() | SystemField():
            return _field(tree, world)
        case Parameter():
            return world.parameter(tree.name).value
        case NewId():
            return world.new_ids.next()
        case Lookup():
            name = value(tree.name, world)
            return _field(UserField(0, name), world) if isinstance(name, str) else None
        case Sign():
            return _signed(tree.operator, value(tree.operand, world))
        case Arithmetic():
            left, right = value(tree.left, world), value(tree.right, world)
            return _computed(tree.operator, left, right)
        case _:
            raise AssertionError(f"no expression: {tree!r}")


def run(statements: list[Statement], world: World) -> None:
    """Changes the world as the statements say."""
    for statement in statements:
        if isinstance(statement, RemoveField):
            world.drop(statement.field.name)
            continue
        made = value(statement.expression, world)
        if isinstance(statement.field, SystemField):
            converted = convert(made, statement.field.property.kind)
            if converted is None:
                raise EvaluationError("not convertible")
            world.system[statement.field.property.number] = converted.value
            continue
        new = _stored(statement.field.name, made, statement.expression, world)
        world.drop(statement.field.name)
        world.properties.append(new)


def _stored(name: str, made: Value, source: Expression, world: World) -> Property:
    kind = kind_of(made)
    if isinstance(source, Parameter):
        kind = world.parameter(source.name).kind
    if isinstance(source, UserField):
        copied = world.find(source.name)
        kind = kind if copied is None else copied.kind
    old = world.find(name)
    if old is None:
        return Property(name, kind, made)
    converted = convert(made, old.kind)
    if converted is None:
        return Property(old.name, kind, made)
    return Property(old.name, converted.kind, converted.value)


def _field(field: Field, world: World) -> Value:
    if isinstance(field, SystemField):
        return world.system.get(field.property.number)
    found = world.find(field.name)
    return None if found is None else found.value


def _is_null(field: Field, world: World) -> bool:
    return _field(field, world) is None


def _all_of(parts: list[Condition], world: World) -> Truth:
    answers: list[Truth] = []
    for part in parts:
        answers.append(truth(part, world))
        if answers[-1] is False:
            return False
    return None if None in answers else True


def _opposite(answer: Truth) -> Truth:
    return None if answer is None else not answer


def _is_in(tree: IsIn, world: World) -> Truth:
    wanted = value(tree.value, world)
    if wanted is None:
        return None
    return any(_compared("=", wanted, value(choice, world)) is True for choice in tree.choices)


def _family(value: Value) -> str:
    match value:
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "double"
        case Decimal():
            return "decimal"
        case _:
            return type(value).__name__


_ORDERED = {"integer", "double", "decimal", "str", "Moment", "Duration"}
_MIXED = [{"integer", "double"}, {"integer", "decimal"}]
_ANSWERS: dict[str, Callable[[bool, bool], bool]] = {
    "=": lambda less, greater: not less and not greater,
    "<>": lambda less, greater: less or greater,
    "<": lambda less, greater: less,
    "<=": lambda less, greater: not greater,
    ">": lambda less, greater: greater,
    ">=": lambda less, greater: not less,
}


def _compared(operator: str, left: Value, right: Value) -> Truth:
    families = {_family(left), _family(right)}
    if left is None or right is None or (len(families) > 1 and families not in _MIXED):
        return None
    if not families <= _ORDERED:
        is_equal = left == right
        return {"=": is_equal, "<>": not is_equal}.get(operator)
    if "double" in families and (_is_nan(left) or _is_nan(right)):
        return operator == "<>"
    less, greater = _sides(left, right, "double" in families)
    return _ANSWERS[operator](less, greater)


def _is_nan(value: Value) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _sides(left: Value, right: Value, as_doubles: bool) -> tuple[bool, bool]:
    """Whether the left is less, and whether it is greater."""
    if isinstance(left, str) and isinstance(right, str):
        first, second = [ord(letter) for letter in left], [ord(letter) for letter in right]
        return first < second, first > second
    a, b = _number(left), _number(right)
    if as_doubles:
        return float(a) < float(b), float(a) > float(b)
    return a < b, a > b


def _number(value: Value) -> int | float | Decimal:
    if isinstance(value, (Moment, Duration)):
        return value.ticks
    assert isinstance(value, (int, float, Decimal))
    return value


def _signed(operator: str, operand: Value) -> Value:
    if _family(operand) not in {"integer", "double", "decimal", "Duration"}:
        return None
    if operator == "+":
        return operand
    if isinstance(operand, Duration):
        return Duration(_whole(-operand.ticks))
    number = _number(operand)
    # An unary minus is exact: it must not round a decimal that came with more digits.
    if isinstance(number, Decimal):
        return number.copy_negate()
    return _whole(-number) if isinstance(number, int) else -number


def _computed(operator: str, left: Value, right: Value) -> Value:
    families = {_family(left), _family(right)}
    if left is None or right is None:
        return None
    if operator == "+" and "str" in families:
        return _concatenated(text_of(left), text_of(right))
    if families & {"Moment", "Duration"}:
        return _timed(operator, left, right)
    if families == {"integer"}:
        return _integers(operator, int(_number(left)), int(_number(right)))
    if families <= {"integer", "double"}:
        return _doubles(operator, float(_number(left)), float(_number(right)))
    if families <= {"integer", "decimal"}:
        return _decimals(operator, Decimal(_number(left)), Decimal(_number(right)))
    return None


def _concatenated(left: str | None, right: str | None) -> Value:
    if left is None or right is None:
        return None
    if len(left + right) > 65_536:
        raise EvaluationError("too long")
    return left + right


_TIMES: dict[tuple[str, str, str], type[Moment] | type[Duration]] = {
    ("Moment", "-", "Moment"): Duration,
    ("Moment", "-", "Duration"): Moment,
    ("Moment", "+", "Duration"): Moment,
    ("Duration", "+", "Moment"): Moment,
    ("Duration", "+", "Duration"): Duration,
    ("Duration", "-", "Duration"): Duration,
}


def _timed(operator: str, left: Value, right: Value) -> Value:
    known = _TIMES.get((_family(left), operator, _family(right)))
    if known is None:
        return None
    a, b = int(_number(left)), int(_number(right))
    return known(_whole(a + b if operator == "+" else a - b))


def _integers(operator: str, left: int, right: int) -> int:
    if operator in "/%" and right == 0:
        raise EvaluationError("division by zero")
    match operator:
        case "+":
            return _whole(left + right)
        case "-":
            return _whole(left - right)
        case "*":
            return _whole(left * right)
        case "/":
            return _whole(math.trunc(Fraction(left, right)))
        case _:
            return _whole(left - right * math.trunc(Fraction(left, right)))


def _whole(number: int) -> int:
    if not -(2**63) <= number < 2**63:
        raise EvaluationError("overflow")
    return number


def _doubles(operator: str, left: float, right: float) -> float:
    if operator in "/%" and right == 0:
        raise EvaluationError("division by zero")
    match operator:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "/":
            return left / right
        case _:
            return math.nan if math.isinf(left) else math.fmod(left, right)


def _decimals(operator: str, left: Decimal, right: Decimal) -> Decimal:
    if operator in "/%" and right == 0:
        raise EvaluationError("division by zero")
    context = Context(prec=28, traps=[])
    result = {
        "+": context.add,
        "-": context.subtract,
        "*": context.multiply,
        "/": context.divide,
        "%": context.remainder,
    }[operator](left, right)
    if not result.is_finite() or abs(result) >= 2**96:
        raise EvaluationError("overflow")
    return result


def _like(tree: Like, world: World) -> Truth:
    text, pattern = value(tree.value, world), value(tree.pattern, world)
    escape = "" if tree.escape is None else value(tree.escape, world)
    if not isinstance(text, str) or not isinstance(pattern, str) or not isinstance(escape, str):
        return None
    if tree.escape is not None and len(escape) != 1:
        raise EvaluationError("an escape of another length")
    return _fits(text, _letters(pattern, escape))


def _letters(pattern: str, escape: str) -> list[str]:
    """Single letters, and the words ANY and RUN for the wildcards."""
    letters: list[str] = []
    rest = list(pattern)
    while rest:
        letter = rest.pop(0)
        if letter == escape:
            if not rest:
                raise EvaluationError("nothing is escaped")
            letters.append(rest.pop(0))
        else:
            letters.append({"%": "RUN", "_": "ANY"}.get(letter, letter))
    return letters


def _fits(text: str, letters: list[str]) -> bool:
    """Row by row: which beginnings of the text fit the letters so far."""
    fitting = {0}
    for letter in letters:
        if letter == "RUN":
            fitting = set(range(min(fitting), len(text) + 1)) if fitting else set()
        else:
            ends = {at for at in fitting if at < len(text)}
            fitting = {at + 1 for at in ends if letter == "ANY" or text[at] == letter}
    return len(text) in fitting


def correlates(wanted: Value, found: Value) -> bool:
    """Whether a correlation filter takes two values for equal."""
    numbers = {"integer", "double", "decimal"}
    if wanted is None or found is None:
        return False
    if _family(wanted) in numbers and _family(found) in numbers:
        finite = [_number(each) for each in (wanted, found) if math.isfinite(_number(each))]
        if len(finite) == 2:
            return Fraction(finite[0]) == Fraction(finite[1])
        return not finite and _number(wanted) == _number(found)
    return _family(wanted) == _family(found) and wanted == found
