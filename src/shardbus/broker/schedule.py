"""Scheduling messages over fragments: what was scheduled is cancelled when the rest cannot be."""

from __future__ import annotations

from functools import partial
from typing import final

from shardbus.broker.asking import Question, ask_all, failure_of, partly_done, to_port
from shardbus.broker.dispatch import ignore
from shardbus.broker.router import EntityRouter
from shardbus.broker.runner import Answer
from shardbus.core.command import Cancel, Done, Sent
from shardbus.core.errors import Refused
from shardbus.core.message import Message


@final
class Scheduling:
    """One request to schedule messages; `now_ms` tells which of them wait and can be cancelled."""

    def __init__(self, router: EntityRouter, messages: list[Message], now_ms: int) -> None:
        self._router = router
        self._messages = messages
        self._now_ms = now_ms
        self._shares = router.place(messages)

    async def numbers(self) -> list[int]:
        """The sequence number of each message, 0 for a duplicate; or the failure is raised."""
        questions = [
            partial(self._router.send_placed, share, self._messages) for share in self._shares
        ]
        answers = await ask_all(questions, self._undo_soon)
        failure = failure_of(answers)
        if failure is not None:
            is_undone = await self._undo(answers)
            raise failure if is_undone else partly_done(failure)
        numbers = [0] * len(self._messages)
        for share, answer in zip(self._shares, answers, strict=True):
            assert isinstance(answer, Sent)
            for position, number in zip(share.positions, answer.numbers(), strict=True):
                numbers[position] = number
        return numbers

    async def _undo(self, answers: list[Answer]) -> bool:
        """Cancel what still waits; what is active already cannot be taken back.

        Whether nothing is left of it.
        """
        waiting = [self._waiting(position, answer) for position, answer in enumerate(answers)]
        cancelled = await ask_all([self._cancel(numbers) for numbers in waiting if numbers])
        tried = [numbers for numbers in waiting if numbers]
        rest = [
            number
            for numbers, answer in zip(tried, cancelled, strict=True)
            if isinstance(answer, Refused)
            for number in numbers
        ]
        # Some became active meanwhile, and then none of their fragment was cancelled.
        cancelled += await ask_all([self._cancel([number]) for number in rest])
        stored = sum(answer.count for answer in answers if isinstance(answer, Sent))
        are_cancelled = all(isinstance(answer, Done) for answer in cancelled)
        return are_cancelled and stored == sum(map(len, waiting))

    def _undo_soon(self, position: int, answer: Answer) -> None:
        numbers = self._waiting(position, answer)
        if numbers:
            self._cancel(numbers)(ignore)

    def _cancel(self, numbers: list[int]) -> Question:
        """A question about numbers that are all of one fragment."""
        port = self._router.ports[self._router.index_of_number(numbers[0])]
        return to_port(port, Cancel(numbers))

    def _waiting(self, position: int, answer: Answer) -> list[int]:
        if not isinstance(answer, Sent):
            return []
        return [
            number
            for at, number in zip(self._shares[position].positions, answer.numbers(), strict=True)
            if number and self._messages[at].scheduled_at_ms > self._now_ms
        ]
