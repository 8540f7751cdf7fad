"""Accepts sessions: a named one, or the next free one of any fragment of an entity (R26).

Nothing polls: a fragment that has a free session with messages wakes the acceptor, which then asks
it on behalf of the caller that has waited longest. After a repartition a session is held at several
fragments (`joint_holds`).
"""
# Compiled by mypyc.

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Final, final

from shardbus.broker.fragment.answers import Answer
from shardbus.broker.routing.dispatch import FragmentPort
from shardbus.broker.routing.joint_holds import Accepted, Fragments, Joining
from shardbus.core.errors import (
    INVALID_ARGUMENT,
    REPARTITIONING,
    SERVER_BUSY,
    TIMEOUT,
    Refused,
    Unavailable,
)
from shardbus.core.limits import KEY_CHARACTERS_MAX
from shardbus.core.message import SESSIONS
from shardbus.core.sessions.command import AcceptSession, NoSession, SessionAccepted

# "5000 concurrent pending receives per entity".
WAITING_MAX: Final = 5_000
# A fragment that takes longer than this to answer does not delay asking the next one (R17).
PATIENCE_MS: Final = 200
# How long a caller waits for the new map of an entity that is being repartitioned, and how often it
# asks.
MAP_WAIT_MS_MAX: Final = 5_000
MAP_RETRY_MS: Final = 20
# Between two questions to a fragment whose free session could not be held at its other fragments.
REST_MS: Final = 100


@final
class Accepting:
    """A caller that waits for a session, and is answered exactly once unless it is cancelled."""

    def __init__(
        self, acceptor: SessionAcceptor, reply_to: Accepted, sharing: bytes | None
    ) -> None:
        self.is_waiting = True
        self.sharing = sharing
        self.timer: asyncio.TimerHandle | None = None
        self._acceptor = acceptor
        self._reply_to = reply_to

    def cancel(self) -> None:
        """The caller has gone; a session that is granted nevertheless is released at once."""
        if self.end():
            self._acceptor.left(self)

    def tell(self, answer: SessionAccepted | Refused | Unavailable) -> None:
        if self.end():
            self._reply_to(answer)

    def end(self) -> bool:
        """Stop waiting; returns whether it waited until now."""
        was_waiting, self.is_waiting = self.is_waiting, False
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        return was_waiting


@final
class _Source:
    """The state of one fragment: idle, watched, ready, being asked, or left alone for a moment."""

    def __init__(self, acceptor: SessionAcceptor, index: int, port: FragmentPort) -> None:
        self.acceptor = acceptor
        self.index = index
        self.port = port
        self.is_resting = False
        self.is_watched = False
        self.is_ready = False
        self.is_asked = False
        # How the session that it is asked for is to be held (`AcceptSession.sharing`).
        self.sharing: bytes | None = None
        self.asked_at_s = 0.0

    def wake(self) -> None:
        self.is_watched = False
        self.acceptor.source_ready(self)

    def answered(self, answer: Answer) -> None:
        self.is_asked = False
        self.acceptor.answered(self, answer)

    def joined(self, answer: SessionAccepted | Refused | Unavailable) -> None:
        self.is_asked = False
        self.acceptor.joined(self, answer)

    def rested(self) -> None:
        self.is_resting = False
        self.acceptor.source_ready(self)


@final
class _Naming:
    """The question for a named session, and its caller."""

    def __init__(self, acceptor: SessionAcceptor, session_id: str, asker: Accepting) -> None:
        self._acceptor = acceptor
        self._session_id = session_id
        self._asker = asker
        self._waited_ms = 0

    def start(self) -> None:
        if self._asker.is_waiting:
            joining = Joining(
                self._acceptor.fragments,
                self._session_id,
                {},
                self._answered,
                sharing=self._asker.sharing,
            )
            joining.start()

    def _answered(self, answer: SessionAccepted | Refused | Unavailable) -> None:
        is_outdated = isinstance(answer, Refused) and answer.kind is REPARTITIONING
        if is_outdated and self._waited_ms < MAP_WAIT_MS_MAX:
            self._waited_ms += MAP_RETRY_MS
            self._acceptor.fragments.call_later(MAP_RETRY_MS, self.start)
        elif self._asker.is_waiting:
            self._asker.tell(answer)
        elif isinstance(answer, SessionAccepted):
            self._acceptor.release(answer.token)


@final
class SessionAcceptor:
    """Where the sessions of one entity are accepted."""

    def __init__(
        self,
        fragments: Fragments,
        release: Callable[[bytes], None],
        former_count: int,
        *,
        loop: asyncio.AbstractEventLoop,
        new_seed: Callable[[], bytes],
    ) -> None:
        """The first `former_count` fragments are of former maps."""
        self.fragments = fragments
        self.release = release
        self._former_count = former_count
        self._loop = loop
        self._new_seed = new_seed
        self._sources = [_Source(self, *each) for each in enumerate(fragments.ports)]
        self._ready: deque[_Source] = deque()
        # In the order of their arrival, in which they are served.
        self._waiting: dict[int, Accepting] = {}
        self._is_matching = False
        self._impatience: asyncio.TimerHandle | None = None

    @property
    def waiting_count(self) -> int:
        """How many callers wait for a session."""
        return len(self._waiting)

    def remap(self, former_count: int) -> None:
        """The entity has another map."""
        self._former_count = former_count
        for index in range(len(self._sources), len(self.fragments.ports)):
            self._sources.append(_Source(self, index, self.fragments.ports[index]))
        self._watch_idle()

    def accept(
        self,
        session_id: str | None,
        wait_ms: int,
        reply_to: Accepted,
        sharing: bytes | None = None,
    ) -> Accepting:
        """Hold a session for a caller, which is answered once: at the latest after `wait_ms`.

        A named session is granted or refused at once; None waits for any free session with
        messages, first come first served. `sharing` as in `AcceptSession`.
        """
        asker = Accepting(self, reply_to, sharing)
        if session_id is not None:
            self._accept_named(session_id, asker)
        elif len(self._waiting) >= WAITING_MAX:
            asker.tell(
                Refused(
                    SERVER_BUSY,
                    f"{WAITING_MAX} receivers are already waiting for a session, the maximum of an "
                    "entity: try again later.",
                )
            )
        else:
            self._waiting[id(asker)] = asker
            asker.timer = self._loop.call_later(
                max(wait_ms, 0) / 1000, self._time_out, asker, wait_ms
            )
            self._watch_idle()
            self._match()
        return asker

    def left(self, asker: Accepting) -> None:
        self._waiting.pop(id(asker), None)
        if not self._waiting:
            self._stop_watching()

    def source_ready(self, source: _Source) -> None:
        self._mark_ready(source)
        self._match()

    def answered(self, source: _Source, answer: Answer) -> None:
        if isinstance(answer, SessionAccepted) and self._former_count == 0:
            self.joined(source, answer)
            return
        if isinstance(answer, SessionAccepted):
            # Until it is held at its other fragments.
            source.is_asked = True
            held = {source.index: answer.token}
            until_ms = answer.locked_until_ms
            joining = Joining(
                self.fragments, answer.session_id, held, source.joined, locked_until_ms=until_ms
            )
            joining.gained.append(source.index)
            joining.start()
            return
        if isinstance(answer, Refused) and answer.kind is REPARTITIONING:
            self._let_rest(source)
        elif isinstance(answer, Refused):
            self._tell_first(answer)
        else:
            assert isinstance(answer, NoSession | Unavailable)
        self._watch_idle()
        self._match()

    def joined(self, source: _Source, answer: SessionAccepted | Refused | Unavailable) -> None:
        """The free session of a fragment is held at all of its fragments, or cannot be."""
        if isinstance(answer, SessionAccepted):
            # Behind the others, so that every fragment has its turn.
            self._mark_ready(source)
            self._grant(source, answer)
        else:
            self._let_rest(source)
        self._watch_idle()
        self._match()

    def _let_rest(self, source: _Source) -> None:
        source.is_resting = True
        self.fragments.call_later(REST_MS, source.rested)

    def _accept_named(self, session_id: str, asker: Accepting) -> None:
        if len(session_id) > KEY_CHARACTERS_MAX:
            asker.tell(
                Refused(
                    INVALID_ARGUMENT,
                    f"SessionId has {len(session_id)} characters; at most {KEY_CHARACTERS_MAX} "
                    "are allowed.",
                )
            )
            return
        _Naming(self, session_id, asker).start()

    def _match(self) -> None:
        # A fragment that answers at once calls back into `answered`; one loop is enough.
        if self._is_matching:
            return
        self._is_matching = True
        while self._ready and (prompt := self._prompt_count()) < len(self._waiting):
            # On behalf of the first caller that no other fragment is being asked for.
            asker = next(islice(self._waiting.values(), prompt, None))
            source = self._next_source()
            source.is_ready = False
            source.is_asked = True
            source.asked_at_s = self._loop.time()
            source.sharing = asker.sharing
            is_former = source.index < self._former_count
            command = AcceptSession(None, self._new_seed(), source.sharing, is_former)
            source.port.submit(command, source.answered)
        self._is_matching = False
        if not self._waiting:
            self._stop_watching()
        elif self._ready and self._impatience is None:
            self._impatience = self._loop.call_later(PATIENCE_MS / 1000, self._ask_others)

    def _next_source(self) -> _Source:
        """The fragment whose turn it is, one of a former map first: its messages are older."""
        if self._former_count > 0:
            for source in self._ready:
                if source.index < self._former_count:
                    self._ready.remove(source)
                    return source
        return self._ready.popleft()

    def _prompt_count(self) -> int:
        """Fragments whose answer may still be expected soon."""
        since_s = self._loop.time() - PATIENCE_MS / 1000
        return sum(source.is_asked and source.asked_at_s > since_s for source in self._sources)

    def _ask_others(self) -> None:
        self._impatience = None
        self._match()

    def _grant(self, source: _Source, accepted: SessionAccepted) -> None:
        """Grant the session to the longest waiting caller that wants it held so; if there is none,
        release it.
        """
        for ident, asker in self._waiting.items():
            if asker.sharing == source.sharing:
                del self._waiting[ident]
                asker.tell(accepted)
                return
        self.release(accepted.token)

    def _tell_first(self, answer: Refused) -> None:
        if self._waiting:
            self._waiting.pop(next(iter(self._waiting))).tell(answer)

    def _time_out(self, asker: Accepting, wait_ms: int) -> None:
        asker.timer = None
        self.left(asker)
        asker.tell(Refused(TIMEOUT, timeout_text(wait_ms)))

    def _mark_ready(self, source: _Source) -> None:
        if not (source.is_ready or source.is_asked or source.is_resting):
            source.is_ready = True
            self._ready.append(source)

    def _watch_idle(self) -> None:
        """Every fragment is ready, being asked, or watched; none while nobody waits."""
        if not self._waiting:
            return
        for source in self._sources:
            is_busy = source.is_ready or source.is_asked or source.is_resting
            if not (is_busy or source.is_watched):
                source.is_watched = True
                source.port.watch(SESSIONS, source.wake)

    def _stop_watching(self) -> None:
        for source in self._sources:
            if source.is_watched:
                source.is_watched = False
                source.port.unwatch(SESSIONS, source.wake)
        if self._impatience is not None:
            self._impatience.cancel()
            self._impatience = None


def timeout_text(wait_ms: int) -> str:
    """The service's text, with the allowed time as .NET writes it."""
    seconds, milliseconds = divmod(max(wait_ms, 0), 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    fraction = f".{milliseconds:03}0000" if milliseconds else ""
    return (
        "The operation did not complete within the allotted timeout of "
        f"{hours:02}:{minutes:02}:{seconds:02}{fraction}."
    )
