"""Matches receivers that have credit with fragments that have messages (R17-R19).

Nothing polls and nothing is locked early: a fragment wakes the dispatcher when it has messages, and
only then as many are taken as a receiver has credit for.
"""
# Compiled by mypyc.

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol, final

from shardbus.broker.fragment.answers import Answer, ReplyTo
from shardbus.broker.guarded import guarded
from shardbus.core.errors import Refused
from shardbus.core.fragment.command import Command
from shardbus.core.messages.command import NO_SESSION, RELEASE, Delivery, Receive, Received, Settle

log = logging.getLogger(__name__)

TAKE_MAX: Final = 256
# Smaller shares are not split over the fragments: many tiny takes cost more than they add to
# fairness, and the rotation evens it out.
TAKE_MIN: Final = 32


class FragmentPort(Protocol):
    """The interface of a fragment for the rest of the bus, wherever it runs."""

    @property
    def is_available(self) -> bool: ...

    def submit(self, command: Command, reply_to: ReplyTo) -> None: ...

    def watch(self, line: int, wake: Callable[[], None], session: bytes = NO_SESSION) -> None:
        """Call `wake` once, as soon as a line (or SESSIONS) has something to take.

        With the token of a held session: as soon as that session has messages, or is lost.
        """
        ...

    def unwatch(self, line: int, wake: Callable[[], None], session: bytes = NO_SESSION) -> None: ...


class Receiver(Protocol):
    """A gateway's end of one flow of messages."""

    @property
    def is_locking(self) -> bool: ...

    @property
    def is_draining(self) -> bool: ...

    def credit(self) -> int:
        """How many messages it can take now."""
        ...

    def deliver(self, deliveries: list[Delivery]) -> int:
        """Take messages, never more than `credit()` returned just before.

        Returns how many it took: the first ones. Large messages may leave no room for more.
        """
        ...

    def drained(self) -> None:
        """All available messages have been delivered."""
        ...

    def lost(self, failure: Refused) -> None:
        """The session is no longer held; nothing more will come."""
        ...


@final
class _Seat:
    """The state of one receiver in the dispatcher."""

    def __init__(self, receiver: Receiver) -> None:
        self.receiver = receiver
        self.reserved = 0
        self.is_hungry = False
        self.is_gone = False
        # Received and deleted when there was no more credit or room: they are delivered first.
        self.backlog: list[Delivery] = []

    def free(self) -> int:
        return self.receiver.credit() - self.reserved - len(self.backlog)


@final
class _Source:
    """The state of one fragment in the dispatcher: idle, watched, ready, or being asked."""

    def __init__(self, dispatcher: Dispatcher, port: FragmentPort) -> None:
        self.dispatcher = dispatcher
        self.port = port
        self.is_watched = False
        self.is_ready = False
        self.is_asked = False

    def wake(self) -> None:
        self.is_watched = False
        self.dispatcher.source_ready(self)


@final
class _Take:
    """One receive command on behalf of a receiver."""

    def __init__(self, source: _Source, seat: _Seat, count: int) -> None:
        self.source = source
        self.seat = seat
        self.count = count

    def answered(self, answer: Answer) -> None:
        self.source.dispatcher.taken(self, answer)


@final
class Tally:
    """How many receivers there are."""

    def __init__(self) -> None:
        self.count = 0


@final
class Dispatcher:
    """Serves the receivers of one line of one entity from all of its fragments.

    With `session`, the token of a held session, it serves that session from its one fragment.
    """

    def __init__(
        self,
        ports: list[FragmentPort],
        line: int,
        new_seed: Callable[[], bytes],
        session: bytes = NO_SESSION,
        tally: Tally | None = None,
    ) -> None:
        """`tally` counts the receivers, of several dispatchers together."""
        self._tally = Tally() if tally is None else tally
        self._line = line
        self._session = session
        self._new_seed = new_seed
        self._sources = [_Source(self, port) for port in ports]
        self._ready: deque[_Source] = deque()
        self._seats: dict[int, _Seat] = {}
        self._hungry: deque[_Seat] = deque()
        self._draining: list[_Seat] = []
        self._is_matching = False

    def add(self, receiver: Receiver) -> None:
        if id(receiver) not in self._seats:
            self._tally.count += 1
        self._seats[id(receiver)] = _Seat(receiver)

    def remove(self, receiver: Receiver) -> None:
        """Remove a receiver; messages on their way to it return to the front of their fragment."""
        seat = self._seats.pop(id(receiver), None)
        if seat is None:
            return
        self._tally.count -= 1
        seat.is_gone = True
        if seat in self._hungry:
            self._hungry.remove(seat)
        if seat in self._draining:
            self._draining.remove(seat)
        if not self._seats:
            self._stop_watching()

    def wake(self, receiver: Receiver) -> None:
        """The receiver may have credit, or wants to be drained."""
        seat = self._seats.get(id(receiver))
        if seat is None:
            return
        self._deliver_backlog(seat)
        if not seat.is_hungry and seat.free() > 0:
            seat.is_hungry = True
            self._hungry.append(seat)
        if receiver.is_draining and seat not in self._draining:
            self._draining.append(seat)
            for source in self._sources:
                # Ask all fragments once more: a wake-up may be under way.
                self._mark_ready(source)
        self._match()

    def source_ready(self, source: _Source) -> None:
        self._mark_ready(source)
        self._match()

    def taken(self, take: _Take, answer: Answer) -> None:
        source, seat = take.source, take.seat
        source.is_asked = False
        seat.reserved -= take.count
        if isinstance(answer, Received):
            if answer.has_more:
                self._mark_ready(source)
            self._hand_over(source, seat, answer.deliveries)
        elif isinstance(answer, Refused) and self._session:
            self._end_session(answer)
            return
        if not seat.is_gone and not seat.is_hungry and seat.free() > 0:
            seat.is_hungry = True
            self._hungry.append(seat)
        self._match()

    def _match(self) -> None:
        # A fragment that answers at once calls back into `taken`; one loop is enough.
        if self._is_matching:
            return
        self._is_matching = True
        try:
            self._take_what_is_there()
        finally:
            self._is_matching = False
        # Only now: a receiver that was served while a fragment answered at once may have credit
        # again.
        self._watch_idle()
        if self._draining:
            self._end_drains()

    def _take_what_is_there(self) -> None:
        while self._ready and self._hungry:
            seat = self._hungry.popleft()
            free = 0 if seat.is_gone else seat.free()
            if free <= 0:
                seat.is_hungry = False
                continue
            source = self._ready.popleft()
            source.is_ready = False
            self._take(source, seat, free)
            if not seat.is_gone:
                self._hungry.append(seat)

    def _take(self, source: _Source, seat: _Seat, free: int) -> None:
        share = -(-free // (len(self._ready) + 1))
        count = min(free, max(share, TAKE_MIN), TAKE_MAX)
        seat.reserved += count
        source.is_asked = True
        command = Receive(
            self._line,
            count,
            is_locking=seat.receiver.is_locking,
            token_seed=self._new_seed(),
            session=self._session,
        )
        source.port.submit(command, _Take(source, seat, count).answered)

    def _hand_over(self, source: _Source, seat: _Seat, deliveries: list[Delivery]) -> None:
        """Deliver as far as credit goes; the rest is not left locked for nobody (R18)."""
        if not seat.receiver.is_locking:
            if not seat.is_gone:
                seat.backlog += deliveries
                self._deliver_backlog(seat)
            return
        credit = 0 if seat.is_gone else seat.receiver.credit()
        unwanted = deliveries[self._deliver(seat, deliveries[:credit]) :]
        if unwanted:
            tokens = [delivery.token for delivery in unwanted]
            source.port.submit(Settle(RELEASE, tokens), ignore)

    def _deliver(self, seat: _Seat, wanted: list[Delivery]) -> int:
        """How many of these messages a receiver took; a receiver that fails gets no more."""
        if not wanted:
            return 0
        try:
            return seat.receiver.deliver(wanted)
        except Exception:
            # The other receivers are not affected.
            log.exception("a receiver failed and gets no more messages")
            self.remove(seat.receiver)
            return 0

    def _deliver_backlog(self, seat: _Seat) -> None:
        while seat.backlog and (credit := seat.receiver.credit()) > 0:
            taken = self._deliver(seat, seat.backlog[:credit])
            if taken == 0:
                break
            seat.backlog = seat.backlog[taken:]

    def _mark_ready(self, source: _Source) -> None:
        if not source.is_ready and not source.is_asked:
            source.is_ready = True
            self._ready.append(source)

    def _watch_idle(self) -> None:
        """Every fragment is ready, being asked, or watched; none while no receiver has credit."""
        if not self._hungry:
            return
        for source in self._sources:
            if not (source.is_ready or source.is_asked or source.is_watched):
                source.is_watched = True
                source.port.watch(self._line, source.wake, self._session)

    def _stop_watching(self) -> None:
        for source in self._sources:
            if source.is_watched:
                source.is_watched = False
                source.port.unwatch(self._line, source.wake, self._session)

    def _end_session(self, failure: Refused) -> None:
        """The session is lost: tell all its receivers, and ask no more."""
        receivers = [seat.receiver for seat in self._seats.values()]
        for receiver in receivers:
            self.remove(receiver)
        for receiver in receivers:
            guarded(partial(receiver.lost, failure))

    def _end_drains(self) -> None:
        is_asking = any(source.is_asked for source in self._sources)
        waiting: list[_Seat] = []
        drained: list[_Seat] = []
        for seat in self._draining:
            if not seat.receiver.is_draining:
                continue
            if seat.reserved or (seat.free() > 0 and (self._ready or is_asking)):
                waiting.append(seat)
            else:
                drained.append(seat)
        # Before any receiver is told: it may then start the next drain.
        self._draining = waiting
        for seat in drained:
            guarded(seat.receiver.drained)


def ignore(answer: Answer) -> None:
    """Ignore the answer: a lock that is not released expires by itself.

    A release for a broker that is out is repeated when it is back (`remote.fragment`).
    """
