"""Claims where sessions are required: which messages a reader may take, and what it then holds
(docs/adr/0120-readers-hold-sessions.md).

A reader looks through the main line in the order of numbers and takes the messages of sessions that
nobody else holds. From then on it holds these sessions, as a receiver would, until its last claim
with messages of them is completed or lost.
"""

from __future__ import annotations

from typing import final

from shardbus.core.fragment.ledger import Ledger
from shardbus.core.fragment.need import NeedHeads
from shardbus.core.limits import CLAIM_PAGES_MAX
from shardbus.core.message import MAIN_LINE, Entry
from shardbus.core.readers.record import OpenClaim, Reader
from shardbus.core.sessions.table import Scan, SessionTable, session_of


@final
class _Look:
    """What was read for a reader's next claim, from the end of its scan to `end`."""

    def __init__(self, reader: str, scan: Scan) -> None:
        self.reader = reader
        self.end = scan.end
        self.has_tail = scan.has_tail
        self.pages = 0
        self.size_bytes = 0
        # What the reader may claim, and the first messages of sessions that it may not.
        self.entries: list[Entry] = []
        self.passed: list[tuple[str, int]] = []


@final
class SessionClaims:
    """Finds the messages of claims in a fragment where sessions are required."""

    def __init__(self, ledger: Ledger, table: SessionTable) -> None:
        self._ledger = ledger
        self._table = table
        self._fed: _Look | None = None
        # What was read for the command that is being applied.
        self._look: _Look | None = None
        self._hold_stored()

    def _hold_stored(self) -> None:
        """Hold the sessions of stored claims."""
        for reader in self._ledger.readers.readers.values():
            if reader.line == MAIN_LINE:
                for claim in reader.claims.values():
                    self._table.claim(claim.sessions, reader.name, claim.ordinal, True)

    def begin(self) -> None:
        """A command is being applied: what was read for it can be used by it alone."""
        self._look = self._fed
        self._fed = None

    # Looking.

    def need(self, reader: Reader, count_max: int, bytes_max: int) -> NeedHeads | None:
        """The next messages to look at; None when there are enough or no more, or when one command
        may not look further.
        """
        look = self._fed
        if look is None or look.reader != reader.name:
            look = self._fed = _Look(reader.name, self._table.scan(reader.name))
        bounds = self._ledger.bounds
        is_enough = len(look.entries) >= count_max or look.size_bytes >= bytes_max
        if is_enough or not look.has_tail or look.pages >= CLAIM_PAGES_MAX:
            return None
        look.end = max(look.end, self._ledger.readers.held.end_of(look.end + 1))
        # Most of a page may belong to sessions that others hold.
        return NeedHeads(
            MAIN_LINE,
            look.end,
            count_max=max(count_max - len(look.entries), bounds.page_count_max),
            bytes_max=max(bytes_max - look.size_bytes, bounds.page_bytes_max),
        )

    def heads_in(self, entries: list[Entry], damaged: list[int], is_end: bool) -> None:
        look = self._fed
        assert look is not None, "a page was read for a claim that nobody makes"
        look.pages += 1
        look.has_tail = not is_end
        for numbers in ([entry.sequence_number for entry in entries], damaged):
            if numbers:
                look.end = max(look.end, numbers[-1])
        for entry in self._ledger.untaken(entries):
            key = session_of(entry)
            if self._table.may_claim(key, look.reader):
                look.entries.append(entry)
                look.size_bytes += entry.size_bytes
            else:
                look.passed.append((key, entry.sequence_number))

    # Claiming.

    def has_more(self, reader: Reader) -> bool:
        """Whether the next claim may find something."""
        return self._table.scan(reader.name).has_tail

    def take(self, reader: Reader, count_max: int, bytes_max: int, now_ms: int) -> list[Entry]:
        """Take the next messages that a reader may claim, in order."""
        look = self._look
        if look is None or look.reader != reader.name:
            return []
        scan = self._table.scan(reader.name)
        scan.end, scan.has_tail = look.end, look.has_tail
        for key, number in look.passed:
            scan.pass_over(key, number)
        taken: list[Entry] = []
        expired: list[Entry] = []
        size_bytes = 0
        for entry in look.entries:
            if entry.is_expired(now_ms):
                expired.append(entry)
                continue
            size_bytes += entry.size_bytes
            if len(taken) >= count_max or (taken and size_bytes > bytes_max):
                scan.rewind(entry.sequence_number)
                break
            taken.append(entry)
        if expired:
            self._ledger.expire(expired)
        return taken

    def hold(self, reader: Reader, claim: OpenClaim, entries: list[Entry]) -> None:
        """Let a reader hold the sessions of the messages of its new claim."""
        claim.sessions = list(dict.fromkeys([session_of(entry) for entry in entries]))
        self._table.claim(claim.sessions, reader.name, claim.ordinal, self.has_more(reader))

    # The ends of claims.

    def complete(self, claim: OpenClaim) -> None:
        self._table.complete(claim.sessions, claim.ordinal)

    def lose(self, claims: list[OpenClaim], first: int) -> None:
        """All claims of a reader are lost; `first` is the lowest number of their messages, or 0."""
        for claim in claims:
            self._table.lose(claim.sessions)
        if first:
            self._table.rewind(first)

    def drop(self, reader: Reader) -> None:
        self._table.forget_scan(reader.name)
