"""Matches receivers that have credit with fragments that have messages (R17-R19).

Nothing polls and nothing is locked early: a fragment wakes the dispatcher when it has messages, and
only then as many are taken as a receiver has credit for.
"""
# Compiled by mypyc.

from __future__ import annotations

import asyncio
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
from shardbus.core.sessions.command import ReleaseSession

log = logging.getLogger(__name__)

TAKE_MAX: Final = 256
# Smaller shares are not split over the fragments: many tiny takes cost more than they add to
# fairness, and the rotation evens it out.
TAKE_MIN: Final = 32
# Between two questions to a former fragment that is unavailable.
FORMER_RETRY_MS: Final = 100
# How long after its last message a former fragment that becomes unavailable is waited for: locks
# are lost with it, and what was locked comes before newer messages.
FORMER_LOCKS_S: Final = 300.0


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

    def __init__(self, receiver: Receiver, name: str) -> None:
        self.receiver = receiver
        self.name = name
        self.reserved = 0
        self.is_hungry = False
        self.is_gone = False
        # Received and deleted when there was no more credit or room: they are delivered first.
        self.backlog: list[Delivery] = []

    def free(self) -> int:
        return self.receiver.credit() - self.reserved - len(self.backlog)


@final
class _Source:
    """The state of one fragment in the dispatcher: idle, watched, ready, or being asked.

    A fragment of a former map is `is_former`, and `is_dry` once it had nothing left to take.
    `is_asked_early` says that it was asked before it became one: that answer does not count.
    `gave_at_s` is when it last gave messages as a former one; `is_doubted` says that it was dry,
    and is asked again because its locks are lost. `session` is the token of a held session.
    """

    def __init__(
        self, dispatcher: Dispatcher, port: FragmentPort, session: bytes = NO_SESSION
    ) -> None:
        self.dispatcher = dispatcher
        self.port = port
        self.session = session
        self.is_watched = False
        self.is_ready = False
        self.is_asked = False
        self.is_former = False
        self.is_dry = False
        self.is_asked_early = False
        self.gave_at_s = 0.0
        self.is_doubted = False

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
class ReceiverCount:
    """How many receivers the dispatchers of an entity have together."""

    def __init__(self) -> None:
        self.count = 0


class Keeper(Protocol):
    """Is told when a dispatcher gets its first receiver, and when the last one has left."""

    def entered(self) -> None: ...

    def left(self) -> None: ...


@final
class Dispatcher:
    """Serves the receivers of one line of one entity from all of its fragments.

    With `sessions`, the tokens of a held session at each of its fragments, it serves that session.
    """

    def __init__(
        self,
        ports: list[FragmentPort],
        line: int,
        new_seed: Callable[[], bytes],
        sessions: list[bytes] | None = None,
        total: ReceiverCount | None = None,
    ) -> None:
        """`total` counts the receivers, of several dispatchers together."""
        self._total = ReceiverCount() if total is None else total
        self._line = line
        self._new_seed = new_seed
        self._is_of_session = sessions is not None
        tokens = [NO_SESSION] * len(ports) if sessions is None else sessions
        self._sources = [
            _Source(self, port, token) for port, token in zip(ports, tokens, strict=True)
        ]
        self.keeper: Keeper | None = None
        self._ready: deque[_Source] = deque()
        self._seats: dict[int, _Seat] = {}
        self._hungry: deque[_Seat] = deque()
        self._draining: list[_Seat] = []
        self._is_matching = False
        # How many former fragments may still have messages that precede those of the others.
        self._undried = 0
        self._has_former = False
        # Former fragments whose messages may still be locked by receivers of this gateway.
        self._givers: list[_Source] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    def grow(
        self, ports: list[FragmentPort], former_count: int, loop: asyncio.AbstractEventLoop
    ) -> None:
        """Serve these fragments too, at the end of the others; the first `former_count` of all are
        of former maps: nothing is taken from the others before those have been found empty.
        """
        self._loop = loop
        self._sources += [_Source(self, port) for port in ports]
        self._make_former(former_count)

    def add_session(self, ports: list[FragmentPort], tokens: list[bytes]) -> None:
        """Serve the session from these fragments too: all others are of former maps."""
        self._sources += [
            _Source(self, port, token) for port, token in zip(ports, tokens, strict=True)
        ]
        self._make_former(len(self._sources) - 1)

    def _make_former(self, former_count: int) -> None:
        for source in self._sources[:former_count]:
            if not source.is_former:
                source.is_former = True
                source.is_asked_early = source.is_asked
                self._has_former = True
                self._undried += 1
                self._mark_ready(source)
        self._match()

    def add(self, receiver: Receiver, name: str = "") -> None:
        """Serve a receiver; `name` is for people, as in lifecycle records."""
        is_first = not self._seats
        if id(receiver) not in self._seats:
            self._total.count += 1
        self._seats[id(receiver)] = _Seat(receiver, name)
        if is_first and self.keeper is not None:
            self.keeper.entered()

    def receiver_name(self) -> str:
        """The name of the receiver that has been served for the longest time; empty if there is
        none.
        """
        for seat in self._seats.values():
            return seat.name
        return ""

    def remove(self, receiver: Receiver) -> None:
        """Remove a receiver; messages on their way to it return to the front of their fragment."""
        seat = self._seats.pop(id(receiver), None)
        if seat is None:
            return
        self._total.count -= 1
        seat.is_gone = True
        if seat in self._hungry:
            self._hungry.remove(seat)
        if seat in self._draining:
            self._draining.remove(seat)
        if not self._seats:
            self._stop_watching()
            if self.keeper is not None:
                self.keeper.left()

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
            if source.is_former and answer.has_more and not answer.deliveries:
                # No more can be locked there now.
                self._ask_later(source)
            elif answer.has_more or source.is_asked_early:
                self._mark_ready(source)
            elif source.is_former and not source.is_dry:
                self._dry(source)
            source.is_asked_early = False
            if source.is_former and answer.deliveries:
                self._note_giver(source)
            self._hand_over(source, seat, answer.deliveries)
        elif isinstance(answer, Refused) and self._is_of_session:
            self._end_session(source, answer)
            return
        elif source.is_former and not source.is_dry:
            source.is_asked_early = False
            if source.is_doubted and not self._may_have_locks(source):
                self._dry(source)
            else:
                # Nothing wakes it up to say that it is empty.
                self._ask_later(source)
        if not seat.is_gone and not seat.is_hungry and seat.free() > 0:
            seat.is_hungry = True
            self._hungry.append(seat)
        self._match()

    def _note_giver(self, source: _Source) -> None:
        assert self._loop is not None, "fragments become former ones in `grow`"
        source.gave_at_s = self._loop.time()
        if source not in self._givers:
            self._givers.append(source)

    def _may_have_locks(self, source: _Source) -> bool:
        assert self._loop is not None, "fragments become former ones in `grow`"
        return source.gave_at_s > self._loop.time() - FORMER_LOCKS_S

    def _doubt_givers(self) -> None:
        """An unavailable fragment loses its locks, and may have what was found to be gone."""
        self._givers = [each for each in self._givers if self._may_have_locks(each)]
        for source in self._givers:
            if source.is_dry and not source.port.is_available:
                source.is_dry = False
                source.is_doubted = True
                self._undried += 1
                self._ask_later(source)

    def _dry(self, source: _Source) -> None:
        """Nothing of it is waited for any more."""
        source.is_dry = True
        source.is_doubted = False
        self._undried -= 1

    def _ask_later(self, source: _Source) -> None:
        assert self._loop is not None, "fragments become former ones in `grow`"
        self._loop.call_later(FORMER_RETRY_MS / 1000, self.source_ready, source)

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
            source = self._next_source()
            if source is None:
                self._hungry.appendleft(seat)
                return
            source.is_ready = False
            self._take(source, seat, free)
            if not seat.is_gone:
                self._hungry.append(seat)

    def _next_source(self) -> _Source | None:
        """The fragment whose turn it is, a former one first; None while one must be waited for."""
        if self._has_former:
            for source in self._ready:
                if source.is_former:
                    self._ready.remove(source)
                    return source
            if self._givers:
                self._doubt_givers()
        return None if self._undried else self._ready.popleft()

    def _is_something_ready(self) -> bool:
        if self._undried:
            return any(source.is_former for source in self._ready)
        return len(self._ready) > 0

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
            session=source.session,
            receiver=seat.name,
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
        """Every fragment is ready, being asked, or watched; none while no receiver has credit,
        except former ones: what returns to them comes before all else.

        Also while others are ready: a receiver that is slower than their senders never has credit
        left, and a fragment that nobody watches would have no turn for as long as that lasts.
        """
        has_use = bool(self._hungry or self._ready)
        if not has_use and not (self._has_former and self._seats):
            return
        for source in self._sources:
            if not (has_use or source.is_former):
                continue
            if not (source.is_ready or source.is_asked or source.is_watched):
                source.is_watched = True
                source.port.watch(self._line, source.wake, source.session)

    def _stop_watching(self) -> None:
        for source in self._sources:
            if source.is_watched:
                source.is_watched = False
                source.port.unwatch(self._line, source.wake, source.session)

    def _end_session(self, lost: _Source, failure: Refused) -> None:
        """The session is lost at one fragment: release it at the others, tell all its receivers,
        and ask no more.
        """
        for source in self._sources:
            if source is not lost:
                source.port.submit(ReleaseSession(source.session), ignore)
        receivers = [seat.receiver for seat in self._seats.values()]
        for receiver in receivers:
            self.remove(receiver)
        for receiver in receivers:
            guarded(partial(receiver.lost, failure))

    def _end_drains(self) -> None:
        is_asking = any(source.is_asked for source in self._sources)
        is_ready = self._is_something_ready()
        waiting: list[_Seat] = []
        drained: list[_Seat] = []
        for seat in self._draining:
            if not seat.receiver.is_draining:
                continue
            if seat.reserved or (seat.free() > 0 and (is_ready or is_asking)):
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
