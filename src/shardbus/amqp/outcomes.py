"""How deliveries end: the error, the outcomes and the delivery states of AMQP and transactions."""

from typing import TypeAlias, final

from shardbus.amqp.types import Described, Value


@final
class AmqpError:
    """A condition (symbol), a text for people and a map for programs; always sent as 3 fields."""

    __match_args__ = ("condition", "description")

    def __init__(
        self, condition: str, description: str = "", info: dict[Value, Value] | None = None
    ) -> None:
        self.condition = condition
        self.description = description
        self.info = info

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, AmqpError)
            and self.condition == other.condition
            and self.description == other.description
            and self.info == other.info
        )

    def __hash__(self) -> int:
        return hash((self.condition, self.description))

    def __repr__(self) -> str:
        return f"AmqpError({self.condition!r}, {self.description!r}, {self.info!r})"


class State:
    """A delivery state; subclasses are equal when their encodings are."""


@final
class Accepted(State):
    """The delivery is done."""


@final
class Released(State):
    """The delivery was not looked at and may go to anybody, as if never sent."""


@final
class Rejected(State):
    """The delivery cannot be used; `error` may say why."""

    def __init__(self, error: AmqpError | None = None) -> None:
        self.error = error


@final
class Modified(State):
    """The delivery goes back, changed."""

    def __init__(
        self,
        delivery_failed: bool = False,
        undeliverable_here: bool = False,
        message_annotations: dict[Value, Value] | None = None,
    ) -> None:
        self.delivery_failed = delivery_failed
        self.undeliverable_here = undeliverable_here
        self.message_annotations = message_annotations


@final
class Received(State):
    """How far into the payload the receiver got; never final."""

    def __init__(self, section_number: int, section_offset: int) -> None:
        self.section_number = section_number
        self.section_offset = section_offset


@final
class Declared(State):
    """A transaction was declared under this id."""

    def __init__(self, transaction_id: bytes) -> None:
        self.transaction_id = transaction_id


@final
class TransactionalState(State):
    """The delivery, or its outcome, belongs to a transaction."""

    def __init__(self, transaction_id: bytes, outcome: "DeliveryState | None" = None) -> None:
        self.transaction_id = transaction_id
        self.outcome = outcome


DeliveryState: TypeAlias = State | Described

ACCEPTED = Accepted()
RELEASED = Released()


def encode_error(error: AmqpError | None) -> bytes:
    """The error with all three fields, or null."""
    raise NotImplementedError


def encode_state(state: DeliveryState | None) -> bytes:
    """The described state, or null."""
    raise NotImplementedError


def decode_state(raw: bytes) -> DeliveryState | None:
    """The state in `raw`, a `Described` when it is a foreign one. Raises DecodeError."""
    raise NotImplementedError
