"""Sends over the JSON API: independent messages, or a batch."""

from __future__ import annotations

import asyncio
from typing import Final, final

from msgspec import UNSET

from shardbus.broker.fragment.answers import Answer
from shardbus.broker.operations.asking import failure_of
from shardbus.codec import codes
from shardbus.codec.encoder import encode
from shardbus.core.errors import TOO_LARGE, Refused, Unavailable, kind_of, text_of
from shardbus.core.message import NEVER_MS, Message
from shardbus.core.message_fields import SENT_TEXTS, SYMBOL
from shardbus.core.messages.command import Sent
from shardbus.core.namespace.entity import Entity
from shardbus.gateway.http.api.call import Call
from shardbus.gateway.http.api.messages.documents import (
    BODY_CHARACTERS_MAX,
    FailedMessage,
    NewMessage,
    NewMessages,
    SentMessages,
)
from shardbus.gateway.http.api.messages.values import read_base64, read_properties, read_value
from shardbus.gateway.http.api.places import EntityPlaces
from shardbus.gateway.http.messaging.broker_properties import BrokerProperties
from shardbus.gateway.http.messaging.sent import SentDraft, checked_ascii, encode_draft
from shardbus.gateway.http.moment import parse_moment
from shardbus.gateway.http.server import counts as count_of
from shardbus.gateway.http.server.refusal import invalid, shown

STORE_MS_MAX: Final = 60_000
_SECTIONS: Final = {"value": codes.AMQP_VALUE, "sequence": codes.AMQP_SEQUENCE}


@final
class Sending:
    """Answers requests to send."""

    def __init__(self, places: EntityPlaces) -> None:
        self._places = places

    async def send(self, call: Call[NewMessages]) -> SentMessages:
        """All messages are read before any is sent; then each fragment stores its share or refuses
        it.

        The refusal itself is the answer only when nothing was stored. With `all_or_none` all
        fragments store their shares, or none does.
        """
        handle = self._places.sendable(call.name)
        now_ms = self._places.bus.clock.now_ms()
        messages = [encode_draft(read_draft(said), now_ms) for said in call.body.messages]
        for position, message in enumerate(messages):
            _check_size(position, message, handle.entity)
        self._places.pay(len(messages))
        outcomes = _Outcomes(len(messages))
        if call.body.all_or_none:
            every = list(range(len(messages)))
            handle.router.send_batch(
                messages, lambda answer: outcomes.sent(every, answer), keeps_reply=True
            )
        else:
            handle.router.send_each(messages, outcomes, keeps_replies=True)
        await outcomes.wait()
        self._places.count(handle, count_of.SENT, outcomes.stored_count)
        return outcomes.document()


@final
class _Outcomes:
    """A router.SendSink: the result of each message."""

    def __init__(self, count: int) -> None:
        self.stored_count = 0
        self._duplicate_count = 0
        self._numbers: list[int | None] = [None] * count
        self._failures: dict[int, Refused | Unavailable] = {}
        self._untold = set(range(count))
        self._all_told: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def sent(self, positions: list[int], answer: Answer) -> None:
        self._untold.difference_update(positions)
        if isinstance(answer, Refused | Unavailable):
            self._failures |= dict.fromkeys(positions, answer)
        else:
            assert isinstance(answer, Sent)
            for position, number in zip(positions, answer.numbers(), strict=True):
                self._numbers[position] = number or None
            self._duplicate_count += len(answer.duplicates)
            self.stored_count += answer.count
        if not self._untold and not self._all_told.done():
            self._all_told.set_result(None)

    async def wait(self) -> None:
        """Wait until all results are known, at most for the given time."""
        try:
            async with asyncio.timeout(STORE_MS_MAX / 1000):
                await self._all_told
        except TimeoutError:
            late = Unavailable(f"The bus did not answer within {STORE_MS_MAX} ms.", is_unknown=True)
            self._failures |= dict.fromkeys(self._untold, late)

    def document(self) -> SentMessages:
        if self._failures and not self.stored_count and not self._duplicate_count:
            failures = [self._failures[position] for position in sorted(self._failures)]
            raise failure_of(failures) or failures[0]
        return SentMessages(
            sent=self.stored_count,
            duplicates=self._duplicate_count,
            sequence_numbers=self._numbers,
            failures=[
                _failure(position, self._failures[position]) for position in sorted(self._failures)
            ],
        )


def _failure(position: int, failure: Refused | Unavailable) -> FailedMessage:
    return FailedMessage(
        position=position,
        code=kind_of(failure).name,
        message=text_of(failure),
        is_unknown=isinstance(failure, Unavailable) and failure.is_unknown,
    )


def _check_size(position: int, message: Message, entity: Entity) -> None:
    size_bytes, size_bytes_max = len(message.payload), entity.spec.message_bytes_max()
    if size_bytes > size_bytes_max:
        raise Refused(
            TOO_LARGE,
            f"messages[{position}] has {size_bytes} bytes; '{entity.name}' allows at most "
            f"{size_bytes_max}.",
        )


def read_draft(message: NewMessage) -> SentDraft:
    """The message that a document describes; Refused for an invalid one."""
    draft = SentDraft(_data(message), _broker_properties(message), {})
    draft.user = read_properties(message.properties or {})
    draft.section = _section(message, draft.body)
    return draft


def _broker_properties(message: NewMessage) -> BrokerProperties:
    said = BrokerProperties()
    for field in SENT_TEXTS:
        text = message.text(field)
        if field.form == SYMBOL:
            checked_ascii(text or "", field.member)
        # Only a session id may be empty: the empty id is valid.
        if text or (text is not None and field.name == "session_id"):
            said.texts[field.name] = text
    if message.time_to_live_ms is not UNSET:
        said.ttl_ms = message.time_to_live_ms
    if message.scheduled_at is not UNSET:
        said.scheduled_at_ms = _moment(message.scheduled_at, "scheduled_at")
    return said


def _moment(text: str, name: str) -> int:
    moment_ms = parse_moment(text)
    if moment_ms is None or moment_ms <= NEVER_MS:
        raise invalid(f"{name} is {shown(text)}; it must be a moment like 2026-01-02T03:04:05Z.")
    return moment_ms


def _data(message: NewMessage) -> bytes:
    body = message.body
    if message.body_base64 is not UNSET:
        if body is not UNSET:
            raise invalid("A message must have body or body_base64, not both.")
        return read_base64(message.body_base64, "body_base64")
    if _kind(message) != "data" or body is UNSET:
        return b""
    if not isinstance(body, str) or len(body) > BODY_CHARACTERS_MAX:
        raise invalid(
            f"body must be a text of at most {BODY_CHARACTERS_MAX} characters; other JSON "
            "needs the body_type value or sequence."
        )
    return body.encode()


def _section(message: NewMessage, data: bytes) -> bytes:
    """The encoded body of a message whose body is not data; b"" for data."""
    kind = _kind(message)
    if kind == "data":
        return b""
    said = None if message.body is UNSET else message.body
    body = read_value(said) if message.body_base64 is UNSET else data
    if kind == "sequence" and not isinstance(body, list):
        raise invalid("The body of a message with the body_type sequence must be a list.")
    return bytes([codes.DESCRIBED, codes.SMALLULONG, _SECTIONS[kind]]) + encode(body)


def _kind(message: NewMessage) -> str:
    return "data" if message.body_type is UNSET else message.body_type
