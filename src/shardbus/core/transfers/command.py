"""What fragments are asked about transfers to other entities, and what they answer.

A fragment gives messages out that it has, takes over those that others have given out, and
remembers the sources that it took messages over from.
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
    tuple_of,
)
from shardbus.core.message import LINE, Message

TransferSource = tuple[int, int, int]
"""Where transferred messages come from: entity, fragment and line."""


class AboutTransfers(Asked):
    """A command about transfers."""

    FAMILY: ClassVar[int] = OF_TRANSFERS


@final
class TakeTransfers(AboutTransfers):
    """Give out messages of a line to be transferred. Answered by `Received`.

    In place of a lock token each has the number under which it is given out (see
    `transfers.transfer_number`): they rise, and no message has one that another had, or that it had
    before it was returned. The commands below name messages by them. Those come first that were
    given out before and not settled; then, up to `count_max`, the next of the line. Nobody else
    gets them and they do not expire until they are settled, by any of the
    three commands below. All that is given out is for one destination: refused with NOT_ALLOWED
    when something is that was given out for another.
    """

    FIELDS = fields(line=LINE, count_max=COUNT, destination_id=NUMBER)

    def __init__(self, line: int, count_max: int, destination_id: int) -> None:
        self.line = line
        self.count_max = count_max
        self.destination_id = destination_id


@final
class TransfersDone(AboutTransfers):
    """The destination has these messages: remove those that are given out. Answered by `Done`."""

    FIELDS = fields(line=LINE, numbers=NUMBERS)

    def __init__(self, line: int, numbers: list[int]) -> None:
        self.line = line
        self.numbers = numbers


@final
class RefuseTransfers(AboutTransfers):
    """The destination will never have these: move those that are given out to another line.

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
    """The destination will never have these under their numbers: those that are given out wait
    again, each at its own place of the line. Answered by `Done`.
    """

    FIELDS = fields(line=LINE, numbers=NUMBERS)

    def __init__(self, line: int, numbers: list[int]) -> None:
        self.line = line
        self.numbers = numbers


@final
class ListTransfers(AboutTransfers):
    """For whom is something given out? Answered by `Outstanding`."""

    FIELDS = fields(line=LINE)

    def __init__(self, line: int) -> None:
        self.line = line


@final
class TakeOver(AboutTransfers):
    """Store messages that are transferred from a source, unless that was done before.

    `numbers` are those under which they were given out there, rising. A message with a number not
    above the highest that ever came from the source is dropped. The numbers in `skipped` will never
    come: whoever sends them is late. Nothing with a number below `front` will be asked about again.
    Answered by `TakenOver`; refused, and nothing has changed, like a `Send`.
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
            raise ValueError(f"{len(messages)} messages have {len(numbers)} numbers")
        self.source = source
        self.messages = messages
        self.numbers = numbers
        self.skipped = skipped
        self.front = front


@final
class ListSources(AboutTransfers):
    """Which entities sent nothing for so long that, if they are deleted, they can be forgotten?

    Answered by `Sources`.
    """


@final
class ForgetSources(AboutTransfers):
    """These entities are deleted: forget those of them that sent nothing for long enough.

    Answered by `Done`. One that came again meanwhile is not forgotten.
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
    """The messages are here, but for those in `skipped`, which never were and never will be."""

    FIELDS = fields(skipped=NUMBERS)

    def __init__(self, skipped: list[int]) -> None:
        self.skipped = skipped


@final
class Outstanding(Declared):
    """`count` messages of a line are given out for an entity, if any are."""

    FIELDS = fields(destination_id=NUMBER, count=COUNT)

    def __init__(self, destination_id: int, count: int) -> None:
        self.destination_id = destination_id
        self.count = count


@final
class Sources(Declared):
    """Entities, those that sent nothing for the longest time first; not all if they are many."""

    FIELDS = fields(entity_ids=NUMBERS)

    def __init__(self, entity_ids: list[int]) -> None:
        self.entity_ids = entity_ids


TransferReply = TakenOver | Outstanding | Sources
