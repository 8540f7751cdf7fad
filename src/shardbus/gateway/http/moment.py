"""Durations and moments in the words of the dialect (ISO 8601)."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from shardbus.core.errors import INVALID_ARGUMENT, Refused
from shardbus.core.tier import DAY_MS, INFINITE_MS

INFINITE: Final = "P10675199DT2H48M5.4775807S"
NEVER: Final = "0001-01-01T00:00:00Z"

_INFINITE_DAYS: Final = 10_675_199
_DURATION: Final = re.compile(
    r"P(?:(\d{1,10})D)?(?:T(?:(\d{1,10})H)?(?:(\d{1,10})M)?(?:(\d{1,12})(?:\.(\d{1,9}))?S)?)?",
    re.ASCII,
)


def parse_duration(name: str, text: str) -> int:
    """Milliseconds; INFINITE_MS for the largest time span and all that is longer.

    SDKs write the infinite one back with fewer digits, so it is told by its days.
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
    """A moment in UTC; 0 is never."""
    if not moment_ms:
        return NEVER
    moment = datetime.fromtimestamp(moment_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
