"""A desk for readers: short forms of the commands about claims."""

from shardbus.core.limits import CLAIM_COUNT_MAX, LEASE_MS_DEFAULT
from shardbus.core.message import MAIN_LINE
from shardbus.core.messages.command import Done
from shardbus.core.readers.command import (
    ALL_LINES,
    Claim,
    Claimed,
    ClaimRead,
    ClaimRuns,
    ClaimSummary,
    CompleteClaim,
    Completed,
    DescribeClaim,
    DropReader,
    KeepReader,
    ListReaders,
    OpenReader,
    ReadClaim,
    ReaderOpened,
    Readers,
    ReaderStatus,
    ReleaseClaims,
)
from tests.unit.core.desk import Desk

OWNER = b"owner"
NAME = "lake"


class ReadingDesk(Desk):
    """A desk where somebody reads; each time that a reader is opened, another id is offered."""

    _opened = 0

    def open(
        self,
        name: str = NAME,
        owner: bytes = OWNER,
        *,
        line: int = MAIN_LINE,
        lease_ms: int = LEASE_MS_DEFAULT,
    ) -> ReaderOpened:
        self._opened += 1
        opened = self.do(OpenReader(line, name, owner, lease_ms, b"id %d" % self._opened))
        assert isinstance(opened, ReaderOpened)
        return opened

    def keep(self, name: str = NAME, owner: bytes = OWNER, *, line: int = MAIN_LINE) -> None:
        assert isinstance(self.do(KeepReader(line, name, owner)), Done)

    def claimed(  # noqa: PLR0913 - all but the first two by keyword
        self,
        ordinal: int,
        count_max: int = CLAIM_COUNT_MAX,
        *,
        bytes_max: int = 1 << 30,
        name: str = NAME,
        owner: bytes = OWNER,
        line: int = MAIN_LINE,
        done: int = 0,
    ) -> Claimed:
        claimed = self.do(Claim(line, name, owner, ordinal, count_max, bytes_max, done))
        assert isinstance(claimed, Claimed)
        return claimed

    def claim(
        self,
        ordinal: int,
        count_max: int = CLAIM_COUNT_MAX,
        *,
        bytes_max: int = 1 << 30,
        name: str = NAME,
        line: int = MAIN_LINE,
    ) -> list[int]:
        """The numbers that are claimed."""
        claimed = self.claimed(ordinal, count_max, bytes_max=bytes_max, name=name, line=line)
        if claimed.claim is None:
            return []
        numbers = self.numbers(ordinal, name=name, line=line)
        assert facts(claimed.claim)[:2] == (ordinal, len(numbers))
        assert facts(claimed.claim)[3:] == (numbers[0], numbers[-1])
        return numbers

    def numbers(
        self, ordinal: int, *, name: str = NAME, line: int = MAIN_LINE, reader_id: bytes = b""
    ) -> list[int]:
        described = self.do(DescribeClaim(line, name, ordinal, reader_id))
        assert isinstance(described, ClaimRuns)
        return described.runs.numbers()

    def read(
        self, ordinal: int, *, name: str = NAME, line: int = MAIN_LINE, bytes_max: int = 1 << 20
    ) -> list[bytes | None]:
        """The payloads of a claim, piece by piece."""
        payloads: list[bytes | None] = []
        after = 0
        while True:
            piece = self.do(ReadClaim(line, name, ordinal, after, bytes_max))
            assert isinstance(piece, ClaimRead)
            payloads += [entry.payload for entry in piece.entries]
            if piece.is_end:
                return payloads
            assert piece.after > after
            after = piece.after

    def complete(
        self,
        ordinal: int,
        *,
        name: str = NAME,
        owner: bytes = OWNER,
        line: int = MAIN_LINE,
    ) -> int:
        completed = self.do(CompleteClaim(line, name, owner, ordinal))
        assert isinstance(completed, Completed)
        return completed.completed

    def release(self, name: str = NAME, owner: bytes = OWNER, *, line: int = MAIN_LINE) -> None:
        assert isinstance(self.do(ReleaseClaims(line, name, owner)), Done)

    def drop(self, name: str = NAME, *, line: int = MAIN_LINE) -> None:
        assert isinstance(self.do(DropReader(line, name)), Done)

    def readers(self, line: int = ALL_LINES) -> list[ReaderStatus]:
        listed = self.do(ListReaders(line))
        assert isinstance(listed, Readers)
        return listed.readers

    def drained(self) -> list[bytes | None]:
        """Everything that receivers get, locked from now on."""
        found: list[bytes | None] = []
        while payloads := self.payloads(10):
            found += payloads
        return found


def facts(claim: ClaimSummary) -> tuple[int, int, int, int, int]:
    return claim.ordinal, claim.count, claim.size_bytes, claim.first, claim.last
