"""Durations as typed, as sent and as shown."""

import pytest

from shardbus.app.cli.duration import FOREVER_ISO, to_iso, to_words


@pytest.mark.parametrize(
    ("typed", "iso"),
    [
        ("30s", "PT30S"),
        ("5m", "PT300S"),
        ("2h", "PT7200S"),
        ("14d", "PT1209600S"),
        ("forever", FOREVER_ISO),
        ("PT1M", "PT1M"),
        ("P14D", "P14D"),
        ("P1DT2H3M4.5S", "P1DT2H3M4.5S"),
    ],
)
def test_what_people_type_becomes_iso(typed: str, iso: str) -> None:
    assert to_iso(typed) == iso


@pytest.mark.parametrize(
    "typed", ["", "30", "s", "-5m", "1 h", "P", "PT", "P1DT", "1.5h", "\u0661s"]
)
def test_anything_else_is_refused_with_the_forms_there_are(typed: str) -> None:
    with pytest.raises(ValueError, match="write 30s"):
        to_iso(typed)


def test_an_endless_text_is_refused_unread() -> None:
    with pytest.raises(ValueError, match="write 30s"):
        to_iso("9" * 100_000 + "s")


@pytest.mark.parametrize(
    ("iso", "words"),
    [
        ("PT1M", "1m"),
        ("PT300S", "5m"),
        ("PT1209600S", "14d"),
        ("PT5400S", "1h 30m"),
        ("P1DT2H3M4.5S", "1d 2h 3m 4.5s"),
        ("PT0S", "0s"),
        (FOREVER_ISO, "forever"),
        ("P10675199DT2H48M5.477539S", "forever"),
        ("whatever", "whatever"),
    ],
)
def test_iso_is_shown_in_words(iso: str, words: str) -> None:
    assert to_words(iso) == words
