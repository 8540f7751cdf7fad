"""The frames between a gateway and a broker in another process; `codec` encodes them."""
# Compiled by mypyc.

from __future__ import annotations

from typing import Final, final

from shardbus.core.declared import (
    COUNT,
    DATA,
    FLAG,
    NUMBER,
    NUMBERS,
    SHORT,
    TEXT,
    Declared,
    fields,
    fixed,
    list_of,
    maybe,
    record,
    small,
    word,
)
from shardbus.core.errors import Refused, Unavailable
from shardbus.core.fragment.command import ClientCommand, Reply
from shardbus.core.message import LINE, SESSIONS, Entry
from shardbus.core.messages.command import NO_SESSION
from shardbus.stores.base.store import FragmentId, Page

PROTOCOL_VERSION: Final = 12
"""One higher than that of the last release, from the first change of a frame after it until the
next release: all changes between two releases belong to one version.
"""
PROTOCOL_VERSION_MIN: Final = 11
"""The oldest version that this build still speaks: that of the release before it."""
NONCE_BYTES: Final = 32
PROOF_BYTES: Final = 32

FRAGMENT_STATES: Final = ("available", "recovering", "unavailable")

_NONCE: Final = fixed(NONCE_BYTES)
_PROOF: Final = fixed(PROOF_BYTES)
_FRAGMENT: Final = record(FragmentId, fields(entity_id=NUMBER, number=SHORT))
_WATCHED: Final = small(SESSIONS, "line")
_PAGE: Final = record(Page, fields(is_end=FLAG, damaged=NUMBERS, entries=list_of(record(Entry))))


@final
class Versions:
    """The versions of the protocol that one side speaks: all from `oldest` to `latest`."""

    def __init__(self, oldest: int = PROTOCOL_VERSION_MIN, latest: int = PROTOCOL_VERSION) -> None:
        self.oldest = oldest
        self.latest = latest

    def chosen(self, latest: int) -> int:
        """The version in which to speak with somebody whose latest is given; 0: none."""
        version = min(self.latest, latest)
        return version if version >= self.oldest else 0

    def has(self, version: int) -> bool:
        return self.oldest <= version <= self.latest

    def __str__(self) -> str:
        if self.oldest == self.latest:
            return f"version {self.latest}"
        return f"versions {self.oldest} to {self.latest}"


@final
class Hello(Declared):
    """Broker to gateway, the first frame: prove that you know the secret.

    `version` is the latest that the broker speaks. The layouts of this frame, of Prove, Welcome and
    Reject are the same in all versions. `namespace_id` is that of the broker's store, empty if it
    does not belong to a namespace yet.
    """

    FIELDS = fields(version=SHORT, name=TEXT, nonce=_NONCE, namespace_id=TEXT)

    def __init__(self, version: int, name: str, nonce: bytes, namespace_id: str = "") -> None:
        self.version = version
        self.name = name
        self.nonce = nonce
        self.namespace_id = namespace_id


@final
class Prove(Declared):
    """Gateway to broker: the proof for the broker's nonce, and a nonce for the broker to prove.

    `version` is the one in which both speak from now on.
    """

    FIELDS = fields(version=SHORT, name=TEXT, nonce=_NONCE, proof=_PROOF)

    def __init__(self, version: int, name: str, nonce: bytes, proof: bytes) -> None:
        self.version = version
        self.name = name
        self.nonce = nonce
        self.proof = proof


@final
class Welcome(Declared):
    """Broker to gateway: the broker's own proof; from now on all other frames are allowed."""

    FIELDS = fields(proof=_PROOF)

    def __init__(self, proof: bytes) -> None:
        self.proof = proof


@final
class Reject(Declared):
    """Broker to gateway: why the connection is about to be closed."""

    FIELDS = fields(reason=TEXT)

    def __init__(self, reason: str) -> None:
        self.reason = reason


@final
class Beat(Declared):
    """In both directions, several times a second: still alive. `catalogue_version` is 0 without a
    catalogue.
    """

    FIELDS = fields(catalogue_version=NUMBER)

    def __init__(self, catalogue_version: int) -> None:
        self.catalogue_version = catalogue_version


@final
class Open(Declared):
    """Gateway to broker: run these fragments; `entity` is the entity's document."""

    FIELDS = fields(entity=TEXT, numbers=list_of(SHORT))

    def __init__(self, entity: str, numbers: list[int]) -> None:
        self.entity = entity
        self.numbers = numbers


@final
class Request:
    """Gateway to broker: apply a command. Answered by `Answered`."""

    def __init__(self, request_id: int, fragment: FragmentId, command: ClientCommand) -> None:
        self.request_id = request_id
        self.fragment = fragment
        self.command = command


@final
class Answered:
    """Broker to gateway: the result of a request.

    A `Received` may come in several frames, of which only the last has `is_last`; a failed
    `Browse`, `ListSessions` or `Ask` is answered by a `Refused` or `Unavailable` too.
    """

    def __init__(
        self, request_id: int, answer: Reply | Refused | Unavailable, is_last: bool = True
    ) -> None:
        self.request_id = request_id
        self.answer = answer
        self.is_last = is_last


@final
class Browse(Declared):
    """Gateway to broker: read messages without changing them. Answered by `Browsed`."""

    FIELDS = fields(
        request_id=NUMBER,
        fragment=_FRAGMENT,
        line=LINE,
        start=NUMBER,
        count_max=COUNT,
        bytes_max=COUNT,
        session_id=maybe(TEXT),
    )

    def __init__(  # noqa: PLR0913 - a record, what is asked for by keyword
        self,
        request_id: int,
        fragment: FragmentId,
        line: int,
        *,
        start: int,
        count_max: int,
        bytes_max: int,
        session_id: str | None = None,
    ) -> None:
        self.request_id = request_id
        self.fragment = fragment
        self.line = line
        self.start = start
        self.count_max = count_max
        self.bytes_max = bytes_max
        self.session_id = session_id


@final
class Browsed(Declared):
    FIELDS = fields(request_id=NUMBER, page=_PAGE)

    def __init__(self, request_id: int, page: Page) -> None:
        self.request_id = request_id
        self.page = page


@final
class ListSessions(Declared):
    """Gateway to broker: ids of sessions, as a store lists them. Answered by `Listed`."""

    FIELDS = fields(
        request_id=NUMBER, fragment=_FRAGMENT, updated_after_ms=NUMBER, skip=NUMBER, count_max=COUNT
    )

    def __init__(
        self,
        request_id: int,
        fragment: FragmentId,
        *,
        updated_after_ms: int,
        skip: int,
        count_max: int,
    ) -> None:
        self.request_id = request_id
        self.fragment = fragment
        self.updated_after_ms = updated_after_ms
        self.skip = skip
        self.count_max = count_max


@final
class Listed(Declared):
    FIELDS = fields(request_id=NUMBER, session_ids=list_of(TEXT))

    def __init__(self, request_id: int, session_ids: list[str]) -> None:
        self.request_id = request_id
        self.session_ids = session_ids


class AboutLine(Declared):
    """A line of a fragment, or SESSIONS; with the token of a held session, that session."""

    FIELDS = fields(fragment=_FRAGMENT, line=_WATCHED, session=DATA)

    def __init__(self, fragment: FragmentId, line: int, session: bytes = NO_SESSION) -> None:
        self.fragment = fragment
        self.line = line
        self.session = session


@final
class Watch(AboutLine):
    """Gateway to broker: send `Woken`, once, as soon as this line has messages to receive.

    The loss of a held session wakes too.
    """


@final
class Unwatch(AboutLine):
    """Gateway to broker: do not send `Woken`."""


@final
class Woken(AboutLine):
    """Broker to gateway: this line has messages, or the session is lost."""


@final
class State(Declared):
    """Broker to gateway: the state of a fragment has changed to another of FRAGMENT_STATES."""

    FIELDS = fields(fragment=_FRAGMENT, state=word(FRAGMENT_STATES, "state"), reason=TEXT)

    def __init__(self, fragment: FragmentId, state: str, reason: str) -> None:
        self.fragment = fragment
        self.state = state
        self.reason = reason


class OfDocument(Declared):
    """A request or its answer, as a JSON document."""

    FIELDS = fields(request_id=NUMBER, document=TEXT)

    def __init__(self, request_id: int, document: str) -> None:
        self.request_id = request_id
        self.document = document


@final
class Ask(OfDocument):
    """Gateway to broker: one of the rare operations. Answered by `Told`."""


@final
class Told(OfDocument):
    """Broker to gateway: the answer to an `Ask`."""


@final
class Fence(Declared):
    """Broker to gateway, after the broker was stopped: which requests did you give up?"""

    FIELDS = fields(number=NUMBER)

    def __init__(self, number: int) -> None:
        self.number = number


@final
class Fenced(Declared):
    """Gateway to broker: all requests up to this one were answered or given up."""

    FIELDS = fields(number=NUMBER, given_up_through=NUMBER)

    def __init__(self, number: int, given_up_through: int) -> None:
        self.number = number
        self.given_up_through = given_up_through


Frame = (
    Hello
    | Prove
    | Welcome
    | Reject
    | Beat
    | Open
    | Request
    | Answered
    | Browse
    | Browsed
    | ListSessions
    | Listed
    | Watch
    | Unwatch
    | Woken
    | State
    | Ask
    | Told
    | Fence
    | Fenced
)
