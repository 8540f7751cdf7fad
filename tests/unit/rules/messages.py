"""Messages as rules see them, made by hand, and short ways to ask about them."""

from shardbus.rules.arithmetic import FALSE, TRUE, UNKNOWN
from shardbus.rules.filter import SqlFilter
from shardbus.rules.scope import NewIds, Scope
from shardbus.rules.values import Property, Value, by_name, kind_of

SEED = bytes(range(16))
TRUTHS: dict[int, bool | None] = {TRUE: True, FALSE: False, UNKNOWN: None}


class Sent:
    """A message with these properties; counts how often the application properties are read."""

    def __init__(
        self, system: dict[int, Value] | None = None, properties: list[Property] | None = None
    ) -> None:
        self.values = {} if system is None else system
        self.listed = [] if properties is None else properties
        self.readings = 0

    def system(self, number: int) -> Value:
        return self.values.get(number)

    def properties(self) -> dict[str, Property]:
        self.readings += 1
        return by_name(self.listed)


def sent(system: dict[int, Value] | None = None, **properties: Value) -> Sent:
    return Sent(system, listed(**properties))


def listed(**properties: Value) -> list[Property]:
    return [Property(name, kind_of(value), value) for name, value in properties.items()]


def scope_of(message: Sent) -> Scope:
    return Scope(message, NewIds(SEED))


def truth(
    expression: str, message: Sent | None = None, parameters: list[Property] | None = None
) -> bool | None:
    """What a filter says about a message; None is unknown."""
    check = SqlFilter(expression, parameters).check
    return TRUTHS[check.truth(scope_of(sent() if message is None else message))]
