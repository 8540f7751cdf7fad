"""Entities as a marker declares them, written as the `Config.json` of the emulator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

Properties: TypeAlias = Mapping[str, object]
Queues: TypeAlias = Sequence[str] | Mapping[str, Properties]
"""Names; or names with properties, as in a `Config.json`: `{"q": {"RequiresSession": True}}`."""
Topics: TypeAlias = Sequence[str] | Mapping[str, Queues]
"""Names; or names with their subscriptions, in the form of queues.

A subscription's member `Rules` maps names to rules, as in `{"only-red": {"FilterType": "Sql", …}}`.
"""

_RULES = "Rules"


def document_of(queues: Queues, topics: Topics) -> dict[str, object]:
    """The document; TypeError when one text stands where a list of names is expected."""
    namespace = {
        "Name": "sbemulatorns",
        "Queues": [_entity(name, given) for name, given in _named(queues)],
        "Topics": [_topic(name, below) for name, below in _topics(topics)],
    }
    return {"UserConfig": {"Namespaces": [namespace]}}


def _named(given: Queues) -> list[tuple[str, Properties]]:
    if isinstance(given, str):
        raise TypeError(f"{given!r} is one text: write a list of names")
    if isinstance(given, Mapping):
        return list(given.items())
    return [(name, {}) for name in given]


def _topics(given: Topics) -> list[tuple[str, Queues]]:
    if isinstance(given, str):
        raise TypeError(f"{given!r} is one text: write a list of names")
    if isinstance(given, Mapping):
        return list(given.items())
    return [(name, ()) for name in given]


def _entity(name: str, properties: Properties) -> dict[str, object]:
    return {"Name": name, "Properties": dict(properties)}


def _topic(name: str, below: Queues) -> dict[str, object]:
    subscriptions = [_subscription(each, given) for each, given in _named(below)]
    return {**_entity(name, {}), "Subscriptions": subscriptions}


def _subscription(name: str, given: Properties) -> dict[str, object]:
    properties = {key: value for key, value in given.items() if key != _RULES}
    rules = given.get(_RULES, {})
    if not isinstance(rules, Mapping):
        raise TypeError(f"{_RULES} of {name!r} must map names of rules to their properties")
    written = [{"Name": rule, "Properties": dict(each)} for rule, each in rules.items()]
    return {**_entity(name, properties), **({_RULES: written} if written else {})}
