"""What each tier of namespace offers (R7)."""

import pytest

from shardbus.core.errors import INVALID_ARGUMENT
from shardbus.core.namespace.tier import (
    BASIC,
    DAY_MS,
    INFINITE_MS,
    OLDER,
    PREMIUM,
    STANDARD,
    tier_named,
)
from tests.support.refusals import refusal_of

SMALL_MB = [1024, 2048, 3072, 4096, 5120]


@pytest.mark.parametrize("name", [BASIC, STANDARD])
def test_basic_and_standard_offer_the_choice_of_sixteen_fragments(name: str) -> None:
    """R7."""
    tier = tier_named(name)

    assert tier.sizes_mb == SMALL_MB
    assert tier.is_partitioned(True)
    assert not tier.is_partitioned(False)
    assert tier.fragment_count(True) == 16
    assert tier.fragment_count(False) == 1
    assert tier.partitioned_count_max == 100


def test_older_premium_always_has_two_fragments() -> None:
    """R7: it cannot be switched off."""
    tier = tier_named(PREMIUM, OLDER)

    assert tier.is_partitioned(False)
    assert tier.fragment_count(tier.is_partitioned(False)) == 2


def test_newer_premium_is_the_default_and_never_partitioned() -> None:
    """R7: asking for it has no effect."""
    tier = tier_named(PREMIUM)

    assert not tier.is_partitioned(True)
    assert tier.fragment_count(tier.is_partitioned(True)) == 1


def test_premium_offers_sizes_up_to_eighty_gigabytes_and_no_limit_of_partitioned_entities() -> None:
    """R7, R8."""
    tier = tier_named(PREMIUM)

    assert tier.sizes_mb == [*SMALL_MB, 10240, 20480, 40960, 81920]
    assert tier.partitioned_count_max == 0


def test_only_basic_bounds_the_time_to_live() -> None:
    assert tier_named(BASIC).ttl_ms_max == 14 * DAY_MS
    assert tier_named(STANDARD).ttl_ms_max == INFINITE_MS


@pytest.mark.parametrize(("name", "generation"), [("gold", "newer"), (PREMIUM, "oldest")])
def test_an_unknown_tier_is_refused(name: str, generation: str) -> None:
    with refusal_of(INVALID_ARGUMENT):
        tier_named(name, generation)
