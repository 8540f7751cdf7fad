"""The transition tables of connection, session and link: the specification of what may follow what.

A state and an input give the next state. An input that a table lacks is an error: of the peer if it
was received (`amqp:illegal-state`), of our owner if it was sent.
"""

from typing import Final, TypeAlias

from shardbus.codec.errors import ILLEGAL_STATE, UsageError, WireError

Table: TypeAlias = dict[tuple[int, int], int]

# Inputs. Received inputs are odd, sent ones even.
SEND_SASL_HEADER: Final = 0
RECEIVE_SASL_HEADER: Final = 1
SEND_MECHANISMS: Final = 2
RECEIVE_MECHANISMS: Final = 3
SEND_INIT: Final = 4
RECEIVE_INIT: Final = 5
SEND_OUTCOME: Final = 6
RECEIVE_OUTCOME: Final = 7
SEND_AMQP_HEADER: Final = 8
RECEIVE_AMQP_HEADER: Final = 9
SEND_OPEN: Final = 10
RECEIVE_OPEN: Final = 11
SEND_CLOSE: Final = 12
RECEIVE_CLOSE: Final = 13
SEND_BEGIN: Final = 14
RECEIVE_BEGIN: Final = 15
SEND_END: Final = 16
RECEIVE_END: Final = 17
SEND_ATTACH: Final = 18
RECEIVE_ATTACH: Final = 19
SEND_DETACH: Final = 20
RECEIVE_DETACH: Final = 21

_INPUT_NAMES: Final = (
    "SASL header",
    "sasl-mechanisms",
    "sasl-init",
    "sasl-outcome",
    "AMQP header",
    "open",
    "close",
    "begin",
    "end",
    "attach",
    "detach",
)

# Connection. In HEADER_WAIT and the SASL states no AMQP frame can be sent or understood.
HEADER_WAIT: Final = 0
SASL_HEADER_SENT: Final = 1
SASL_HEADER_RECEIVED: Final = 2
MECHANISMS_WAIT: Final = 3
MECHANISMS_RECEIVED: Final = 4
INIT_WAIT: Final = 5
INIT_RECEIVED: Final = 6
OUTCOME_WAIT: Final = 7
SASL_DONE: Final = 8
AMQP_HEADER_SENT: Final = 9
AMQP_HEADER_RECEIVED: Final = 10
HEADERS_DONE: Final = 11
OPEN_PIPELINED: Final = 12
OPEN_SENT: Final = 13
OPEN_RECEIVED: Final = 14
OPENED: Final = 15
CLOSE_SENT: Final = 16
CLOSE_RECEIVED: Final = 17
CLOSED: Final = 18

SERVER_CONNECTION: Final[Table] = {
    (HEADER_WAIT, RECEIVE_SASL_HEADER): SASL_HEADER_RECEIVED,
    (SASL_HEADER_RECEIVED, SEND_SASL_HEADER): MECHANISMS_WAIT,
    (MECHANISMS_WAIT, SEND_MECHANISMS): INIT_WAIT,
    (INIT_WAIT, RECEIVE_INIT): INIT_RECEIVED,
    (INIT_RECEIVED, SEND_OUTCOME): SASL_DONE,
    (SASL_DONE, RECEIVE_AMQP_HEADER): AMQP_HEADER_RECEIVED,
    (HEADER_WAIT, RECEIVE_AMQP_HEADER): AMQP_HEADER_RECEIVED,
    (AMQP_HEADER_RECEIVED, SEND_AMQP_HEADER): HEADERS_DONE,
    (HEADERS_DONE, RECEIVE_OPEN): OPEN_RECEIVED,
    (HEADERS_DONE, SEND_OPEN): OPEN_SENT,
    (OPEN_SENT, RECEIVE_OPEN): OPENED,
    (OPEN_RECEIVED, SEND_OPEN): OPENED,
    (OPENED, SEND_CLOSE): CLOSE_SENT,
    (OPENED, RECEIVE_CLOSE): CLOSE_RECEIVED,
    (OPEN_SENT, SEND_CLOSE): CLOSE_SENT,
    (CLOSE_RECEIVED, SEND_CLOSE): CLOSED,
    (CLOSE_SENT, RECEIVE_CLOSE): CLOSED,
}

CLIENT_CONNECTION: Final[Table] = {
    (HEADER_WAIT, SEND_SASL_HEADER): SASL_HEADER_SENT,
    (SASL_HEADER_SENT, RECEIVE_SASL_HEADER): MECHANISMS_WAIT,
    (MECHANISMS_WAIT, RECEIVE_MECHANISMS): MECHANISMS_RECEIVED,
    (MECHANISMS_RECEIVED, SEND_INIT): OUTCOME_WAIT,
    (OUTCOME_WAIT, RECEIVE_OUTCOME): SASL_DONE,
    (SASL_DONE, SEND_AMQP_HEADER): AMQP_HEADER_SENT,
    (HEADER_WAIT, SEND_AMQP_HEADER): AMQP_HEADER_SENT,
    (AMQP_HEADER_SENT, SEND_OPEN): OPEN_PIPELINED,
    (OPEN_PIPELINED, RECEIVE_AMQP_HEADER): OPEN_SENT,
    (OPEN_SENT, RECEIVE_OPEN): OPENED,
    (OPENED, SEND_CLOSE): CLOSE_SENT,
    (OPENED, RECEIVE_CLOSE): CLOSE_RECEIVED,
    (OPEN_SENT, SEND_CLOSE): CLOSE_SENT,
    (CLOSE_RECEIVED, SEND_CLOSE): CLOSED,
    (CLOSE_SENT, RECEIVE_CLOSE): CLOSED,
}

# Session. ENDING_EARLY: we ended before the peer answered our begin.
UNMAPPED: Final = 0
BEGIN_SENT: Final = 1
BEGIN_RECEIVED: Final = 2
MAPPED: Final = 3
END_SENT: Final = 4
END_RECEIVED: Final = 5
ENDING_EARLY: Final = 6
ENDED: Final = 7

SESSION: Final[Table] = {
    (UNMAPPED, SEND_BEGIN): BEGIN_SENT,
    (UNMAPPED, RECEIVE_BEGIN): BEGIN_RECEIVED,
    (BEGIN_RECEIVED, SEND_BEGIN): MAPPED,
    (BEGIN_SENT, RECEIVE_BEGIN): MAPPED,
    (BEGIN_SENT, SEND_END): ENDING_EARLY,
    (ENDING_EARLY, RECEIVE_BEGIN): END_SENT,
    (MAPPED, SEND_END): END_SENT,
    (MAPPED, RECEIVE_END): END_RECEIVED,
    (END_SENT, RECEIVE_END): ENDED,
    (END_RECEIVED, SEND_END): ENDED,
}

# Link. DETACHING_EARLY: we detached before the peer answered our attach. LEFT_EARLY: the peer
# detached before we answered its attach; we must still answer it before our own detach.
UNATTACHED: Final = 0
ATTACH_SENT: Final = 1
ATTACH_RECEIVED: Final = 2
ATTACHED: Final = 3
DETACH_SENT: Final = 4
DETACH_RECEIVED: Final = 5
DETACHING_EARLY: Final = 6
LEFT_EARLY: Final = 7
DETACHED: Final = 8

LINK: Final[Table] = {
    (UNATTACHED, SEND_ATTACH): ATTACH_SENT,
    (UNATTACHED, RECEIVE_ATTACH): ATTACH_RECEIVED,
    (ATTACH_RECEIVED, SEND_ATTACH): ATTACHED,
    (ATTACH_SENT, RECEIVE_ATTACH): ATTACHED,
    (ATTACH_SENT, SEND_DETACH): DETACHING_EARLY,
    (DETACHING_EARLY, RECEIVE_ATTACH): DETACH_SENT,
    (ATTACH_RECEIVED, RECEIVE_DETACH): LEFT_EARLY,
    (LEFT_EARLY, SEND_ATTACH): DETACH_RECEIVED,
    (ATTACHED, SEND_DETACH): DETACH_SENT,
    (ATTACHED, RECEIVE_DETACH): DETACH_RECEIVED,
    (DETACH_SENT, RECEIVE_DETACH): DETACHED,
    (DETACH_RECEIVED, SEND_DETACH): DETACHED,
}


def advance(table: Table, state: int, cause: int) -> int:
    """The state after `cause`. Raises WireError for the peer's mistakes, UsageError for ours."""
    following = table.get((state, cause))
    if following is None:
        name = _INPUT_NAMES[cause >> 1]
        if cause & 1 == 1:
            raise WireError(ILLEGAL_STATE, f"{name} was not expected in this state")
        raise UsageError(f"{name} must not be sent in this state")
    return following
