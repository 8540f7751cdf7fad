"""What is wrong with a store: where, which messages it costs, what it means and what to do."""

from __future__ import annotations

from typing import Final, final

NOBODY: Final = -1
"""As an entity or a fragment: not known."""

REPAIR: Final = "run `shardbus check --repair`, or restore a copy of the file"


@final
class Damage:
    """One finding. `ranges` are the sequence numbers of the messages that cannot be served.

    `is_loss` is false for what a repair puts right without losing a message.
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
    """Rising numbers as ranges, both ends included."""
    ranges: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return ranges


@final
class StoreReport:
    """What a store file holds and what is wrong with it."""

    def __init__(self, file: str) -> None:
        self.file = file
        # The namespace to which the file belongs, if any.
        self.namespace_id = ""
        self.highest_entity_id = 0
        self.fragments: list[tuple[int, int]] = []
        # Of each fragment: how many messages there are, and of how many bytes.
        self.held: dict[tuple[int, int], tuple[int, int]] = {}
        self.messages = 0
        self.set_aside = 0
        self.sessions = 0
        self.states = 0
        # Records of message ids, each of a commit.
        self.remembered = 0
        # Records that fragments keep.
        self.records = 0
        # Pieces of stages.
        self.pieces = 0
        self.damages: list[Damage] = []
        # Whether SQLite could not read everything, so that rows may be missing without a trace.
        self.is_torn = False
        self.is_readable = True

    def is_sound(self) -> bool:
        return not self.damages
