"""Changes messages by an action of the rule language, and by values at paths of a JSON body.

An edit leaves everything else as it was sent: other sections, types, and the rest of a JSON body
byte by byte, except for spaces in the objects that enclose a changed value.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from typing import Final, final

import msgspec
from msgspec import UNSET, Raw

from shardbus.codec import codes
from shardbus.codec.encoder import encode
from shardbus.codec.errors import DecodeError
from shardbus.core import message_fields
from shardbus.core.message import Entry
from shardbus.core.properties import unpack
from shardbus.gateway.http.api.messages.message import modified_payload
from shardbus.gateway.http.api.search.rule_trial import ValueChange, value_changes
from shardbus.gateway.http.api.search.selection import StoredMessage
from shardbus.gateway.http.document import Json
from shardbus.gateway.http.jobs.body_action import BodyAction
from shardbus.gateway.http.jobs.job import Edit
from shardbus.gateway.http.server.refusal import invalid, shown
from shardbus.message.revision import Revision, revise
from shardbus.message.rule_view import pack_changes, rewrite
from shardbus.message.sections import decode_message, scan_message
from shardbus.rules.action import Changes, SqlAction
from shardbus.rules.errors import EvaluationError
from shardbus.rules.scope import SEED_BYTES, NewIds, Scope
from shardbus.rules.tree import SetField, SystemField

STEPS_MAX: Final = 32
EXCERPT_CHARACTERS: Final = 2_000
_STEP: Final = re.compile(r"\.?([^.\[\]'\"]+)|\['([^']*)'\]|\[\"([^\"]*)\"\]|\[([0-9]{1,9})\]")
_KEYS: Final = frozenset({message_fields.SESSION_ID, message_fields.PARTITION_KEY})

Steps = Sequence[str | int]


@final
class Unrepairable(Exception):
    """The message cannot be changed as requested; the text is the reason."""


@final
class Repair:
    """The parsed changes of an edit. Refused when they cannot be parsed."""

    def __init__(self, edit: Edit) -> None:
        self._action = None if edit.action is UNSET else SqlAction(edit.action)
        self._values = [(read_path(path), _written(value)) for path, value in edit.body_set.items()]
        self._body = None if edit.body_action is UNSET else BodyAction(edit.body_action)

    @property
    def sets_keys(self) -> bool:
        """Whether the edit may move a message to another fragment."""
        statements = [] if self._action is None else self._action.statements
        return any(
            isinstance(each, SetField)
            and isinstance(each.field, SystemField)
            and each.field.property.number in _KEYS
            for each in statements
        )

    def mended(self, entry: Entry, payload: bytes) -> tuple[bytes, list[ValueChange]]:
        """The message as it is to be sent, and what was changed. Raises Unrepairable."""
        try:
            made, changes = modified_payload(entry, payload), list[ValueChange]()
            if self._action is not None:
                message = StoredMessage(entry, payload)
                scope = Scope(message, NewIds(secrets.token_bytes(SEED_BYTES)))
                found = self._action.run(scope)
                changes = value_changes(message, found)
                made = _with_properties(made, found)
            if self._values or self._body is not None:
                made, change = self._with_body(entry, payload, made)
                changes.append(change)
        except EvaluationError as error:
            raise Unrepairable(error.message) from error
        except DecodeError as error:
            raise Unrepairable(f"The message cannot be read: {error.description}.") from error
        except ValueError as error:
            raise Unrepairable(str(error)) from error
        return made, changes

    def _with_body(self, entry: Entry, sent: bytes, payload: bytes) -> tuple[bytes, ValueChange]:
        message = decode_message(payload)
        head, body = message.head, message.body
        if head.body_kind != codes.DATA or not isinstance(body, bytes):
            raise Unrepairable("The body is not a data section, so it has no JSON.")
        made = body
        try:
            # The whole body is parsed, because values beside the path are not checked otherwise.
            msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Unrepairable(f"The body is not JSON: {error}.") from error
        for steps, value in self._values:
            made = with_value(made, steps, value)
        if self._body is not None:
            new_ids = NewIds(secrets.token_bytes(SEED_BYTES))
            made = self._body.changed(made, StoredMessage(entry, sent), new_ids)
        section = bytes([codes.DESCRIBED, codes.SMALLULONG, codes.DATA]) + encode(made)
        end = head.body_offset + head.body_length
        whole = payload[: head.body_offset] + section + payload[end:]
        return whole, ValueChange(name="body", before=_excerpt(body), after=_excerpt(made))


def read_path(path: str) -> Steps:
    """The steps of `$.customer.id`, `lines[0].sku` or `$['a b']`; Refused for anything else."""
    rest = path.removeprefix("$")
    steps: list[str | int] = []
    at = 0
    while at < len(rest):
        found = _STEP.match(rest, at)
        if found is None:
            raise _no_path(path)
        name, single, double, index = found.groups()
        steps.append(int(index) if index is not None else name or single or double or "")
        at = found.end()
    if not steps or len(steps) > STEPS_MAX:
        raise _no_path(path)
    return steps


def with_value(document: bytes, steps: Steps, value: bytes, at: int = 0) -> bytes:
    """The JSON document with a new value at a path; missing objects are created.

    Raises Unrepairable if the document has something else on the way.
    """
    if at == len(steps):
        return value
    step = steps[at]
    try:
        if isinstance(step, int):
            items = msgspec.json.decode(document, type=list[Raw])
            items[step] = Raw(with_value(bytes(items[step]), steps, value, at + 1))
            return msgspec.json.encode(items)
        members = msgspec.json.decode(document, type=dict[str, Raw])
    except (msgspec.ValidationError, IndexError) as error:
        kind = f"list with an item {step}" if isinstance(step, int) else "object"
        raise Unrepairable(f"The body has no {kind} at {_path_text(steps[:at])}.") from error
    inner = members.get(step)
    made = with_value(b"{}" if inner is None else bytes(inner), steps, value, at + 1)
    return msgspec.json.encode({**members, step: Raw(made)})


def _with_properties(payload: bytes, changes: Changes) -> bytes:
    made = Revision()
    made.application = unpack(pack_changes(payload, changes))
    return rewrite(revise(payload, scan_message(payload), made), changes)


def _written(value: Json) -> bytes:
    return msgspec.json.encode(value)


def _path_text(steps: Steps) -> str:
    return "$" + "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in steps)


def _no_path(path: str) -> Exception:
    return invalid(
        f"{shown(path)} is not a path to a value of a JSON body: write one like $.customer.id, "
        f"$.lines[0].sku or $['a b'], with at most {STEPS_MAX} steps."
    )


def _excerpt(body: bytes) -> str:
    text = body.decode(errors="replace")
    return text if len(text) <= EXCERPT_CHARACTERS else text[:EXCERPT_CHARACTERS] + "…"


def check_repair(edit: Edit) -> None:
    """Refused when the changes cannot be parsed, or are mixed with those of another kind."""
    if not is_repair(edit):
        return
    if edit.body is not UNSET or edit.properties is not UNSET or edit.fields:
        raise invalid(
            "action, body_set and body_action cannot be combined with body, properties or fields: "
            "SET and REMOVE in the action change properties and fields."
        )
    Repair(edit)


def is_repair(edit: Edit | None) -> bool:
    if edit is None:
        return False
    has_actions = edit.action is not UNSET or edit.body_action is not UNSET
    return has_actions or bool(edit.body_set)
