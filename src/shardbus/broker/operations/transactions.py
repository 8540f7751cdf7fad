"""Commits the work of a transaction in all of its fragments, or in none (R22).

In one fragment it is one command and one store commit. In several fragments, all but one promise;
that one decides, in the same commit that has its own part; then the others finish. Before the
decision nothing has happened, and afterwards everything will: `recovering` makes sure of that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Final, final

from shardbus.broker.clock import Clock
from shardbus.broker.operations.asking import Question, answer_to, ask_all, failure_of, to_port
from shardbus.broker.routing.dispatch import FragmentPort, ignore
from shardbus.broker.routing.outbox import Outbox
from shardbus.core.errors import Refused, Unavailable
from shardbus.core.messages.command import Done, Sent
from shardbus.core.transactions.command import (
    COMMITTED,
    Decide,
    Decided,
    Finish,
    ForgetDecision,
    Home,
    Prepare,
    Transact,
    Work,
)

# Between the first promise and the decision: a fragment with a promise waits this long.
DECIDE_MS: Final = 10_000
# Decisions that are being made at once, over all connections of a gateway.
COMMITS_MAX: Final = 10_000
# How often, and for how long, fragments that are away are told the decision; then recovery does it.
TELL_AGAIN_MS: Final = 100
TELL_MS_MAX: Final = 30_000
LATE_TEXT: Final = "The transaction took too long to commit and was rolled back."


@final
class TransactionPart:
    """What a transaction does in one fragment."""

    def __init__(
        self, port: FragmentPort, home: Home, work: Work, outbox: Outbox | None = None
    ) -> None:
        """With the `outbox` of the fragment, a lost answer leads to a question whether the part was
        done; parts with an identity of their own, such as publications, need no outbox.
        """
        self.port = port
        self.home = home
        self.work = work
        self._outbox = outbox

    def transact(self) -> Question:
        outbox, work = self._outbox, self.work
        if outbox is None:
            return to_port(self.port, Transact(work))
        return lambda reply_to: outbox.transact(work, reply_to)

    def decide(self, transaction_id: bytes, others: list[Home], *, keeps_reply: bool) -> Question:
        outbox, work = self._outbox, self.work
        if outbox is None:
            return to_port(self.port, Decide(transaction_id, work, others))
        return lambda reply_to: outbox.decide(
            transaction_id, work, others, reply_to, keeps_reply=keeps_reply
        )

    def payload_bytes(self) -> int:
        scheduled = sum(len(message.payload) for _, message in self.work.scheduled)
        return scheduled + sum(len(message.payload) for message in self.work.messages)


@final
class Transactor:
    """Commits transactions, even if the client that asked for it is gone."""

    def __init__(
        self,
        clock: Clock,
        decide_ms: int = DECIDE_MS,
        *,
        finish_ms: int = 0,
        late_text: str = LATE_TEXT,
        keeps_replies: bool = False,
    ) -> None:
        """A fragment that cannot finish at once is waited for, for `finish_ms`.

        With `keeps_replies` the numbers of messages sent in several fragments are returned.
        """
        self._clock = clock
        self._decide_ms = decide_ms
        self._finish_ms = finish_ms
        self._late_text = late_text
        self._keeps_replies = keeps_replies
        self._commits: set[asyncio.Task[dict[Home, Sent]]] = set()
        # Tasks that tell fragments the decision that could not be told at once.
        self._tellers: set[asyncio.Task[object]] = set()

    def tasks(self) -> list[asyncio.Task[dict[Home, Sent]] | asyncio.Task[object]]:
        """The tasks under way, to be ended with the process."""
        return [*self._commits, *self._tellers]

    async def commit(
        self,
        transaction_id: bytes,
        parts: Sequence[TransactionPart],
        decider: TransactionPart | None = None,
    ) -> dict[Home, Sent]:
        """Return when all of it is done. Without a `decider`, any of the parts may decide.

        Returns the kept replies of the fragments that have finished. After Refused, or an
        Unavailable that is not unknown, nothing of it is done and nothing will be. After an
        Unavailable that is unknown it will be all or nothing.
        """
        if len(self._commits) >= COMMITS_MAX:
            raise Unavailable("Too many transactions are being committed: try again later.")
        # A commit that is abandoned half-way would keep messages from receivers for a while.
        task = asyncio.ensure_future(self._commit(transaction_id, parts, decider))
        self._commits.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[dict[Home, Sent]]) -> None:
        self._commits.discard(task)
        if not task.cancelled():
            # The caller has the exception, unless it is gone.
            task.exception()

    async def _commit(
        self,
        transaction_id: bytes,
        parts: Sequence[TransactionPart],
        decider: TransactionPart | None,
    ) -> dict[Home, Sent]:
        if len(parts) == 1:
            await answer_to(parts[0].transact())
        elif decider is not None:
            others = [part for part in parts if part is not decider]
            return await self._commit_in_phases(transaction_id, decider, others)
        elif parts:
            # The decider writes its messages once, the others twice.
            ordered = sorted(parts, key=TransactionPart.payload_bytes, reverse=True)
            return await self._commit_in_phases(transaction_id, ordered[0], ordered[1:])
        return {}

    async def _commit_in_phases(
        self, transaction_id: bytes, decider: TransactionPart, others: list[TransactionPart]
    ) -> dict[Home, Sent]:
        deadline_ms = self._clock.steady_ms() + self._decide_ms
        prepares = [
            Prepare(
                transaction_id,
                part.work,
                decider.home,
                self._decide_ms,
                keeps_reply=self._keeps_replies,
            )
            for part in others
        ]
        promises = await ask_all(
            [to_port(part.port, prepare) for part, prepare in zip(others, prepares, strict=True)]
        )
        failure = failure_of(promises)
        if failure is not None:
            # A fragment whose promise is unknown does nothing without a decision either.
            await self._roll_back(transaction_id, others)
            raise failure if isinstance(failure, Refused) else Unavailable(failure.message)
        if self._clock.steady_ms() >= deadline_ms:
            await self._roll_back(transaction_id, others)
            raise Unavailable(self._late_text)
        decided = await self._decide(transaction_id, decider, others)
        replies = {} if decided is None else {decider.home: decided}
        await self._finish_all(transaction_id, decider, others, replies)
        return replies

    async def _finish_all(
        self,
        transaction_id: bytes,
        decider: TransactionPart,
        others: list[TransactionPart],
        replies: dict[Home, Sent],
    ) -> None:
        """Tell all fragments that the transaction is committed, and collect their replies."""
        finish = Finish(transaction_id, is_commit=True)
        rest = await self._tell(finish, others, self._finish_ms, replies)
        if rest:
            self._later(self._finish_rest(transaction_id, decider, others, rest))
        else:
            self._forget(transaction_id, decider, others)

    async def _finish_rest(
        self,
        transaction_id: bytes,
        decider: TransactionPart,
        others: list[TransactionPart],
        rest: list[TransactionPart],
    ) -> None:
        finish = Finish(transaction_id, is_commit=True)
        if not await self._tell(finish, rest, TELL_MS_MAX, {}):
            self._forget(transaction_id, decider, others)

    def _forget(
        self, transaction_id: bytes, decider: TransactionPart, others: list[TransactionPart]
    ) -> None:
        decider.port.submit(ForgetDecision(transaction_id), ignore)
        if self._keeps_replies:
            for part in others:
                part.port.submit(ForgetDecision(transaction_id), ignore)

    async def _roll_back(self, transaction_id: bytes, others: list[TransactionPart]) -> None:
        finish = Finish(transaction_id, is_commit=False)
        rest = await self._tell(finish, others, 0, {})
        if rest:
            self._later(self._tell(finish, rest, TELL_MS_MAX, {}))

    async def _tell(
        self, finish: Finish, parts: list[TransactionPart], tell_ms: int, replies: dict[Home, Sent]
    ) -> list[TransactionPart]:
        """Tell these fragments the decision, for up to `tell_ms`; returns those that have not heard
        it.

        The sooner they hear it, the sooner others may send with the keys of promised messages.
        """
        until_ms = self._clock.steady_ms() + tell_ms
        while True:
            answers = await ask_all([to_port(part.port, finish) for part in parts])
            told = list(zip(parts, answers, strict=True))
            replies |= {part.home: answer for part, answer in told if isinstance(answer, Sent)}
            parts = [part for part, answer in told if not isinstance(answer, Done | Sent)]
            if not parts or self._clock.steady_ms() >= until_ms:
                return parts
            await asyncio.sleep(TELL_AGAIN_MS / 1000)

    def _later(self, work: Coroutine[object, object, object]) -> None:
        """Continue after the caller has its answer; recovery would do it too."""
        if len(self._tellers) >= COMMITS_MAX:
            work.close()
            return
        task = asyncio.ensure_future(work)
        self._tellers.add(task)
        task.add_done_callback(self._told)

    def _told(self, task: asyncio.Task[object]) -> None:
        self._tellers.discard(task)
        if not task.cancelled():
            task.exception()

    async def _decide(
        self, transaction_id: bytes, decider: TransactionPart, others: list[TransactionPart]
    ) -> Sent | None:
        homes = [part.home for part in others]
        question = decider.decide(transaction_id, homes, keeps_reply=self._keeps_replies)
        try:
            answer = await answer_to(question)
        except Unavailable as error:
            if not error.is_unknown:
                await self._roll_back(transaction_id, others)
            raise
        except Refused:
            await self._roll_back(transaction_id, others)
            raise
        if isinstance(answer, Sent):
            return answer
        assert isinstance(answer, Decided)
        if answer.how != COMMITTED:
            await self._roll_back(transaction_id, others)
            raise Unavailable(self._late_text)
        return None
