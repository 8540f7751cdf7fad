"""What fragments are asked about readers and their claims, and what they answer.

A *reader* is a name under which messages of one line are set aside in *claims*, which are numbered
1, 2, 3 and on: that ordinal, not a sequence number, is how far the reader is. Its *owner*, some
bytes that whoever drives it has chosen, keeps two drivers apart. See `claiming` for the rules.
"""

from __future__ import annotations

from typing import ClassVar, Final, final

from shardbus.core.declared import (
    COUNT,
    DATA,
    FLAG,
    NUMBER,
    OF_READERS,
    RUNS,
    TEXT,
    Asked,
    Declared,
    fields,
    list_of,
    maybe,
    record,
    unless,
)
from shardbus.core.message import LINE, Entry
from shardbus.core.runs import Runs

ALL_LINES: Final = -1


class AboutReaders(Asked):
    """A command about readers and their claims."""

    FAMILY: ClassVar[int] = OF_READERS


@final
class OpenReader(AboutReaders):
    """Begin, or go on, to read a line under a name. Answered by `ReaderOpened`.

    Claims that nobody has renewed for `lease_ms` are lost. Refused with READER_IN_USE while
    another owner was heard of a moment ago; after that the other one is shut out. A reader that is
    not there is made with `new_id`, which no other reader ever had.
    """

    FIELDS = fields(line=LINE, name=TEXT, owner=DATA, lease_ms=NUMBER, new_id=DATA)

    def __init__(self, line: int, name: str, owner: bytes, lease_ms: int, new_id: bytes) -> None:
        self.line = line
        self.name = name
        self.owner = owner
        self.lease_ms = lease_ms
        self.new_id = new_id


@final
class KeepReader(AboutReaders):
    """Renew the claims of a reader for its lease. Answered by `Done`.

    Like the commands below it is refused with READER_NOT_FOUND when there is no such reader, and,
    where it names an owner, with READER_LOST when that is not (any more) the reader's owner.
    """

    FIELDS = fields(line=LINE, name=TEXT, owner=DATA)

    def __init__(self, line: int, name: str, owner: bytes) -> None:
        self.line = line
        self.name = name
        self.owner = owner


@final
class Claim(AboutReaders):
    """Set the next unlocked active messages of a line aside under an ordinal. Answered by
    `Claimed`, and answered the same again as long as the claim is open.

    A new ordinal is one more than the last. At most `count_max` (CLAIM_COUNT_MAX) messages of
    together `bytes_max`, but always one if one waits.

    With `done`, an ordinal below that of the claim, the oldest open claim is completed by the same
    commit if its ordinal is not above that. Refused as `CompleteClaim` would be; then nothing is
    claimed either. 0 completes nothing.
    """

    FIELDS = fields(
        line=LINE,
        name=TEXT,
        owner=DATA,
        ordinal=NUMBER,
        count_max=COUNT,
        bytes_max=NUMBER,
        done=NUMBER,
    )

    def __init__(  # noqa: PLR0913 - a record
        self,
        line: int,
        name: str,
        owner: bytes,
        ordinal: int,
        count_max: int,
        bytes_max: int,
        done: int = 0,
    ) -> None:
        self.line = line
        self.name = name
        self.owner = owner
        self.ordinal = ordinal
        self.count_max = count_max
        self.bytes_max = bytes_max
        self.done = done


@final
class DescribeClaim(AboutReaders):
    """Which messages has an open claim? Answered by `ClaimRuns`.

    Refused with CLAIM_COMPLETED or CLAIM_LOST when it is open no more, and with READER_NOT_FOUND
    when the reader is not the one with `reader_id`; an empty one is any.
    """

    FIELDS = fields(line=LINE, name=TEXT, ordinal=NUMBER, reader_id=DATA)

    def __init__(self, line: int, name: str, ordinal: int, reader_id: bytes = b"") -> None:
        self.line = line
        self.name = name
        self.ordinal = ordinal
        self.reader_id = reader_id


@final
class ReadClaim(AboutReaders):
    """Give out messages of an open claim with numbers greater than `after`. Answered by
    `ClaimRead`; refused like `DescribeClaim`.

    About `bytes_max` of payload, but always one message if there is one. It renews nothing.
    """

    FIELDS = fields(
        line=LINE, name=TEXT, ordinal=NUMBER, after=NUMBER, bytes_max=NUMBER, reader_id=DATA
    )

    def __init__(
        self,
        line: int,
        name: str,
        ordinal: int,
        after: int,
        bytes_max: int,
        reader_id: bytes = b"",
    ) -> None:
        self.line = line
        self.name = name
        self.ordinal = ordinal
        self.after = after
        self.bytes_max = bytes_max
        self.reader_id = reader_id


@final
class CompleteClaim(AboutReaders):
    """Remove the messages of the oldest open claim if its ordinal is not above this one.

    Answered by `Completed`: ask again until that has come to the ordinal. Refused with CLAIM_LOST
    when it never will, because claims up to this one were lost.
    """

    FIELDS = fields(line=LINE, name=TEXT, owner=DATA, ordinal=NUMBER)

    def __init__(self, line: int, name: str, owner: bytes, ordinal: int) -> None:
        self.line = line
        self.name = name
        self.owner = owner
        self.ordinal = ordinal


@final
class ReleaseClaims(AboutReaders):
    """Give the messages of all open claims back; those claims are lost. Answered by `Done`."""

    FIELDS = fields(line=LINE, name=TEXT, owner=DATA)

    def __init__(self, line: int, name: str, owner: bytes) -> None:
        self.line = line
        self.name = name
        self.owner = owner


@final
class DropReader(AboutReaders):
    """Give all messages of a reader back and forget it, whoever owns it. Answered by `Done`."""

    FIELDS = fields(line=LINE, name=TEXT)

    def __init__(self, line: int, name: str) -> None:
        self.line = line
        self.name = name


@final
class ListReaders(AboutReaders):
    """Which readers has a line, or have ALL_LINES? Answered by `Readers`."""

    FIELDS = fields(line=unless(ALL_LINES, LINE))

    def __init__(self, line: int = ALL_LINES) -> None:
        self.line = line


ReaderCommand = (
    OpenReader
    | KeepReader
    | Claim
    | DescribeClaim
    | ReadClaim
    | CompleteClaim
    | ReleaseClaims
    | DropReader
    | ListReaders
)


@final
class ClaimSummary(Declared):
    """An open claim: so many messages, with sequence numbers from `first` to `last`.

    All but the ordinal are 0 when every message of it was found damaged.
    """

    FIELDS = fields(ordinal=NUMBER, count=NUMBER, size_bytes=NUMBER, first=NUMBER, last=NUMBER)

    def __init__(self, ordinal: int, count: int, size_bytes: int, first: int, last: int) -> None:
        self.ordinal = ordinal
        self.count = count
        self.size_bytes = size_bytes
        self.first = first
        self.last = last


@final
class ReaderOpened(Declared):
    """Claims up to `completed` are done, `last` is the highest that was made, `lost` the highest
    that was ever lost. The open ones are in `claims`, rising. `reader_id` is another one when the
    reader was dropped and made again; it is empty for one whose record was given up.
    """

    FIELDS = fields(
        reader_id=DATA,
        completed=NUMBER,
        last=NUMBER,
        lost=NUMBER,
        claims=list_of(record(ClaimSummary)),
    )

    def __init__(
        self, reader_id: bytes, completed: int, last: int, lost: int, claims: list[ClaimSummary]
    ) -> None:
        self.reader_id = reader_id
        self.completed = completed
        self.last = last
        self.lost = lost
        self.claims = claims


@final
class Claimed(Declared):
    """What is set aside under an ordinal; None: nothing waited, and the ordinal is still free.

    `is_more` says that a next claim may find something. All claims up to `completed` are done.
    """

    FIELDS = fields(claim=maybe(record(ClaimSummary)), is_more=FLAG, completed=NUMBER)

    def __init__(self, claim: ClaimSummary | None, is_more: bool, completed: int) -> None:
        self.claim = claim
        self.is_more = is_more
        self.completed = completed


@final
class ClaimRuns(Declared):
    """Exactly the messages of a claim, which have so many bytes."""

    FIELDS = fields(runs=RUNS, size_bytes=NUMBER)

    def __init__(self, runs: Runs, size_bytes: int) -> None:
        self.runs = runs
        self.size_bytes = size_bytes


@final
class ClaimRead(Declared):
    """Messages of a claim with their payloads, rising; go on after `after` unless `is_end`.

    A message that turned out to be damaged is left out, and in the claim no more.
    """

    FIELDS = fields(entries=list_of(record(Entry)), after=NUMBER, is_end=FLAG)

    def __init__(self, entries: list[Entry], after: int, is_end: bool) -> None:
        self.entries = entries
        self.after = after
        self.is_end = is_end


@final
class Completed(Declared):
    """All claims up to this ordinal are done."""

    FIELDS = fields(completed=NUMBER)

    def __init__(self, completed: int) -> None:
        self.completed = completed


@final
class ReaderStatus(Declared):
    """How far a reader is in one fragment.

    Of the active messages of its line `claimed` are its own, in `claims` claims; `waiting` are in
    nobody's, locked ones among them. It was last heard of at `heard_ms`.
    """

    FIELDS = fields(
        line=LINE,
        name=TEXT,
        reader_id=DATA,
        owner=DATA,
        lease_ms=NUMBER,
        heard_ms=NUMBER,
        completed=NUMBER,
        last=NUMBER,
        lost=NUMBER,
        claims=NUMBER,
        claimed=NUMBER,
        claimed_bytes=NUMBER,
        waiting=NUMBER,
        waiting_bytes=NUMBER,
    )

    def __init__(  # noqa: PLR0913 - a record, all but the first by keyword
        self,
        line: int,
        name: str,
        *,
        reader_id: bytes,
        owner: bytes,
        lease_ms: int,
        heard_ms: int,
        completed: int,
        last: int,
        lost: int,
        claims: int,
        claimed: int,
        claimed_bytes: int,
        waiting: int,
        waiting_bytes: int,
    ) -> None:
        self.line = line
        self.name = name
        self.reader_id = reader_id
        self.owner = owner
        self.lease_ms = lease_ms
        self.heard_ms = heard_ms
        self.completed = completed
        self.last = last
        self.lost = lost
        self.claims = claims
        self.claimed = claimed
        self.claimed_bytes = claimed_bytes
        self.waiting = waiting
        self.waiting_bytes = waiting_bytes


@final
class Readers(Declared):
    """The readers of a fragment, in the order of their lines and names."""

    FIELDS = fields(readers=list_of(record(ReaderStatus)))

    def __init__(self, readers: list[ReaderStatus]) -> None:
        self.readers = readers


ReaderReply = ReaderOpened | Claimed | ClaimRuns | ClaimRead | Completed | Readers
