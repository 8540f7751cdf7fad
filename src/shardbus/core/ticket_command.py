"""How a sender learns what became of a command whose answer was lost (see `tickets`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from shardbus.core.command import Sent


@final
class Ticket:
    """The number of a command, under which its sender can ask about it later.

    `sender` tells senders apart. Each numbers what it gives to a fragment 1, 2, 3 …, in that order,
    and will never ask about a number below `front`. With `keeps_reply` the answer to such a
    question also says what the reply was.
    """

    def __init__(
        self, sender: bytes, number: int, front: int, *, keeps_reply: bool = False
    ) -> None:
        self.sender = sender
        self.number = number
        self.front = front
        self.keeps_reply = keeps_reply


@final
class AskTickets:
    """Which commands with these numbers are stored? Answered by `Judged`.

    The others never will be: one that arrives after this question is refused.
    """

    def __init__(self, sender: bytes, numbers: list[int], front: int) -> None:
        self.sender = sender
        self.numbers = numbers
        self.front = front


@final
class Judged:
    """`stored[i]` says that the command `numbers[i]` is stored; `replies` has the kept replies, by
    number.
    """

    def __init__(self, stored: list[bool], replies: dict[int, Sent]) -> None:
        self.stored = stored
        self.replies = replies
