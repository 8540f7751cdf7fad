"""Durations, by a steady clock that also counts while the machine is suspended."""

from typing import Final

# From one beat to the next.
BEAT_MS: Final = 500
# How long a broker serves after it sent the last beat that was answered.
LEASE_MS: Final = 3_000
# A member whose counter does not change for this long is dead. The difference to the lease allows
# for clocks of different rates, and for the time between reading a clock and acting.
SILENCE_MS: Final = 4_500
# How many slots a broker takes or gives at once: the fragments of each must be loaded.
MOVES_AT_ONCE: Final = 4
# The number of beats without a change after which slots may move between brokers.
CALM_BEATS: Final = 6

assert BEAT_MS < LEASE_MS < SILENCE_MS
