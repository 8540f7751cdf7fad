"""Namespace tiers: sizes, numbers of fragments, and features (R7)."""

from __future__ import annotations

from typing import Final, final

from shardbus.core.errors import INVALID_ARGUMENT, Refused

BASIC: Final = "basic"
STANDARD: Final = "standard"
PREMIUM: Final = "premium"

OLDER: Final = "older"
NEWER: Final = "newer"

CHOSEN: Final = "chosen"
ALWAYS: Final = "always"
NOT_OFFERED: Final = "not offered"
"""Who decides whether an entity is partitioned: its creator, or the tier (always or never)."""

INFINITE_MS: Final = 922_337_203_685_477
"""As a duration: for ever. The largest .NET TimeSpan, and small enough to be added to any moment.
"""

DAY_MS: Final = 86_400_000

_SMALL_SIZES_MB: Final = [1024, 2048, 3072, 4096, 5120]


@final
class Tier:
    """What a namespace of this tier offers.

    `partitioned_count_max` is the tier's default limit; 0 means that the tier has none (R8).
    """

    def __init__(self, name: str, generation: str, partitioning: str, fragments: int) -> None:
        self.name = name
        self.generation = generation
        self.partitioning = partitioning
        self.fragments_when_partitioned = fragments
        self.is_premium = name == PREMIUM
        self.is_basic = name == BASIC
        self.sizes_mb = list(_SMALL_SIZES_MB)
        self.ttl_ms_max = 14 * DAY_MS if self.is_basic else INFINITE_MS
        self.message_kb_default = 256
        self.message_kb_max = 256
        self.partitioned_count_max = 100
        if self.is_premium:
            self.sizes_mb += [10240, 20480, 40960, 81920]
            self.message_kb_default = 1024
            self.message_kb_max = 102_400
            self.partitioned_count_max = 0

    def is_partitioned(self, is_asked_for: bool) -> bool:
        """Whether an entity becomes partitioned.

        Where the tier decides, the creator's choice has no effect and is not an error: the .NET
        administration client always sends an explicit choice, and would otherwise create nothing
        there.
        """
        if self.partitioning == CHOSEN:
            return is_asked_for
        return self.partitioning == ALWAYS

    def fragment_count(self, is_partitioned: bool) -> int:
        return self.fragments_when_partitioned if is_partitioned else 1


def tier_named(name: str, generation: str = NEWER) -> Tier:
    """The tier that a setting names; `generation` matters for Premium only."""
    if name in (BASIC, STANDARD):
        return Tier(name, NEWER, CHOSEN, 16)
    if name != PREMIUM:
        raise Refused(
            INVALID_ARGUMENT, f"'{name}' is not a tier; tiers are basic, standard and premium"
        )
    if generation == OLDER:
        return Tier(name, OLDER, ALWAYS, 2)
    if generation == NEWER:
        return Tier(name, NEWER, NOT_OFFERED, 1)
    raise Refused(
        INVALID_ARGUMENT,
        f"'{generation}' is not a generation of Premium; generations are older and newer",
    )
