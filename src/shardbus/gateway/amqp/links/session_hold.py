"""The message sessions that the links of one connection hold or wait for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar, final

from shardbus.amqp.link import Link
from shardbus.amqp.termini import Source
from shardbus.broker.clock import Timer
from shardbus.broker.routing.router import EntityRouter
from shardbus.broker.routing.sessions import Accepting
from shardbus.codec.types import Described, Symbol, Ulong, Uuid, Value, text_of, value_of
from shardbus.core.errors import INVALID_ARGUMENT, SESSION_LOCK_LOST, Refused, Unavailable
from shardbus.core.limits import KEY_CHARACTERS_MAX, SESSION_GRACE_MS
from shardbus.core.sessions.command import SHARED, SessionAccepted
from shardbus.core.sessions.holding import SESSION_LOST_TEXT
from shardbus.core.sessions.key import session_key
from shardbus.gateway.amqp.links.inbound import Shell
from shardbus.gateway.amqp.management.fields import guid_swapped

SESSION_FILTER: Final = "com.microsoft:session-filter"
# A described list: the id of a session, or null; the token of the hold to take over, or null. The
# answer has both.
SHARED_FILTER: Final = "com.microsoft:non-exclusive-session-filter"
_SHARED_DESCRIPTORS: Final = (Ulong(0x137000000E), Symbol(f"{SHARED_FILTER}:list"))
LOCKED_UNTIL: Final = "com.microsoft:locked-until-utc"
TIMEOUT: Final = "com.microsoft:timeout"
# "Without it the server waits 65 s".
WAIT_MS: Final = 65_000
WAIT_MS_MAX: Final = 3_600_000

# .NET counts 100 ns from the year 1.
_EPOCH_TICKS: Final = 621_355_968_000_000_000


T = TypeVar("T")


def session_lost() -> Refused:
    return Refused(SESSION_LOCK_LOST, SESSION_LOST_TEXT)


@final
class SessionWish:
    """The session that an attach asks for: a named one or, with None, any free one.

    `sharing` as in `AcceptSession`.
    """

    def __init__(self, session_id: str | None, sharing: bytes | None = None) -> None:
        self.session_id = session_id
        self.sharing = sharing


def session_asked(link: Link) -> SessionWish | None:
    """The session that an attach asks for; None if it asks for none. Raises Refused."""
    source = link.remote_source
    filters = None if source is None else source.filters
    if not filters:
        return None
    if SHARED_FILTER not in filters:
        return (
            SessionWish(_session_id(filters[SESSION_FILTER])) if SESSION_FILTER in filters else None
        )
    if SESSION_FILTER in filters:
        raise Refused(
            INVALID_ARGUMENT,
            "A session is accepted either alone or shared: give one of the two session filters.",
        )
    return _shared_wish(filters[SHARED_FILTER])


def _shared_wish(asked: Value) -> SessionWish:
    fields = asked.value if isinstance(asked, Described) else None
    if (
        not isinstance(asked, Described)
        or asked.descriptor not in _SHARED_DESCRIPTORS
        or not isinstance(fields, list)
        or len(fields) > 2
    ):
        raise Refused(
            INVALID_ARGUMENT,
            "The filter for a shared session must be a list of a session id and a lock token.",
        )
    session_id, token = [*fields, None, None][:2]
    wish = SessionWish(_session_id(session_id), SHARED)
    if isinstance(token, Uuid):
        if wish.session_id is None:
            raise Refused(
                INVALID_ARGUMENT,
                "A lock token is of one session: name the session that is to be taken over.",
            )
        wish.sharing = guid_swapped(token.value)
    elif token is not None:
        raise Refused(INVALID_ARGUMENT, "The lock token of a session must be a uuid or null.")
    return wish


def _session_id(asked: Value) -> str | None:
    wanted = value_of(asked)
    if wanted is None:
        return None
    session_id = text_of(wanted)
    if session_id is None:
        raise Refused(INVALID_ARGUMENT, "The session filter must be a session id or null.")
    if len(session_id) > KEY_CHARACTERS_MAX:
        raise Refused(
            INVALID_ARGUMENT,
            f"SessionId has {len(session_id)} characters; at most {KEY_CHARACTERS_MAX} are "
            "allowed.",
        )
    return session_id


def wait_asked_ms(link: Link) -> int:
    """How long an attach may wait; SDKs use various number types for it."""
    wanted = value_of(link.properties.get(TIMEOUT))
    if isinstance(wanted, bool) or not isinstance(wanted, int | float) or wanted != wanted:
        return WAIT_MS
    return int(max(0, min(wanted, WAIT_MS_MAX)))


def granted_source(link: Link, wish: SessionWish, accepted: SessionAccepted) -> Source:
    """The client's source with the session it got: the id as text, described if the client's was.

    The Go SDK can only read described filters, the Python SDK only plain ones. The filter for a
    shared session also has the token by which it can be taken over.
    """
    asked = link.remote_source
    assert asked is not None and asked.filters is not None
    name = SESSION_FILTER if wish.sharing is None else SHARED_FILTER
    wanted = asked.filters[name]
    granted: Value = accepted.session_id
    if wish.sharing is not None:
        # Whoever takes over is given the token that it presented.
        granted = [granted, Uuid(guid_swapped(wish.sharing or accepted.token))]
    if isinstance(wanted, Described):
        granted = Described(wanted.descriptor, granted)
    source = Source()
    source.address = asked.address
    source.durable = asked.durable
    source.expiry_policy = asked.expiry_policy
    source.timeout_s = asked.timeout_s
    source.distribution_mode = asked.distribution_mode
    source.filters = {**asked.filters, name: granted}
    source.capabilities = asked.capabilities
    return source


def granted_properties(accepted: SessionAccepted) -> dict[str, Value]:
    return {LOCKED_UNTIL: _EPOCH_TICKS + accepted.locked_until_ms * 10_000}


@final
class SessionWait:
    """An attach that waits for a session. The context of its link until it is answered."""

    def __init__(
        self,
        link: Link,
        wish: SessionWish,
        router: EntityRouter,
        answer: Callable[[SessionWait, SessionAccepted | Refused | Unavailable], None],
    ) -> None:
        self.link = link
        self.wish = wish
        self.router = router
        self._answer = answer
        self._accepting: Accepting | None = None
        self._is_over = False

    def start(self, wait_ms: int) -> None:
        wish = self.wish
        accepting = self.router.sessions.accept(
            wish.session_id, wait_ms, self._answered, wish.sharing
        )
        # The answer may come before this call returns.
        if not self._is_over:
            self._accepting = accepting

    def cancel(self) -> None:
        """Stop waiting; does nothing when the answer has come."""
        self._is_over = True
        if self._accepting is not None:
            self._accepting.cancel()
            self._accepting = None

    def _answered(self, answer: SessionAccepted | Refused | Unavailable) -> None:
        if self._is_over:
            if isinstance(answer, SessionAccepted):
                self.router.release_session(answer.token)
            return
        self._is_over = True
        self._accepting = None
        self._answer(self, answer)


@final
class SessionHold:
    """A session that a link holds: until the link ends, or the session is lost.

    Its duration is measured here, from each answer on. The moment in the answer is for the client,
    and is from a clock that may be set or belong to another machine. One that `is_shared` may have
    been taken over without the link being told yet: each settlement names its token.
    """

    def __init__(
        self,
        accepted: SessionAccepted,
        router: EntityRouter,
        shell: Shell,
        lock_ms: Callable[[], int],
        on_lost: Callable[[Refused], None],
        *,
        is_shared: bool,
    ) -> None:
        self.is_shared = is_shared
        self.session_key = session_key(accepted.session_id)
        self.token = accepted.token
        self.is_over = False
        self._lock_ms = lock_ms
        self._deadline_ms = shell.steady_ms() + lock_ms() + SESSION_GRACE_MS
        self._router = router
        self._shell = shell
        self._on_lost = on_lost
        self._renewals = 0
        self._timer: Timer | None = None
        self._watch()

    def lose(self, failure: Refused) -> None:
        """The session is no longer held: tell the link, once."""
        if not self.is_over:
            self._end()
            self._on_lost(failure)

    def release(self) -> None:
        """The link has ended: release the session. Does nothing when the session is lost."""
        if not self.is_over:
            self._end()
            self._router.release_session(self.token)

    def renewing(self) -> None:
        """A renewal is under way: its answer decides, even if the deadline passes first."""
        self._renewals += 1

    def renewed(self, *, is_done: bool) -> None:
        """The answer to `renewing`."""
        self._renewals -= 1
        if is_done:
            self._deadline_ms = self._shell.steady_ms() + self._lock_ms() + SESSION_GRACE_MS
        if not self.is_over:
            self._watch()

    def _watch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        delay_ms = max(0, self._deadline_ms - self._shell.steady_ms())
        self._timer = self._shell.call_later(delay_ms, self._due)

    def _due(self) -> None:
        if self._renewals:
            return
        if self._shell.steady_ms() < self._deadline_ms:
            self._watch()
        else:
            # Not released: an expired session counts as a failed delivery of its messages.
            self.lose(session_lost())

    def _end(self) -> None:
        self.is_over = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


async def held_answer(hold: SessionHold, answer: Awaitable[T]) -> T:
    """An answer about a held session; a loss of the session is also told to its link."""
    try:
        return await answer
    except Refused as refusal:
        if refusal.kind is SESSION_LOCK_LOST:
            hold.lose(refusal)
        raise


@final
class SessionHolds:
    """The sessions that the links of one connection hold, by entity."""

    def __init__(self) -> None:
        self._by_link: dict[tuple[int, str], SessionHold] = {}
        self._by_session: dict[tuple[int, str], SessionHold] = {}

    def add(self, entity_id: int, link_name: str, hold: SessionHold) -> None:
        self._by_link[entity_id, link_name] = hold
        self._by_session[entity_id, hold.session_key] = hold

    def remove(self, entity_id: int, link_name: str, hold: SessionHold) -> None:
        if self._by_link.get((entity_id, link_name)) is hold:
            del self._by_link[entity_id, link_name]
        if self._by_session.get((entity_id, hold.session_key)) is hold:
            del self._by_session[entity_id, hold.session_key]

    def find(
        self, entity_id: int, *, link_name: str | None, session_id: str | None
    ) -> SessionHold | None:
        """The hold of the named link, if it has that session; else that of the session.

        A shared one is found by its link alone: a link that has lost the session to another one
        must not act for that.
        """
        found: SessionHold | None = None
        if link_name is not None:
            found = self._by_link.get((entity_id, link_name))
        key = None if session_id is None else session_key(session_id)
        if key is not None and (found is None or found.session_key != key):
            found = self._by_session.get((entity_id, key))
            if found is not None and found.is_shared:
                return None
        return None if found is None or found.is_over else found
