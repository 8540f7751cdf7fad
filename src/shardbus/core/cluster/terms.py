"""How long things last, by a steady clock that also counts while the machine is suspended."""

from typing import Final

# From one beat to the next.
BEAT_MS: Final = 1_000
# A broker serves for so long after it sent its last beat that was answered.
LEASE_MS: Final = 3_000
# A member whose counter stands for so long is dead. What is above the lease is for clocks that do
# not run at the same rate, and for what happens between looking at a clock and acting.
SILENCE_MS: Final = 5_000
# Slots that one broker takes, or gives, at once: each has fragments to load.
MOVES_AT_ONCE: Final = 4
# Slots move from broker to broker when nothing has changed for so many beats.
CALM_BEATS: Final = 3

assert BEAT_MS < LEASE_MS < SILENCE_MS
