"""Actions of the rule language over the members of a JSON body.

A member is a property whose name is its path: `total`, or `[customer.id]` for a member of an inner
object. Only members that the action names change; the rest of the body stays as it was written.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Final, final

import msgspec
from msgspec import Raw

from shardbus.gateway.http.server.refusal import invalid
from shardbus.rules.action import SqlAction
from shardbus.rules.document import typed_value
from shardbus.rules.errors import EvaluationError
from shardbus.rules.scope import NewIds, RuleMessage, Scope
from shardbus.rules.tree import SetField, SystemField
from shardbus.rules.values import Property, Value, fold, kind_of

DEPTH_MAX: Final = 8
MEMBERS_MAX: Final = 1_000
_WHOLE_MAX: Final = 1 << 63

Steps = tuple[str, ...]


@final
class BodyAction:
    """A parsed action; Refused if it cannot be parsed, or sets a property that is not in a body."""

    def __init__(self, expression: str) -> None:
        self._action = SqlAction(expression)
        for each in self._action.statements:
            if isinstance(each, SetField) and isinstance(each.field, SystemField):
                raise invalid(
                    f"body_action sets sys.{each.field.property.name}, which is not in the body: "
                    "use action."
                )

    def changed(self, body: bytes, message: RuleMessage, new_ids: NewIds) -> bytes:
        """The body with the changes; EvaluationError or ValueError when that is not possible."""
        document = msgspec.json.decode(body)
        if not isinstance(document, dict):
            raise ValueError("The body is not a JSON object, so it has no members.")
        members = dict[str, Property]()
        places = dict[str, Steps]()
        for at, (steps, value) in enumerate(_scalars(document, ())):
            if at >= MEMBERS_MAX:
                raise ValueError(f"The body has more than {MEMBERS_MAX} members.")
            name = ".".join(steps)
            members[fold(name)] = Property(name, kind_of(value), value)
            places[fold(name)] = steps
        changes = self._action.run(Scope(_Members(message, members), new_ids))
        for folded, new in changes.properties.items():
            name = folded if new is None else new.name
            steps = places.get(folded) or tuple(name.split("."))
            body = _with(body, steps, None if new is None else _written(new))
        return body


@final
class _Members:
    """The members of a body as properties, beside those of the message."""

    def __init__(self, message: RuleMessage, members: dict[str, Property]) -> None:
        self._message = message
        self._members = members

    def system(self, number: int) -> Value:
        return self._message.system(number)

    def properties(self) -> dict[str, Property]:
        return self._members


def _scalars(members: dict[str, object], above: Steps) -> Iterator[tuple[Steps, Value]]:
    for name, value in members.items():
        steps = (*above, name)
        if isinstance(value, dict) and len(steps) < DEPTH_MAX:
            yield from _scalars(value, steps)
        elif isinstance(value, int) and abs(value) >= _WHOLE_MAX:
            yield steps, Decimal(value)
        elif value is None or isinstance(value, str | int | float):
            yield steps, value


def _with(document: bytes, steps: Steps, value: bytes | None) -> bytes:
    """The document with a new value at a path, or without that path; missing objects are
    created.
    """
    try:
        members = msgspec.json.decode(document, type=dict[str, Raw])
    except msgspec.ValidationError as error:
        raise ValueError(f"The body has no object around '{steps[0]}'.") from error
    name, rest = steps[0], steps[1:]
    if rest:
        inner = members.get(name)
        members[name] = Raw(_with(b"{}" if inner is None else bytes(inner), rest, value))
    elif value is None:
        members.pop(name, None)
    else:
        members[name] = Raw(value)
    return msgspec.json.encode(members)


def _written(made: Property) -> bytes:
    value = made.value
    if isinstance(value, float) and not math.isfinite(value):
        raise EvaluationError(f"{made.name} would be {value}, which JSON does not have.")
    if isinstance(value, Decimal):
        return str(value).encode()
    if value is None or isinstance(value, bool | int | float | str):
        return msgspec.json.encode(value)
    if isinstance(value, bytes):
        raise EvaluationError(f"{made.name} would be bytes, which JSON does not have.")
    return msgspec.json.encode(typed_value(made).text)
