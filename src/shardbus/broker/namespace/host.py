"""The interface of a broker for the namespace, and the statistics of fragments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol, final

from shardbus.broker.survey import Survey
from shardbus.core.message import DEAD_LETTER_LINE, MAIN_LINE, TRANSFER_DEAD_LETTER_LINE
from shardbus.core.namespace.entity import Entity
from shardbus.core.readers.record import ReaderStanding
from shardbus.stores.base.store import FragmentId

FRAGMENT_AVAILABLE: Final = "available"
FRAGMENT_UNAVAILABLE: Final = "unavailable"

AVAILABLE_STATUS: Final = "Available"
LIMITED_STATUS: Final = "Limited"


@final
class FragmentStatistics:
    """What one fragment holds. `counts[line]` includes locked messages; for the main line it counts
    the active ones, in addition to `deferred_count` and `scheduled_count`. No line counts the
    `set_aside_count` messages that were found damaged and are not served. `claimed_count` messages
    are claimed by readers; they are among the active ones or the dead letters. `readers` tells how
    far each reader is, by line and name. `sent_total` counts every message that was ever sent to
    the fragment: two readings give a rate. `duplicate_count` messages were ever dropped as
    duplicates; `state_count` sessions have a state.

    `last_used_ms` is when a client last used the fragment since its broker started; 0: not yet.
    `unused_ms` is the time since then by a clock that is never set; the start of a broker counts as
    use. `reason` says why the state is not FRAGMENT_AVAILABLE, or why an available one accepts no
    additions. `is_counted` is false when the numbers are unknown too; a fragment that only cannot
    be written has them from its store. `is_missing` says that the store can be read and does not
    have the fragment.
    """

    def __init__(
        self, number: int, counts: list[int], size_bytes: int, state: str, reason: str
    ) -> None:
        self.number = number
        self.counts = counts
        self.deferred_count = 0
        self.scheduled_count = 0
        self.set_aside_count = 0
        self.claimed_count = 0
        self.readers: list[ReaderStanding] = []
        self.sent_total = 0
        self.duplicate_count = 0
        self.state_count = 0
        self.last_used_ms = 0
        self.unused_ms = 0
        self.size_bytes = size_bytes
        self.state = state
        self.reason = reason
        self.is_counted = state == FRAGMENT_AVAILABLE
        self.is_missing = False


class FragmentHost(Protocol):
    """A broker. Every method may raise Unavailable."""

    name: str

    async def join(self, namespace_id: str, *, is_empty_expected: bool) -> int:
        """Serve this namespace and no other from now on; returns the highest entity id it ever
        knew.

        Unavailable when its store belongs to another namespace, or is missing or empty although the
        namespace has fragments there (unless `is_empty_expected`): the real store may be on a
        volume that is not mounted, and no new one is created.
        """
        ...

    async def create_fragments(self, entity: Entity, numbers: Sequence[int]) -> None:
        """Create empty fragments, durably, and run them; existing ones stay as they are."""
        ...

    async def update_fragments(self, entity: Entity, numbers: Sequence[int]) -> None:
        """Apply the entity's new description, without its rules."""
        ...

    async def update_topic(
        self, topic: Entity, subscriptions: Sequence[Entity], numbers: Sequence[int]
    ) -> None:
        """Publish to exactly these subscriptions, with their rules, from now on.

        `numbers` are the topic's fragments here, and the subscriptions' as well. Before the first
        call since its start, a broker accepts no message for the topic, because it does not know
        the subscriptions. A subscription that did not change is the same object as in the last
        call.
        """
        ...

    async def delete_fragments(self, entity_id: int, numbers: Sequence[int]) -> None:
        """Stop fragments and remove them, durably; unknown ones are ignored."""
        ...

    async def fragment_ids(self, *, is_timed: bool = False) -> list[FragmentId]:
        """Every fragment that its store holds; with `is_timed` only those in which something is
        due.
        """
        ...

    async def in_doubt(self) -> list[FragmentId]:
        """Every fragment with a promise or a decision about a transaction (R22)."""
        ...

    async def transferring(self) -> list[FragmentId]:
        """Every fragment that has ever given out messages to be transferred (R27)."""
        ...

    async def loss(self) -> str:
        """What its store has lost of stored commits; empty if nothing is known to be lost."""
        ...

    async def statistics(self, entity_id: int, numbers: Sequence[int]) -> list[FragmentStatistics]:
        """What the fragments hold, in the order asked for."""
        ...

    async def survey(self, since: int) -> Survey:
        """What has changed in all fragments after version `since` of an earlier answer; 0: all."""
        ...


@final
class EntityStatistics:
    """The sums over an entity's fragments (R29).

    With a fragment that cannot be counted `is_partial` is true, and the sums are those of the
    others. `size_bytes` of a topic includes what its `subscription_count` subscriptions hold; using
    one of them ends its `unused_ms`, and `subscriptions_used_ms` is when one was last used.
    `warnings` lists parts of the description that are probably mistakes.
    """

    def __init__(self, fragments: list[FragmentStatistics]) -> None:
        self.fragments = fragments
        reached = [part for part in fragments if part.is_counted]
        self.is_partial = len(reached) < len(fragments)
        self.deferred_count = sum(part.deferred_count for part in reached)
        # Includes deferred messages: none of the counts that clients know is for those alone.
        self.active_count = self.deferred_count + sum(part.counts[MAIN_LINE] for part in reached)
        self.dead_letter_count = sum(part.counts[DEAD_LETTER_LINE] for part in reached)
        self.transfer_dead_letter_count = sum(
            part.counts[TRANSFER_DEAD_LETTER_LINE] for part in reached
        )
        self.scheduled_count = sum(part.scheduled_count for part in reached)
        self.set_aside_count = sum(part.set_aside_count for part in reached)
        self.claimed_count = sum(part.claimed_count for part in reached)
        self.duplicate_count = sum(part.duplicate_count for part in reached)
        self.state_count = sum(part.state_count for part in reached)
        self.sent_total = sum(part.sent_total for part in reached)
        self.last_used_ms = max((part.last_used_ms for part in reached), default=0)
        self.unused_ms = min((part.unused_ms for part in reached), default=0)
        self.transfer_count = 0
        self.size_bytes = sum(part.size_bytes for part in reached)
        self.subscription_count = 0
        self.subscriptions_used_ms = 0
        self.warnings: list[str] = []

    def add_lines(self, part: EntityStatistics) -> None:
        """Add what the fragments of a subscription hold to those of the topic with the same
        numbers.
        """
        by_number = {each.number: each for each in self.fragments}
        for other in part.fragments:
            own = by_number.get(other.number)
            if own is None:
                # The topic was repartitioned in the meantime.
                continue
            own.counts = [one + more for one, more in zip(own.counts, other.counts, strict=True)]
            own.deferred_count += other.deferred_count
            own.scheduled_count += other.scheduled_count

    def add_subscription(self, part: EntityStatistics, updated_at_ms: int) -> None:
        """Add a subscription to the sums of its topic.

        Creating it, or changing it or its rules, is use of the topic.
        """
        self.subscription_count += 1
        used_ms = max(part.last_used_ms, updated_at_ms)
        self.subscriptions_used_ms = max(self.subscriptions_used_ms, used_ms)
        self.unused_ms = min(self.unused_ms, part.unused_ms)
        self.size_bytes += part.size_bytes
        self.is_partial |= part.is_partial

    @property
    def availability(self) -> str:
        is_whole = all(
            part.state == FRAGMENT_AVAILABLE and not part.reason for part in self.fragments
        )
        return AVAILABLE_STATUS if is_whole else LIMITED_STATUS

    def message_count(self) -> int:
        return (
            self.active_count
            + self.dead_letter_count
            + self.scheduled_count
            + self.transfer_count
            + self.transfer_dead_letter_count
        )

    def problems(self, *, is_missing_one: bool = True) -> list[str]:
        """Which fragments are unavailable and why; a missing one counts only if `is_missing_one`.

        A fragment that only accepts no additions is available: it can be updated and deleted.
        """
        return [
            f"fragment {part.number} is {part.state}: {part.reason}"
            for part in self.fragments
            if part.state != FRAGMENT_AVAILABLE and (is_missing_one or not part.is_missing)
        ]


def out_of_reach(number: int, reason: str) -> FragmentStatistics:
    """The statistics of a fragment whose broker does not answer."""
    return FragmentStatistics(number, [0, 0, 0], 0, FRAGMENT_UNAVAILABLE, reason)
