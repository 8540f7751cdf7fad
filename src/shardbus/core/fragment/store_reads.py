"""What a fragment reads from its store: what commands about messages need, and how the fragment
takes it over.
"""

from __future__ import annotations

from typing import final

from shardbus.core.fragment.change import Change
from shardbus.core.fragment.ledger import Ledger
from shardbus.core.fragment.line import Line
from shardbus.core.fragment.need import (
    Need,
    NeedEntries,
    NeedHeads,
    NeedPage,
    NeedPayloads,
    NeedSession,
    NeedState,
)
from shardbus.core.fragment.supply import Supply
from shardbus.core.limits import (
    CANCEL_COUNT_MAX,
    DEFERRED_BYTES_MAX,
    DEFERRED_COUNT_MAX,
)
from shardbus.core.message import MAIN_LINE, Entry
from shardbus.core.messages.command import (
    NO_SESSION,
    MessageCommand,
    Purge,
    Receive,
    ReceiveDeferred,
    ReceiveNumbered,
    Renew,
    Send,
    Settle,
)
from shardbus.core.readers.sessions import SessionClaims
from shardbus.core.sessions.holding import SessionHolds
from shardbus.core.stages.record import ReadStage


@final
class StoreReads:
    """Feeds one fragment from its store, only while no command is applied."""

    def __init__(
        self,
        ledger: Ledger,
        supply: Supply,
        holds: SessionHolds | None,
        claims: SessionClaims | None,
    ) -> None:
        self._ledger = ledger
        self._supply = supply
        self._holds = holds
        self._claims = claims

    def begin(self) -> None:
        """A command is being applied: what was read for it can be used by it alone."""
        self._supply.begin()
        if self._holds is not None:
            self._holds.begin()
        if self._claims is not None:
            self._claims.begin()

    # What is missing.

    def need(self, command: MessageCommand) -> Need | None:
        if isinstance(command, (Send, Settle, Renew)):
            return None
        if isinstance(command, Receive):
            return self._need_to_receive(command)
        if isinstance(command, Purge):
            line = self.line(command.line, command.session)
            return None if line is None else self._need_page(command.line, command.session, line)
        if isinstance(command, ReceiveDeferred):
            return self._need_deferred(command)
        numbers = command.sequence_numbers
        if isinstance(command, ReceiveNumbered):
            bytes_max = self._ledger.bounds.page_bytes_max
            return self._supply.need_entries(numbers, DEFERRED_COUNT_MAX, bytes_max=bytes_max)
        return self._supply.need_entries(numbers, CANCEL_COUNT_MAX, bytes_max=0)

    def line(self, number: int, session: bytes) -> Line | None:
        """The window that a command takes from; None when the command will be refused."""
        sessions = self._ledger.sessions
        if sessions is None or number != MAIN_LINE:
            return None if session else self._ledger.lines[number]
        held = sessions.held(session, self._ledger.steady_ms)
        return None if held is None else held.line

    def wanted(self) -> NeedPage | None:
        """The page to read ahead, before a receiver has to wait for it."""
        return self._supply.wanted()

    def page(self, line_number: int) -> NeedPage:
        """The next page of a line."""
        return self._supply.page(line_number)

    def _need_to_receive(self, command: Receive) -> Need | None:
        line = self.line(command.line, command.session)
        if line is None:
            return None
        need = self._need_page(command.line, command.session, line)
        if need is not None or command.is_locking:
            return need
        numbers = self._supply.unread(line, command.count_max)
        return NeedPayloads(command.line, numbers, command.session) if numbers else None

    def _need_page(self, number: int, session: bytes, line: Line) -> Need | None:
        if session == NO_SESSION:
            return self._supply.need_page(number)
        if len(line) > 0 or not line.has_tail:
            return None
        assert self._holds is not None
        return self._holds.need_more(session, line)

    def _need_deferred(self, command: ReceiveDeferred) -> Need | None:
        bytes_max = self._ledger.bounds.page_bytes_max
        numbers = command.sequence_numbers
        need = self._supply.need_entries(numbers, DEFERRED_COUNT_MAX, bytes_max=bytes_max)
        if need is not None or command.is_locking:
            return need
        return self._need_whole(bytes_max)

    def _need_whole(self, bytes_max: int) -> NeedEntries | None:
        """The payloads that were too many to be read together with their messages.

        None when the messages are too large together, because the command is refused then.
        """
        unread: list[int] = []
        size_bytes = 0
        fed = self._supply.fed
        for number, entry in fed.items():
            if entry is not None:
                size_bytes += entry.size_bytes
                if entry.payload is None:
                    unread.append(number)
        if size_bytes > DEFERRED_BYTES_MAX and len(fed) > 1:
            return None
        return NeedEntries(unread, bytes_max=bytes_max) if unread else None

    # What was read.

    def page_in(
        self, need: NeedPage | NeedHeads, entries: list[Entry], damaged: list[int], is_end: bool
    ) -> list[Change]:
        self._ledger.changes = []
        if self._claims is not None and need.line == MAIN_LINE:
            self._claims.heads_in(entries, damaged, is_end)
        else:
            self._fill(self._ledger.lines[need.line], entries, damaged, is_end)
        if damaged:
            self._ledger.set_aside(damaged, need.line)
        return self._ledger.changes

    def payloads_in(self, need: NeedPayloads, payloads: dict[int, bytes | None]) -> list[Change]:
        """Take over payloads that were read; None stands for a damaged one."""
        self._ledger.changes = []
        line = self._ledger.lines[need.line]
        if need.session != NO_SESSION:
            assert self._ledger.sessions is not None
            held = self._ledger.sessions.by_token(need.session)
            assert held is not None, "the hold ended while its messages were being read"
            line = held.line
        line.fill(payloads)
        damaged = [number for number, payload in payloads.items() if payload is None]
        if damaged:
            self._ledger.set_aside(damaged, need.line)
        return self._ledger.changes

    def entries_in(self, need: NeedEntries, entries: list[Entry | None]) -> None:
        for number, entry in zip(need.sequence_numbers, entries, strict=True):
            self._supply.fed[number] = entry

    def stages_in(self, stages: dict[bytes, ReadStage]) -> None:
        self._supply.stages_in(stages)

    def blocks_in(self, blocks: dict[int, bytes | None]) -> None:
        self._supply.blocks_in(blocks)

    def session_in(
        self,
        need: NeedSession,
        entries: list[Entry],
        damaged: list[int],
        is_end: bool,
        now_ms: int,
    ) -> list[Change]:
        self._ledger.changes = []
        sessions = self._ledger.sessions
        assert sessions is not None and self._holds is not None
        if need.session == NO_SESSION:
            line = sessions.new_line(has_tail=True)
            self._fill(line, entries, damaged, is_end)
            self._holds.candidate_in(need.session_id, line, now_ms)
        else:
            held = sessions.by_token(need.session)
            assert held is not None, "the hold ended while its messages were being read"
            self._fill(held.line, entries, damaged, is_end)
        if damaged:
            self._ledger.set_aside(damaged, MAIN_LINE)
        return self._ledger.changes

    def sessions_in(self, ranks: list[int], keys: list[str], is_end: bool) -> None:
        assert self._ledger.sessions is not None
        self._ledger.sessions.page_in(ranks, keys, is_end)

    def state_in(self, need: NeedState, state: bytes | None) -> None:
        assert self._holds is not None
        self._holds.state_in(need.session, state)

    def _fill(self, line: Line, entries: list[Entry], damaged: list[int], is_end: bool) -> None:
        covered_to = max(
            entries[-1].sequence_number if entries else 0, damaged[-1] if damaged else 0
        )
        line.page_in(self._ledger.untaken(entries), is_end, covered_to)
