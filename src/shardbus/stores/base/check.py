"""Findings of an examination of unserved stores of any kind.

A finding says where the damage is, which messages it costs, what it means and what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, final

from shardbus.core.namespace.access import AccessRule
from shardbus.core.namespace.entity import Entity
from shardbus.stores.base.backup import broker_name, copy_name
from shardbus.stores.base.store import Unfinished

Progress = Callable[[int], None]
"""Called with the number of bytes read since the last call."""

NOBODY: Final = -1
"""In place of an entity or fragment number: unknown."""

REPAIR: Final = "run `shardbus check --repair`, or restore a copy of the file"


@final
class Damage:
    """One finding. `ranges` are the sequence numbers of the messages that cannot be served.

    `is_loss` is false if a repair fixes the damage without losing a message.
    """

    def __init__(  # noqa: PLR0913 - a record: all but the first two go by keyword
        self,
        file: str,
        what: str,
        *,
        meaning: str,
        advice: str = REPAIR,
        entity_id: int = NOBODY,
        fragment: int = NOBODY,
        sequence_numbers: list[int] | None = None,
        is_loss: bool = True,
    ) -> None:
        self.file = file
        self.what = what
        self.meaning = meaning
        self.advice = advice
        self.entity_id = entity_id
        self.fragment = fragment
        self.ranges = ranges_of(sequence_numbers or [])
        self.is_loss = is_loss

    def count(self) -> int:
        return sum(last - first + 1 for first, last in self.ranges)


def ranges_of(numbers: list[int]) -> list[tuple[int, int]]:
    """Ascending numbers as ranges, both ends included."""
    ranges: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return ranges


@final
class StoreReport:
    """What the store of a broker holds, and what is wrong with it; `file` is its name."""

    def __init__(self, file: str, broker_index: int) -> None:
        self.file = file
        self.broker_index = broker_index
        # The namespace to which the file belongs; empty if to none.
        self.namespace_id = ""
        self.highest_entity_id = 0
        self.fragments: list[tuple[int, int]] = []
        # The number and the bytes of messages by fragment.
        self.held: dict[tuple[int, int], tuple[int, int]] = {}
        self.messages = 0
        self.set_aside = 0
        self.sessions = 0
        self.states = 0
        # Records of message ids, one for each commit.
        self.remembered = 0
        # Records that fragments keep.
        self.records = 0
        # Pieces of stages.
        self.pieces = 0
        self.damages: list[Damage] = []
        # True when something could not be read, so that rows may be missing without a trace.
        self.is_torn = False
        self.is_readable = True

    def is_sound(self) -> bool:
        return not self.damages


@final
class Repaired:
    """The result of a repair: `kept_as` is the new name of the old file, "" when it was left in
    place.
    """

    def __init__(self, report: StoreReport, kept_as: str, served: int, set_aside: int) -> None:
        self.report = report
        self.kept_as = kept_as
        self.served = served
        self.set_aside = set_aside


@final
class CatalogueReport:
    """What the catalogue holds. `is_known` is false when it cannot be read as a whole."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.namespace_id = ""
        self.created_at_ms = 0
        self.next_entity_id = 1
        self.entities: list[Entity] = []
        self.unfinished: list[Unfinished] = []
        self.damaged_ids: list[int] = []
        self.rules: list[AccessRule] = []
        self.damages: list[Damage] = []
        self.is_known = False

    def add(self, what: str, meaning: str, advice: str = REPAIR) -> Damage:
        damage = Damage(self.file, what, meaning=meaning, advice=advice)
        self.damages.append(damage)
        return damage


def check_homes(catalogue: CatalogueReport, stores: Sequence[StoreReport]) -> list[Damage]:
    """Fragments of entities that their stores lack."""
    damages: list[Damage] = []
    held = {store.broker_index: set(store.fragments) for store in stores}
    unread = {store.broker_index for store in stores if not store.is_readable}
    for entity in catalogue.entities:
        for home in entity.fragments:
            here = held.get(home.broker_index, set())
            if home.broker_index in unread or (entity.entity_id, home.number) in here:
                continue
            damages.append(
                Damage(
                    copy_name(broker_name(home.broker_index)),
                    f"fragment {home.number} of '{entity.name}' is not in the file",
                    meaning="its messages are lost and the fragment cannot be used",
                    advice="restore a copy of the file; or start the server, delete the entity and "
                    "create it again",
                    entity_id=entity.entity_id,
                    fragment=home.number,
                )
            )
    return damages


def check_namespace(catalogue: CatalogueReport, stores: Sequence[StoreReport]) -> list[Damage]:
    """Stores that belong to another namespace than the catalogue."""
    return [
        Damage(
            store.file,
            f"the store belongs to the namespace {store.namespace_id}, but the catalogue to "
            f"{catalogue.namespace_id}",
            meaning="nothing in it is served",
            advice="put the store of this namespace in its place, restore the catalogue of the "
            "other namespace, or let this namespace take the store over with `shardbus check "
            "--adopt`",
        )
        for store in stores
        if store.namespace_id not in ("", catalogue.namespace_id)
    ]


@final
class OrphanReport:
    """Fragments of one entity in one file that no entity of the catalogue owns."""

    def __init__(self, file: str, entity_id: int) -> None:
        self.file = file
        self.entity_id = entity_id
        self.numbers: list[int] = []
        self.messages = 0
        self.size_bytes = 0


def orphans(catalogue: CatalogueReport, stores: Sequence[StoreReport]) -> list[OrphanReport]:
    """Fragments that no entity owns and no unfinished deletion will remove: they are kept.

    Fragments of entities whose record is damaged are not included.
    """
    if not catalogue.is_known:
        return []
    entities = [*catalogue.entities, *(each.entity for each in catalogue.unfinished)]
    owned = {
        (home.broker_index, entity.entity_id, home.number)
        for entity in entities
        for home in entity.every_home()
    }
    found: dict[tuple[str, int], OrphanReport] = {}
    for store in stores:
        for fragment, (messages, size_bytes) in sorted(store.held.items()):
            if (store.broker_index, *fragment) in owned or fragment[0] in catalogue.damaged_ids:
                continue
            key = (store.file, fragment[0])
            orphan = found.setdefault(key, OrphanReport(*key))
            orphan.numbers.append(fragment[1])
            orphan.messages += messages
            orphan.size_bytes += size_bytes
    return list(found.values())
