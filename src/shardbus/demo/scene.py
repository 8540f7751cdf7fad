"""The entities of the demo: created if they do not exist, and never changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from shardbus.app.cli.client import Management
from shardbus.app.cli.entities.atom import QUEUE, SUBSCRIPTION, TOPIC, EntityKind
from shardbus.app.cli.entities.rule_atom import SQL, AtomRule
from shardbus.app.cli.failures import Refused

ORDERS: Final = "demo-orders"
EVENTS: Final = "demo-events"
LARGE: Final = f"{EVENTS}/Subscriptions/large"
ARCHIVE: Final = f"{EVENTS}/Subscriptions/archive"
RULES: Final = {
    LARGE: "region = 'europe' AND total >= 200",
    ARCHIVE: "kind <> 'test'",
}
TIME_TO_LIVE: Final = "PT1H"
"""Messages that nobody receives in an hour expire, so that an unattended demo does not fill a
disk.
"""

_ELEMENTS: Final = {"DefaultMessageTimeToLive": TIME_TO_LIVE}


@final
@dataclass(frozen=True, slots=True)
class Scene:
    """The entities of the demo: a basic namespace has no topics, so the queue itself is
    captured.
    """

    has_topic: bool

    @property
    def captured(self) -> str:
        return ARCHIVE if self.has_topic else ORDERS

    @property
    def subscriptions(self) -> tuple[str, ...]:
        return (LARGE, ARCHIVE) if self.has_topic else ()


def set_scene(management: Management) -> Scene:
    """Create what is missing. Refused when a name is taken by another kind of entity."""
    tier = management.tier()
    # In a premium namespace the bus decides, and refuses a choice.
    spread = {} if tier == "premium" else {"EnablePartitioning": "true"}
    _make(management, QUEUE, ORDERS, {**_ELEMENTS, **spread, "MaxDeliveryCount": "10"})
    if tier == "basic":
        return Scene(has_topic=False)
    _make(management, TOPIC, EVENTS, {**_ELEMENTS, **spread})
    for path, expression in RULES.items():
        rule = AtomRule("$Default", SQL, expression)
        _make(management, SUBSCRIPTION, path, dict(_ELEMENTS), rule)
    return Scene(has_topic=True)


def _make(
    management: Management,
    kind: EntityKind,
    path: str,
    elements: dict[str, str],
    rule: AtomRule | None = None,
) -> None:
    kinds = (SUBSCRIPTION,) if kind is SUBSCRIPTION else (QUEUE, TOPIC)
    found = management.look(path, kinds)
    if found is None:
        management.create(kind, path, elements, rule)
    elif found[0] is not kind:
        raise Refused(
            f"the demo needs a {kind.word} {path}, but there is a {found[0].word} of this name"
        )
