"""The command that seals a fragment, and its reply (P6)."""

from __future__ import annotations

from typing import ClassVar, final

from shardbus.core.declared import COUNT, DATA, FLAG, NUMBER, OF_SEALING, Asked, Declared, fields


class AboutSealing(Asked):
    """A command about the seal of a fragment."""

    FAMILY: ClassVar[int] = OF_SEALING


@final
class Seal(AboutSealing):
    """Accept no more messages, or accept them again (`is_open`). Answered by `Sealed`.

    `map_number` is the number of the map that requires it. A fragment that was opened again for
    this map, or already uses a later one, refuses to be sealed for this map: the command is too
    late. With 0 the command only asks for the state.
    """

    SINCE = 12
    FIELDS = fields(map_number=NUMBER, is_open=FLAG)

    def __init__(self, map_number: int, is_open: bool = False) -> None:
        self.map_number = map_number
        self.is_open = is_open


@final
class Sealed(Declared):
    """The fragment is sealed, or open again, and its state is stored.

    `is_sealed`: which of the two. `pending` counts the transactions and publications that were
    promised before and may still add messages; `stages` counts the stages of the data pipeline in
    the fragment, and `ids` the message ids that it remembers.
    """

    SINCE = 12
    FIELDS = fields(is_sealed=FLAG, pending=COUNT, stages=COUNT, ids=COUNT)

    def __init__(self, is_sealed: bool, pending: int, stages: int, ids: int) -> None:
        self.is_sealed = is_sealed
        self.pending = pending
        self.stages = stages
        self.ids = ids


@final
class TellIds(AboutSealing):
    """Return the message ids that the fragment remembers, beginning at a position. Answered by
    `IdsTold`.
    """

    SINCE = 12
    FIELDS = fields(start=COUNT)

    def __init__(self, start: int) -> None:
        self.start = start


@final
class IdsTold(Declared):
    """Some ids, each a digest and its age, and the position at which to continue, 0 at the end.

    `has_both_forms`: whether the remembered ids may include digests of both forms, those of ids
    alone and those of ids with keys.
    """

    SINCE = 12
    FIELDS = fields(page=DATA, following=COUNT, has_both_forms=FLAG)

    def __init__(self, page: bytes, following: int, has_both_forms: bool) -> None:
        self.page = page
        self.following = following
        self.has_both_forms = has_both_forms


@final
class LearnIds(AboutSealing):
    """Remember ids that fragments of the former map remembered. Answered by `Done`.

    Refused with QUOTA_EXCEEDED if there are too many.
    """

    SINCE = 12
    FIELDS = fields(page=DATA, has_both_forms=FLAG)

    def __init__(self, page: bytes, has_both_forms: bool) -> None:
        self.page = page
        self.has_both_forms = has_both_forms


SealingCommand = Seal | TellIds | LearnIds
SealingReply = Sealed | IdsTold
