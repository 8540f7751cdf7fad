"""What clients ask of an entity other than sending and receiving, over all of its fragments.

Everything here raises Refused, or Unavailable when a needed fragment cannot be asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

from shardbus.broker.clock import Clock
from shardbus.broker.operations.asking import ask, ask_all, failure_of, failure_of_parts, to_port
from shardbus.broker.operations.browse import Browsable, BrowseCursor, browse, browse_session
from shardbus.broker.operations.deferred import DeferredReceive, shares_of
from shardbus.broker.operations.numbered import lock_numbered
from shardbus.broker.operations.purge import SpreadPurge, purge_one
from shardbus.broker.operations.schedule import EntityScheduling
from shardbus.broker.operations.session_list import SessionList
from shardbus.broker.routing.dispatch import FragmentPort
from shardbus.broker.routing.router import EntityRouter, part_of
from shardbus.core.errors import (
    MESSAGE_LOCK_LOST,
    NOT_ALLOWED,
    SESSION_LOCK_LOST,
    Refused,
)
from shardbus.core.message import MAIN_LINE, NEVER_MS, Entry, Message
from shardbus.core.messages.command import (
    NO_SESSION,
    Cancel,
    Delivery,
    Purge,
    Renew,
    Renewed,
    Settle,
    Settled,
)
from shardbus.core.messages.settling import LOCK_LOST_TEXT
from shardbus.core.sequence import TOKEN_BYTES
from shardbus.core.sessions.command import (
    AskHolds,
    GetState,
    Hold,
    HoldsTold,
    RenewSession,
    SessionState,
    SetState,
)
from shardbus.core.sessions.holding import SESSION_LOST_TEXT
from shardbus.core.sessions.key import session_key


@final
class Operations:
    """Available as `EntityHandle.operations`. Fragments are asked in parallel."""

    def __init__(
        self,
        router: EntityRouter,
        fragments: Sequence[Browsable],
        *,
        clock: Clock,
        new_seed: Callable[[], bytes],
    ) -> None:
        """`fragments[i]` is what `router.ports[i]` serves."""
        self._router = router
        self._fragments = fragments
        self._clock = clock
        self._new_seed = new_seed
        self._session_list = SessionList(fragments, router)

    # Locks.

    async def renew(self, tokens: list[bytes]) -> list[int]:
        """Renew locks; returns the new deadlines in order. Each fragment renews all of its own or
        none.
        """
        shares = self._shares(tokens)
        answers = await ask_all(
            [to_port(self._router.ports[index], Renew(share)) for index, share in shares.items()]
        )
        failure = failure_of(answers)
        if failure is not None:
            raise failure
        deadlines: dict[bytes, int] = {}
        for share, answer in zip(shares.values(), answers, strict=True):
            assert isinstance(answer, Renewed)
            for token in share:
                deadlines[token] = answer.locked_until_ms
        return [deadlines[token] for token in tokens]

    async def settle(self, command: Settle) -> None:
        """Settle; Refused with MESSAGE_LOCK_LOST when a lock was lost; the others are still
        settled.
        """
        shares = self._shares(command.tokens)
        answers = await ask_all(
            [
                to_port(self._router.ports[index], part_of(command, share))
                for index, share in shares.items()
            ]
        )
        failure = failure_of_parts(answers)
        if failure is not None:
            raise failure
        if any(any(answer.lost) for answer in answers if isinstance(answer, Settled)):
            raise Refused(MESSAGE_LOCK_LOST, LOCK_LOST_TEXT)

    # Waiting messages.

    async def peek(
        self,
        line: int,
        *,
        start: int,
        count_max: int,
        cursor: BrowseCursor,
        session_id: str | None = None,
    ) -> list[Entry]:
        """The next messages from `start`, in every state; none means that there are no more."""
        if session_id is None:
            return await browse(
                self._fragments, line, start=start, count_max=count_max, cursor=cursor
            )
        if not self._router.requires_session or line != MAIN_LINE:
            raise Refused(
                NOT_ALLOWED, "A session can be peeked only on an entity that requires sessions."
            )
        found: list[Entry] = []
        # Fragments of later maps have higher numbers, and so have their messages.
        for index in self._router.path_of_key(session_key(session_id)):
            fragment, left = self._fragments[index], count_max - len(found)
            if left > 0:
                found += await browse_session(fragment, session_id, start=start, count_max=left)
        return found

    async def receive_deferred(
        self, line: int, numbers: list[int], *, is_locking: bool, session: bytes = NO_SESSION
    ) -> list[Delivery]:
        """Deferred messages, in order: all of them or, with a refusal, none."""
        receive = DeferredReceive(
            self._router, line, numbers, session=session, new_seed=self._new_seed
        )
        return await receive.locked() if is_locking else await receive.removed()

    async def lock_numbered(
        self, line: int, numbers: Sequence[int], session: bytes = NO_SESSION
    ) -> list[Delivery]:
        """Lock those of these active messages that are there and not locked, and of a held session
        if one is given.
        """
        return await lock_numbered(self._router, line, numbers, self._new_seed, session)

    async def schedule(self, messages: list[Message]) -> list[int]:
        """Schedule messages; returns sequence numbers in order, 0 for a duplicate. A failure
        cancels those already scheduled.
        """
        return await EntityScheduling(self._router, messages, self._clock.now_ms()).numbers()

    async def cancel(self, numbers: list[int]) -> None:
        """Cancel messages; each fragment cancels all of its own or, with a refusal, none."""
        shares = shares_of(self._router, numbers)
        answers = await ask_all(
            [to_port(self._router.ports[index], Cancel(share)) for index, share in shares.items()]
        )
        failure = failure_of_parts(answers)
        if failure is not None:
            raise failure

    async def purge(
        self,
        line: int,
        *,
        count_max: int,
        enqueued_until_ms: int = NEVER_MS,
        session: bytes = NO_SESSION,
    ) -> int:
        """Remove messages, the oldest first as far as fragments can tell; returns how many."""
        command = Purge(line, count_max, enqueued_until_ms=enqueued_until_ms, session=session)
        ports = self._router.ports
        if session:
            return await self._purge_session(session, command)
        if len(ports) == 1:
            return await purge_one(ports[0], command)
        return await SpreadPurge(ports, self._fragments, command).run()

    # Sessions. Commands with a token are refused with SESSION_LOCK_LOST when the session is not
    # held.

    async def renew_session(self, session: bytes) -> int:
        """Renew a session at all of its fragments; returns the new deadline. If it is lost at one,
        it is released at the others.
        """
        tokens = self._router.held_links.tokens_of(session) or [session]
        answers = await ask_all(
            [to_port(self._port_of_session(token), RenewSession(token)) for token in tokens]
        )
        failure = failure_of(answers)
        if failure is not None:
            is_lost = isinstance(failure, Refused) and failure.kind is SESSION_LOCK_LOST
            if is_lost and len(tokens) > 1:
                self._router.release_session(session)
            raise failure
        return min(answer.locked_until_ms for answer in answers if isinstance(answer, Renewed))

    async def state(self, session: bytes) -> bytes | None:
        token = session[:TOKEN_BYTES]
        answer = await ask(self._port_of_session(token), GetState(token))
        assert isinstance(answer, SessionState)
        return answer.state

    async def set_state(self, session: bytes, state: bytes | None) -> None:
        token = session[:TOKEN_BYTES]
        await ask(self._port_of_session(token), SetState(token, state))

    async def _purge_session(self, session: bytes, command: Purge) -> int:
        """The older fragments first."""
        tokens = self._router.held_links.tokens_of(session)
        purged = 0
        for token in sorted(tokens, key=self._router.index_of_token):
            left = command.count_max - purged
            if left > 0:
                part = Purge(
                    command.line,
                    left,
                    enqueued_until_ms=command.enqueued_until_ms,
                    session=token,
                )
                purged += await purge_one(self._port_of_session(token), part)
        return purged

    async def list_sessions(self, *, updated_after_ms: int, skip: int, count_max: int) -> list[str]:
        """Sessions whose state was set after a moment; with -1 all that have messages or a
        state.
        """
        return await self._session_list.page(
            updated_after_ms=updated_after_ms, skip=skip, count_max=count_max
        )

    async def holds(self, session_ids: list[str]) -> list[Hold]:
        """Those of these sessions that are held; at several fragments: until the first deadline."""
        shares: dict[int, list[str]] = {}
        for session_id in session_ids:
            for index in self._router.path_of_key(session_key(session_id)):
                shares.setdefault(index, []).append(session_id)
        ports = self._router.ports
        answers = await ask_all(
            [to_port(ports[index], AskHolds(ids)) for index, ids in shares.items()]
        )
        failure = failure_of(answers)
        if failure is not None:
            raise failure
        found: dict[str, Hold] = {}
        for answer in answers:
            for hold in answer.holds if isinstance(answer, HoldsTold) else []:
                known = found.setdefault(hold.session_id, hold)
                if known is not hold:
                    until_ms = min(known.locked_until_ms, hold.locked_until_ms)
                    locked = known.locked + hold.locked
                    found[hold.session_id] = Hold(hold.session_id, until_ms, locked)
        return list(found.values())

    def _shares(self, tokens: list[bytes]) -> dict[int, list[bytes]]:
        """The tokens by the position of their fragment; Refused when one belongs to no fragment."""
        shares: dict[int, list[bytes]] = {}
        for token in tokens:
            index = self._router.index_of_token(token)
            if index < 0:
                raise Refused(MESSAGE_LOCK_LOST, LOCK_LOST_TEXT)
            shares.setdefault(index, []).append(token)
        return shares

    def _port_of_session(self, session: bytes) -> FragmentPort:
        index = self._router.index_of_token(session)
        if index < 0:
            raise Refused(SESSION_LOCK_LOST, SESSION_LOST_TEXT)
        return self._router.ports[index]
