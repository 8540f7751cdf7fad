"""The commands about transfers to other entities, and their replies.

A fragment gives out messages of its own, takes over messages that others have given out, and
remembers from which sources it took messages over.
"""

from __future__ import annotations

from typing import ClassVar, final

from shardbus.core.declared import (
    COUNT,
    NUMBER,
    NUMBERS,
    OF_TRANSFERS,
    TEXT,
    Asked,
    Declared,
    fields,
    list_of,
    record,
    since,
    tuple_of,
    unless,
)
from shardbus.core.message import LINE, Message

TransferSource = tuple[int, int, int]
"""The source of transferred messages: entity, fragment and line."""


class AboutTransfers(Asked):
    """A command about transfers."""

    FAMILY: ClassVar[int] = OF_TRANSFERS


@final
class TakeTransfers(AboutTransfers):
    """Give out messages of a line to be transferred. Answered by `Received`.

    In place of a lock token each message has a transfer number (see
    `transferring.transfer_number`). These numbers ascend, and each is used once: a message that is
    returned and given out again gets a new one. The commands below name messages by them. Messages
    that were given out before and are not settled come first; then, up to `count_max`, the next of
    the line. Nobody else gets them and they do not expire until one of the three commands below
    settles them. All messages given out are for one map of one destination: refused with
    NOT_ALLOWED while some are given out for another. `map_start` is the position of the first
    fragment of that map in the destination, 0 if that was never repartitioned.
    """

    FIELDS = fields(
        line=LINE, count_max=COUNT, destination_id=NUMBER, map_start=since(12, unless(0, NUMBER))
    )

    def __init__(self, line: int, count_max: int, destination_id: int, map_start: int = 0) -> None:
        self.line = line
        self.count_max = count_max
        self.destination_id = destination_id
        self.map_start = map_start


@final
class TransfersDone(AboutTransfers):
    """The destination has these messages: remove those that are still given out. Answered by
    `Done`.
    """

    FIELDS = fields(line=LINE, numbers=NUMBERS)

    def __init__(self, line: int, numbers: list[int]) -> None:
        self.line = line
        self.numbers = numbers


@final
class RefuseTransfers(AboutTransfers):
    """The destination will never take these messages: move those that are still given out to
    another line.

    Answered by `Done`.
    """

    FIELDS = fields(line=LINE, numbers=NUMBERS, to_line=LINE, reason=TEXT, description=TEXT)

    def __init__(
        self, line: int, numbers: list[int], to_line: int, reason: str, description: str
    ) -> None:
        self.line = line
        self.numbers = numbers
        self.to_line = to_line
        self.reason = reason
        self.description = description


@final
class ReturnTransfers(AboutTransfers):
    """The destination will never take these transfer numbers: the messages that are still given out
    wait again at their own places. Answered by `Done`.
    """

    FIELDS = fields(line=LINE, numbers=NUMBERS)

    def __init__(self, line: int, numbers: list[int]) -> None:
        self.line = line
        self.numbers = numbers


@final
class ListTransfers(AboutTransfers):
    """Ask for which map of which entity messages are given out. Answered by `Outstanding`."""

    FIELDS = fields(line=LINE)

    def __init__(self, line: int) -> None:
        self.line = line


@final
class TakeOver(AboutTransfers):
    """Store messages that are transferred from a source, unless that was done before.

    `numbers` are their ascending transfer numbers at the source. A message whose number is not
    above the highest that ever came from the source is dropped. The numbers in `skipped` will never
    come; a later transfer with one of them is dropped too. The source will not ask about numbers
    below `front` again. Answered by `TakenOver`; refused like a `Send`, and then nothing has
    changed.
    """

    FIELDS = fields(
        source=tuple_of(NUMBER, NUMBER, NUMBER),
        front=NUMBER,
        numbers=NUMBERS,
        skipped=NUMBERS,
        messages=list_of(record(Message)),
    )

    def __init__(
        self,
        source: TransferSource,
        messages: list[Message],
        numbers: list[int],
        skipped: list[int],
        front: int,
    ) -> None:
        if len(messages) != len(numbers):
            raise ValueError(f"{len(messages)} messages come with {len(numbers)} transfer numbers")
        self.source = source
        self.messages = messages
        self.numbers = numbers
        self.skipped = skipped
        self.front = front


@final
class ListSources(AboutTransfers):
    """Ask which entities have sent nothing for so long that they can be forgotten if they are
    deleted.

    Answered by `Sources`.
    """


@final
class ForgetSources(AboutTransfers):
    """These entities are deleted: forget those that have sent nothing for long enough.

    Answered by `Done`. An entity that has sent something in the meantime is not forgotten.
    """

    FIELDS = fields(entity_ids=NUMBERS)

    def __init__(self, entity_ids: list[int]) -> None:
        self.entity_ids = entity_ids


TransferCommand = (
    TakeTransfers
    | TransfersDone
    | RefuseTransfers
    | ReturnTransfers
    | ListTransfers
    | TakeOver
    | ListSources
    | ForgetSources
)


@final
class TakenOver(Declared):
    """The messages are stored here, except those in `skipped`, which never were and never will
    be.
    """

    FIELDS = fields(skipped=NUMBERS)

    def __init__(self, skipped: list[int]) -> None:
        self.skipped = skipped


@final
class Outstanding(Declared):
    """`count` messages of a line are given out for a map of an entity, if there are any."""

    FIELDS = fields(destination_id=NUMBER, count=COUNT, map_start=since(12, unless(0, NUMBER)))

    def __init__(self, destination_id: int, count: int, map_start: int = 0) -> None:
        self.destination_id = destination_id
        self.count = count
        self.map_start = map_start


@final
class Sources(Declared):
    """Entities, those that have sent nothing for the longest time first; only a part of them if
    there are many.
    """

    FIELDS = fields(entity_ids=NUMBERS)

    def __init__(self, entity_ids: list[int]) -> None:
        self.entity_ids = entity_ids


TransferReply = TakenOver | Outstanding | Sources
