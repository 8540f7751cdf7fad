"""Every error that a client can get, with its AMQP condition and HTTP status."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import mypyc_attr


@final
class ErrorKind:
    """One row of the error catalogue: one failure in the terms of each protocol."""

    def __init__(self, name: str, condition: str, status: int, subcode: int) -> None:
        self.name = name
        self.condition = condition
        self.status = status
        self.subcode = subcode


NOT_FOUND: Final = ErrorKind("not-found", "amqp:not-found", 404, 40400)
ALREADY_EXISTS: Final = ErrorKind(
    "already-exists", "com.microsoft:entity-already-exists", 409, 40900
)
NOT_ALLOWED: Final = ErrorKind("not-allowed", "amqp:not-allowed", 400, 40000)
INVALID_ARGUMENT: Final = ErrorKind("invalid-argument", "com.microsoft:argument-error", 400, 40000)
UNAUTHORIZED: Final = ErrorKind("unauthorized", "amqp:unauthorized-access", 401, 40100)
QUOTA_EXCEEDED: Final = ErrorKind("quota-exceeded", "amqp:resource-limit-exceeded", 403, 40300)
TOO_LARGE: Final = ErrorKind("too-large", "amqp:link:message-size-exceeded", 413, 40300)
MESSAGE_LOCK_LOST: Final = ErrorKind(
    "message-lock-lost", "com.microsoft:message-lock-lost", 410, 41000
)
MESSAGE_NOT_FOUND: Final = ErrorKind(
    "message-not-found", "com.microsoft:message-not-found", 404, 40400
)
SESSION_LOCK_LOST: Final = ErrorKind(
    "session-lock-lost", "com.microsoft:session-lock-lost", 410, 41000
)
SESSION_CANNOT_BE_LOCKED: Final = ErrorKind(
    "session-cannot-be-locked", "com.microsoft:session-cannot-be-locked", 410, 41000
)
SESSION_NOT_FOUND: Final = ErrorKind(
    "session-not-found", "com.microsoft:session-not-found", 404, 40400
)
ENTITY_DISABLED: Final = ErrorKind("entity-disabled", "com.microsoft:entity-disabled", 400, 40000)
NOT_IMPLEMENTED: Final = ErrorKind("not-implemented", "amqp:not-implemented", 501, 50100)
TIMEOUT: Final = ErrorKind("timeout", "com.microsoft:timeout", 408, 40800)
# Only for what was certainly not done: the client may repeat it.
SERVER_BUSY: Final = ErrorKind("server-busy", "com.microsoft:server-busy", 503, 50004)
# For what may or may not have been done. HTTP's 408 would be wrong: clients repeat after a 408.
OUTCOME_UNKNOWN: Final = ErrorKind("outcome-unknown", "com.microsoft:timeout", 504, 50400)
TRANSACTION_UNKNOWN: Final = ErrorKind(
    "transaction-unknown", "amqp:transaction:unknown-id", 404, 40400
)
TRANSACTION_TIMEOUT: Final = ErrorKind(
    "transaction-timeout", "amqp:transaction:timeout", 408, 40800
)
TRANSACTION_ROLLBACK: Final = ErrorKind(
    "transaction-rollback", "amqp:transaction:rollback", 409, 40900
)
READER_NOT_FOUND: Final = ErrorKind("reader-not-found", "shardbus:reader-not-found", 404, 40400)
READER_IN_USE: Final = ErrorKind("reader-in-use", "shardbus:reader-in-use", 409, 40900)
READER_LOST: Final = ErrorKind("reader-lost", "shardbus:reader-lost", 410, 41000)
CLAIM_COMPLETED: Final = ErrorKind("claim-completed", "shardbus:claim-completed", 410, 41000)
CLAIM_LOST: Final = ErrorKind("claim-lost", "shardbus:claim-lost", 410, 41000)
STAGE_LOST: Final = ErrorKind("stage-lost", "shardbus:stage-lost", 410, 41000)
ALREADY_PUBLISHED: Final = ErrorKind("already-published", "shardbus:already-published", 409, 40900)
BEING_PUBLISHED: Final = ErrorKind("being-published", "shardbus:being-published", 503, 50300)
BATCH_DIFFERS: Final = ErrorKind("batch-differs", "shardbus:batch-differs", 409, 40900)
RECORDS_DROPPED: Final = ErrorKind("records-dropped", "shardbus:records-dropped", 410, 41000)
# Of a fragment that accepts no more messages. Clients learn that the server is busy.
REPARTITIONING: Final = ErrorKind("repartitioning", "com.microsoft:server-busy", 503, 50004)

ALL_KINDS: Final = (
    NOT_FOUND,
    ALREADY_EXISTS,
    NOT_ALLOWED,
    INVALID_ARGUMENT,
    UNAUTHORIZED,
    QUOTA_EXCEEDED,
    TOO_LARGE,
    MESSAGE_LOCK_LOST,
    MESSAGE_NOT_FOUND,
    SESSION_LOCK_LOST,
    SESSION_CANNOT_BE_LOCKED,
    SESSION_NOT_FOUND,
    ENTITY_DISABLED,
    NOT_IMPLEMENTED,
    TIMEOUT,
    SERVER_BUSY,
    OUTCOME_UNKNOWN,
    TRANSACTION_UNKNOWN,
    TRANSACTION_TIMEOUT,
    TRANSACTION_ROLLBACK,
    READER_NOT_FOUND,
    READER_IN_USE,
    READER_LOST,
    CLAIM_COMPLETED,
    CLAIM_LOST,
    STAGE_LOST,
    ALREADY_PUBLISHED,
    BATCH_DIFFERS,
    BEING_PUBLISHED,
    RECORDS_DROPPED,
    REPARTITIONING,
)


@mypyc_attr(allow_interpreted_subclasses=True)
class Refused(Exception):
    """The client broke a rule and nothing has changed. Repeating the request does not help."""

    def __init__(self, kind: ErrorKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


@final
class RefusedAt(Refused):
    """A refusal about a node: its text names the path, and the host where it is known.

    Clients look for `sb://host/path` with the host that they connected to. Only the gateway that
    answers them knows that host.
    """

    def __init__(self, kind: ErrorKind, before: str, path: str, after: str) -> None:
        super().__init__(kind, f"{before} '{path}'{after}")
        self._before = before
        self._path = path
        self._after = after

    def text_at(self, host: str) -> str:
        return f"{self._before} 'sb://{host}/{self._path}'{self._after}"


class Unavailable(Exception):
    """Something is unreachable; the client may try again.

    Nothing has changed, unless `is_unknown`: then the request may have been done, and repeating it
    may do it twice.
    """

    def __init__(self, message: str, is_unknown: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.is_unknown = is_unknown


# Said of what was certainly not done by a broker that does not serve a slot at this moment.
NOT_SERVED_TEXT: Final = "The slot moves to another broker, or its broker waits for the database."
UNKNOWN_TEXT: Final = "The request may or may not have been done: check before you repeat it."


def kind_of(failure: Refused | Unavailable) -> ErrorKind:
    """The row of the error catalogue that a failure belongs to."""
    if isinstance(failure, Refused):
        return failure.kind
    return OUTCOME_UNKNOWN if failure.is_unknown else SERVER_BUSY


def not_found(path: str) -> Refused:
    """The refusal whose exact wording the JavaScript and Java SDKs recognise."""
    return RefusedAt(NOT_FOUND, "The messaging entity", path, " could not be found.")


def text_of(failure: Refused | Unavailable, host: str = "") -> str:
    """The text that a client gets. It says so when the outcome is unknown.

    `host` is the name by which the client addresses this server.
    """
    if isinstance(failure, RefusedAt) and host:
        return failure.text_at(host)
    if isinstance(failure, Unavailable) and failure.is_unknown:
        return f"{failure.message.rstrip(' .')}. {UNKNOWN_TEXT}"
    return failure.message
