"""Durations and moments as the SDKs write and read them."""

import pytest

from shardbus.core.errors import INVALID_ARGUMENT, Refused
from shardbus.core.namespace.tier import DAY_MS, INFINITE_MS
from shardbus.gateway.http.moment import (
    INFINITE,
    NEVER,
    format_duration,
    format_moment,
    parse_duration,
)
from tests.support.refusals import refusal_of

DURATIONS = [
    ("PT1M", 60_000),
    ("PT30S", 30_000),
    ("PT5M", 300_000),
    ("P14D", 14 * DAY_MS),
    ("PT0.5S", 500),
    ("PT1.234S", 1234),
    ("P1DT2H3M4.005S", DAY_MS + 7_384_005),
    ("PT0S", 0),
]


@pytest.mark.parametrize(("text", "duration_ms"), DURATIONS)
def test_a_duration_is_read(text: str, duration_ms: int) -> None:
    assert parse_duration("LockDuration", text) == duration_ms


@pytest.mark.parametrize(
    "text", [INFINITE, "P10675199DT2H48M5.477539S", "P10675200D", "P99999999D"]
)
def test_the_largest_time_span_is_infinite_in_every_spelling(text: str) -> None:
    """Python writes it back with fewer digits."""
    assert parse_duration("AutoDeleteOnIdle", text) == INFINITE_MS


def test_the_infinite_duration_is_written_as_the_largest_time_span() -> None:
    assert format_duration(INFINITE_MS) == "P10675199DT2H48M5.4775807S"


@pytest.mark.parametrize(
    "duration_ms", [0, 1, 999, 1000, 60_000, 3_600_000, DAY_MS, DAY_MS + 1, 7 * DAY_MS + 3_661_001]
)
def test_what_is_written_is_read_back(duration_ms: int) -> None:
    assert parse_duration("x", format_duration(duration_ms)) == duration_ms


@pytest.mark.parametrize(
    "text",
    [
        "",
        "P",
        "PT",
        "1",
        "60",
        "P1Y",
        "P1M",
        "P1W",
        "PT1",
        "-PT1S",
        "PT1.S",
        "PT1S ",
        "P1D2H",
        "PT²S",
    ],
)
def test_what_is_not_a_duration_is_refused_by_name(text: str) -> None:
    with refusal_of(INVALID_ARGUMENT, "LockDuration"):
        parse_duration("LockDuration", text)


def test_an_endless_number_is_refused_without_being_computed() -> None:
    with pytest.raises(Refused):
        parse_duration("LockDuration", f"P{'9' * 1000}D")


def test_moments_are_utc_and_zero_is_never() -> None:
    assert format_moment(1_763_235_630_123) == "2025-11-15T19:40:30.123Z"
    assert format_moment(0) == NEVER
