"""How deliveries end: the error, the outcomes and the delivery states of AMQP and transactions."""

from typing import Final, TypeAlias, final

from mypy_extensions import i64

from shardbus.codec import codes
from shardbus.codec.decoder import ValueReader
from shardbus.codec.encoder import (
    NULL,
    compound,
    encode,
    encode_binary,
    encode_bool,
    encode_fields,
    encode_symbol,
    encode_text,
    encode_uint,
    encode_ulong,
)
from shardbus.codec.errors import DecodeError
from shardbus.codec.types import Described, Value

# The maximum size of a frame around an error's description: that of a disposition.
_AROUND_DESCRIPTION: Final = 160


@final
class AmqpError:
    """A condition (symbol), a text for people and a map for programs; always sent as 3 fields."""

    __match_args__: Final = ("condition", "description")

    def __init__(
        self, condition: str, description: str = "", info: dict[Value, Value] | None = None
    ) -> None:
        self.condition = condition
        self.description = description
        self.info = info

    def within(self, frame_size_max: int) -> "AmqpError":
        """This error with its description truncated to fit in a frame of that size."""
        room = frame_size_max - _AROUND_DESCRIPTION
        if 4 * len(self.description) <= room:
            return self
        encoded = self.description.encode()
        if len(encoded) <= room:
            return self
        return AmqpError(self.condition, encoded[:room].decode(errors="ignore"), self.info)

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
    """A delivery state; two states are equal when their encodings are."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, State) and encode_state(self) == encode_state(other)

    def __hash__(self) -> int:
        return hash(encode_state(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({encode_state(self).hex()})"


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

ACCEPTED: Final = Accepted()
RELEASED: Final = Released()


# The encodings of accepted from peers that add nothing: by far the most frequent states.
_ACCEPTED_EMPTY: Final = b"\x00\x53\x24\x45"
_ACCEPTED_NARROW: Final = b"\x00\x53\x24\xc0\x01\x00"
_RELEASED_EMPTY: Final = b"\x00\x53\x26\x45"


def encode_error(error: AmqpError | None) -> bytes:
    """The error with all three fields, or null."""
    if error is None:
        return NULL
    # Not `encode_fields`: the Python SDK indexes the third field, so it is written even if null.
    fields = [encode_symbol(error.condition), encode_text(error.description), encode(error.info)]
    return b"\x00\x53\x1d" + compound(codes.LIST8, fields)


def decode_error(raw: bytes | None) -> AmqpError | None:
    """The error in `raw`, None for none. Raises DecodeError."""
    if raw is None:
        return None
    reader = ValueReader(raw, 0, len(raw))
    if reader.enter_described_list() != codes.ERROR:
        raise DecodeError("an error was expected")
    condition = reader.text_field()
    description = reader.text_field()
    info = reader.value_field()
    reader.leave_list()
    return AmqpError(
        "" if condition is None else condition,
        "" if description is None else description,
        info if isinstance(info, dict) else None,
    )


def encode_state(state: DeliveryState | None) -> bytes:
    """The described state, or null."""
    if state is None:
        return NULL
    if isinstance(state, Accepted):
        return _ACCEPTED_EMPTY
    if isinstance(state, Released):
        return _RELEASED_EMPTY
    if isinstance(state, Described):
        return encode(state)
    return encode_fields(_descriptor(state), _fields(state))


def decode_state(raw: bytes | None) -> DeliveryState | None:
    """The state in `raw`, a `Described` for an unknown one. Raises DecodeError."""
    if raw is None:
        return None
    if raw in (_ACCEPTED_EMPTY, _ACCEPTED_NARROW):
        return ACCEPTED
    return _decode_state(raw, False)


def _decode_state(raw: bytes, is_inside_transaction: bool) -> DeliveryState:
    reader = ValueReader(raw, 0, len(raw))
    if reader.u8() != codes.DESCRIBED:
        raise DecodeError("a delivery state is not a described list")
    code: i64 = reader.descriptor_code()
    if not codes.RECEIVED <= code <= codes.MODIFIED and code < codes.DECLARED:
        return _foreign(raw)
    if code > codes.TRANSACTIONAL_STATE:
        return _foreign(raw)
    # A transaction inside a transaction would let a peer nest states without end.
    if is_inside_transaction and code == codes.TRANSACTIONAL_STATE:
        raise DecodeError("a transactional state is inside another")
    reader.enter_list()
    state = _outcome(code, reader)
    reader.leave_list()
    return state


def _outcome(code: i64, reader: ValueReader) -> State:
    if code == codes.ACCEPTED:
        return ACCEPTED
    if code == codes.RELEASED:
        return RELEASED
    if code == codes.REJECTED:
        return Rejected(decode_error(reader.raw_field()))
    if code == codes.MODIFIED:
        return _modified(reader)
    if code == codes.RECEIVED:
        return Received(reader.uint_field(0), reader.ulong_field(0))
    transaction_id = reader.binary_field()
    if transaction_id is None:
        raise DecodeError("a transactional state has no transaction id")
    if code == codes.DECLARED:
        return Declared(transaction_id)
    return _transactional(transaction_id, reader)


def _modified(reader: ValueReader) -> State:
    delivery_failed = reader.bool_field(False)
    undeliverable_here = reader.bool_field(False)
    annotations = reader.value_field()
    if annotations is not None and not isinstance(annotations, dict):
        raise DecodeError("the annotations are not a map")
    return Modified(delivery_failed, undeliverable_here, annotations)


def _transactional(transaction_id: bytes, reader: ValueReader) -> State:
    raw = reader.raw_field()
    outcome = None if raw is None else _decode_state(raw, True)
    return TransactionalState(transaction_id, outcome)


def _foreign(raw: bytes) -> DeliveryState:
    value = ValueReader(raw, 0, len(raw)).value()
    assert isinstance(value, Described)
    return value


def _descriptor(state: State) -> int:
    if isinstance(state, Rejected):
        return codes.REJECTED
    if isinstance(state, Modified):
        return codes.MODIFIED
    if isinstance(state, Received):
        return codes.RECEIVED
    return codes.DECLARED if isinstance(state, Declared) else codes.TRANSACTIONAL_STATE


def _fields(state: State) -> list[bytes]:
    if isinstance(state, Rejected):
        return [encode_error(state.error)]
    if isinstance(state, Modified):
        annotations = encode(state.message_annotations)
        return [
            encode_bool(state.delivery_failed),
            encode_bool(state.undeliverable_here),
            annotations,
        ]
    if isinstance(state, Received):
        return [encode_uint(state.section_number), encode_ulong(state.section_offset)]
    if isinstance(state, Declared):
        return [encode_binary(state.transaction_id)]
    assert isinstance(state, TransactionalState)
    return [encode_binary(state.transaction_id), encode_state(state.outcome)]
