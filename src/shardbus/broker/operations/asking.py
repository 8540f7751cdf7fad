"""Questions to fragments whose answers a task awaits, one at a time or several in parallel."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import final

from shardbus.broker.fragment.answers import Answer, ReplyTo
from shardbus.broker.routing.dispatch import FragmentPort
from shardbus.core.errors import SERVER_BUSY, Refused, Unavailable
from shardbus.core.fragment.command import Command, Reply

Question = Callable[[ReplyTo], None]
"""Asks, and passes the answer to the given function."""

Unwanted = Callable[[int, Answer], None]
"""Is called with answers, by position, that came after the caller was cancelled."""


def to_port(port: FragmentPort, command: Command) -> Question:
    return lambda reply_to: port.submit(command, reply_to)


async def ask(port: FragmentPort, command: Command) -> Reply:
    """A fragment's answer; a Refused or Unavailable is raised."""
    return await answer_to(to_port(port, command))


async def answer_to(question: Question) -> Reply:
    """The answer; a Refused or Unavailable is raised."""
    [answer] = await ask_all([question])
    if isinstance(answer, Refused | Unavailable):
        raise answer
    return answer


async def ask_all(questions: Sequence[Question], unwanted: Unwanted | None = None) -> list[Answer]:
    """The answers in the order of the questions, all of which are asked at once."""
    asked = [_Asked(position, unwanted) for position in range(len(questions))]
    for one, question in zip(asked, questions, strict=True):
        question(one.answered)
    try:
        return list(await asyncio.gather(*(one.future for one in asked)))
    except asyncio.CancelledError:
        for one in asked:
            one.give_up()
        raise


def failure_of(answers: Sequence[Answer]) -> Refused | Unavailable | None:
    """The first failure; an unknown outcome takes precedence, because the client must learn of
    it.
    """
    found: Refused | Unavailable | None = None
    for answer in answers:
        if isinstance(answer, Unavailable) and answer.is_unknown:
            return answer
        if found is None and isinstance(answer, Refused | Unavailable):
            found = answer
    return found


def failure_of_parts(answers: Sequence[Answer]) -> Refused | Unavailable | None:
    """The first failure of independent parts. When some are done and others are unavailable or
    busy, the failure must not say that nothing was done.
    """
    failure = failure_of(answers)
    is_partial = any(not isinstance(answer, Refused | Unavailable) for answer in answers)
    if failure is not None and is_partial:
        return partly_done(failure)
    return failure


def partly_done(failure: Refused | Unavailable) -> Refused | Unavailable:
    """A failure of one part when others are done: after "busy" a client would repeat all of it."""
    if isinstance(failure, Unavailable) or failure.kind is SERVER_BUSY:
        return Unavailable(failure.message, is_unknown=True)
    return failure


def perhaps_done(
    failure: Unavailable | asyncio.CancelledError,
) -> Unavailable | asyncio.CancelledError:
    """A failure of what may already be recorded, and takes effect when somebody tries again."""
    if isinstance(failure, Unavailable):
        return Unavailable(failure.message, is_unknown=True)
    return failure


@final
class _Asked:
    def __init__(self, position: int, unwanted: Unwanted | None) -> None:
        self.future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._position = position
        self._unwanted = unwanted

    def answered(self, answer: Answer) -> None:
        if not self.future.done():
            self.future.set_result(answer)
        elif self._unwanted is not None:
            self._unwanted(self._position, answer)

    def give_up(self) -> None:
        """Nobody waits any more: answers that have come already are unwanted too."""
        if self._unwanted is not None and self.future.done() and not self.future.cancelled():
            self._unwanted(self._position, self.future.result())
