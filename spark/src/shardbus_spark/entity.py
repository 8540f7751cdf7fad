"""The bus's description of an entity, checked."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from shardbus_spark.client import RETRY_S, Client
from shardbus_spark.errors import ShardbusError, Unavailable

AVAILABLE: Final = "available"
_PAUSE_S: Final = 0.5
# How long an idle stream waits for changes in one request.
WAIT_MS: Final = 500
POLL_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class FragmentState:
    """The range of a fragment: messages have numbers from `first` on and below `next`.

    `is_known` is false when the bus does not know it at this moment.
    """

    number: int
    first: int
    next: int
    waiting: int
    size_bytes: int
    is_known: bool = True


@dataclass(frozen=True, slots=True)
class EntityState:
    """`incarnation` changes when the entity is deleted and created again, `stamp` when anything in
    it changes; it is empty if the bus does not report it.
    """

    incarnation: str
    requires_session: bool
    fragments: tuple[FragmentState, ...]
    stamp: str = ""

    def unknown(self) -> list[int]:
        return [part.number for part in self.fragments if not part.is_known]


def news(client: Client, entity: str, known: EntityState | None, *, table: str = "") -> EntityState:
    """The entity as it is now or, if that is already known, a while later.

    A bus that cannot wait answers at once: then this waits a little itself.
    """
    if known is None or not known.stamp:
        return describe(client, entity, table=table)
    asked_s = time.monotonic()
    state = describe(client, entity, known=known.stamp, wait_ms=WAIT_MS, table=table)
    if state.stamp == known.stamp:
        time.sleep(max(POLL_S - (time.monotonic() - asked_s), 0.0))
        # If nothing changed the bus has not looked up where fragments begin.
        return known
    return state


def describe(
    client: Client, entity: str, *, known: str = "", wait_ms: int = 0, table: str = ""
) -> EntityState:
    """The entity as it is now; ShardbusError when the answer cannot be read."""
    answer = client.describe(entity, known=known, wait_ms=wait_ms, table=table)
    try:
        fragments = answer["fragments"]
        assert isinstance(fragments, list)
        return EntityState(
            incarnation=str(answer["incarnation"]),
            requires_session=bool(answer["requires_session"]),
            fragments=tuple(
                sorted((_fragment(part) for part in fragments), key=lambda part: part.number)
            ),
            stamp=str(answer.get("stamp", "")),
        )
    except (KeyError, TypeError, ValueError, AssertionError) as error:
        raise ShardbusError(
            f"the bus's description of {entity} cannot be read: it may be of another version"
        ) from error


def describe_whole(
    client: Client, entity: str, *, retry_s: float = RETRY_S, table: str = ""
) -> EntityState:
    """The entity when every fragment of it is known; Unavailable when that takes too long.

    Where a range is decided once and for all, a fragment that is briefly unavailable would be taken
    for an empty one.
    """
    deadline_s = time.monotonic() + retry_s
    while True:
        state = describe(client, entity, table=table)
        if not state.unknown():
            return state
        if time.monotonic() + _PAUSE_S > deadline_s:
            raise Unavailable(
                f"fragments {state.unknown()} of {entity} are unreachable; try again when "
                "the bus is healthy"
            )
        time.sleep(_PAUSE_S)


def _fragment(part: dict[str, object]) -> FragmentState:
    first, following = _number(part, "first"), _number(part, "next")
    # A fragment that cannot be written still has its numbers; one that cannot be asked has none.
    is_known = part.get("is_counted", part["state"] == AVAILABLE or following > first)
    return FragmentState(
        _number(part, "number"),
        first,
        following,
        _number(part, "waiting"),
        _number(part, "size_bytes"),
        bool(is_known),
    )


def _number(part: dict[str, object], name: str) -> int:
    found = part[name]
    if not isinstance(found, int):
        raise TypeError(f"{name} is not a number")
    return found
