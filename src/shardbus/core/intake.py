"""What a fragment reads from its store: what a command lacks, and how it is taken over."""

from __future__ import annotations

from typing import final

from shardbus.core.change import Change
from shardbus.core.claiming import Claiming
from shardbus.core.command import (
    NO_SESSION,
    AcceptSession,
    Cancel,
    Claim,
    Command,
    Decide,
    Enlist,
    Finish,
    Prepare,
    Purge,
    ReadClaim,
    Receive,
    ReceiveDeferred,
    RefuseTransfers,
    Renew,
    ReturnTransfers,
    Send,
    SetState,
    Settle,
    TakeTransfers,
    Transact,
    TransfersDone,
)
from shardbus.core.holds import Holds
from shardbus.core.ledger import Ledger
from shardbus.core.limits import (
    CANCEL_COUNT_MAX,
    CLAIM_PIECE_BYTES_MAX,
    DEFERRED_BYTES_MAX,
    DEFERRED_COUNT_MAX,
)
from shardbus.core.line import Line
from shardbus.core.message import MAIN_LINE, Entry
from shardbus.core.need import (
    Need,
    NeedEntries,
    NeedHeads,
    NeedPage,
    NeedPayloads,
    NeedSession,
    NeedStages,
    NeedState,
)
from shardbus.core.stage_command import CheckStages, PublishOn
from shardbus.core.stages import ReadStage
from shardbus.core.transactions import Transactions
from shardbus.core.transfers import Transfers


@final
class Intake:
    """Feeds one fragment from its store.

    Everything is taken over while no command is applied. What was read for a command is good for
    that command alone: whatever else is applied first makes it stale, and it is read again.
    """

    def __init__(
        self,
        ledger: Ledger,
        holds: Holds | None,
        transactions: Transactions,
        transfers: Transfers,
        claiming: Claiming,
    ) -> None:
        self._ledger = ledger
        self._transactions = transactions
        self._transfers = transfers
        self._claiming = claiming
        self._holds = holds
        self._wanted_line = -1
        self._fed: dict[int, Entry | None] = {}
        # What was read by number for the command that is being applied.
        self.entries: dict[int, Entry | None] = {}
        self._fed_stages: dict[bytes, ReadStage] = {}
        self.stages: dict[bytes, ReadStage] = {}

    def begin(self) -> None:
        """A command is applied: what was read for it is its own, and nobody's afterwards."""
        if self._fed or self.entries:
            self.entries = self._fed
            self._fed = {}
        if self._fed_stages or self.stages:
            self.stages = self._fed_stages
            self._fed_stages = {}
        if self._holds is not None:
            self._holds.begin()

    # What is lacking.

    def need(self, command: Command, now_ms: int) -> Need | None:
        if isinstance(command, (Send, Settle, Renew)):
            return None
        if isinstance(command, Receive):
            return self._need_to_receive(command)
        if isinstance(command, Purge):
            line = self.line(command.line, command.session)
            return None if line is None else self._need_page(command.line, command.session, line)
        if isinstance(command, ReceiveDeferred):
            return self._need_deferred(command)
        if isinstance(command, Cancel):
            return self._need_entries(command.sequence_numbers, CANCEL_COUNT_MAX, bytes_max=0)
        if isinstance(command, Finish):
            unread = self._transactions.unread(command.transaction_id)
            need = self._need_entries(unread, len(unread), bytes_max=0)
            return self._need_stages(command) if need is None else need
        if isinstance(command, (TakeTransfers, TransfersDone, RefuseTransfers, ReturnTransfers)):
            return self._need_to_transfer(command)
        return self._need_rarely(command, now_ms)

    def _need_rarely(self, command: Command, now_ms: int) -> Need | None:
        if isinstance(command, (Enlist, Transact, Prepare, Decide)):
            return self._need_to_transact(command)
        if isinstance(command, (CheckStages, PublishOn)):
            return self._need_stages(command)
        if isinstance(command, Claim):
            return self._claiming.need_heads(command)
        if isinstance(command, ReadClaim):
            bytes_max = min(command.bytes_max, CLAIM_PIECE_BYTES_MAX)
            unread = self._claiming.unread(command)
            return self._need_entries(unread, len(unread), bytes_max=bytes_max)
        if self._holds is not None:
            if isinstance(command, AcceptSession):
                return self._holds.need_to_accept(command, now_ms)
            if isinstance(command, SetState):
                return self._holds.need_to_set_state(command)
        return None

    def _need_to_transact(self, command: Enlist | Transact | Prepare | Decide) -> Need | None:
        work = command.work
        numbers = work.cancelled
        if numbers:
            need = self._need_entries(numbers, len(numbers), bytes_max=0)
            if need is not None:
                return need
        if work.states:
            state = self._transactions.unread_states(work)
            if state is not None:
                return state
        if work.stages and not isinstance(command, Enlist):
            return self._need_stages(command)
        return None

    def _need_stages(
        self, command: Transact | Prepare | Decide | Finish | CheckStages | PublishOn
    ) -> NeedStages | None:
        need = self._transactions.unread_stages(command)
        if need is None or all(name in self._fed_stages for name in need.stages):
            return None
        return need

    def line(self, number: int, session: bytes) -> Line | None:
        """The window that a command takes from; None when the command is to be refused."""
        sessions = self._ledger.sessions
        if sessions is None or number != MAIN_LINE:
            return None if session else self._ledger.lines[number]
        held = sessions.held(session, self._ledger.steady_ms)
        return None if held is None else held.line

    def want(self, line_number: int) -> None:
        """A line was taken from: it may want its next page."""
        if self._ledger.lines[line_number].is_low():
            self._wanted_line = line_number

    def wanted(self) -> NeedPage | None:
        """The page that should be read before somebody waits for it."""
        number, self._wanted_line = self._wanted_line, -1
        if number < 0 or not self._ledger.lines[number].is_low():
            return None
        return self.page(number)

    def page(self, line_number: int) -> NeedPage:
        """The next page of a line."""
        bounds = self._ledger.bounds
        line = self._ledger.lines[line_number]
        self._ledger.pass_over_claimed(line)
        return NeedPage(
            line_number,
            line.end,
            count_max=bounds.page_count_max,
            bytes_max=bounds.page_bytes_max,
        )

    def _need_to_receive(self, command: Receive) -> Need | None:
        line = self.line(command.line, command.session)
        if line is None:
            return None
        need = self._need_page(command.line, command.session, line)
        if need is not None or command.is_locking:
            return need
        numbers = self._unread(line, command.count_max)
        return NeedPayloads(command.line, numbers, command.session) if numbers else None

    def _need_to_transfer(
        self, command: TakeTransfers | TransfersDone | RefuseTransfers | ReturnTransfers
    ) -> Need | None:
        numbers = self._transfers.unread(command)
        bytes_max = self._ledger.bounds.page_bytes_max
        need = self._need_entries(numbers, len(numbers), bytes_max=bytes_max)
        if need is not None:
            return need
        if not isinstance(command, TakeTransfers) or command.count_max == 0:
            return None
        line = self._ledger.lines[command.line]
        page = self._need_page(command.line, NO_SESSION, line)
        if page is not None:
            return page
        unread = self._unread(line, command.count_max)
        return NeedPayloads(command.line, unread) if unread else None

    def _need_page(self, number: int, session: bytes, line: Line) -> Need | None:
        if len(line) > 0 or not line.has_tail:
            return None
        if session == NO_SESSION:
            return self.page(number)
        assert self._holds is not None
        return self._holds.need_more(session, line)

    def _unread(self, line: Line, count_max: int) -> list[int]:
        """Messages to read from the store before they can be received and deleted.

        None unless the very next one lacks its payload: once removed, it cannot be read any more.
        """
        numbers: list[int] = []
        size_bytes = 0
        for entry in line.front(count_max):
            if entry.payload is not None and not numbers:
                break
            size_bytes += entry.size_bytes
            if numbers and size_bytes > self._ledger.bounds.page_bytes_max:
                break
            if entry.payload is None:
                numbers.append(entry.sequence_number)
        return numbers

    def _need_deferred(self, command: ReceiveDeferred) -> Need | None:
        bytes_max = self._ledger.bounds.page_bytes_max
        need = self._need_entries(command.sequence_numbers, DEFERRED_COUNT_MAX, bytes_max=bytes_max)
        if need is not None or command.is_locking:
            return need
        return self._need_whole(bytes_max)

    def _need_whole(self, bytes_max: int) -> NeedEntries | None:
        """The payloads that were too many to be read together with their messages.

        None are read of messages that are too large together: they are refused.
        """
        unread: list[int] = []
        size_bytes = 0
        for number, entry in self._fed.items():
            if entry is not None:
                size_bytes += entry.size_bytes
                if entry.payload is None:
                    unread.append(number)
        if size_bytes > DEFERRED_BYTES_MAX and len(self._fed) > 1:
            return None
        return NeedEntries(unread, bytes_max=bytes_max) if unread else None

    def _need_entries(
        self, numbers: list[int], count_max: int, *, bytes_max: int
    ) -> NeedEntries | None:
        if len(numbers) > count_max or all(number in self._fed for number in numbers):
            return None
        return NeedEntries(numbers, bytes_max=bytes_max)

    # What was read.

    def page_in(
        self, need: NeedPage | NeedHeads, entries: list[Entry], damaged: list[int], is_end: bool
    ) -> list[Change]:
        self._ledger.changes = []
        self._fill(self._ledger.lines[need.line], entries, damaged, is_end)
        if damaged:
            self._ledger.set_aside(damaged, need.line)
        return self._ledger.changes

    def payloads_in(self, need: NeedPayloads, payloads: dict[int, bytes | None]) -> list[Change]:
        """None is a damaged payload."""
        self._ledger.changes = []
        line = self._ledger.lines[need.line]
        if need.session != NO_SESSION:
            assert self._ledger.sessions is not None
            held = self._ledger.sessions.by_token(need.session)
            assert held is not None, "a hold does not end while its messages are being read"
            line = held.line
        line.fill(payloads)
        damaged = [number for number, payload in payloads.items() if payload is None]
        if damaged:
            self._ledger.set_aside(damaged, need.line)
        return self._ledger.changes

    def entries_in(self, need: NeedEntries, entries: list[Entry | None]) -> None:
        for number, entry in zip(need.sequence_numbers, entries, strict=True):
            self._fed[number] = entry

    def stages_in(self, stages: dict[bytes, ReadStage]) -> None:
        self._fed_stages = stages

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
            assert held is not None, "a hold does not end while its messages are being read"
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
