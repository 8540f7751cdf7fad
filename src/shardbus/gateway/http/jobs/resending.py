"""Sends messages again, here or elsewhere, each in the transaction that removes it."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, final

from msgspec import UNSET

from shardbus.broker.bus import EntityHandle
from shardbus.broker.operations.transactions import Transactor
from shardbus.codec import codes
from shardbus.codec.encoder import encode, encode_binary, encode_symbol, encode_text
from shardbus.core.errors import Refused
from shardbus.core.message import Message
from shardbus.core.message_fields import ANNOTATIONS, SENT_TEXTS, SYMBOL
from shardbus.core.messages.command import COMPLETE, Delivery, Settle
from shardbus.core.transactions.command import Work
from shardbus.gateway.http.api.messages.documents import NewMessage
from shardbus.gateway.http.api.messages.resubmission import message_again, part_of
from shardbus.gateway.http.api.messages.sending import read_draft
from shardbus.gateway.http.api.messages.values import read_properties
from shardbus.gateway.http.api.places import SendPlace
from shardbus.gateway.http.document import converted
from shardbus.gateway.http.jobs.job import Edit
from shardbus.gateway.http.jobs.repairing import Repair, Unrepairable, is_repair
from shardbus.gateway.http.jobs.undo_marks import marked
from shardbus.gateway.http.server.refusal import invalid, shown
from shardbus.message.revision import Revision, revise
from shardbus.message.sections import scan_message

_TRANSACTION_ID_BYTES: Final = 16
_FIELDS: Final = {each.member: each for each in SENT_TEXTS}
_DATA: Final = bytes([codes.DESCRIBED, codes.SMALLULONG, codes.DATA])


@final
class Resender:
    """Moves locked messages of one entity to another, or to itself.

    Messages that stay in their fragment are moved in one commit of it, others in a transaction over
    fragments.
    """

    def __init__(
        self,
        source: EntityHandle,
        place: SendPlace,
        transactor: Transactor,
        edit: Edit | None,
        mark: str = "",
    ) -> None:
        self._source = source
        self._mark = mark
        self._place = place
        self._target = target = place.handle
        self._transactor = transactor
        self._edit = edit
        keys = {"session_id", "partition_key"}
        self._repair = Repair(edit) if edit is not None and is_repair(edit) else None
        is_moved = edit is not None and bool(keys & set(edit.fields))
        is_moved = is_moved or (self._repair is not None and self._repair.sets_keys)
        # The fragments of a topic and of its subscriptions have the same numbers, and keys do not
        # change.
        self._is_in_place = not is_moved and source.entity.topic_name() == target.entity.name

    def message(self, delivery: Delivery) -> Message | None:
        """The message to send; None when it cannot be read. Refused when the edit is not possible
        for it; Unrepairable if only this message cannot be changed.
        """
        message = message_again(delivery, self._target, self._change(delivery))
        bytes_max = self._target.entity.spec.message_bytes_max()
        if message is not None and len(message.payload) > bytes_max:
            raise Unrepairable(
                f"it would have {len(message.payload)} bytes; "
                f"'{self._target.entity.name}' allows at most {bytes_max}"
            )
        if message is not None and self._mark:
            made = marked(message.payload, self._mark, delivery.entry)
            # A message of the maximum size has no room for the mark, and cannot be undone.
            message.payload = made if len(made) <= bytes_max else message.payload
        if message is not None:
            try:
                self._place.address(message)
            except Refused as refusal:
                raise Unrepairable(refusal.message) from refusal
        return message

    def _change(self, delivery: Delivery) -> Callable[[bytes], bytes] | None:
        repair, edit = self._repair, self._edit
        if repair is not None:
            # An action also sees what the bus has added to the message.
            return lambda _: repair.mended(delivery.entry, delivery.payload or b"")[0]
        return None if edit is None else partial(edited, edit=edit)

    async def move(self, deliveries: Sequence[Delivery], messages: Sequence[Message]) -> None:
        """Move messages of one fragment: all of them or, on failure, none."""
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
        if self._is_in_place and index >= self._source.router.former_count:
            return router.numbers.index(self._source.router.numbers[index])
        key = router.key_of(message)
        return router.next_index() if key is None else router.index_of_key(key)


def check_edit(edit: Edit) -> None:
    """Refused if an edit sets a field that messages do not have."""
    for name in edit.fields:
        if name not in _FIELDS:
            known = ", ".join(sorted(_FIELDS))
            raise invalid(f"fields of the edit has {shown(name)}; it may have: {known}.")
    # Values are read as those of a message that is sent.
    values = {name: text for name, text in edit.fields.items() if text is not None}
    properties = edit.properties.set if edit.properties is not UNSET else {}
    read_draft(converted({**values, "properties": properties}, NewMessage, "the edit"))


def edited(payload: bytes, edit: Edit) -> bytes:
    """The message with these changes; everything else stays as its sender encoded it."""
    made = Revision()
    for name, text in edit.fields.items():
        # Only a session id may be empty: the empty id is valid.
        said = text if text or name == "session_id" else None
        field = _FIELDS[name]
        if field.section == ANNOTATIONS:
            made.annotations[field.key] = encode_text(said)
        else:
            encoded = encode_symbol(said) if field.form == SYMBOL else encode_text(said)
            made.properties[field.place] = encoded
    if edit.properties is not UNSET:
        given = read_properties(edit.properties.set)
        made.application = {name: encode(value) for name, value in given.items()}
        made.application |= dict.fromkeys(edit.properties.remove, b"")
    revised = revise(payload, scan_message(payload), made)
    if edit.body is UNSET:
        return revised
    head = scan_message(revised)
    body = _DATA + encode_binary(edit.body.encode())
    rest = head.body_offset + head.body_length if head.body_length else len(revised)
    return revised[: rest - head.body_length] + body + revised[rest:]
