"""Whether a fragment accepts messages: a sealed one keeps and delivers those that it has (P6)."""

from __future__ import annotations

from typing import Final, final

from shardbus.core.errors import REPARTITIONING, Refused
from shardbus.core.fragment.change import RecordChange
from shardbus.core.fragment.line import Line
from shardbus.core.fragment.records import SEAL
from shardbus.core.integers import pack_integers, unpack_integers

SEALED_TEXT: Final = "The entity is being repartitioned: send the message again."

_KEY: Final = b"map"
_IDS_KEY: Final = b"ids"


@final
class Standing:
    """Whether a topic's fragment is sealed, and whether it has messages that it has not published
    yet.

    The fragments of its subscriptions with the same number accept messages from it alone. So they
    have no seal of their own: they are sealed when it is.
    """

    def __init__(self, is_sealed: bool, has_scheduled: bool) -> None:
        self.is_sealed = is_sealed
        self.has_scheduled = has_scheduled


@final
class FragmentSeal:
    """The stored seal of one fragment: the last map for which it was sealed or opened, and whether
    it is sealed for that map.

    `is_final`: a sealed fragment gets no more messages. That of a subscription may get those that
    were scheduled before.
    """

    def __init__(self, records: dict[tuple[int, bytes], bytes]) -> None:
        self.map_number = 0
        self.is_sealed = False
        data = records.get((SEAL, _KEY))
        if data is not None:
            self.map_number, sealed = unpack_integers(data)
            self.is_sealed = sealed != 0
        self._has_scheduled = False
        # Whether ids were carried over from a map with digests of the other form.
        self.has_both_forms = (SEAL, _IDS_KEY) in records

    @property
    def is_final(self) -> bool:
        return self.is_sealed and not self._has_scheduled

    def follow(self, standing: Standing) -> None:
        """Be sealed as the fragment of the topic."""
        self.is_sealed = standing.is_sealed
        self._has_scheduled = standing.has_scheduled

    def check(self) -> None:
        """Refused when the fragment is sealed."""
        if self.is_sealed:
            raise Refused(REPARTITIONING, SEALED_TEXT)

    def note_both_forms(self, has_both: bool) -> RecordChange:
        """Note whether digests of both forms are remembered; returns the change to store."""
        self.has_both_forms = has_both
        return RecordChange(SEAL, _IDS_KEY, pack_integers([1]) if has_both else None)

    def is_left(self, line: Line) -> bool:
        """Whether the fragment is sealed and a line is not empty, even if nothing more of it can be
        locked now.
        """
        return self.is_sealed and (len(line) > 0 or line.has_tail)

    def turn(self, map_number: int, is_open: bool) -> RecordChange | None:
        """Seal or open the fragment for a map; the change to store, or None if there is none.

        Map 0 changes nothing. Refused when the command is late.
        """
        if map_number == 0:
            return None
        is_late = map_number < self.map_number
        is_known = map_number == self.map_number
        if (is_known and self.is_sealed != is_open) or (is_late and is_open and not self.is_sealed):
            return None
        if is_late or (is_known and not is_open):
            raise Refused(
                REPARTITIONING,
                f"The fragment already uses map {self.map_number}; the command for map "
                f"{map_number} is too late. Repeat the repartition.",
            )
        self.map_number = map_number
        self.is_sealed = not is_open
        data = pack_integers([map_number, int(self.is_sealed)])
        return RecordChange(SEAL, _KEY, data)
