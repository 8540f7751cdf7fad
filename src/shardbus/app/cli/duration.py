"""Durations as people type them (`30s`, `5m`, `P14D`) and as the ATOM API writes them (`PT30S`)."""

import re
from typing import Final

FOREVER_ISO: Final = "P10675199DT2H48M5.4775807S"
FOREVER_DAYS: Final = 10_675_199
FOREVER_MS: Final = 922_337_203_685_477
TEXT_LENGTH_MAX: Final = 40

_ISO: Final = re.compile(
    r"P(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.ASCII
)
_SHORT: Final = re.compile(r"(\d+)(s|m|h|d)", re.ASCII)
_UNIT_S: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def to_iso(text: str) -> str:
    """The ISO 8601 form of `30s`, `5m`, `2h`, `14d`, `forever` or of an ISO text itself.

    `ValueError` for anything else; its text lists the forms.
    """
    if text.lower() == "forever":
        return FOREVER_ISO
    short = _SHORT.fullmatch(text[:TEXT_LENGTH_MAX])
    if short is not None:
        return f"PT{int(short[1]) * _UNIT_S[short[2]]}S"
    if len(text) <= TEXT_LENGTH_MAX and len(text) > 2 and _ISO.fullmatch(text):
        return text
    raise ValueError(f"{text!r} is not a duration: write 30s, 5m, 2h, 14d, PT30S or forever")


def to_seconds(text: str) -> int:
    """The whole seconds of `30s`, `5m`, `2h`, `14d` or `PT30S`; `ValueError` for anything else."""
    iso = to_iso(text)
    parts = _ISO.fullmatch(iso)
    if parts is None or iso == FOREVER_ISO:
        raise ValueError(f"{text!r} is not a number of seconds, minutes, hours or days")
    days, hours, minutes = (int(part or 0) for part in parts.groups()[:3])
    return ((days * 24 + hours) * 60 + minutes) * 60 + int(float(parts[4] or 0))


def to_ms(text: str) -> int:
    """The milliseconds of what `to_iso` reads; for forever the maximum of the bus."""
    parts = _ISO.fullmatch(to_iso(text))
    assert parts is not None, "to_iso gives nothing else"
    days, hours, minutes = (int(part or 0) for part in parts.groups()[:3])
    if days >= FOREVER_DAYS:
        return FOREVER_MS
    return ((days * 24 + hours) * 60 + minutes) * 60_000 + round(float(parts[4] or 0) * 1000)


def to_words(iso: str) -> str:
    """An ISO duration for people: `1m`, `14d`, `1h 30m`, `forever`."""
    parts = _ISO.fullmatch(iso)
    if parts is None:
        return iso
    days, hours, minutes = (int(part or 0) for part in parts.groups()[:3])
    if days >= FOREVER_DAYS:
        return "forever"
    seconds = parts[4] or "0"
    if "." not in seconds:
        days, hours, minutes, seconds = _carry(days, hours, minutes, int(seconds))
    named = ((str(days), "d"), (str(hours), "h"), (str(minutes), "m"), (seconds, "s"))
    return " ".join(number + unit for number, unit in named if number != "0") or "0s"


def _carry(days: int, hours: int, minutes: int, seconds: int) -> tuple[int, int, int, str]:
    all_minutes, left_s = divmod(seconds + 60 * (minutes + 60 * hours), 60)
    all_hours, left_minutes = divmod(all_minutes, 60)
    all_days, left_hours = divmod(all_hours, 24)
    return days + all_days, left_hours, left_minutes, str(left_s)
