"""The transactions of a fragment: done at once, or promised first and finished later (R22).

A transaction in several fragments is decided by one of them. All others promise first: the promise
is stored, and the messages that it settles are pinned, out of reach of receivers, deadlines and
expiry. Then the decider decides, in the same commit in which it does its own part. All others
finish what it decided, whatever crashes in between; see docs/adr/0016-transactions.md.
"""

from __future__ import annotations

from typing import Final, final

from shardbus.core.errors import INVALID_ARGUMENT, NOT_ALLOWED, SERVER_BUSY, Refused
from shardbus.core.fragment.change import RecordChange
from shardbus.core.fragment.command import Command
from shardbus.core.fragment.entrance import Entrance
from shardbus.core.fragment.family import Handler
from shardbus.core.fragment.ledger import Ledger
from shardbus.core.fragment.lock import LockBatch
from shardbus.core.fragment.need import Need, NeedStages
from shardbus.core.fragment.records import DECISION, PREPARED
from shardbus.core.fragment.supply import Supply
from shardbus.core.lifecycle import rows as events
from shardbus.core.limits import (
    DECIDE_MS_MAX,
    DECISIONS_MAX,
    PREPARED_BYTES_MAX,
    PREPARED_MAX,
    ROLLBACK_KEPT_MS,
)
from shardbus.core.message import SET_ASIDE, Entry
from shardbus.core.messages.command import Done, Sent
from shardbus.core.messages.scheduled_numbers import ScheduledNumbers
from shardbus.core.messages.settling import Settling
from shardbus.core.sealing.sealing import Sealing
from shardbus.core.sessions.holding import PromisedState, SessionHolds
from shardbus.core.stages.record import ReadStage
from shardbus.core.stages.staging import Staging
from shardbus.core.transactions.command import (
    COMMITTED,
    ROLLED_BACK,
    UNDECIDED,
    AboutTransactions,
    AskDecision,
    Decide,
    Decided,
    Enlist,
    Finish,
    ForgetDecision,
    InDoubt,
    Owed,
    Prepare,
    Promised,
    Transact,
    Work,
)
from shardbus.core.transactions.finished import Finished
from shardbus.core.transactions.record import (
    Decision,
    Prepared,
    Promise,
    pack_decision,
    pack_prepared,
    unpack_decision,
    unpack_prepared,
)

_HOW: Final = {True: COMMITTED, False: ROLLED_BACK}


@final
class FragmentTransactions(Handler):
    """Decides the commands about transactions of one fragment."""

    def __init__(  # noqa: PLR0913 - the parts of a fragment that it asks
        self,
        ledger: Ledger,
        supply: Supply,
        entrance: Entrance,
        settling: Settling,
        staging: Staging,
        holds: SessionHolds | None,
        records: dict[tuple[int, bytes], bytes],
    ) -> None:
        self._ledger = ledger
        self._supply = supply
        self._entrance = entrance
        self._settling = settling
        self._staging = staging
        self.scheduled = ScheduledNumbers(ledger, entrance)
        self.sealing = Sealing(ledger, entrance, self, staging)
        self._holds = holds
        # The messages and stages that were read for the command that is being decided.
        self._read: dict[int, Entry | None] = {}
        self._staged: dict[bytes, ReadStage] = {}
        self._prepared: dict[bytes, Prepared] = {}
        self._prepared_bytes = 0
        # The sessions of pinned messages, by number: a rollback returns the messages to them.
        self._batches: dict[int, LockBatch] = {}
        self._decisions: dict[bytes, Decision] = {}
        self._finished = Finished(ledger, records)
        for (kind, key), data in records.items():
            if kind == PREPARED:
                self._load(key, unpack_prepared(data))
            elif kind == DECISION:
                self._decisions[key] = decision = unpack_decision(data)
                decision.kept_until_ms = ledger.steady_ms + ROLLBACK_KEPT_MS

    def _load(self, transaction_id: bytes, prepared: Prepared) -> None:
        prepared.deadline_ms = self._ledger.steady_ms + prepared.wait_ms
        self._prepared[transaction_id] = prepared
        self._prepared_bytes += prepared.size_bytes
        promised_keys = self._entrance.promised_keys
        promised_keys.load(transaction_id, prepared.messages, self._ledger.steady_ms)
        for promise in prepared.promises:
            for number in promise.numbers:
                self._ledger.locks.pin_unread(number)
        self._staging.promise(prepared.stages, prepared.batch_key)
        self.scheduled.load(prepared.cancelled)
        if self._holds is not None:
            self._holds.promise(prepared.states)

    def decide(self, command: Command, now_ms: int) -> Done | Decided | InDoubt | Sent:
        assert isinstance(command, AboutTransactions)
        self._read = self._supply.entries
        self._staged = self._supply.stages
        if isinstance(command, Enlist):
            self._check(command.work, now_ms)
            return self.scheduled.reserve(command.count)
        if isinstance(command, Transact):
            self._entrance.check_ticket(command.ticket)
            self._check(command.work, now_ms)
            self._do(command.work, now_ms)
            self._entrance.note_ticket(command.ticket, None)
            return Done()
        if isinstance(command, Prepare):
            return self._prepare(command, now_ms)
        if isinstance(command, Decide):
            return self._commit(command, now_ms)
        if isinstance(command, AskDecision):
            return self._answer(command, now_ms)
        if isinstance(command, Finish):
            return self._finish(command, now_ms)
        if isinstance(command, ForgetDecision):
            return self._forget(command)
        return self._in_doubt()

    def prepared_count(self) -> int:
        """How many transactions this fragment has promised to commit and not finished."""
        return len(self._prepared)

    def need(self, command: Command, now_ms: int) -> Need | None:
        if isinstance(command, Finish):
            unread = self._unread(command.transaction_id)
            need = self._supply.need_entries(unread, len(unread), bytes_max=0)
            return self._supply.need_stages(self._unread_stages(command)) if need is None else need
        if isinstance(command, (Enlist, Transact, Prepare, Decide)):
            return self._need_to_transact(command)
        return None

    def _need_to_transact(self, command: Enlist | Transact | Prepare | Decide) -> Need | None:
        work = command.work
        if work.cancelled:
            numbers = work.cancelled
            need = self._supply.need_entries(numbers, len(numbers), bytes_max=0)
            if need is not None:
                return need
        if work.states and self._holds is not None:
            state = self._holds.need_to_set_states(work.states)
            if state is not None:
                return state
        if work.stages and not isinstance(command, Enlist):
            return self._supply.need_stages(self._unread_stages(command))
        return None

    def _unread(self, transaction_id: bytes) -> list[int]:
        """The messages to read from the store before a transaction can be finished."""
        prepared = self._prepared.get(transaction_id)
        numbers: list[int] = []
        if prepared is not None:
            for promise in prepared.promises:
                numbers += promise.numbers
            numbers += prepared.cancelled
        return [number for number in numbers if self._ledger.locks.is_unread(number)]

    def _unread_stages(self, command: Transact | Prepare | Decide | Finish) -> NeedStages | None:
        """The stages to read from the store before a command is decided."""
        if isinstance(command, Transact):
            return self._staging.need_of(command.work, is_promise=False)
        if isinstance(command, Prepare):
            is_known = command.transaction_id in self._prepared
            return None if is_known else self._staging.need_of(command.work, is_promise=True)
        if isinstance(command, Decide):
            is_known = command.transaction_id in self._decisions
            return None if is_known else self._staging.need_of(command.work, is_promise=False)
        if command.is_commit:
            prepared = self._prepared.get(command.transaction_id)
            if prepared is not None:
                return self._staging.need_to_finish(prepared.stages)
        return None

    def _check(self, work: Work, now_ms: int) -> None:
        if work.messages or work.scheduled:
            self._entrance.check(work.messages + [message for _, message in work.scheduled])
            self.scheduled.check_reserved(work.scheduled)
        if work.stages or work.publication is not None:
            self._staging.check(work, self._staged, now_ms)
        self._settling.check_held(work.settlements)
        if work.cancelled:
            self.scheduled.found(work.cancelled, self._read)
        self._states_of(work)

    def _states_of(self, work: Work) -> list[PromisedState]:
        if not work.states:
            return []
        if self._holds is None:
            raise Refused(
                NOT_ALLOWED,
                "The entity does not require sessions, so there is no session state to set.",
            )
        return self._holds.check_states(work.states)

    def _do(self, work: Work, now_ms: int) -> Sent | None:
        sent: Sent | None = None
        if work.messages:
            sent = self._entrance.admit(work.messages, now_ms, is_checked=True)
        if work.scheduled:
            self._entrance.admit_reserved(work.scheduled, now_ms)
        if work.stages:
            self._staging.publish(work.stages, work.batch_key, self._staged, now_ms)
        if work.publication is not None:
            self._staging.producers.note(work.publication, now_ms)
        for settlement in work.settlements:
            self._settling.settle(settlement, now_ms)
        if work.cancelled:
            cancelled = self.scheduled.found(work.cancelled, self._read)
            self._ledger.forget(cancelled, events.CANCEL)
        if self._holds is not None:
            for state in work.states:
                self._holds.set_state(state, now_ms)
        return sent

    # Promising.

    def _prepare(self, command: Prepare, now_ms: int) -> Done:
        transaction_id, work = command.transaction_id, command.work
        if transaction_id in self._prepared:
            return Done()
        if work.publication is not None:
            raise Refused(
                INVALID_ARGUMENT,
                "The fragment that decides a transaction must remember its published batch, "
                "not one that prepares it.",
            )
        self._check(work, now_ms)
        locks = self._ledger.locks
        promises: list[Promise] = []
        for settle in work.settlements:
            numbers: list[int] = []
            for token in settle.tokens:
                entry = locks.held(token, self._ledger.steady_ms)
                assert entry is not None, "checked above"
                numbers.append(entry.sequence_number)
            deadlines_ms = [locks.deadline_ms(token) for token in settle.tokens]
            promises.append(Promise(settle, numbers, settle.tokens, deadlines_ms))
        wait_ms = min(command.wait_ms, DECIDE_MS_MAX)
        prepared = Prepared(command.decider, wait_ms, work.messages, promises, work.stages)
        prepared.scheduled, prepared.cancelled = work.scheduled, work.cancelled
        prepared.states = self._states_of(work)
        prepared.deadline_ms = self._ledger.steady_ms + wait_ms
        prepared.keeps_reply = command.keeps_reply
        prepared.batch_key = work.batch_key
        if command.keeps_reply:
            self._finished.check_room(len(self._prepared))
        data = pack_prepared(prepared)
        prepared.size_bytes = len(data)
        self._check_room(len(data))
        self._pin(promises)
        self._staging.promise(work.stages, work.batch_key)
        if work.cancelled:
            self.scheduled.pin(self.scheduled.found(work.cancelled, self._read))
        if self._holds is not None:
            self._holds.promise(prepared.states)
        self._entrance.promised_keys.add(transaction_id, work.messages, self._ledger.steady_ms)
        self._prepared[transaction_id] = prepared
        self._prepared_bytes += len(data)
        self._ledger.changes.append(RecordChange(PREPARED, transaction_id, data))
        return Done()

    def _check_room(self, size_bytes: int) -> None:
        total_bytes = self._prepared_bytes + size_bytes
        if len(self._prepared) >= PREPARED_MAX or total_bytes > PREPARED_BYTES_MAX:
            raise Refused(
                SERVER_BUSY,
                f"Too many transactions are unfinished: {len(self._prepared)} of them wait "
                "for their decision in one fragment. Try again later.",
            )

    def _pin(self, promises: list[Promise]) -> None:
        locks = self._ledger.locks
        for promise in promises:
            for token in promise.tokens:
                batch = locks.batch_of(token)
                number = locks.pin(token).sequence_number
                if batch.is_session:
                    self._batches[number] = batch

    # Deciding.

    def _commit(self, command: Decide, now_ms: int) -> Decided | Sent:
        decision = self._decisions.get(command.transaction_id)
        if decision is not None:
            return Decided(_HOW[decision.is_commit])
        self._entrance.check_ticket(command.ticket)
        self._check(command.work, now_ms)
        self._check_decisions()
        sent = self._do(command.work, now_ms)
        self._entrance.note_ticket(command.ticket, sent)
        self._keep(command.transaction_id, Decision(True, now_ms, command.others))
        if sent is not None and command.ticket is not None and command.ticket.keeps_reply:
            return sent
        return Decided(COMMITTED)

    def _answer(self, command: AskDecision, now_ms: int) -> Decided:
        decision = self._decisions.get(command.transaction_id)
        if decision is not None:
            return Decided(_HOW[decision.is_commit])
        if not command.is_over:
            return Decided(UNDECIDED)
        return self._roll_back(command.transaction_id, now_ms)

    def _roll_back(self, transaction_id: bytes, now_ms: int) -> Decided:
        """Roll back. The decision is kept much longer than a command can be under way, so that a
        late commit still finds it.
        """
        self._forget_rollbacks()
        self._check_decisions()
        decision = Decision(False, now_ms, [])
        decision.kept_until_ms = self._ledger.steady_ms + ROLLBACK_KEPT_MS
        self._keep(transaction_id, decision)
        return Decided(ROLLED_BACK)

    def _check_decisions(self) -> None:
        if len(self._decisions) >= DECISIONS_MAX:
            raise Refused(
                SERVER_BUSY,
                f"A fragment keeps the decisions of {len(self._decisions)} transactions, its "
                "maximum. Try again later.",
            )

    def _keep(self, transaction_id: bytes, decision: Decision) -> None:
        self._decisions[transaction_id] = decision
        data = pack_decision(decision)
        self._ledger.changes.append(RecordChange(DECISION, transaction_id, data))

    def _forget(self, command: ForgetDecision) -> Done:
        decision = self._decisions.get(command.transaction_id)
        if decision is not None and decision.is_commit:
            self._drop(command.transaction_id)
        self._finished.forget(command.transaction_id)
        return Done()

    def _forget_rollbacks(self) -> None:
        old = [
            transaction_id
            for transaction_id, decision in self._decisions.items()
            if not decision.is_commit and decision.kept_until_ms <= self._ledger.steady_ms
        ]
        for transaction_id in old:
            self._drop(transaction_id)

    def _drop(self, transaction_id: bytes) -> None:
        del self._decisions[transaction_id]
        self._ledger.changes.append(RecordChange(DECISION, transaction_id, None))

    # Finishing.

    def _finish(self, command: Finish, now_ms: int) -> Done | Sent:
        prepared = self._prepared.pop(command.transaction_id, None)
        if prepared is None:
            kept = self._finished.find(command.transaction_id) if command.is_commit else None
            return Done() if kept is None else kept
        reply: Done | Sent = Done()
        self._entrance.promised_keys.remove(command.transaction_id)
        self._prepared_bytes -= prepared.size_bytes
        self._ledger.changes.append(RecordChange(PREPARED, command.transaction_id, None))
        if command.is_commit and prepared.messages:
            sent = self._entrance.admit(prepared.messages, now_ms, is_checked=True)
            if prepared.keeps_reply:
                self._finished.keep(command.transaction_id, sent)
                reply = sent
        if prepared.stages:
            if command.is_commit:
                self._staging.publish(prepared.stages, prepared.batch_key, self._staged, now_ms)
            else:
                self._staging.let_go(prepared.stages)
        for promise in prepared.promises:
            if command.is_commit:
                self._settling.end(promise.command, self._unpinned(promise, self._read), now_ms)
            else:
                self._let_go(promise, self._read, now_ms)
        self._finish_requests(prepared, now_ms, is_commit=command.is_commit)
        return reply

    def _finish_requests(self, prepared: Prepared, now_ms: int, *, is_commit: bool) -> None:
        if is_commit and prepared.scheduled:
            self._entrance.admit_reserved(prepared.scheduled, now_ms)
        self.scheduled.finish(prepared.cancelled, self._read, is_commit=is_commit)
        if self._holds is not None:
            self._holds.finish(prepared.states, now_ms, is_commit=is_commit)

    def _unpinned(self, promise: Promise, read: dict[int, Entry | None]) -> list[Entry]:
        found = [self._unpin(number, read) for number in promise.numbers]
        return [entry for entry in found if entry is not None]

    def _unpin(self, number: int, read: dict[int, Entry | None]) -> Entry | None:
        """Unpin a message; None when it was found damaged in the meantime."""
        self._batches.pop(number, None)
        entry = self._ledger.locks.unpin(number, read.get(number))
        return None if entry is None or entry.state == SET_ASIDE else entry

    def _let_go(self, promise: Promise, read: dict[int, Entry | None], now_ms: int) -> None:
        """Drop a promise: locks that are still held continue as if nothing had been promised."""
        if not promise.tokens:
            # A restart ends locks without counting their deliveries as failed.
            self._ledger.give_back(self._unpinned(promise, read), now_ms)
            return
        overdue: list[Entry] = []
        returned: list[Entry] = []
        for position, number in enumerate(promise.numbers):
            batch = self._batches.get(number)
            entry = self._unpin(number, read)
            if entry is None:
                continue
            if batch is not None:
                if not self._lock_in_session(entry, promise.tokens[position], batch):
                    returned.append(entry)
            elif promise.deadlines_ms[position] > self._ledger.steady_ms:
                token, deadline_ms = promise.tokens[position], promise.deadlines_ms[position]
                self._ledger.locks.hold([entry], [token], deadline_ms)
            else:
                overdue.append(entry)
        if overdue:
            self._ledger.fail(overdue, now_ms, b"", 0)
        self._ledger.release(returned, now_ms)

    def _lock_in_session(self, entry: Entry, token: bytes, batch: LockBatch) -> bool:
        sessions = self._ledger.sessions
        if sessions is None or entry.session_id is None:
            return False
        held = sessions.named(entry.session_id)
        if held is None or held.batch is not batch:
            return False
        self._ledger.locks.hold_in_session(batch, [entry], [token])
        return True

    def _in_doubt(self) -> InDoubt:
        steady_ms = self._ledger.steady_ms
        promised = [
            Promised(transaction_id, prepared.decider, is_over=prepared.deadline_ms <= steady_ms)
            for transaction_id, prepared in self._prepared.items()
        ]
        owed = [
            Owed(transaction_id, decision.at_ms, decision.others)
            for transaction_id, decision in self._decisions.items()
            if decision.is_commit
        ]
        return InDoubt(promised, owed)
