"""What a gateway and a broker in another process say to each other; `wire` puts it into bytes."""

from __future__ import annotations

from typing import Final, final

from shardbus.core.command import (
    NO_SESSION,
    AcceptSession,
    AskTickets,
    Cancel,
    GetState,
    Purge,
    ReaderCommand,
    Receive,
    ReceiveDeferred,
    ReleaseSession,
    Renew,
    RenewSession,
    Reply,
    Send,
    SetState,
    Settle,
    StageCommand,
)
from shardbus.core.errors import Refused, Unavailable
from shardbus.core.transactions import TransactionCommand
from shardbus.core.transfers import TransferCommand
from shardbus.stores.base import FragmentId, Page

PROTOCOL_VERSION: Final = 10

FRAGMENT_STATES: Final = ("available", "recovering", "unavailable")

ClientCommand = (
    Send
    | Receive
    | Settle
    | Renew
    | Purge
    | ReceiveDeferred
    | Cancel
    | AcceptSession
    | RenewSession
    | ReleaseSession
    | GetState
    | SetState
    | TransactionCommand
    | TransferCommand
    | AskTickets
    | ReaderCommand
    | StageCommand
)
"""The commands that come from gateways; the others are a broker's own."""


@final
class Hello:
    """Broker to gateway, first of all: prove that you know the secret.

    `namespace_id` is that of the broker's store, empty if that belongs to no namespace yet.
    """

    def __init__(self, version: int, name: str, nonce: bytes, namespace_id: str = "") -> None:
        self.version = version
        self.name = name
        self.nonce = nonce
        self.namespace_id = namespace_id


@final
class Prove:
    """Gateway to broker: the proof for the broker's nonce, and a nonce for the broker to prove."""

    def __init__(self, version: int, name: str, nonce: bytes, proof: bytes) -> None:
        self.version = version
        self.name = name
        self.nonce = nonce
        self.proof = proof


@final
class Welcome:
    """Broker to gateway: the broker's own proof; from now on everything else may be said."""

    def __init__(self, proof: bytes) -> None:
        self.proof = proof


@final
class Reject:
    """Broker to gateway: why the connection is about to be closed."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


@final
class Beat:
    """Either way, several times a second: still here. `catalogue_version` is 0 without one."""

    def __init__(self, catalogue_version: int) -> None:
        self.catalogue_version = catalogue_version


@final
class Open:
    """Gateway to broker: run these fragments; `entity` is the entity's document."""

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
    """Broker to gateway: what became of a request.

    A `Received` may come in several frames, of which only the last says `is_last`; a failed
    `Browse`, `ListSessions` or `Ask` is answered by a `Refused` or `Unavailable` too.
    """

    def __init__(
        self, request_id: int, answer: Reply | Refused | Unavailable, is_last: bool = True
    ) -> None:
        self.request_id = request_id
        self.answer = answer
        self.is_last = is_last


@final
class Browse:
    """Gateway to broker: read messages without touching them. Answered by `Browsed`."""

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
class Browsed:
    def __init__(self, request_id: int, page: Page) -> None:
        self.request_id = request_id
        self.page = page


@final
class ListSessions:
    """Gateway to broker: ids of sessions, as a store lists them. Answered by `Listed`."""

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
class Listed:
    def __init__(self, request_id: int, session_ids: list[str]) -> None:
        self.request_id = request_id
        self.session_ids = session_ids


@final
class Watch:
    """Gateway to broker: say `Woken`, once, as soon as this line has messages to receive.

    The line may be SESSIONS; with the token of a held session it is about that session, and its
    loss wakes too.
    """

    def __init__(self, fragment: FragmentId, line: int, session: bytes = NO_SESSION) -> None:
        self.fragment = fragment
        self.line = line
        self.session = session


@final
class Unwatch:
    def __init__(self, fragment: FragmentId, line: int, session: bytes = NO_SESSION) -> None:
        self.fragment = fragment
        self.line = line
        self.session = session


@final
class Woken:
    def __init__(self, fragment: FragmentId, line: int, session: bytes = NO_SESSION) -> None:
        self.fragment = fragment
        self.line = line
        self.session = session


@final
class State:
    """Broker to gateway: a fragment is now in another of FRAGMENT_STATES."""

    def __init__(self, fragment: FragmentId, state: str, reason: str) -> None:
        self.fragment = fragment
        self.state = state
        self.reason = reason


@final
class Ask:
    """Gateway to broker: one of the rare operations, as a JSON document. Answered by `Told`."""

    def __init__(self, request_id: int, document: str) -> None:
        self.request_id = request_id
        self.document = document


@final
class Told:
    def __init__(self, request_id: int, document: str) -> None:
        self.request_id = request_id
        self.document = document


@final
class Fence:
    """Broker to gateway, after the broker stood still: which requests did you give up?"""

    def __init__(self, number: int) -> None:
        self.number = number


@final
class Fenced:
    """Gateway to broker: all requests up to this one were answered or given up."""

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
