"""The time span of pipelines that take rows of some time only (P5)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Final

from msgspec import Meta

from shardbus.app.pipelines.task import option
from shardbus.gateway.http.document import told
from shardbus.gateway.http.server.refusal import invalid, shown

FROM: Final = "from"
TO: Final = "to"
MOMENT_CHARACTERS_MAX: Final = 40

_Moment = Annotated[
    str, Meta(max_length=MOMENT_CHARACTERS_MAX, extra_json_schema={"x-moment": True})
]
# Members `from` and `to` of a kind; empty by default.
Since = Annotated[
    _Moment,
    told("A moment; rows of this time and later. Empty: from the first row."),
    option("Take rows of this time and later, in UTC.", name="since", metavar="TIME"),
]
Until = Annotated[
    _Moment,
    told("A moment; rows before this time. Empty: to the last row."),
    option("Take rows before this time, in UTC.", name="until", metavar="TIME"),
]


def checked_span(since: str, until: str) -> tuple[str, str]:
    """Both moments in UTC; Refused if one is no moment, or if nothing is between them."""
    begin, end = _moment(since, FROM), _moment(until, TO)
    if begin and end and begin >= end:
        raise invalid(f"from is {begin}, which is not before to, {end}: choose an earlier from.")
    return begin, end


def _moment(text: str, name: str) -> str:
    """In UTC, always with microseconds, so that texts compare like moments."""
    if not text:
        return ""
    try:
        moment = datetime.fromisoformat(text)
        zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return zoned.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError) as error:
        raise invalid(
            f"{name} is {shown(text)}; it must be a moment like 2026-01-31T08:00:00Z."
        ) from error
