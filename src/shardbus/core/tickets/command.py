"""How a sender learns whether a command whose answer was lost is stored (see `table`)."""

from __future__ import annotations

from typing import ClassVar, final

from shardbus.core.declared import (
    DATA,
    FLAGS,
    NUMBER,
    NUMBERS,
    OF_TICKETS,
    Asked,
    Declared,
    fields,
    keyed,
    record,
)
from shardbus.core.messages.command import Sent


class AboutTickets(Asked):
    """A command about tickets."""

    FAMILY: ClassVar[int] = OF_TICKETS


@final
class AskTickets(AboutTickets):
    """Ask which commands with these numbers are stored. Answered by `Judged`.

    The others never will be: a command that arrives after this question is refused.
    """

    FIELDS = fields(sender=DATA, front=NUMBER, numbers=NUMBERS)

    def __init__(self, sender: bytes, numbers: list[int], front: int) -> None:
        self.sender = sender
        self.numbers = numbers
        self.front = front


@final
class Judged(Declared):
    """`stored[i]` says that the command `numbers[i]` is stored; `replies` has the kept replies by
    number.
    """

    FIELDS = fields(stored=FLAGS, replies=keyed(record(Sent)))

    def __init__(self, stored: list[bool], replies: dict[int, Sent]) -> None:
        self.stored = stored
        self.replies = replies
