"""Which brokers and fragments serve, as far as this gateway knows without asking."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, final

from shardbus.broker.bus import Bus
from shardbus.broker.namespace.host import FRAGMENT_AVAILABLE, FRAGMENT_UNAVAILABLE

AVAILABLE: Final = FRAGMENT_AVAILABLE
LIMITED: Final = "limited"
UNAVAILABLE: Final = FRAGMENT_UNAVAILABLE


@final
class BrokerHealth:
    """A broker and its fragments in use.

    `outage` says why it is unreachable. `out` has the fragments that do not serve: entity, number
    and reason. `shortage` says why others accept no additions.
    """

    def __init__(self, name: str, outage: str) -> None:
        self.name = name
        self.outage = outage
        self.fragments_in_use = 0
        self.out: list[tuple[str, int, str]] = []
        self.shortage = ""

    @property
    def state(self) -> str:
        if self.outage or (self.out and len(self.out) == self.fragments_in_use):
            return UNAVAILABLE
        return LIMITED if self.out or self.shortage else AVAILABLE


Brokers = Callable[[], list[BrokerHealth]]


def broker_healths(bus: Bus, names: Sequence[str], outages: Sequence[str]) -> list[BrokerHealth]:
    """`outages[i]` is why the broker `names[i]` is unreachable; empty when it is not."""
    found = [BrokerHealth(name, outage) for name, outage in zip(names, outages, strict=True)]
    for handle in bus.in_use():
        for home, fragment in zip(handle.entity.fragments, handle.runners, strict=True):
            broker = found[home.broker_index]
            broker.fragments_in_use += 1
            if fragment.state == UNAVAILABLE:
                broker.out.append((handle.entity.name, home.number, fragment.reason))
            elif fragment.is_available and fragment.reason:
                broker.shortage = fragment.reason
    return found


def is_serving(brokers: Sequence[BrokerHealth]) -> bool:
    """Whether any broker serves; true if no broker is known."""
    return not brokers or any(broker.state != UNAVAILABLE for broker in brokers)
