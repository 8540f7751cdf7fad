"""How far readers are behind, as metrics: consuming ones, and captures that only browse."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, final

from shardbus.broker.namespace.host import FragmentStatistics
from shardbus.core.namespace.address import line_path
from shardbus.core.namespace.entity import Entity
from shardbus.core.sequence import counter_of
from shardbus.gateway.http.observing.exposition import Family

READERS: Final = "shardbus_readers"
READERS_SHOWN: Final = "shardbus_readers_shown"
LAG: Final = "shardbus_reader_lag_messages"
CLAIMED: Final = "shardbus_reader_claimed_messages"

CONSUME: Final = "consume"
BROWSE: Final = "browse"

READER_FRAGMENTS_MAX: Final = 2_000
"""Fragments, summed over the shown readers."""


@final
class Follower:
    """A process that browses an entity, and the sequence number that it reads next in each
    fragment.

    `incarnation` is the entity's when the numbers were read: an entity that is created again has
    another.
    """

    def __init__(
        self, name: str, entity: str, incarnation: str, following: Mapping[int, int]
    ) -> None:
        self.name = name
        self.entity = entity
        self.incarnation = incarnation
        self.following = following


@final
class ReaderFamilies:
    """Adds the readers that one scrape finds to the metrics.

    A reader is shown with all its fragments or not at all, so that sums over them are right.
    """

    def __init__(
        self, families: Mapping[str, Family], followers: Iterable[Follower], most: int
    ) -> None:
        """At most `most` fragments are shown of all readers together."""
        self._families = families
        self._followers: dict[str, list[Follower]] = {}
        for follower in followers:
            self._followers.setdefault(follower.entity.lower(), []).append(follower)
        self._left = most
        self._found = 0
        self._shown = 0

    def add(self, entity: Entity, fragments: Iterable[FragmentStatistics]) -> None:
        """The readers of an entity, as far as its fragments could be counted."""
        counted = [part for part in fragments if part.is_counted]
        self._consuming(entity, counted)
        for follower in self._followers.get(entity.name.lower(), []):
            if follower.incarnation == str(entity.entity_id):
                self._browsing(entity, follower, counted)

    def end(self) -> None:
        self._families[READERS].add(self._found)
        self._families[READERS_SHOWN].add(self._shown)

    def _consuming(self, entity: Entity, counted: list[FragmentStatistics]) -> None:
        found: dict[tuple[int, str], list[tuple[int, int, int]]] = {}
        for part in counted:
            for one in part.readers:
                standing = (part.number, one.waiting, one.claimed)
                found.setdefault((one.line, one.name), []).append(standing)
        for (line, name), standings in sorted(found.items()):
            if not self._has_room(len(standings)):
                continue
            for number, waiting, claimed in standings:
                labels = _labels(line_path(entity.name, line), name, CONSUME, number)
                self._families[LAG].add(waiting, **labels)
                self._families[CLAIMED].add(claimed, **labels)

    def _browsing(
        self, entity: Entity, follower: Follower, counted: list[FragmentStatistics]
    ) -> None:
        followed = [part for part in counted if part.number in follower.following]
        if not self._has_room(len(followed)):
            return
        for part in followed:
            behind = part.sent_total + 1 - counter_of(follower.following[part.number])
            labels = _labels(entity.name, follower.name, BROWSE, part.number)
            self._families[LAG].add(max(behind, 0), **labels)

    def _has_room(self, fragments: int) -> bool:
        """Count a reader, and return whether it is shown."""
        self._found += 1
        if fragments > self._left:
            return False
        self._left -= fragments
        self._shown += 1
        return True


def _labels(entity: str, reader: str, mode: str, fragment: int) -> dict[str, str]:
    return {"entity": entity, "reader": reader, "mode": mode, "fragment": str(fragment)}
