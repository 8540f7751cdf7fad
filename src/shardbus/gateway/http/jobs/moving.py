"""Sends messages again, here or elsewhere, each in the transaction that removes it."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Final, final

from msgspec import UNSET

from shardbus.broker.bus import EntityHandle
from shardbus.broker.operations.transactions import Transactor
from shardbus.core.errors import TOO_LARGE, Refused
from shardbus.core.message import Message
from shardbus.core.message_fields import SENT_TEXTS
from shardbus.core.messages.command import COMPLETE, Delivery, Settle
from shardbus.core.transactions.command import Work
from shardbus.gateway.http.api.message_document import (
    message_document,
)
from shardbus.gateway.http.api.message_draft import read_draft
from shardbus.gateway.http.api.messages_schemas import NewMessage
from shardbus.gateway.http.api.resubmission import message_again, part_of
from shardbus.gateway.http.document import converted
from shardbus.gateway.http.jobs.job import Edit
from shardbus.gateway.http.messaging.sent import encode_draft
from shardbus.gateway.http.server.refusal import invalid, shown

_TRANSACTION_ID_BYTES: Final = 16
_FIELDS: Final = frozenset(each.member for each in SENT_TEXTS)
_SENT: Final = _FIELDS | {"time_to_live_ms", "properties", "body", "body_base64", "body_type"}


@final
class Mover:
    """Moves locked messages of one entity to another, or to itself.

    Messages that stay in their fragment are moved in one commit of it, others in a transaction over
    fragments.
    """

    def __init__(
        self,
        source: EntityHandle,
        target: EntityHandle,
        transactor: Transactor,
        edit: Edit | None,
        now_ms: int,
    ) -> None:
        self._source = source
        self._target = target
        self._transactor = transactor
        self._edit = edit
        self._now_ms = now_ms
        keys = {"session_id", "partition_key"}
        is_moved = edit is not None and bool(keys & set(edit.fields))
        # A topic's fragments have the numbers of its subscriptions', and keys do not change.
        self._is_in_place = not is_moved and source.entity.topic_name() == target.entity.name

    def message(self, delivery: Delivery) -> Message | None:
        """The message to send; None when it cannot be read. Refused when the edit is not possible
        for it.
        """
        message = message_again(delivery, self._target)
        return message if message is None or self._edit is None else self._edited(delivery)

    async def move(self, deliveries: Sequence[Delivery], messages: Sequence[Message]) -> None:
        """Move messages of one fragment, all of them or, with a failure, none."""
        source = self._source.router
        index = source.index_of_token(deliveries[0].token)
        settlement = Settle(COMPLETE, [delivery.token for delivery in deliveries])
        works: dict[int, list[Message]] = {}
        for message in messages:
            works.setdefault(self._target_index(index, message), []).append(message)
        if self._target is self._source and list(works) == [index]:
            parts = [part_of(self._source, index, Work(works[index], [settlement]))]
        elif self._target is self._source:
            own = Work(works.pop(index, []), [settlement])
            parts = [part_of(self._source, index, own)]
            parts += [part_of(self._source, each, Work(some, [])) for each, some in works.items()]
        else:
            parts = [part_of(self._target, each, Work(some, [])) for each, some in works.items()]
            parts.append(part_of(self._source, index, Work([], [settlement])))
        await self._transactor.commit(secrets.token_bytes(_TRANSACTION_ID_BYTES), parts)

    def _target_index(self, index: int, message: Message) -> int:
        router = self._target.router
        if self._is_in_place:
            return router.numbers.index(self._source.router.numbers[index])
        key = router.key_of(message)
        return router.next_index() if key is None else router.index_of_key(key)

    def _edited(self, delivery: Delivery) -> Message:
        """The message with the changes of the edit, encoded again."""
        edit = self._edit
        assert edit is not None
        shown_one = message_document(
            delivery.entry, delivery.payload or b"", delivery_count=delivery.delivery_count
        )
        said = converted_message(shown_one)
        properties = dict(said.properties or {}) if said.properties is not UNSET else {}
        if edit.properties is not UNSET:
            properties.update(edit.properties.set)
            for name in edit.properties.remove:
                properties.pop(name, None)
        said.properties = properties
        if edit.body is not UNSET:
            said.body, said.body_base64, said.body_type = edit.body, UNSET, UNSET
        for name, text in edit.fields.items():
            setattr(said, name, UNSET if text is None else text)
        message = encode_draft(read_draft(said), self._now_ms)
        spec = self._target.entity.spec
        if len(message.payload) > spec.message_bytes_max():
            raise Refused(
                TOO_LARGE,
                f"Message {delivery.entry.sequence_number} has {len(message.payload)} bytes after "
                f"the change; at most {spec.message_bytes_max()} are allowed.",
            )
        if spec.requires_duplicate_detection:
            message.message_id = None
        return message


def check_edit(edit: Edit) -> None:
    """Refused when an edit sets what messages do not have."""
    for name in edit.fields:
        if name not in _FIELDS:
            known = ", ".join(sorted(_FIELDS))
            raise invalid(f"fields of the edit has {shown(name)}; it may have: {known}.")
    # Values are read as those of a message that is sent.
    values = {name: text for name, text in edit.fields.items() if text is not None}
    properties = edit.properties.set if edit.properties is not UNSET else {}
    read_draft(converted({**values, "properties": properties}, NewMessage, "the edit"))


def converted_message(message: object) -> NewMessage:
    """A message to send, from the document in which it was shown."""
    return converted(_members(message), NewMessage, "the message")


def _members(message: object) -> dict[str, object]:
    names: Sequence[str] = getattr(message, "__struct_fields__", ())
    found = {name: getattr(message, name) for name in names}
    return {name: value for name, value in found.items() if value is not UNSET and name in _SENT}
