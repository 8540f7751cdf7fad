"""Clocks of machines that tell different times."""

import pytest

from shardbus.app.server.node.joining import APART_MS_MAX, clock_problem

NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize("apart_ms", [0, APART_MS_MAX, -APART_MS_MAX])
def test_clocks_that_are_about_the_same_are_no_problem(apart_ms: int) -> None:
    assert clock_problem("db", NOW_MS, NOW_MS + apart_ms) == ""


@pytest.mark.parametrize(
    ("apart_ms", "words"), [(3_600_000, "3600 s ahead of"), (-90_000, "90 s behind")]
)
def test_others_are_named_with_how_far_they_are_apart(apart_ms: int, words: str) -> None:
    assert words in clock_problem("db", NOW_MS, NOW_MS + apart_ms)
