"""What one router sends to one fragment, and how lost answers are resolved.

Every send has a number, and so does every decision of a transaction. When it is unknown whether one
was stored, because the commit failed or the broker was lost, the fragment is asked as soon as it is
back. Only what is still unknown after the time limit is reported as unknown.
"""
# Compiled by mypyc.

from __future__ import annotations

import asyncio
from typing import Final, final

from shardbus.broker.clock import Clock
from shardbus.broker.fragment.answers import Answer, ReplyTo
from shardbus.broker.routing.dispatch import FragmentPort
from shardbus.core.errors import Unavailable
from shardbus.core.fragment.command import Reply
from shardbus.core.limits import TICKETS_ASKED_MS
from shardbus.core.message import Message
from shardbus.core.messages.command import Done, Send, Sent, Ticket
from shardbus.core.tickets.command import AskTickets, Judged
from shardbus.core.transactions.command import COMMITTED, Decide, Decided, Home, Transact, Work

# How long and how often a fragment is asked; as long as placing elsewhere may take (R16).
DOUBT_MS_MAX: Final = 15_000
DOUBT_RETRY_MS: Final = 100
# Sends to a fragment in doubt at once; further ones are unknown at once.
DOUBTS_MAX: Final = 50_000
# Numbers in one question.
ASKED_MAX: Final = 1_000


@final
class _Sending:
    """One command under way; `done` is the answer when it is only known that it is stored."""

    def __init__(
        self, outbox: Outbox, number: int, done: Reply, reply_to: ReplyTo, began_ms: int
    ) -> None:
        self.number = number
        self.done = done
        self.reply_to = reply_to
        self.began_ms = began_ms
        # For a command in doubt: until when, and why.
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
    """Numbers sends to one fragment. No other outbox of the bus has the same `sender`.

    An answer is unknown only when DOUBT_MS_MAX was not enough to learn more; an Unavailable that is
    not unknown is certain: what was sent is not stored, and never will be.
    """

    def __init__(
        self, port: FragmentPort, sender: bytes, *, loop: asyncio.AbstractEventLoop, clock: Clock
    ) -> None:
        self._port = port
        self._sender = sender
        self._loop = loop
        self._clock = clock
        self._last = 0
        # The lowest number that is not closed, and the closed ones above it.
        self._front = 1
        self._closed: set[int] = set()
        self._doubts: dict[int, _Sending] = {}
        self._asked: list[int] = []
        self._is_timed = False

    def send(self, messages: list[Message], reply_to: ReplyTo, *, keeps_reply: bool) -> None:
        """`keeps_reply` says that the sequence numbers are wanted, even after a lost answer."""
        sending = self._begin(Sent(0, len(messages)), reply_to)
        ticket = self._ticket(sending, keeps_reply=keeps_reply)
        self._port.submit(Send(messages, ticket), sending.answered)

    def transact(self, work: Work, reply_to: ReplyTo) -> None:
        """Do the whole work of a transaction."""
        sending = self._begin(Done(), reply_to)
        self._port.submit(Transact(work, self._ticket(sending)), sending.answered)

    def decide(
        self,
        transaction_id: bytes,
        work: Work,
        others: list[Home],
        reply_to: ReplyTo,
        *,
        keeps_reply: bool = False,
    ) -> None:
        """Commit a transaction that all `others` have prepared; `keeps_reply` as in `send`."""
        sending = self._begin(Decided(COMMITTED), reply_to)
        ticket = self._ticket(sending, keeps_reply=keeps_reply)
        command = Decide(transaction_id, work, others, ticket)
        self._port.submit(command, sending.answered)

    def close(self, sending: _Sending, answer: Answer) -> None:
        """Nobody will ask about this number any more."""
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
        """It is unknown whether the command is stored: find out."""
        steady_ms = self._clock.steady_ms()
        # A fragment may have forgotten a command that was begun long ago, perhaps before this
        # process was stopped for an hour, and would report it as not stored.
        if len(self._doubts) >= DOUBTS_MAX or steady_ms - sending.began_ms > TICKETS_ASKED_MS:
            self.close(sending, answer)
            return
        sending.until_ms = steady_ms + DOUBT_MS_MAX
        sending.failure = answer
        self._doubts[sending.number] = sending
        self._ask_later()

    def _begin(self, done: Reply, reply_to: ReplyTo) -> _Sending:
        self._last += 1
        return _Sending(self, self._last, done, reply_to, self._clock.steady_ms())

    def _ticket(self, sending: _Sending, *, keeps_reply: bool = False) -> Ticket:
        return Ticket(self._sender, sending.number, self._front, keeps_reply=keeps_reply)

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
                self.close(sending, answer.replies.get(number, sending.done))
            else:
                self.close(sending, Unavailable(failure.message))
