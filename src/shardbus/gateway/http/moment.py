"""Durations and moments in the formats of the dialect: ISO 8601, and RFC 1123 where HTTP requires
it.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Final

from shardbus.core.errors import INVALID_ARGUMENT, Refused
from shardbus.core.namespace.tier import DAY_MS, INFINITE_MS

INFINITE: Final = "P10675199DT2H48M5.4775807S"
NEVER: Final = "0001-01-01T00:00:00Z"

_MONTHS: Final = (
    "Jan",
    "Feb",
    "Mar",
    "Apr",
    "May",
    "Jun",
    "Jul",
    "Aug",
    "Sep",
    "Oct",
    "Nov",
    "Dec",
)
_HTTP_DATE: Final = re.compile(
    r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), (\d{2}) ([A-Z][a-z]{2}) (\d{4}) (\d{2}):(\d{2}):(\d{2}) GMT",
    re.ASCII,
)
_ISO_CHARACTERS_MAX: Final = 40
_YEAR_FIRST_MS: Final = -62_135_596_800_000
_YEAR_LAST_MS: Final = 253_402_300_799_999

_INFINITE_DAYS: Final = 10_675_199
_DURATION: Final = re.compile(
    r"P(?:(\d{1,10})D)?(?:T(?:(\d{1,10})H)?(?:(\d{1,10})M)?(?:(\d{1,12})(?:\.(\d{1,9}))?S)?)?",
    re.ASCII,
)


def parse_duration(name: str, text: str) -> int:
    """Milliseconds; INFINITE_MS for the largest time span and all longer ones.

    SDKs write the infinite one back with fewer digits, so it is recognised by its days.
    """
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()):
        raise Refused(
            INVALID_ARGUMENT,
            f"{name} is '{text[:60]}'; it must be a duration such as PT1M or P14D.",
        )
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups()[:4])
    if days >= _INFINITE_DAYS:
        return INFINITE_MS
    fraction_ms = int((match.group(5) or "").ljust(3, "0")[:3])
    total_ms = days * DAY_MS + ((hours * 60 + minutes) * 60 + seconds) * 1000 + fraction_ms
    return min(total_ms, INFINITE_MS)


def format_duration(duration_ms: int) -> str:
    if duration_ms >= _INFINITE_DAYS * DAY_MS:
        return INFINITE
    days, rest_ms = divmod(duration_ms, DAY_MS)
    hours, rest_ms = divmod(rest_ms, 3_600_000)
    minutes, rest_ms = divmod(rest_ms, 60_000)
    seconds, milliseconds = divmod(rest_ms, 1000)
    fraction = f".{milliseconds:03}" if milliseconds else ""
    time = (f"{hours}H" if hours else "") + (f"{minutes}M" if minutes else "")
    time += f"{seconds}{fraction}S" if seconds or fraction else ""
    date = f"{days}D" if days else ""
    return f"P{date}T{time}" if time else f"P{date or 'T0S'}"


def format_moment(moment_ms: int) -> str:
    """A moment in UTC; 0 means never."""
    if not moment_ms:
        return NEVER
    moment = datetime.fromtimestamp(moment_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def format_http_date(moment_ms: int) -> str | None:
    """A moment in the format of HTTP, to the second; None when its year does not have four
    digits.
    """
    if not _YEAR_FIRST_MS <= moment_ms <= _YEAR_LAST_MS:
        return None
    return format_datetime(datetime.fromtimestamp(moment_ms // 1000, UTC), usegmt=True)


def parse_http_date(text: str) -> int | None:
    """The moment of such a date, in milliseconds; None when it is invalid."""
    match = _HTTP_DATE.fullmatch(text)
    if match is None or match.group(2) not in _MONTHS:
        return None
    day, year, hour, minute, second = (int(match.group(group)) for group in (1, 3, 4, 5, 6))
    month = _MONTHS.index(match.group(2)) + 1
    try:
        return _milliseconds(datetime(year, month, day, hour, minute, second, tzinfo=UTC))
    except ValueError:
        return None


def parse_moment(text: str) -> int | None:
    """The moment of an HTTP or ISO 8601 date; without an offset it is in UTC."""
    moment_ms = parse_http_date(text)
    if moment_ms is not None or len(text) > _ISO_CHARACTERS_MAX:
        return moment_ms
    try:
        moment = datetime.fromisoformat(text)
        return _milliseconds(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    except (ValueError, OverflowError):
        return None


def _milliseconds(moment: datetime) -> int:
    elapsed = moment - datetime.fromtimestamp(0, UTC)
    return (elapsed.days * 86_400 + elapsed.seconds) * 1000 + elapsed.microseconds // 1000
