"""Where a fragment of a topic publishes: the runners of its subscriptions, and what they hold."""
# Compiled by mypyc.

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, final

from shardbus.broker.fragment.publishing import COPY_STEPS, Publisher
from shardbus.core.fragment.fragment import Fragment
from shardbus.core.limits import ADMITTED_MAX
from shardbus.core.message import Entry
from shardbus.core.namespace.entity import Entity
from shardbus.stores.base.store import FragmentId

if TYPE_CHECKING:
    from shardbus.broker.fragment.runner import Runner

# Copies in one joint; further messages wait for the next.
GATHERED_MAX: Final = 20_000
# Their bytes: those of payloads that actions made, and of the properties that they set.
GATHERED_BYTES_MAX: Final = 64 * 1024 * 1024
# Between two measurements the size of subscriptions is known only as an upper bound.
MEASURE_MS: Final = 1_000


class Runners(Protocol):
    """Runs the fragments of the same store."""

    def runner(self, entity: Entity, number: int) -> Runner:
        """The runner of a fragment, started if necessary."""
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
        # The messages that became active, and how many of them have been gathered.
        self._published: list[Entry] = []
        self._position = 0
        self._steps = 0
        self._gathered_count = 0
        self._made_bytes = 0
        self._is_unordered = False
        self._held_bytes = 0
        self._measured_ms = -MEASURE_MS

    @property
    def is_told(self) -> bool:
        """Whether the subscriptions are known: until then no message can be accepted."""
        return self._publisher.is_told

    @property
    def is_held(self) -> bool:
        """Whether the rules are changing: nothing may be published now."""
        return self._publisher.is_held

    def followers(self) -> list[FragmentId]:
        """The fragments that take over what this one numbers."""
        return [FragmentId(each, self._number) for each in self._publisher.subscriptions]

    def is_full(self) -> bool:
        """Whether nothing more may be published in this turn of the loop."""
        return self.is_unfinished or self.is_tired or self._is_gathered()

    @property
    def room(self) -> int:
        """How many messages certainly fit in a commit; 0 when it has enough.

        The results of a rule with an action are unknown in advance: then it is one message at a
        time.
        """
        publisher, room = self._publisher, GATHERED_MAX - self._gathered_count
        if room <= 0 or self._made_bytes >= GATHERED_BYTES_MAX:
            return 0
        if publisher.has_actions:
            return 1
        return min(max(1, room // max(1, publisher.copies_max)), ADMITTED_MAX)

    @property
    def is_tired(self) -> bool:
        """Whether enough was done in this turn of the loop."""
        return self._steps >= self._publisher.steps_max

    @property
    def delivered_max(self) -> int:
        """How many copies the receiving runners take over in one turn of the loop."""
        return self._publisher.steps_max // COPY_STEPS

    def begin_turn(self) -> None:
        """A new turn of the loop."""
        self._steps = 0

    def wants_turn(self, is_waiting: bool) -> bool:
        """Whether to continue in another turn before anything is stored.

        Unfinished work must be finished. If commands wait, those that fit in the commit are decided
        first: otherwise topics with many rules would store a few messages at a time.
        """
        return self.is_unfinished or (is_waiting and self.is_tired and not self._is_gathered())

    def _is_gathered(self) -> bool:
        """Whether enough has been gathered for one commit, or the rules are about to change."""
        if self._publisher.is_held:
            return True
        return self._gathered_count >= GATHERED_MAX or self._made_bytes >= GATHERED_BYTES_MAX

    def measure(self, fragment: Fragment, steady_ms: int) -> None:
        """Tell the fragment how much the subscriptions hold, exactly when it matters."""
        if steady_ms - self._measured_ms < MEASURE_MS and not fragment.is_full():
            return
        self._measured_ms = steady_ms
        self._held_bytes = 0
        for subscription_id in self._publisher.subscriptions:
            runner = self._runners.running(FragmentId(subscription_id, self._number))
            if runner is not None:
                held = runner.statistics()
                self._held_bytes += 0 if held is None else held.size_bytes()
        for entries in self._gathered.values():
            self._held_bytes += _size_bytes(entries)
        fragment.note_subscribed(self._held_bytes)

    def publish(self, fragment: Fragment) -> None:
        """Determine which subscriptions get the messages that became active, and number the copies.

        While `is_unfinished`, some messages are left for `publish_on`, and nothing may be stored.
        """
        published = fragment.published()
        if published:
            assert not self._published, "the messages published before must have been gathered"
            self._published = published
            self._publisher.begun()
            self.publish_on(fragment)

    @property
    def is_unfinished(self) -> bool:
        """Whether some messages that became active have not been matched yet."""
        return len(self._published) > 0

    def publish_on(self, fragment: Fragment) -> None:
        """Gather more of the messages that became active, as many as one turn of the loop
        allows.
        """
        published = self._published
        position = self._position
        steps = self._steps
        steps_max = self._publisher.steps_max
        while position < len(published) and steps < steps_max:
            entry = published[position]
            position += 1
            steps += self._publisher.weight
            for parcel in self._publisher.parcels(entry):
                self._gather(fragment, parcel.subscription, parcel.entries)
                if parcel.is_changed:
                    self._made_bytes += _made_bytes(entry, parcel.entries)
                steps += COPY_STEPS * len(parcel.entries)
        self._steps = steps
        self._position = position
        if position >= len(published):
            self._end()
        fragment.note_subscribed(self._held_bytes)

    def _end(self) -> None:
        if self._published:
            self._published = []
            self._position = 0
            self._publisher.ended()

    def take(self) -> list[tuple[Runner, list[Entry]]]:
        """What was gathered, by runner, with ascending numbers."""
        gathered, self._gathered = self._gathered, {}
        receivers, self._receivers = self._receivers, {}
        self._gathered_count = 0
        self._made_bytes = 0
        if self._is_unordered:
            self._is_unordered = False
            for entries in gathered.values():
                entries.sort(key=_sequence_number)
        return [
            (self._runners.runner(receivers[subscription_id], self._number), entries)
            for subscription_id, entries in gathered.items()
        ]

    def forget(self) -> None:
        """The fragment is loaded again, or stopped: its messages were not published."""
        self._end()
        self._gathered = {}
        self._receivers = {}
        self._gathered_count = 0
        self._made_bytes = 0
        self._is_unordered = False
        self._measured_ms = -MEASURE_MS

    def _gather(self, fragment: Fragment, subscription: Entity, entries: list[Entry]) -> None:
        further = len(entries) - 1
        if entries[0].past_number:
            # Its number lies before those of others that are gathered.
            self._is_unordered = True
        if further > 0:
            self._is_unordered = True
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


def _made_bytes(entry: Entry, copies: list[Entry]) -> int:
    """The bytes that copies have and their message has not."""
    made_bytes = 0
    for copy in copies:
        made_bytes += len(copy.modified)
        if copy.payload is not entry.payload:
            made_bytes += copy.size_bytes
    return made_bytes


def _size_bytes(entries: list[Entry]) -> int:
    return sum([entry.size_bytes for entry in entries])


def _sequence_number(entry: Entry) -> int:
    return entry.sequence_number
