"""Translates a client's settlement of a message to a command of the core."""
# Compiled by mypyc.

from __future__ import annotations

from typing import Final

from shardbus.amqp.outcomes import (
    Accepted,
    AmqpError,
    DeliveryState,
    Modified,
    Received,
    Rejected,
    Released,
)
from shardbus.codec.types import Array, Described, Map, Value, integer_of, text_of
from shardbus.codec.value import encode
from shardbus.core.errors import INVALID_ARGUMENT, NOT_IMPLEMENTED, Refused
from shardbus.core.limits import DELAY_MS_MAX, MODIFIED_BYTES_MAX, REASON_CHARACTERS_MAX
from shardbus.core.messages.command import ABANDON, COMPLETE, DEAD_LETTER, DEFER, RELEASE, Settle
from shardbus.core.properties import pack
from shardbus.message.seen import DESCRIPTION_KEY, REASON_KEY

DELAY_KEY: Final = "x-shardbus-delay-ms"
"""An extension: in the properties of an abandon, how long the message is not delivered again."""


def settle_command(state: DeliveryState | None, tokens: list[bytes]) -> Settle | None:
    """The command for an outcome; None for a state that settles nothing. Raises Refused."""
    if isinstance(state, Accepted):
        return Settle(COMPLETE, tokens)
    if isinstance(state, Released):
        return Settle(RELEASE, tokens)
    if isinstance(state, Rejected):
        return _dead_letter(state.error, tokens)
    if isinstance(state, Modified):
        # Python sets delivery-failed on both, so only undeliverable-here distinguishes defer from
        # abandon.
        how = DEFER if state.undeliverable_here else ABANDON
        return settle_with(how, tokens, state.message_annotations)
    if state is None or isinstance(state, Received):
        return None
    raise Refused(NOT_IMPLEMENTED, "The bus does not support this outcome of a delivery.")


def settle_with(
    how: int,
    tokens: list[bytes],
    properties: dict[Value, Value] | None,
    *,
    reason: str | None = None,
    description: str | None = None,
) -> Settle:
    """A settlement that changes application properties. Raises Refused for invalid ones."""
    named = _named(properties)
    delay_ms = _take_delay(how, named)
    return Settle(
        how,
        tokens,
        reason=reason,
        description=description,
        modified=_pack(named),
        delay_ms=delay_ms,
    )


def echo_of(state: DeliveryState | None) -> DeliveryState:
    """The confirmation of an outcome: the same kind; a rejection without error means success.

    The changed properties are not repeated: the client knows them, and they may be longer than its
    frames.
    """
    if isinstance(state, Modified):
        return Modified(state.delivery_failed, state.undeliverable_here)
    if isinstance(state, Accepted | Released):
        return state
    return Rejected(None)


def dead_letter_with(
    tokens: list[bytes], given: dict[Value, Value], description: str | None = None
) -> Settle:
    """A dead-lettering with reason and description among the given properties. Raises Refused.

    Both are texts of bounded length; a value of another type stays a property.
    """
    reason: str | None = None
    description = _bounded(description)
    others: dict[Value, Value] = {}
    for key, value in given.items():
        name, text = text_of(key), text_of(value)
        is_text = value is None or text is not None
        if name == REASON_KEY:
            reason = _bounded(text)
        elif name == DESCRIPTION_KEY:
            description = _bounded(text) or (description if is_text else None)
        if not is_text or name not in (REASON_KEY, DESCRIPTION_KEY):
            others[key] = value
    return settle_with(DEAD_LETTER, tokens, others, reason=reason, description=description)


def _bounded(text: str | None) -> str | None:
    """A text, truncated to the bound; None for None."""
    return text[:REASON_CHARACTERS_MAX] if text else None


def _dead_letter(error: AmqpError | None, tokens: list[bytes]) -> Settle:
    if error is None:
        return dead_letter_with(tokens, {})
    return dead_letter_with(tokens, error.info or {}, error.description)


def _named(properties: dict[Value, Value] | None) -> dict[str, Value]:
    named: dict[str, Value] = {}
    for key, value in (properties or {}).items():
        name = text_of(key)
        if name is None:
            raise Refused(INVALID_ARGUMENT, "The name of a property to modify must be a text.")
        inner = value.value if isinstance(value, Described) else value
        if isinstance(inner, list | dict | Array | Map):
            raise Refused(
                INVALID_ARGUMENT,
                f"The property '{name[:100]}' cannot be a list, map or array: application "
                "properties are simple values.",
            )
        named[name] = value
    return named


def _take_delay(how: int, named: dict[str, Value]) -> int:
    if DELAY_KEY not in named:
        return 0
    if how != ABANDON:
        raise Refused(INVALID_ARGUMENT, f"'{DELAY_KEY}' can be given only with an abandon.")
    delay_ms = integer_of(named.pop(DELAY_KEY))
    if delay_ms is None or not 0 <= delay_ms <= DELAY_MS_MAX:
        raise Refused(
            INVALID_ARGUMENT,
            f"'{DELAY_KEY}' must be a whole number of milliseconds from 0 to {DELAY_MS_MAX}.",
        )
    return delay_ms


def _pack(named: dict[str, Value]) -> bytes:
    """The changed application properties as the core stores them; b"" for none."""
    if not named:
        return b""
    encoded = {name: encode(value) for name, value in named.items()}
    size_bytes = sum(len(name.encode()) + len(value) for name, value in encoded.items())
    if size_bytes > MODIFIED_BYTES_MAX:
        raise Refused(
            INVALID_ARGUMENT,
            f"The properties to modify have {size_bytes} bytes; at most {MODIFIED_BYTES_MAX} "
            "are allowed.",
        )
    return pack(encoded)
