"""A fragment of a broker in another process, and the requests that wait for its answers."""
# Compiled by mypyc.

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, final

from shardbus.broker.fragment.answers import Answer, ReplyTo, say
from shardbus.broker.fragment.runner import AVAILABLE, RECOVERING, UNAVAILABLE
from shardbus.broker.guarded import guarded
from shardbus.broker.routing.dispatch import ignore
from shardbus.broker.wire.frames import Browse, ListSessions, Unwatch, Watch
from shardbus.core.errors import Refused, Unavailable
from shardbus.core.fragment.command import Command
from shardbus.core.limits import LOCKS_MAX, SESSIONS_HELD_MAX
from shardbus.core.messages.command import (
    NO_SESSION,
    RELEASE,
    Delivery,
    Receive,
    Received,
    ReceiveDeferred,
    ReceiveNumbered,
    Settle,
)
from shardbus.core.sequence import token_of_seed
from shardbus.core.sessions.command import AcceptSession, ReleaseSession, SessionAccepted
from shardbus.stores.base.store import FragmentId, Page

if TYPE_CHECKING:
    from shardbus.broker.remote.broker import RemoteBroker

# Lines and sessions for which messages are kept; at the limit those of the oldest session are
# dropped.
STRANDED_MAX: Final = 1_000

Source = tuple[int, bytes]
"""A line, and the token of a session or NO_SESSION: what is watched, or received from."""


@final
class Stranded:
    """Messages that were received and deleted for a receiver that gave up, and who was told of
    them.
    """

    def __init__(self) -> None:
        self.deliveries: list[Delivery] = []
        self._told: list[Callable[[], None]] = []

    def add(self, deliveries: list[Delivery]) -> None:
        self.deliveries += deliveries
        self._told = []

    def is_news(self, wake: Callable[[], None]) -> bool:
        """Whether to wake a receiver for them: once each, because a locking receiver does not take
        them.
        """
        if wake in self._told:
            return False
        self._told.append(wake)
        return True


@final
class RemoteFragment:
    """A fragment of a remote broker. Implements `dispatch.FragmentPort` and `browse.Browsable`."""

    def __init__(self, broker: RemoteBroker, fragment_id: FragmentId) -> None:
        self.fragment_id = fragment_id
        self.told_state = RECOVERING
        self.told_reason = "the fragment is being opened"
        self._broker = broker
        self._wakes: dict[Source, list[Callable[[], None]]] = {}
        # Messages received and deleted for a receiver that gave up: the next one gets them.
        self._stranded: dict[Source, Stranded] = {}
        self._to_release: list[bytes] = []
        self._sessions_to_release: list[bytes] = []

    @property
    def state(self) -> str:
        return self.told_state if self._broker.is_up else UNAVAILABLE

    @property
    def reason(self) -> str:
        return self.told_reason if self._broker.is_up else self._broker.problem()

    @property
    def is_available(self) -> bool:
        return self.state == AVAILABLE

    def submit(self, command: Command, reply_to: ReplyTo) -> None:
        if self._stranded:
            if isinstance(command, ReleaseSession):
                self._drop_stranded(command.session)
            elif isinstance(command, Receive) and not command.is_locking:
                found = self._take_stranded((command.line, command.session), command.count_max)
                if found:
                    reply_to(Received(found, True))
                    return
        if reply_to is ignore and isinstance(command, ReleaseSession | Settle):
            reply_to = partial(self._let_go, command)
        self._broker.submit(self, command, reply_to)

    def watch(self, line: int, wake: Callable[[], None], session: bytes = NO_SESSION) -> None:
        source = (line, session)
        stranded = self._stranded.get(source)
        if stranded is not None and stranded.is_news(wake):
            self._broker.loop.call_soon(wake)
            return
        wakes = self._wakes.setdefault(source, [])
        wakes.append(wake)
        if len(wakes) == 1:
            self._broker.tell(Watch(self.fragment_id, line, session))

    def unwatch(self, line: int, wake: Callable[[], None], session: bytes = NO_SESSION) -> None:
        wakes = self._wakes.get((line, session), [])
        if wake in wakes:
            wakes.remove(wake)
            if not wakes:
                del self._wakes[(line, session)]
                self._broker.tell(Unwatch(self.fragment_id, line, session))

    def browse(
        self,
        line: int,
        *,
        start: int,
        count_max: int,
        bytes_max: int,
        then: Callable[[Page | Unavailable], None],
        session_id: str | None = None,
    ) -> None:
        def question(number: int) -> Browse:
            return Browse(
                number,
                self.fragment_id,
                line,
                start=start,
                count_max=count_max,
                bytes_max=bytes_max,
                session_id=session_id,
            )

        self._broker.start(question, RemoteWait(None, then=then))

    def list_sessions(
        self,
        *,
        updated_after_ms: int,
        skip: int,
        count_max: int,
        then: Callable[[list[str] | Unavailable], None],
    ) -> None:
        def question(number: int) -> ListSessions:
            return ListSessions(
                number,
                self.fragment_id,
                updated_after_ms=updated_after_ms,
                skip=skip,
                count_max=count_max,
            )

        self._broker.start(question, RemoteWait(None, listed=then))

    def woken(self, line: int, session: bytes) -> None:
        for wake in self._wakes.pop((line, session), []):
            guarded(wake)

    def rejoin(self) -> None:
        """The broker is back: watch there again. In which state the fragment is, it says soon."""
        self.told_state = RECOVERING
        for line, session in self._wakes:
            self._broker.tell(Watch(self.fragment_id, line, session))
        tokens, self._to_release = self._to_release, []
        if tokens:
            self.release(tokens)
        sessions, self._sessions_to_release = self._sessions_to_release, []
        for session in sessions:
            self.release_session(session)

    def release(self, tokens: list[bytes]) -> None:
        """Unlock messages that nobody waits for any more, now or when the broker is back."""
        self.submit(Settle(RELEASE, tokens), ignore)

    def release_session(self, session: bytes) -> None:
        """Release a session that nobody waits for any more, now or when the broker is back."""
        self.submit(ReleaseSession(session), ignore)

    def _let_go(self, command: ReleaseSession | Settle, answer: Answer) -> None:
        """The answer to a release of unclaimed locks; repeated if the broker did not get it."""
        if not isinstance(answer, Unavailable) or self._broker.is_up:
            # What was held in a fragment that is unavailable is already released.
            return
        if isinstance(command, ReleaseSession):
            if len(self._sessions_to_release) < SESSIONS_HELD_MAX:
                self._sessions_to_release.append(command.session)
        elif len(self._to_release) + len(command.tokens) <= LOCKS_MAX:
            self._to_release += command.tokens

    def strand(self, line: int, session: bytes, deliveries: list[Delivery]) -> None:
        """Keep what was received and deleted for a receiver that gave up, for the next receive."""
        self._stranded.setdefault((line, session), Stranded()).add(deliveries)
        if len(self._stranded) > STRANDED_MAX:
            # Nobody receives from sessions that were lost in the meantime.
            del self._stranded[next(source for source in self._stranded if source[1])]
        self.woken(line, session)

    def _take_stranded(self, source: Source, count_max: int) -> list[Delivery]:
        stranded = self._stranded.pop(source, None)
        if stranded is None:
            return []
        taken, left = stranded.deliveries[:count_max], stranded.deliveries[count_max:]
        if left:
            self.strand(source[0], source[1], left)
        return taken

    def _drop_stranded(self, session: bytes) -> None:
        """Nobody receives from this session any more: drop its messages as if its receiver had
        died.
        """
        for source in [source for source in self._stranded if source[1] == session]:
            del self._stranded[source]


@final
class RemoteWait:
    """A caller that waits for an answer: to a command, to a read, or to a question.

    `taking` is the command if what it takes must not stay locked for nobody. `late` is called with
    an answer that comes after the caller has given up; `failed`, when there will be none.
    """

    def __init__(
        self,
        fragment: RemoteFragment | None,
        *,
        reply_to: ReplyTo | None = None,
        then: Callable[[Page | Unavailable], None] | None = None,
        listed: Callable[[list[str] | Unavailable], None] | None = None,
        answer: asyncio.Future[str | Refused | Unavailable] | None = None,
    ) -> None:
        self.tick = 0
        self.late: Callable[[str], None] | None = None
        self.failed: Callable[[], None] | None = None
        self.taking: Receive | ReceiveDeferred | ReceiveNumbered | AcceptSession | None = None
        self.deliveries: list[Delivery] = []
        self._fragment = fragment
        self._reply_to = reply_to
        self._then = then
        self._listed = listed
        self._answer = answer

    def answered(self, answer: Answer) -> None:
        if self._reply_to is not None:
            say(self._reply_to, answer)
        elif isinstance(answer, Refused | Unavailable):
            self._fail(answer)
        else:
            self._fail(
                Unavailable(
                    f"The broker answered {type(answer).__name__}, which does not fit the question."
                )
            )

    def told(self, value: str | Page | list[str]) -> None:
        if self._then is not None and isinstance(value, Page):
            guarded(partial(self._then, value))
        elif self._listed is not None and isinstance(value, list):
            guarded(partial(self._listed, value))
        elif self._answer is not None and isinstance(value, str):
            if not self._answer.done():
                self._answer.set_result(value)
            elif self.late is not None:
                self.late(value)
        elif self.failed is None:
            self.answered(
                Unavailable("The broker's answer does not fit the question.", is_unknown=True)
            )

    def hand_back(self, deliveries: list[Delivery]) -> None:
        """Return messages that came for a receive that was given up."""
        fragment, taking = self._fragment, self.taking
        if fragment is None or not deliveries:
            return
        if isinstance(taking, Receive) and not taking.is_locking:
            fragment.strand(taking.line, taking.session, deliveries)
        else:
            fragment.release([delivery.token for delivery in deliveries if delivery.token])

    def let_go(self, accepted: SessionAccepted) -> None:
        """Release a session that came for a caller that had given up."""
        if self._fragment is not None:
            self._fragment.release_session(accepted.token)

    def never_answered(self) -> None:
        """The answer was lost with its connection: the tokens in it are unknown."""
        fragment, taking = self._fragment, self.taking
        if fragment is None or taking is None:
            return
        token = token_of_seed(fragment.fragment_id.number, taking.token_seed)
        if isinstance(taking, AcceptSession):
            fragment.release_session(token)
        elif isinstance(taking, ReceiveNumbered) or taking.is_locking:
            fragment.release([token])

    def _fail(self, failure: Refused | Unavailable) -> None:
        told = failure if isinstance(failure, Unavailable) else Unavailable(failure.message)
        if self._then is not None:
            guarded(partial(self._then, told))
        elif self._listed is not None:
            guarded(partial(self._listed, told))
        elif self.failed is not None:
            self.failed()
        elif self._answer is not None and not self._answer.done():
            self._answer.set_result(failure)
