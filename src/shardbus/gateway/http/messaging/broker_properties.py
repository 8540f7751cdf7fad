"""BrokerProperties: the JSON header with the properties of a message over HTTP."""

from __future__ import annotations

import json
import re
from typing import Final, final

from shardbus.core.limits import KEY_CHARACTERS_MAX
from shardbus.core.message import NEVER_MS
from shardbus.core.message_fields import SENT_TEXTS, MessageField
from shardbus.core.namespace.tier import DAY_MS, INFINITE_MS
from shardbus.gateway.http.moment import parse_moment
from shardbus.gateway.http.server.refusal import invalid, shown

_TIME_SPAN: Final = re.compile(
    r"(?:(\d{1,8})\.)?(\d{1,2}):(\d{2}):(\d{2})(?:\.(\d{1,7}))?", re.ASCII
)
_NUMBER_DIGITS_MAX: Final = 400
_SESSION_ID: Final = "SessionId"


@final
class BrokerProperties:
    """What a sender set: texts by the names of their fields; -1 and NEVER_MS for nothing."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.scheduled_at_ms = NEVER_MS
        self.ttl_ms = -1


def parse_json(text: str | bytes, what: str) -> object:
    """A JSON value; Refused when it is invalid, or has numbers that JSON does not allow."""
    try:
        value: object = json.loads(text, parse_constant=_no_constant, parse_int=_integer)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise invalid(f"{what} is not JSON: {reason}.") from error
    return value


def read_broker_properties(value: object) -> BrokerProperties:
    """The properties in a JSON object; members that the bus does not know are ignored."""
    members = members_of(value, "BrokerProperties")
    read = BrokerProperties()
    for field in SENT_TEXTS:
        text = _said(members, field) if field.dialect else None
        if text is not None:
            read.texts[field.name] = text
    read.scheduled_at_ms = _moment(members, "ScheduledEnqueueTimeUtc")
    read.ttl_ms = _time_to_live(members)
    return read


def members_of(value: object, what: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise invalid(f"{what} is not a JSON object.")
    return value


def checked_text(text: str, what: str) -> str:
    """Text that can be encoded; JSON can contain half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise invalid(f"{what} has half of a surrogate pair, which is not a character.") from error
    return text


def _text(members: dict[str, object], name: str) -> str | None:
    value = members.get(name)
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise invalid(f"{name} in BrokerProperties must be a text.")
    return checked_text(value, f"{name} in BrokerProperties")


def _said(members: dict[str, object], field: MessageField) -> str | None:
    name = field.dialect
    if name == _SESSION_ID and members.get(name) == "":
        # The only one of them that may be empty: that is a session like any other.
        return ""
    text = _text(members, name)
    if text is not None and field.is_key and len(text) > KEY_CHARACTERS_MAX:
        raise invalid(
            f"{name} has {len(text)} characters; at most {KEY_CHARACTERS_MAX} are allowed."
        )
    return text


def _moment(members: dict[str, object], name: str) -> int:
    text = _text(members, name)
    if text is None:
        return NEVER_MS
    moment_ms = parse_moment(text.strip())
    if moment_ms is None:
        raise invalid(
            f"{name} is {shown(text)}; it must be a date such as 'Sun, 06 Nov 1994 08:49:37 GMT'."
        )
    return moment_ms


def _time_to_live(members: dict[str, object]) -> int:
    value = members.get("TimeToLive")
    span = _text(members, "TimeToLiveTimeSpan")
    if value is None:
        return -1 if span is None else _span_ms(span)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise invalid("TimeToLive in BrokerProperties must be a number of seconds.")
    if value <= 0:
        raise invalid("TimeToLive in BrokerProperties must be more than 0 seconds.")
    if value >= INFINITE_MS // 1000:
        return INFINITE_MS
    return max(1, round(value * 1000))


def _span_ms(text: str) -> int:
    match = _TIME_SPAN.fullmatch(text.strip())
    if match is None:
        raise invalid(f"TimeToLiveTimeSpan is {shown(text)}; it must look like 1.00:30:00.")
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups()[:4])
    fraction_ms = int((match.group(5) or "").ljust(3, "0")[:3])
    total_ms = days * DAY_MS + ((hours * 60 + minutes) * 60 + seconds) * 1000 + fraction_ms
    if total_ms <= 0:
        raise invalid("TimeToLiveTimeSpan must be more than 0.")
    return min(total_ms, INFINITE_MS)


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not a number of JSON")


def _integer(digits: str) -> int:
    if len(digits) > _NUMBER_DIGITS_MAX:
        raise ValueError("a number has too many digits")
    return int(digits)
