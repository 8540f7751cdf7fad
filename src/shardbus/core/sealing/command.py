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

    `map_number` is that of the map for whose sake this is done. Once the fragment was opened again
    for a map, or has heard of a later one, it is not sealed for that map: a command that comes late
    is refused. With 0 it only asks.
    """

    SINCE = 12
    FIELDS = fields(map_number=NUMBER, is_open=FLAG)

    def __init__(self, map_number: int, is_open: bool = False) -> None:
        self.map_number = map_number
        self.is_open = is_open


@final
class Sealed(Declared):
    """The fragment is sealed, or open again, and that is stored.

    `is_sealed` says which of both. `pending` counts the transactions and publications that were
    promised before and may still add messages; `stages` and `readers` are those of the data
    pipeline that the fragment has, and `ids` the message ids that it remembers.
    """

    SINCE = 12
    FIELDS = fields(is_sealed=FLAG, pending=COUNT, stages=COUNT, readers=COUNT, ids=COUNT)

    def __init__(self, is_sealed: bool, pending: int, stages: int, readers: int, ids: int) -> None:
        self.is_sealed = is_sealed
        self.pending = pending
        self.stages = stages
        self.readers = readers
        self.ids = ids


@final
class TellIds(AboutSealing):
    """Tell the message ids that the fragment remembers, from a place on. Answered by `IdsTold`."""

    SINCE = 12
    FIELDS = fields(start=COUNT)

    def __init__(self, start: int) -> None:
        self.start = start


@final
class IdsTold(Declared):
    """Some ids, each a digest and its age, and the place to continue from, 0 at the end.

    `has_both_forms` says that digests of ids alone and of ids with keys may be among all of them.
    """

    SINCE = 12
    FIELDS = fields(page=DATA, following=COUNT, has_both_forms=FLAG)

    def __init__(self, page: bytes, following: int, has_both_forms: bool) -> None:
        self.page = page
        self.following = following
        self.has_both_forms = has_both_forms


@final
class LearnIds(AboutSealing):
    """Remember ids that fragments of the former map remember. Answered by `Done`.

    Refused with QUOTA_EXCEEDED when they are too many.
    """

    SINCE = 12
    FIELDS = fields(page=DATA, has_both_forms=FLAG)

    def __init__(self, page: bytes, has_both_forms: bool) -> None:
        self.page = page
        self.has_both_forms = has_both_forms


SealingCommand = Seal | TellIds | LearnIds
SealingReply = Sealed | IdsTold
