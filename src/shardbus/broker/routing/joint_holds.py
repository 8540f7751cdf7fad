"""Holds a session at all of its fragments (P6).

After a repartition a session may have messages, or its state, in fragments of former maps. Whoever
accepts it holds it at each of those, the oldest map first, and then at its present fragment, which
decides between clients: without that hold nobody gets the session. A former fragment that has
nothing of any session is passed over; it gets nothing any more. Then a state that is still in a
former fragment is moved to the present one. See docs/adr/0140-sessions-and-other-maps.md.
"""
# Compiled by mypyc.

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol, final

from shardbus.broker.fragment.answers import Answer
from shardbus.broker.routing.dispatch import Dispatcher, FragmentPort, ignore
from shardbus.core.errors import SESSION_CANNOT_BE_LOCKED, Refused, Unavailable
from shardbus.core.messages.command import Done
from shardbus.core.sequence import TOKEN_BYTES
from shardbus.core.sessions.command import (
    AcceptSession,
    GetState,
    NoSession,
    ReleaseSession,
    SessionAccepted,
    SessionState,
    SetState,
)
from shardbus.core.sessions.key import session_key

# A client that found the session at its present fragment first, and not free at a former one, holds
# it for a moment: how often, and for how long in all, that is waited for.
JOIN_RETRY_MS: Final = 50
JOIN_TRIES_MAX: Final = 40
# Between two attempts to hold a session, that was accepted before, at the fragment of a new map.
EXTEND_RETRY_MS: Final = 100

Accepted = Callable[[SessionAccepted | Refused | Unavailable], None]


def tokens_in(token: bytes) -> list[bytes]:
    """The tokens of a hold, each of one fragment, that of the present fragment first."""
    return [token[at : at + TOKEN_BYTES] for at in range(0, len(token), TOKEN_BYTES)]


class Fragments(Protocol):
    """The fragments of the entity, and the bus around them."""

    @property
    def ports(self) -> list[FragmentPort]: ...

    def path_of_key(self, key: str) -> list[int]:
        """The positions in `ports` of a key's fragments, those of the oldest map first."""
        ...

    def index_of_token(self, token: bytes) -> int: ...

    def new_token_seed(self) -> bytes: ...

    def call_later(self, delay_ms: int, then: Callable[[], None]) -> asyncio.TimerHandle: ...


@final
class Joining:
    """One attempt to hold a session at all fragments of its path.

    `held` has the tokens of those where it is held already, by position. What this attempt holds in
    addition is released when it fails.
    """

    def __init__(  # noqa: PLR0913 - a record of one attempt, by keyword
        self,
        fragments: Fragments,
        session_id: str,
        held: dict[int, bytes],
        reply_to: Accepted,
        *,
        locked_until_ms: int = -1,
        moves_state: bool = True,
        sharing: bytes | None = None,
    ) -> None:
        """`sharing` as in `AcceptSession`; entities of former maps have no shared sessions."""
        self.held = dict(held)
        self.gained: list[int] = []
        self._fragments = fragments
        self._session_id = session_id
        self._path = fragments.path_of_key(session_key(session_id))
        self._empty: set[int] = set()
        self._reply_to = reply_to
        self._locked_until_ms = locked_until_ms
        self._tries = 0
        self._asked = -1
        # The former fragments whose state is still to be looked for.
        self._unmoved: list[int] = []
        self._moves_state = moves_state
        self._sharing = sharing

    def start(self) -> None:
        for index in self._path:
            if index not in self.held and index not in self._empty:
                self._ask(index)
                return
        if self._moves_state:
            self._unmoved = [index for index in self._path[:-1] if index in self.held]
        self._look_for_state()

    def _ask(self, index: int) -> None:
        self._asked = index
        is_former = index != self._path[-1]
        seed = self._fragments.new_token_seed()
        command = AcceptSession(self._session_id, seed, self._sharing, is_former)
        self._port(index).submit(command, self._answered)

    def _answered(self, answer: Answer) -> None:
        index = self._asked
        if isinstance(answer, SessionAccepted):
            self.held[index] = answer.token
            self.gained.append(index)
            until_ms = answer.locked_until_ms
            known_ms = self._locked_until_ms
            self._locked_until_ms = until_ms if known_ms < 0 else min(known_ms, until_ms)
            self.start()
        elif isinstance(answer, NoSession):
            self._empty.add(index)
            self.start()
        elif self._is_soon_free(index, answer):
            self._tries += 1
            self._fragments.call_later(JOIN_RETRY_MS, self.start)
        else:
            assert isinstance(answer, Refused | Unavailable)
            self._fail(answer)

    def _is_soon_free(self, index: int, answer: Answer) -> bool:
        """Whether the session is held by somebody who lacks an older fragment, which is here."""
        is_held = isinstance(answer, Refused) and answer.kind is SESSION_CANNOT_BE_LOCKED
        is_behind = len(self.held) > 0 and index > max(self.held)
        return is_held and is_behind and self._tries < JOIN_TRIES_MAX

    # The state.

    def _look_for_state(self) -> None:
        if not self._unmoved:
            self._succeed()
            return
        index = self._unmoved[0]
        self._port(index).submit(GetState(self.held[index]), self._state_read)

    def _state_read(self, answer: Answer) -> None:
        if not isinstance(answer, SessionState):
            assert isinstance(answer, Refused | Unavailable)
            self._fail(answer)
        elif answer.state is None:
            self._unmoved.pop(0)
            self._look_for_state()
        else:
            present = self._path[-1]
            command = SetState(self.held[present], answer.state)
            self._port(present).submit(command, self._state_written)

    def _state_written(self, answer: Answer) -> None:
        """It is in both fragments now, and the older one counts until it is removed there."""
        if not isinstance(answer, Done):
            assert isinstance(answer, Refused | Unavailable)
            self._fail(answer)
            return
        index = self._unmoved[0]
        self._port(index).submit(SetState(self.held[index], None), self._state_moved)

    def _state_moved(self, answer: Answer) -> None:
        if not isinstance(answer, Done):
            assert isinstance(answer, Refused | Unavailable)
            self._fail(answer)
            return
        self._unmoved.pop(0)
        self._look_for_state()

    # The end.

    def _succeed(self) -> None:
        present = self._path[-1]
        tokens = [self.held[present]]
        tokens += [self.held[index] for index in self._path[:-1] if index in self.held]
        accepted = SessionAccepted(self._session_id, b"".join(tokens), self._locked_until_ms)
        self._reply_to(accepted)

    def _fail(self, failure: Refused | Unavailable) -> None:
        self.release_gained()
        self._reply_to(failure)

    def release_gained(self) -> None:
        # The present fragment first: who holds an older one waits for it.
        for index in reversed(self.gained):
            self._port(index).submit(ReleaseSession(self.held[index]), ignore)

    def _port(self, index: int) -> FragmentPort:
        return self._fragments.ports[index]


@final
class HeldLink:
    """A session that a link holds for long, and its dispatcher: it gets the fragments of a new map
    while it is held.
    """

    def __init__(
        self,
        links: HeldLinks,
        fragments: Fragments,
        accepted: SessionAccepted,
        dispatcher: Dispatcher,
    ) -> None:
        self.token = accepted.token
        # Those that were held later than the session was accepted.
        self.later: list[bytes] = []
        self.session_key = session_key(accepted.session_id)
        self._links = links
        self._fragments = fragments
        self._session_id = accepted.session_id
        self._dispatcher = dispatcher
        self._held: dict[int, bytes] = {}
        for token in tokens_in(accepted.token):
            self._held[fragments.index_of_token(token)] = token
        self._joining: Joining | None = None
        self._is_over = False

    @property
    def holder(self) -> str:
        """The name of the receiver."""
        return self._dispatcher.receiver_name()

    def entered(self) -> None:
        """The dispatcher has a receiver."""
        self._links.add(self)
        self.extend()

    def left(self) -> None:
        """The dispatcher has no receiver any more."""
        self._is_over = True
        self._links.remove(self)
        for token in reversed(self.later):
            index = self._fragments.index_of_token(token)
            self._fragments.ports[index].submit(ReleaseSession(token), ignore)

    def extend(self) -> None:
        """Hold the session at the fragments that it has by now; a state stays where it is."""
        if self._is_over or self._joining is not None:
            return
        path = self._fragments.path_of_key(self.session_key)
        if path[-1] in self._held:
            return
        self._joining = Joining(
            self._fragments, self._session_id, self._held, self._joined, moves_state=False
        )
        self._joining.start()

    def _joined(self, answer: SessionAccepted | Refused | Unavailable) -> None:
        joining, self._joining = self._joining, None
        assert joining is not None
        if self._is_over:
            if isinstance(answer, SessionAccepted):
                joining.release_gained()
        elif isinstance(answer, SessionAccepted):
            added = sorted(joining.gained)
            self._held = joining.held
            tokens = [self._held[index] for index in added]
            self.later += tokens
            self._dispatcher.add_session([self._fragments.ports[index] for index in added], tokens)
            self.extend()
        else:
            self._fragments.call_later(EXTEND_RETRY_MS, self.extend)


@final
class HeldLinks:
    """The sessions that links of this gateway hold."""

    def __init__(self) -> None:
        self._links: dict[bytes, HeldLink] = {}

    def add(self, link: HeldLink) -> None:
        self._links[link.token] = link

    def remove(self, link: HeldLink) -> None:
        self._links.pop(link.token, None)

    def holders(self) -> dict[str, str]:
        """The names of the receivers by the keys of the sessions that they hold."""
        return {link.session_key: link.holder for link in self._links.values()}

    def extend(self) -> None:
        """The entity has another map."""
        for link in list(self._links.values()):
            link.extend()

    def tokens_of(self, token: bytes) -> list[bytes]:
        """All tokens of a hold; first the one where its state is."""
        link = self._links.get(token)
        return tokens_in(token) + ([] if link is None else link.later)
