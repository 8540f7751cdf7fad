"""Questions to fragments whose answers somebody awaits, one at a time or several side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import final

from shardbus.broker.fragment.answers import Answer, ReplyTo
from shardbus.broker.routing.dispatch import FragmentPort
from shardbus.core.errors import SERVER_BUSY, Refused, Unavailable
from shardbus.core.fragment.command import Command, Reply

Question = Callable[[ReplyTo], None]
"""Asks, and has the answer told to whom it is given."""

Unwanted = Callable[[int, Answer], None]
"""Hears the answers, by their position, that came for somebody who was cancelled meanwhile."""


def to_port(port: FragmentPort, command: Command) -> Question:
    return lambda reply_to: port.submit(command, reply_to)


async def ask(port: FragmentPort, command: Command) -> Reply:
    """What a fragment answers; a Refused or Unavailable is raised."""
    return await answer_to(to_port(port, command))


async def answer_to(question: Question) -> Reply:
    """A Refused or Unavailable is raised."""
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
    """The first failure; but that something may have happened is what a client must hear."""
    found: Refused | Unavailable | None = None
    for answer in answers:
        if isinstance(answer, Unavailable) and answer.is_unknown:
            return answer
        if found is None and isinstance(answer, Refused | Unavailable):
            found = answer
    return found


def failure_of_parts(answers: Sequence[Answer]) -> Refused | Unavailable | None:
    """The first failure of what each fragment does for itself: when some did it and others are
    unavailable or busy it cannot be said that nothing was done.
    """
    failure = failure_of(answers)
    is_partial = any(not isinstance(answer, Refused | Unavailable) for answer in answers)
    if failure is not None and is_partial:
        return partly_done(failure)
    return failure


def partly_done(failure: Refused | Unavailable) -> Refused | Unavailable:
    """A failure of one part when others are done: whoever hears "busy" would do all of it again."""
    if isinstance(failure, Unavailable) or failure.kind is SERVER_BUSY:
        return Unavailable(failure.message, is_unknown=True)
    return failure


def perhaps_done(
    failure: Unavailable | asyncio.CancelledError,
) -> Unavailable | asyncio.CancelledError:
    """A failure of what may be recorded already, and takes effect when somebody tries again."""
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
        """Nobody waits any more: what has come already is unwanted too."""
        if self._unwanted is not None and self.future.done() and not self.future.cancelled():
            self._unwanted(self._position, self.future.result())
