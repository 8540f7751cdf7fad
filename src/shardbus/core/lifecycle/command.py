"""The command that reads lifecycle records, and its reply."""

from __future__ import annotations

from typing import ClassVar, final

from shardbus.core.declared import (
    COUNT,
    NAMES,
    NUMBER,
    NUMBERS,
    OF_LIFECYCLE,
    Asked,
    Declared,
    fields,
)


class AboutLifecycle(Asked):
    """A command about lifecycle records."""

    FAMILY: ClassVar[int] = OF_LIFECYCLE


@final
class ReadLifecycle(AboutLifecycle):
    """Read blocks of records with numbers above `after`. Answered by `LifecycleRead`.

    `span` is the number of block numbers to examine; 0 asks for the range alone.
    """

    SINCE = 12
    FIELDS = fields(after=NUMBER, span=COUNT)

    def __init__(self, after: int, span: int) -> None:
        self.after = after
        self.span = span


@final
class LifecycleRead(Declared):
    """Blocks by ascending numbers; missing numbers were never used.

    `first` is the number of the oldest block that is kept and `next` the number after the newest.
    `until` is the number at which to continue: all blocks up to it were examined. `damaged` are the
    numbers of blocks that cannot be read.
    """

    SINCE = 12
    FIELDS = fields(
        first=NUMBER, next=NUMBER, until=NUMBER, numbers=NUMBERS, blocks=NAMES, damaged=NUMBERS
    )

    def __init__(
        self,
        first: int,
        next: int,
        until: int,
        numbers: list[int],
        blocks: list[bytes],
        damaged: list[int],
    ) -> None:
        self.first = first
        self.next = next
        self.until = until
        self.numbers = numbers
        self.blocks = blocks
        self.damaged = damaged
