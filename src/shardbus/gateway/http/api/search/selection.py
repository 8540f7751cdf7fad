"""Selects messages by a condition, a text, a state, a reason, an age or a group."""

from __future__ import annotations

import hashlib
import re
from typing import Annotated, Final, Literal, final

from msgspec import UNSET, Meta

from shardbus.codec.errors import DecodeError
from shardbus.core import message_fields
from shardbus.core.limits import KEY_CHARACTERS_MAX
from shardbus.core.message import ACTIVE, DEFERRED, DELAYED, NEVER_MS, SCHEDULED, Entry
from shardbus.core.sessions.key import session_key
from shardbus.gateway.http.document import Body, Maybe, Text, told
from shardbus.gateway.http.moment import parse_moment
from shardbus.gateway.http.server.refusal import invalid, shown
from shardbus.message.revision import Revision, revise
from shardbus.message.rule_view import RuleView, entry_value
from shardbus.message.scan import scan_message
from shardbus.message.seen import overlay_of
from shardbus.rules.arithmetic import TRUE
from shardbus.rules.errors import EvaluationError
from shardbus.rules.filter import SqlFilter
from shardbus.rules.limits import EXPRESSION_CHARACTERS_MAX
from shardbus.rules.scope import SEED_BYTES, NewIds, Scope
from shardbus.rules.values import Property, Value

NUMBERS_MAX: Final = 10_000
TEXT_CHARACTERS_MAX: Final = 1_000
GROUP_CHARACTERS: Final = 16

STATES: Final = {"active": ACTIVE, "deferred": DEFERRED, "scheduled": SCHEDULED, "delayed": DELAYED}

# The parts that differ between dead letters of one cause: numbers, ids, quoted texts, moments.
_QUOTED: Final = re.compile(r"'[^']{0,300}'|\"[^\"]{0,300}\"")
_ID: Final = re.compile(
    r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b|\b(?=\w*\d)[0-9a-f]{12,}\b",
    re.IGNORECASE,
)
_NUMBER: Final = re.compile(r"\d+(?:[.,:T-]\d+)*")
_MASKED_CHARACTERS_MAX: Final = 300


class SelectionMembers(Body, kw_only=True, frozen=True):
    """The members that select messages; each narrows the selection."""

    where: Annotated[
        Maybe[Annotated[str, Meta(min_length=1, max_length=EXPRESSION_CHARACTERS_MAX)]],
        told("A condition in the language of rules."),
    ] = UNSET
    text: Annotated[
        Maybe[Annotated[str, Meta(min_length=1, max_length=TEXT_CHARACTERS_MAX)]],
        told("A text in the body, the properties or the reason; case does not matter."),
    ] = UNSET
    states: Annotated[
        Maybe[list[Literal["active", "deferred", "scheduled", "delayed"]]],
        told("Only messages in one of these states."),
    ] = UNSET
    session_id: Maybe[Annotated[str, Meta(max_length=KEY_CHARACTERS_MAX)]] = UNSET
    reason: Annotated[Maybe[Text], told("Only dead letters with exactly this reason.")] = UNSET
    group: Annotated[Maybe[Text], told("Only dead letters of the group with this key.")] = UNSET
    enqueued_after: Annotated[Maybe[Text], told("A moment.")] = UNSET
    enqueued_before: Annotated[Maybe[Text], told("A moment.")] = UNSET


@final
class Condition:
    """A parsed selection. Messages on which `where` fails do not match, and are counted."""

    def __init__(self, members: SelectionMembers) -> None:
        """Refused when the condition cannot be parsed."""
        self._filter = None if members.where is UNSET else SqlFilter(members.where)
        self._text = "" if members.text is UNSET else members.text.casefold()
        self._states = (
            None if members.states is UNSET else {STATES[word] for word in members.states}
        )
        self._session = None if members.session_id is UNSET else session_key(members.session_id)
        self._reason = None if members.reason is UNSET else members.reason
        self._group = None if members.group is UNSET else members.group
        self._after_ms = _moment_ms(members.enqueued_after, "enqueued_after")
        self._before_ms = _moment_ms(members.enqueued_before, "enqueued_before")
        self.errors = 0
        self.first_error = ""

    def matches(self, entry: Entry) -> bool:
        if self._states is not None and entry.state not in self._states:
            return False
        if self._reason is not None and entry.reason != self._reason:
            return False
        if not self._is_in_time(entry) or not self._is_of_session(entry):
            return False
        if self._text and not _contains(entry, self._text):
            return False
        if self._group is not None and group_of(entry).key != self._group:
            return False
        return self._filter is None or self._holds(self._filter, entry)

    def _is_in_time(self, entry: Entry) -> bool:
        is_after = self._after_ms == NEVER_MS or entry.enqueued_at_ms > self._after_ms
        return is_after and (self._before_ms == NEVER_MS or entry.enqueued_at_ms < self._before_ms)

    def _is_of_session(self, entry: Entry) -> bool:
        if self._session is None:
            return True
        session_id = entry.session_id
        if session_id is None:
            try:
                session_id = scan_message(entry.payload or b"").session_id
            except DecodeError:
                return False
        return session_id is not None and session_key(session_id) == self._session

    def _holds(self, condition: SqlFilter, entry: Entry) -> bool:
        try:
            scope = Scope(StoredMessage(entry), NewIds(bytes(SEED_BYTES)))
            return condition.check.truth(scope) == TRUE
        except (EvaluationError, ValueError, DecodeError) as error:
            self.errors += 1
            self.first_error = self.first_error or f"message {entry.sequence_number}: {error}"
            return False


@final
class StoredMessage:
    """A stored message as rules see it, with the properties that the bus has set. A
    `RuleMessage`.

    Raises ValueError for a payload that cannot be read.
    """

    def __init__(self, entry: Entry, payload: bytes | None = None) -> None:
        """`payload` is that of a message whose entry has none."""
        self._entry = entry
        self._payload = entry.payload or b"" if payload is None else payload
        self._view = RuleView(seen_payload(entry, self._payload))

    def system(self, number: int) -> Value:
        entry = self._entry
        if number < message_fields.DELIVERY_COUNT or number > message_fields.DEAD_LETTER_SOURCE:
            return self._view.system(number)
        if number == message_fields.DELIVERY_COUNT:
            return entry.delivery_count
        if number == message_fields.STATE:
            return entry.state if entry.state in (DEFERRED, SCHEDULED) else ACTIVE
        if number == message_fields.DEAD_LETTER_SOURCE:
            return scan_message(self._payload).deadletter_source
        return entry_value(entry, number)

    def properties(self) -> dict[str, Property]:
        return self._view.properties()


@final
class Group:
    """Dead letters that probably have one cause."""

    def __init__(self, reason: str, description: str, source: str) -> None:
        self.reason = reason
        self.description = description
        self.source = source
        text = "\0".join((reason, description, source))
        self.key = hashlib.sha256(text.encode(errors="replace")).hexdigest()[:GROUP_CHARACTERS]


def group_of(entry: Entry) -> Group:
    """The group of a dead letter: its reason, its description without variable parts, its
    source.
    """
    try:
        source = scan_message(entry.payload or b"").deadletter_source or ""
    except DecodeError:
        source = ""
    return Group(entry.reason or "", masked(entry.description or ""), source)


def masked(description: str) -> str:
    """A description in which ids, numbers and quoted texts are replaced by marks."""
    text = description[: 4 * _MASKED_CHARACTERS_MAX]
    text = _QUOTED.sub("<text>", text)
    text = _ID.sub("<id>", text)
    return _NUMBER.sub("<n>", text)[:_MASKED_CHARACTERS_MAX]


def seen_payload(entry: Entry, given: bytes | None = None) -> bytes:
    """The message as receivers get it, with the properties that the bus has set. ValueError when
    it cannot be read.
    """
    payload = entry.payload or b"" if given is None else given
    overlay = overlay_of(entry)
    if overlay is None:
        return payload
    made = Revision()
    made.application = overlay
    return revise(payload, scan_message(payload), made)


def _contains(entry: Entry, text: str) -> bool:
    said = (entry.payload or b"").decode(errors="replace")
    beside = f"{entry.reason or ''} {entry.description or ''} "
    changed = entry.modified.decode(errors="replace") if entry.modified else ""
    return text in (beside + said + changed).casefold()


def _moment_ms(text: object, name: str) -> int:
    if not isinstance(text, str):
        return NEVER_MS
    moment_ms = parse_moment(text)
    if moment_ms is None:
        raise invalid(f"{name} is {shown(text)}; it must be a moment like 2026-01-02T03:04:05Z.")
    return moment_ms
