"""What requests to $management do in transactions: schedule, cancel, and set a session's state.

A fragment is asked at once whether the request is possible, so that the client gets a refusal, or
the sequence numbers of scheduled messages, immediately. The request takes effect when the
transaction is committed.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar, final

from shardbus.broker.operations.asking import ask_all, failure_of, to_port
from shardbus.broker.operations.deferred import shares_of
from shardbus.core.errors import (
    NOT_ALLOWED,
    SERVER_BUSY,
    SESSION_LOCK_LOST,
    Refused,
    Unavailable,
)
from shardbus.core.message import Message
from shardbus.core.messages.command import Sent
from shardbus.core.messages.deferred import not_found
from shardbus.core.sequence import TOKEN_BYTES
from shardbus.core.sessions.command import SetState
from shardbus.core.sessions.holding import SESSION_LOST_TEXT
from shardbus.core.transactions.command import Enlist, Work
from shardbus.gateway.amqp.transactions.open import Enlistment, OpenTransaction

T = TypeVar("T")


@final
class EnlistedRequests:
    """The requests to one entity in transactions.

    A request that is refused, or cannot be asked, spoils its transaction, if the transaction is
    known.
    """

    def __init__(self, enlistment: Enlistment) -> None:
        self._enlistment = enlistment
        self._handle = enlistment.handle

    async def schedule(self, transaction_id: bytes, messages: list[Message]) -> list[int]:
        """The sequence number of each message, by which it can be cancelled from now on."""
        opened = self._enlistment.transactions.find(transaction_id)
        return await self._enlisted(opened, self._schedule(opened, messages))

    async def _schedule(self, opened: OpenTransaction, messages: list[Message]) -> list[int]:
        indexes = self._enlistment.place(opened, messages)
        opened.scheduled += len(messages)
        counts: dict[int, int] = {}
        for index in indexes:
            counts[index] = counts.get(index, 0) + 1
        given = await self._ask(
            opened, {index: Enlist(Work([], []), count) for index, count in counts.items()}
        )
        numbers: list[int] = []
        for index, message in zip(indexes, messages, strict=True):
            number = given[index].pop(0)
            numbers.append(number)
            opened.work_at(self._handle, index).scheduled.append((number, message))
        return numbers

    async def cancel(self, transaction_id: bytes, numbers: list[int]) -> None:
        """Cancel all of these messages; some may be scheduled by the transaction itself."""
        opened = self._enlistment.transactions.find(transaction_id)
        await self._enlisted(opened, self._cancel(opened, numbers))

    async def _cancel(self, opened: OpenTransaction, numbers: list[int]) -> None:
        self._check_count(opened, len(numbers))
        shares = shares_of(self._handle.router, numbers)
        self._enlistment.bind(opened, shares)
        opened.cancelled += len(numbers)
        asked: dict[int, Enlist] = {}
        for index, share in shares.items():
            enlisted = opened.work_at(self._handle, index)
            own = _own(enlisted)
            for number in share:
                if number in enlisted.cancelled:
                    raise not_found(number, "scheduled")
            work = Work([], [])
            work.cancelled = [number for number in share if number not in own]
            if work.cancelled:
                asked[index] = Enlist(work)
        await self._ask(opened, asked)
        for index, share in shares.items():
            enlisted = opened.work_at(self._handle, index)
            own = _own(enlisted)
            enlisted.cancelled += [number for number in share if number not in own]
            enlisted.scheduled = [each for each in enlisted.scheduled if each[0] not in share]

    async def set_state(self, transaction_id: bytes, session: bytes, state: bytes | None) -> None:
        """Set the state of a held session, replacing one that the transaction set before."""
        opened = self._enlistment.transactions.find(transaction_id)
        await self._enlisted(opened, self._set_state(opened, SetState(session, state)))

    async def _set_state(self, opened: OpenTransaction, command: SetState) -> None:
        opened.check()
        # The state is where the first token of the hold is from.
        command = SetState(command.session[:TOKEN_BYTES], command.state)
        index = self._handle.router.index_of_token(command.session)
        if index < 0:
            raise Refused(SESSION_LOCK_LOST, SESSION_LOST_TEXT)
        self._enlistment.bind(opened, [index])
        self._enlistment.transactions.add_bytes(opened, len(command.state or b""))
        work = Work([], [])
        work.states.append(command)
        await self._ask(opened, {index: Enlist(work)})
        enlisted = opened.work_at(self._handle, index)
        rest = [each for each in enlisted.states if each.session != command.session]
        enlisted.states = [*rest, command]

    async def _enlisted(self, opened: OpenTransaction, enlisting: Awaitable[T]) -> T:
        # The client may give up in between: then it is unknown what is enlisted.
        failure = Refused(SERVER_BUSY, "A request was given up before it was answered.")
        is_enlisted = False
        try:
            answer = await enlisting
            is_enlisted = True
            return answer
        except Refused as refusal:
            failure = refusal
            raise
        except Unavailable as unavailable:
            failure = Refused(SERVER_BUSY, unavailable.message)
            raise
        finally:
            if not is_enlisted:
                self._enlistment.spoil(opened.transaction_id, failure)

    async def _ask(self, opened: OpenTransaction, asked: dict[int, Enlist]) -> dict[int, list[int]]:
        """Reserve the numbers; Refused when the transaction has ended by then."""
        ports = self._handle.router.ports
        answers = await ask_all(
            [to_port(ports[index], command) for index, command in asked.items()]
        )
        failure = failure_of(answers)
        if failure is not None:
            raise failure
        self._enlistment.transactions.find(opened.transaction_id)
        opened.check()
        given: dict[int, list[int]] = {}
        for index, answer in zip(asked, answers, strict=True):
            assert isinstance(answer, Sent)
            given[index] = answer.numbers()
        return given

    def _check_count(self, opened: OpenTransaction, count: int) -> None:
        opened.check()
        messages_max = self._enlistment.transactions.rules.messages_max
        if opened.cancelled + count > messages_max:
            raise Refused(
                NOT_ALLOWED,
                f"Cannot cancel more than {messages_max} messages in a single transaction.",
            )


def _own(work: Work) -> set[int]:
    """The numbers that the transaction itself has scheduled."""
    return {number for number, _ in work.scheduled}
