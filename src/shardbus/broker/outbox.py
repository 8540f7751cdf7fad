"""What one router sends to one fragment, and what became of it when an answer was lost.

Every send has a number. When it is not known whether one was stored, because the commit failed or
the broker was lost with it, the fragment is asked as soon as it is back. Only what is still not
known when the time is over is told to be unknown.
"""

from __future__ import annotations

import asyncio
from typing import Final, final

from shardbus.broker.clock import Clock
from shardbus.broker.dispatch import FragmentPort
from shardbus.broker.runner import Answer, ReplyTo
from shardbus.core.command import AskTickets, Judged, Send, Sent, Ticket
from shardbus.core.errors import Unavailable
from shardbus.core.message import Message

# How long a fragment is asked for, and how often; as long as placing elsewhere may take (R16).
DOUBT_MS_MAX: Final = 15_000
DOUBT_RETRY_MS: Final = 100
# Sends to a fragment that are in doubt at once; beyond, they are unknown at once.
DOUBTS_MAX: Final = 50_000
# Numbers in one question.
ASKED_MAX: Final = 1_000


@final
class _Sending:
    """One Send under way."""

    def __init__(
        self, outbox: Outbox, number: int, messages: list[Message], reply_to: ReplyTo
    ) -> None:
        self.number = number
        self.count = len(messages)
        self.reply_to = reply_to
        # Of one in doubt: until when, and why.
        self.until_ms = 0
        self.failure: Unavailable | None = None
        self._outbox = outbox

    def answered(self, answer: Answer) -> None:
        if isinstance(answer, Unavailable) and answer.is_unknown:
            self._outbox.doubt(self, answer)
        else:
            self._outbox.close(self, answer)


@final
class Outbox:
    """Numbers sends to one fragment. `sender` is what no other outbox of the bus has.

    An answer is unknown only when nothing better could be learned in DOUBT_MS_MAX; one that is
    merely Unavailable is certain: what was sent is not stored, and never will be.
    """

    def __init__(
        self, port: FragmentPort, sender: bytes, *, loop: asyncio.AbstractEventLoop, clock: Clock
    ) -> None:
        self._port = port
        self._sender = sender
        self._loop = loop
        self._clock = clock
        self._last = 0
        # The lowest number that is not closed, and the closed ones above.
        self._front = 1
        self._closed: set[int] = set()
        self._doubts: dict[int, _Sending] = {}
        self._asked: list[int] = []
        self._is_timed = False

    def send(self, messages: list[Message], reply_to: ReplyTo, *, keeps_reply: bool) -> None:
        """`keeps_reply` says that the sequence numbers are wanted, even after a lost answer."""
        self._last += 1
        ticket = Ticket(self._sender, self._last, self._front, keeps_reply=keeps_reply)
        sending = _Sending(self, self._last, messages, reply_to)
        self._port.submit(Send(messages, ticket), sending.answered)

    def close(self, sending: _Sending, answer: Answer) -> None:
        """Nobody will ask about a number any more."""
        number = sending.number
        if number == self._front:
            self._front += 1
            while self._closed and self._front in self._closed:
                self._closed.remove(self._front)
                self._front += 1
        else:
            self._closed.add(number)
        sending.reply_to(answer)

    def doubt(self, sending: _Sending, answer: Unavailable) -> None:
        """Nobody knows whether it is stored: find out."""
        if len(self._doubts) >= DOUBTS_MAX:
            self.close(sending, answer)
            return
        sending.until_ms = self._clock.steady_ms() + DOUBT_MS_MAX
        sending.failure = answer
        self._doubts[sending.number] = sending
        self._ask_later()

    def _ask_later(self) -> None:
        if not self._is_timed:
            self._is_timed = True
            self._loop.call_later(DOUBT_RETRY_MS / 1000, self._ask)

    def _ask(self) -> None:
        self._is_timed = False
        self._give_up_overdue()
        if not self._doubts:
            return
        self._ask_later()
        if not self._asked:
            self._asked = sorted(self._doubts)[:ASKED_MAX]
            question = AskTickets(self._sender, self._asked, self._front)
            self._port.submit(question, self._judged)

    def _give_up_overdue(self) -> None:
        steady_ms = self._clock.steady_ms()
        overdue = [sending for sending in self._doubts.values() if sending.until_ms <= steady_ms]
        for sending in overdue:
            del self._doubts[sending.number]
            failure = sending.failure
            assert failure is not None
            self.close(sending, failure)

    def _judged(self, answer: Answer) -> None:
        asked, self._asked = self._asked, []
        if not isinstance(answer, Judged):
            return
        for number, is_stored in zip(asked, answer.stored, strict=True):
            sending = self._doubts.pop(number, None)
            if sending is None:
                continue
            failure = sending.failure
            assert failure is not None
            if is_stored:
                self.close(sending, answer.replies.get(number, Sent(0, sending.count)))
            else:
                self.close(sending, Unavailable(failure.message))
