"""How large a storm is, and what it kills when."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum
from typing import Final, final

BROKERS: Final = 4
SPARK: Final = "driver.py"
SMALL: Final = "small_driver.py"
_FIRST: Final = 0.03
_LAST: Final = 0.95


@final
class Victim(Enum):
    """What is killed with kill -9."""

    DRIVER = "driver"
    EXECUTOR = "executor"
    BROKER = "broker"
    BUS = "bus"


@final
@dataclass(frozen=True)
class Strike:
    """A kill, when this part of the work is done."""

    victim: Victim
    after: float


@final
@dataclass(frozen=True)
class Plan:
    """`rows_max` are the rows of a batch; receivers get about `share` of the messages; `reader` is
    the program of the driver that captures.
    """

    messages: int
    seed: int
    kills: dict[Victim, int]
    size_bytes: int = 1_024
    rows_max: int = 20_000
    share: float = 0.2
    reader: str = SPARK
    cluster: str = "local-cluster[2,1,1024]"

    def dice(self) -> random.Random:
        return random.Random(self.seed)

    def strikes(self, dice: random.Random) -> list[Strike]:
        """Kills in random order at random moments of the work."""
        victims = [victim for victim, count in self.kills.items() for _ in range(count)]
        dice.shuffle(victims)
        moments = sorted(dice.uniform(_FIRST, _LAST) for _ in victims)
        return [Strike(*strike) for strike in zip(victims, moments, strict=True)]
