"""The commands about sessions, and their replies."""

from __future__ import annotations

from typing import ClassVar, Final, final

from shardbus.core.declared import (
    COUNT,
    DATA,
    FLAG,
    NUMBER,
    OF_SESSIONS,
    TEXT,
    Asked,
    Declared,
    fields,
    list_of,
    maybe,
    record,
    since,
)
from shardbus.core.sequence import SEED

# As `AcceptSession.sharing`: hold a session so that another client can take it over.
SHARED: Final = b""


class AboutSessions(Asked):
    """A command about a session."""

    FAMILY: ClassVar[int] = OF_SESSIONS


@final
class AcceptSession(AboutSessions):
    """Hold the named session, or, with None, any free session that has active messages.

    Answered by `SessionAccepted`, or by `NoSession` when None was given and no session is free. A
    named session need not have messages. Refused with SESSION_CANNOT_BE_LOCKED while another client
    holds it, and with NOT_ALLOWED where sessions are not required.

    `sharing` is None to hold the session alone. With SHARED another client can take the session
    over while it is held: with the token that this command is answered with, as `sharing`. Then
    its locks stay, the deadline is renewed, the token in the answer is the one for commands, and
    the former one is lost. Whoever takes over next presents the same token as before. Refused with
    SESSION_CANNOT_BE_LOCKED when the session is held under another token, and with
    SESSION_LOCK_LOST when nobody holds it; such a session must be named.

    `is_former` says that the caller knows the fragment as one of a former map, and holds the
    session at its present fragment too. A sealed fragment refuses others with REPARTITIONING, and
    answers `NoSession` for a named session when it has nothing of any session.
    """

    FIELDS = fields(
        session_id=maybe(TEXT),
        token_seed=SEED,
        sharing=since(12, maybe(DATA)),
        is_former=since(12, FLAG),
    )

    def __init__(
        self,
        session_id: str | None,
        token_seed: bytes,
        sharing: bytes | None = None,
        is_former: bool = False,
    ) -> None:
        self.session_id = session_id
        self.token_seed = token_seed
        self.sharing = sharing
        self.is_former = is_former


@final
class RenewSession(AboutSessions):
    """Hold a session for the full lock duration from now. Answered by `Renewed`.

    Like the commands below, refused with SESSION_LOCK_LOST when the token is not held.
    """

    FIELDS = fields(session=DATA)

    def __init__(self, session: bytes) -> None:
        self.session = session


@final
class ReleaseSession(AboutSessions):
    """End the hold of a session; its unsettled messages return uncounted. Always answered by
    `Done`.
    """

    FIELDS = fields(session=DATA)

    def __init__(self, session: bytes) -> None:
        self.session = session


@final
class GetState(AboutSessions):
    """Read the state of a held session. Answered by `SessionState`."""

    FIELDS = fields(session=DATA)

    def __init__(self, session: bytes) -> None:
        self.session = session


@final
class SetState(AboutSessions):
    """Replace the state of a held session; None clears it. Answered by `Done`.

    Refused with QUOTA_EXCEEDED when the state is too large, or the fragment has too many states.
    """

    FIELDS = fields(session=DATA, state=maybe(DATA))

    def __init__(self, session: bytes, state: bytes | None) -> None:
        self.session = session
        self.state = state


@final
class AskHolds(AboutSessions):
    """Ask which of these sessions are held. Answered by `HoldsTold`."""

    FIELDS = fields(session_ids=list_of(TEXT))

    def __init__(self, session_ids: list[str]) -> None:
        self.session_ids = session_ids


SessionCommand = AcceptSession | RenewSession | ReleaseSession | GetState | SetState | AskHolds


@final
class SessionAccepted(Declared):
    """`token` identifies the hold in commands; like a lock token it contains its fragment's
    number.
    """

    FIELDS = fields(session_id=TEXT, token=DATA, locked_until_ms=NUMBER)

    def __init__(self, session_id: str, token: bytes, locked_until_ms: int) -> None:
        self.session_id = session_id
        self.token = token
        self.locked_until_ms = locked_until_ms


@final
class NoSession(Declared):
    """No free session has messages: `watch(SESSIONS, …)` reports when one has.

    For a named session: the fragment is sealed, and never has anything of this session again.
    """


@final
class SessionState(Declared):
    """The runner reads `state` from the store before it passes the reply on."""

    FIELDS = fields(session_id=TEXT, state=maybe(DATA))

    def __init__(self, session_id: str, state: bytes | None = None) -> None:
        self.session_id = session_id
        self.state = state


@final
class Hold(Declared):
    """A held session, in the spelling of the question, and how many of its messages are locked.

    A reader that has claimed messages of it holds it until its lease ends, and locks none.
    """

    FIELDS = fields(session_id=TEXT, locked_until_ms=NUMBER, locked=COUNT)

    def __init__(self, session_id: str, locked_until_ms: int, locked: int) -> None:
        self.session_id = session_id
        self.locked_until_ms = locked_until_ms
        self.locked = locked


@final
class HoldsTold(Declared):
    """Those of the sessions that are held."""

    FIELDS = fields(holds=list_of(record(Hold)))

    def __init__(self, holds: list[Hold]) -> None:
        self.holds = holds


SessionReply = SessionAccepted | NoSession | SessionState | HoldsTold
