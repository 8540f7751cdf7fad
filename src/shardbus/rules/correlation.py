"""Correlation filters, and the tree that finds the matching ones without evaluating each."""

from __future__ import annotations

from decimal import Decimal
from typing import TypeAlias, final

from shardbus.rules.limits import INDEX_LOOSE_MAX
from shardbus.rules.scope import Scope
from shardbus.rules.values import Duration, Guid, Moment, Value

Key: TypeAlias = int | float | str | bytes | Decimal | Guid | Moment | Duration | tuple[bool]
"""A value in a form in which equal values have equal hashes."""


def key_of(value: Value) -> Key | None:
    """The key of a value; None for values that equal nothing: null, and a double that is not a
    number.

    In Python numbers of different types are equal and have the same hash when they are the same
    number; but a boolean must not be taken for 0 or 1.
    """
    if isinstance(value, bool):
        return (value,)
    if value is None or value != value:
        return None
    return value


@final
class Criterion:
    """A field equals a value: the system property of this number, or, if the number is negative,
    the application property of this folded name.
    """

    def __init__(self, number: int, name: str, key: Key) -> None:
        self.number = number
        self.name = name
        self.key = key

    def holds(self, scope: Scope) -> bool:
        value = scope.value(self.name) if self.number < 0 else scope.system(self.number)
        return key_of(value) == self.key


@final
class CorrelationEntry:
    """One correlation filter in the tree; `number` is the caller's number for it."""

    def __init__(self, number: int, conditions: list[Criterion]) -> None:
        self.number = number
        self.left = conditions
        """The conditions that the path to `node` does not already establish."""
        self.node: _Node | None = None

    def holds(self, scope: Scope) -> bool:
        return all(condition.holds(scope) for condition in self.left)


@final
class _Node:
    """Filters that share the conditions on the path to this node.

    A few filters are kept loose and compared one by one. Further ones go into child nodes, each by
    the condition that the fewest others there share, so that a message visits few nodes that do not
    match.
    """

    def __init__(self, above: _Node | None, condition: Criterion | None) -> None:
        self.above = above
        self.condition = condition
        self.size = 0
        self.loose: dict[int, CorrelationEntry] = {}
        self.by_system: dict[int, dict[Key, _Node]] = {}
        self.by_name: dict[str, dict[Key, _Node]] = {}

    def below(self, condition: Criterion) -> _Node | None:
        if condition.number < 0:
            named = self.by_name.get(condition.name)
            return None if named is None else named.get(condition.key)
        known = self.by_system.get(condition.number)
        return None if known is None else known.get(condition.key)

    def branch(self, condition: Criterion) -> _Node:
        found = self.below(condition)
        if found is not None:
            return found
        made = _Node(self, condition)
        if condition.number < 0:
            self.by_name.setdefault(condition.name, {})[condition.key] = made
        else:
            self.by_system.setdefault(condition.number, {})[condition.key] = made
        return made

    def cut(self, condition: Criterion) -> None:
        if condition.number < 0:
            named = self.by_name[condition.name]
            del named[condition.key]
            if not named:
                del self.by_name[condition.name]
            return
        known = self.by_system[condition.number]
        del known[condition.key]
        if not known:
            del self.by_system[condition.number]


@final
class CorrelationTree:
    """All correlation filters of a topic. The cost of a match is proportional to what matches."""

    def __init__(self) -> None:
        self._root = _Node(None, None)

    def __len__(self) -> int:
        return self._root.size

    def add(self, number: int, conditions: list[Criterion]) -> CorrelationEntry:
        """Add a filter with at least one condition; returns the entry for `remove`."""
        left = list(conditions)
        node = self._root
        node.size += 1
        while left and (node is self._root or len(node.loose) >= INDEX_LOOSE_MAX):
            rarest = _rarest(node, left)
            left.remove(rarest)
            node = node.branch(rarest)
            node.size += 1
        entry = CorrelationEntry(number, left)
        entry.node = node
        node.loose[number] = entry
        return entry

    def remove(self, entry: CorrelationEntry) -> None:
        node = entry.node
        assert node is not None, "a filter was removed twice"
        del node.loose[entry.number]
        entry.node = None
        while node is not None:
            node.size -= 1
            above, condition = node.above, node.condition
            if node.size == 0 and above is not None and condition is not None:
                above.cut(condition)
            node = above

    def matching(self, scope: Scope) -> list[int]:
        """The numbers of all filters that match, in no particular order."""
        found: list[int] = []
        if self._root.size:
            _collect(self._root, scope, found)
        return found

    def visited(self, scope: Scope) -> int:
        """How many nodes and loose filters a match looks at: its cost, for tests."""
        return _cost(self._root, scope)


def _rarest(node: _Node, conditions: list[Criterion]) -> Criterion:
    best, best_size = conditions[0], -1
    for condition in conditions:
        below = node.below(condition)
        size = 0 if below is None else below.size
        if best_size < 0 or size < best_size:
            best, best_size = condition, size
    return best


def _collect(node: _Node, scope: Scope, found: list[int]) -> None:
    for entry in node.loose.values():
        if entry.holds(scope):
            found.append(entry.number)
    for below in _ways(node, scope):
        _collect(below, scope, found)


def _cost(node: _Node, scope: Scope) -> int:
    return 1 + len(node.loose) + sum(_cost(below, scope) for below in _ways(node, scope))


def _ways(node: _Node, scope: Scope) -> list[_Node]:
    """The child nodes whose condition the message meets."""
    ways: list[_Node] = []
    for number, known in node.by_system.items():
        _follow(known, scope.system(number), ways)
    if not node.by_name:
        return ways
    properties = scope.properties()
    # Iterate over whichever are fewer: the message's properties, or those that filters compare.
    if len(properties) < len(node.by_name):
        for name, property in properties.items():
            named = node.by_name.get(name)
            if named is not None:
                _follow(named, property.value, ways)
    else:
        for name, asked in node.by_name.items():
            found = properties.get(name)
            if found is not None:
                _follow(asked, found.value, ways)
    return ways


def _follow(branches: dict[Key, _Node], value: Value, ways: list[_Node]) -> None:
    key = key_of(value)
    if key is not None:
        below = branches.get(key)
        if below is not None:
            ways.append(below)
