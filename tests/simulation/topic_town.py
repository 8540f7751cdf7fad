"""A town with topics, and the book of what they promise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from shardbus.broker.namespace.namespace import Namespace
from shardbus.core.namespace.entity import EntitySpec
from shardbus.stores.base.store import FragmentCommit
from tests.simulation.sending import Violation
from tests.simulation.tally import befell
from tests.simulation.topic_book import TopicBook
from tests.simulation.town import Town
from tests.simulation.world import Wall

WINDOW_MS: Final = 20_000


class TopicPlan(NamedTuple):
    name: str
    is_partitioned: bool
    detects_duplicates: bool

    def spec(self) -> EntitySpec:
        spec = EntitySpec()
        spec.is_partitioned = self.is_partitioned
        spec.requires_duplicate_detection = self.detects_duplicates
        spec.duplicate_window_ms = WINDOW_MS
        return spec


class TopicTown(Town):
    def __init__(self, seed: int, plans: Sequence[TopicPlan]) -> None:
        self.book = TopicBook(self.name_of, WINDOW_MS)
        self.plans = plans
        self.has_maps = False
        # Subscriptions that somebody was told of.
        self.created: set[int] = set()
        super().__init__(seed, sites=2)

    def have_other_maps(self) -> None:
        """The topics get other fragments: only those with keys keep their order, and ids are
        remembered a little longer.
        """
        self.has_maps = True
        self.book.window_slack_ms = WINDOW_MS // 50

    def walls(self) -> list[Wall]:
        """Not those of brokers: publications are expected at their moments."""
        return [self.clock.wall]

    def stored(self, commits: Sequence[FragmentCommit]) -> None:
        self.book.stored(commits, self.now_ms())

    async def remove_unknown(self, namespace: Namespace) -> None:
        """A gateway that died before it recorded a subscription had told brokers of it: what was
        published since is kept for an operator to remove.
        """
        for entity_id in {orphan.entity_id for orphan in await namespace.orphans()}:
            if entity_id in self.created:
                raise Violation(f"subscription {entity_id} was created, and is an orphan now")
            befell("orphan")
            await namespace.remove_orphan(entity_id)

    def check_owned(self, namespace: Namespace) -> None:
        """No fragment is left of what was deleted or never came to be (R28)."""
        for index, site in enumerate(self.sites):
            for fragment in site.disk.kept.fragments():
                entity = namespace.find_id(fragment.entity_id)
                if entity is None or fragment.number not in entity.numbers_at(index):
                    raise Violation(f"{fragment} belongs to nobody")
