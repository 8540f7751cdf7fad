"""Where a fragment of a topic publishes: the runners of its subscriptions, and what they hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, final

from shardbus.broker.publishing import Publisher
from shardbus.core.entity import Entity
from shardbus.core.fragment import Fragment
from shardbus.core.message import Entry
from shardbus.stores.base import FragmentId

if TYPE_CHECKING:
    from shardbus.broker.runner import Runner

# Copies that one joint takes before what waits is left for the next.
GATHERED_MAX: Final = 20_000
# What subscriptions hold is known from above between two looks at all of them.
MEASURE_MS: Final = 1_000


class Runners(Protocol):
    """Whoever runs the fragments of the same store."""

    def runner(self, entity: Entity, number: int) -> Runner:
        """The runner of a fragment, started if need be."""
        ...

    def running(self, fragment_id: FragmentId) -> Runner | None:
        """The runner of a fragment if it has been started."""
        ...


@final
class Outlet:
    """Gathers what one fragment of a topic publishes until it is committed."""

    def __init__(self, number: int, publisher: Publisher, runners: Runners) -> None:
        self._number = number
        self._publisher = publisher
        self._runners = runners
        self._gathered: dict[int, list[Entry]] = {}
        self._receivers: dict[int, Entity] = {}
        self._gathered_count = 0
        self._has_further = False
        self._held_bytes = 0
        self._measured_at_ms = -MEASURE_MS

    @property
    def is_told(self) -> bool:
        """Whether it is known who subscribes: until then nothing can be accepted."""
        return self._publisher.is_told

    def followers(self) -> list[FragmentId]:
        """The fragments that take over what this one numbers."""
        return [FragmentId(each, self._number) for each in self._publisher.subscriptions]

    def is_full(self) -> bool:
        """Whether enough has been gathered for one commit."""
        return self._gathered_count >= GATHERED_MAX

    def measure(self, fragment: Fragment, now_ms: int) -> None:
        """Let the fragment know how much the subscriptions hold, exactly when it matters."""
        if now_ms - self._measured_at_ms < MEASURE_MS and not fragment.is_full():
            return
        self._measured_at_ms = now_ms
        self._held_bytes = 0
        for subscription_id in self._publisher.subscriptions:
            runner = self._runners.running(FragmentId(subscription_id, self._number))
            if runner is not None:
                self._held_bytes += runner.size_bytes()
        for entries in self._gathered.values():
            self._held_bytes += _size_bytes(entries)
        fragment.note_subscribed(self._held_bytes)

    def publish(self, fragment: Fragment) -> None:
        """Find out who gets what became active, and number the copies."""
        published = fragment.published()
        if not published:
            return
        for entry in published:
            for parcel in self._publisher.parcels(entry):
                self._gather(fragment, parcel.subscription, parcel.entries)
        fragment.note_subscribed(self._held_bytes)

    def take(self) -> list[tuple[Runner, list[Entry]]]:
        """What was gathered, for each runner with rising numbers."""
        gathered, self._gathered = self._gathered, {}
        receivers, self._receivers = self._receivers, {}
        self._gathered_count = 0
        if self._has_further:
            self._has_further = False
            for entries in gathered.values():
                entries.sort(key=_sequence_number)
        return [
            (self._runners.runner(receivers[subscription_id], self._number), entries)
            for subscription_id, entries in gathered.items()
        ]

    def forget(self) -> None:
        """The fragment is loaded again: what it published was not."""
        self._gathered = {}
        self._receivers = {}
        self._gathered_count = 0
        self._has_further = False
        self._measured_at_ms = -MEASURE_MS

    def _gather(self, fragment: Fragment, subscription: Entity, entries: list[Entry]) -> None:
        further = len(entries) - 1
        if further > 0:
            self._has_further = True
            number = fragment.number_copies(further)
            for entry in entries[1:]:
                entry.sequence_number = number
                number += 1
        self._gathered_count += len(entries)
        self._held_bytes += _size_bytes(entries)
        gathered = self._gathered.get(subscription.entity_id)
        if gathered is None:
            self._gathered[subscription.entity_id] = entries
            self._receivers[subscription.entity_id] = subscription
        else:
            gathered += entries


def _size_bytes(entries: list[Entry]) -> int:
    return sum([entry.size_bytes for entry in entries])


def _sequence_number(entry: Entry) -> int:
    return entry.sequence_number
