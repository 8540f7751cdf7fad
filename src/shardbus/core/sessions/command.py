"""The commands about sessions, and their replies."""

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
    """Hold the named session, or, with None, any free session that has active messages.

    Answered by `SessionAccepted`, or by `NoSession` when None was given and no session is free. A
    named session need not have messages. Refused with SESSION_CANNOT_BE_LOCKED while another client
    holds it, and with NOT_ALLOWED where sessions are not required.
    """

    FIELDS = fields(session_id=maybe(TEXT), token_seed=SEED)

    def __init__(self, session_id: str | None, token_seed: bytes) -> None:
        self.session_id = session_id
        self.token_seed = token_seed


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
    """No free session has messages: `watch(SESSIONS, …)` reports when one has."""


@final
class SessionState(Declared):
    """The runner reads `state` from the store before it passes the reply on."""

    FIELDS = fields(session_id=TEXT, state=maybe(DATA))

    def __init__(self, session_id: str, state: bytes | None = None) -> None:
        self.session_id = session_id
        self.state = state


@final
class Hold(Declared):
    """A held session, in the spelling of the question, and how many of its messages are locked."""

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
