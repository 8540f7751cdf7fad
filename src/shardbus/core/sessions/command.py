"""What fragments are asked about sessions, and what they answer."""

from __future__ import annotations

from typing import ClassVar, final

from shardbus.core.declared import (
    COUNT,
    DATA,
    NUMBER,
    OF_SESSIONS,
    TEXT,
    Asked,
    Declared,
    fields,
    list_of,
    maybe,
    record,
)
from shardbus.core.sequence import SEED


class AboutSessions(Asked):
    """A command about a session."""

    FAMILY: ClassVar[int] = OF_SESSIONS


@final
class AcceptSession(AboutSessions):
    """Hold a session: the named one, or, with None, one that has active messages.

    Answered by `SessionAccepted`; by `NoSession` when None was asked for and none is free.
    A named session need not have messages. Refused with SESSION_CANNOT_BE_LOCKED while somebody
    else holds it, with NOT_ALLOWED where sessions are not required.
    """

    FIELDS = fields(session_id=maybe(TEXT), token_seed=SEED)

    def __init__(self, session_id: str | None, token_seed: bytes) -> None:
        self.session_id = session_id
        self.token_seed = token_seed


@final
class RenewSession(AboutSessions):
    """Hold a session for the full lock duration from now. Answered by `Renewed`.

    Like the commands below it is refused with SESSION_LOCK_LOST when the token is not held.
    """

    FIELDS = fields(session=DATA)

    def __init__(self, session: bytes) -> None:
        self.session = session


@final
class ReleaseSession(AboutSessions):
    """Let a session go; its unsettled messages return uncounted. Answered by `Done`, always."""

    FIELDS = fields(session=DATA)

    def __init__(self, session: bytes) -> None:
        self.session = session


@final
class GetState(AboutSessions):
    """Answered by `SessionState`."""

    FIELDS = fields(session=DATA)

    def __init__(self, session: bytes) -> None:
        self.session = session


@final
class SetState(AboutSessions):
    """Replace the state of a held session; None clears it. Answered by `Done`.

    Refused with QUOTA_EXCEEDED when it is too large, or when there are too many states.
    """

    FIELDS = fields(session=DATA, state=maybe(DATA))

    def __init__(self, session: bytes, state: bytes | None) -> None:
        self.session = session
        self.state = state


@final
class AskHolds(AboutSessions):
    """Which of these sessions does somebody hold? Answered by `HoldsTold`."""

    FIELDS = fields(session_ids=list_of(TEXT))

    def __init__(self, session_ids: list[str]) -> None:
        self.session_ids = session_ids


SessionCommand = AcceptSession | RenewSession | ReleaseSession | GetState | SetState | AskHolds


@final
class SessionAccepted(Declared):
    """`token` names the hold in commands; like a lock token it tells its fragment."""

    FIELDS = fields(session_id=TEXT, token=DATA, locked_until_ms=NUMBER)

    def __init__(self, session_id: str, token: bytes, locked_until_ms: int) -> None:
        self.session_id = session_id
        self.token = token
        self.locked_until_ms = locked_until_ms


@final
class NoSession(Declared):
    """No session is free and has messages: `watch(SESSIONS, …)` tells when one is."""


@final
class SessionState(Declared):
    """`state` is read from the store by the runner before this is passed on."""

    FIELDS = fields(session_id=TEXT, state=maybe(DATA))

    def __init__(self, session_id: str, state: bytes | None = None) -> None:
        self.session_id = session_id
        self.state = state


@final
class Hold(Declared):
    """A session, as it was spelt in the question, that is held, and how many of its messages are
    locked.
    """

    FIELDS = fields(session_id=TEXT, locked_until_ms=NUMBER, locked=COUNT)

    def __init__(self, session_id: str, locked_until_ms: int, locked: int) -> None:
        self.session_id = session_id
        self.locked_until_ms = locked_until_ms
        self.locked = locked


@final
class HoldsTold(Declared):
    """Only those that are held."""

    FIELDS = fields(holds=list_of(record(Hold)))

    def __init__(self, holds: list[Hold]) -> None:
        self.holds = holds


SessionReply = SessionAccepted | NoSession | SessionState | HoldsTold
