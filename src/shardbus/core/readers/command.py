"""The commands about readers and their claims, and their replies.

A *reader* is a name under which messages of one line are claimed. Its *claims* are numbered 1, 2, 3
and on: this ordinal, not a sequence number, is the reader's position. Its *owner*, some bytes
chosen by the process that drives the reader, keeps two processes apart. See `claiming` for the
rules.
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
    """Start or continue to read a line under a name. Answered by `ReaderOpened`.

    Claims that are not renewed for `lease_ms` are lost. Refused with READER_IN_USE while another
    owner was active a moment ago; otherwise that owner is shut out. A reader that does not exist is
    created with `new_id`, which no other reader ever had.
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
    where it names an owner, with READER_LOST when the reader has another owner now.
    """

    FIELDS = fields(line=LINE, name=TEXT, owner=DATA)

    def __init__(self, line: int, name: str, owner: bytes) -> None:
        self.line = line
        self.name = name
        self.owner = owner


@final
class Claim(AboutReaders):
    """Claim the next unlocked active messages of a line under an ordinal. Answered by `Claimed`;
    repeating the command gives the same answer as long as the claim is open.

    A new ordinal must be one more than the last. The claim has at most `count_max` (up to
    CLAIM_COUNT_MAX) messages of together `bytes_max`, but always one message if one waits.

    With `done`, an ordinal below that of the claim, the same commit completes the oldest open claim
    if its ordinal is at most `done`. The command is refused as `CompleteClaim` would be; then
    nothing is claimed either. 0 completes nothing.
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
    """Ask which messages an open claim has. Answered by `ClaimRuns`.

    Refused with CLAIM_COMPLETED or CLAIM_LOST when the claim is no longer open, and with
    READER_NOT_FOUND when the reader's id is not `reader_id`; an empty `reader_id` matches any.
    """

    FIELDS = fields(line=LINE, name=TEXT, ordinal=NUMBER, reader_id=DATA)

    def __init__(self, line: int, name: str, ordinal: int, reader_id: bytes = b"") -> None:
        self.line = line
        self.name = name
        self.ordinal = ordinal
        self.reader_id = reader_id


@final
class ReadClaim(AboutReaders):
    """Read messages of an open claim with numbers greater than `after`. Answered by `ClaimRead`;
    refused like `DescribeClaim`.

    Brings about `bytes_max` of payload, but always one message if there is one. It does not renew
    the claim.
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
    """Remove the messages of the oldest open claim if its ordinal is at most this one.

    Answered by `Completed`: repeat the command until `Completed` has reached the ordinal. Refused
    with CLAIM_LOST when it never will, because claims up to this one were lost.
    """

    FIELDS = fields(line=LINE, name=TEXT, owner=DATA, ordinal=NUMBER)

    def __init__(self, line: int, name: str, owner: bytes, ordinal: int) -> None:
        self.line = line
        self.name = name
        self.owner = owner
        self.ordinal = ordinal


@final
class ReleaseClaims(AboutReaders):
    """Return the messages of all open claims to the line; those claims are lost. Answered by
    `Done`.
    """

    FIELDS = fields(line=LINE, name=TEXT, owner=DATA)

    def __init__(self, line: int, name: str, owner: bytes) -> None:
        self.line = line
        self.name = name
        self.owner = owner


@final
class DropReader(AboutReaders):
    """Return all messages of a reader and forget it, whoever owns it. Answered by `Done`."""

    FIELDS = fields(line=LINE, name=TEXT)

    def __init__(self, line: int, name: str) -> None:
        self.line = line
        self.name = name


@final
class GoOn(AboutReaders):
    """Ask a fragment of a former map whether a reader may go on to later maps. Answered by
    `GoneOn`; refused with REPARTITIONING if the fragment accepts messages.

    If it may, and the fragment may still get messages (that are scheduled, or delayed) of sessions,
    it is stored that this reader is ahead: until it is dropped, no other one goes on or claims
    anything here. So nobody claims messages of a session here while another reader holds that
    session in a later map.
    """

    SINCE = 12
    FIELDS = fields(line=LINE, name=TEXT, owner=DATA)

    def __init__(self, line: int, name: str, owner: bytes) -> None:
        self.line = line
        self.name = name
        self.owner = owner


@final
class ListReaders(AboutReaders):
    """Ask for the readers of a line, or of ALL_LINES. Answered by `Readers`."""

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
    | GoOn
)


@final
class ClaimSummary(Declared):
    """An open claim: `count` messages with sequence numbers from `first` to `last`.

    All but the ordinal are 0 when every message of the claim was found damaged.
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
    """Claims up to `completed` are completed, `last` is the highest ordinal that was used, `lost`
    the highest that was ever lost. The open claims are in `claims`, by ascending ordinal.
    `reader_id` differs after the reader was dropped and created again; it is empty for a reader
    whose record was given up.
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
    """The claim under an ordinal; None: no message waited, and the ordinal is still free.

    `is_more` says that the next claim may find something. All claims up to `completed` are
    completed.
    """

    FIELDS = fields(claim=maybe(record(ClaimSummary)), is_more=FLAG, completed=NUMBER)

    def __init__(self, claim: ClaimSummary | None, is_more: bool, completed: int) -> None:
        self.claim = claim
        self.is_more = is_more
        self.completed = completed


@final
class ClaimRuns(Declared):
    """Exactly which messages a claim has, and their bytes."""

    FIELDS = fields(runs=RUNS, size_bytes=NUMBER)

    def __init__(self, runs: Runs, size_bytes: int) -> None:
        self.runs = runs
        self.size_bytes = size_bytes


@final
class ClaimRead(Declared):
    """Messages of a claim with their payloads, by ascending number; continue after `after` unless
    `is_end`.

    A message that turned out to be damaged is left out, and is no longer in the claim.
    """

    FIELDS = fields(entries=list_of(record(Entry)), after=NUMBER, is_end=FLAG)

    def __init__(self, entries: list[Entry], after: int, is_end: bool) -> None:
        self.entries = entries
        self.after = after
        self.is_end = is_end


@final
class Completed(Declared):
    """All claims up to this ordinal are completed."""

    FIELDS = fields(completed=NUMBER)

    def __init__(self, completed: int) -> None:
        self.completed = completed


@final
class GoneOn(Declared):
    """Whether a reader may go on: only if nothing is left, held or ahead.

    The line has `left` messages, claimed or not; receivers hold `held` sessions since before the
    repartition, perhaps here alone; and `ahead` is the name of another reader that is ahead.
    `is_final`: the fragment gets no more messages that matter, so it need not be asked again.
    """

    SINCE = 12
    FIELDS = fields(left=COUNT, held=COUNT, ahead=TEXT, is_final=FLAG)

    def __init__(self, left: int, held: int, ahead: str, is_final: bool) -> None:
        self.left = left
        self.held = held
        self.ahead = ahead
        self.is_final = is_final

    def is_free(self) -> bool:
        return not (self.left or self.held or self.ahead)


@final
class ReaderStatus(Declared):
    """How far a reader is in one fragment.

    Of the active messages of its line, `claimed` are in the reader's `claims` open claims, and
    `waiting` are in nobody's claim; the latter include locked ones. The reader was last active at
    `heard_ms`.
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


ReaderReply = ReaderOpened | Claimed | ClaimRuns | ClaimRead | Completed | Readers | GoneOn
