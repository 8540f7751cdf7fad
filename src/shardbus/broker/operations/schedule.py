"""Schedules messages: all of them or none, wherever their keys place them."""

from __future__ import annotations

from typing import final

from shardbus.broker.fragment.answers import Answer
from shardbus.broker.operations.asking import ask_all, to_port
from shardbus.broker.routing.dispatch import ignore
from shardbus.broker.routing.router import EntityRouter
from shardbus.core.errors import Refused, Unavailable
from shardbus.core.message import Message
from shardbus.core.messages.command import Cancel, Sent


@final
class EntityScheduling:
    """One request to schedule messages; `now_ms` decides which of them wait and can be
    cancelled.
    """

    def __init__(self, router: EntityRouter, messages: list[Message], now_ms: int) -> None:
        self._router = router
        self._messages = messages
        self._now_ms = now_ms

    async def numbers(self) -> list[int]:
        """The sequence number of each message, 0 for a duplicate; or the failure is raised."""
        router, messages = self._router, self._messages
        [answer] = await ask_all(
            [lambda reply_to: router.send_batch(messages, reply_to, keeps_reply=True)],
            self._undo_soon,
        )
        if isinstance(answer, Refused | Unavailable):
            raise answer
        assert isinstance(answer, Sent)
        return answer.numbers()

    def _undo_soon(self, position: int, answer: Answer) -> None:
        """Nobody waits for the numbers any more: cancel the messages that still wait, if
        possible.
        """
        if not isinstance(answer, Sent):
            return
        shares: dict[int, list[int]] = {}
        for message, number in zip(self._messages, answer.numbers(), strict=True):
            if number and message.scheduled_at_ms > self._now_ms:
                shares.setdefault(self._router.index_of_number(number), []).append(number)
        for index, numbers in shares.items():
            to_port(self._router.ports[index], Cancel(numbers))(ignore)
