"""What a subscription's fragment has to know of the topic's fragment that publishes to it (P6)."""
# Compiled by mypyc.

from __future__ import annotations

from typing import TYPE_CHECKING, final

from shardbus.core.fragment.change import Counters
from shardbus.core.message import MAIN_LINE
from shardbus.core.sealing.seal import FragmentSeal, Standing
from shardbus.stores.base.store import FragmentId, MessageStore, StoreError

if TYPE_CHECKING:
    from shardbus.broker.fragment.outlet import Runners
    from shardbus.core.fragment.fragment import Fragment


@final
class Led:
    """The topic's fragment, as the fragment of a subscription in the same store sees it.

    The seal is stored there alone. As long as the topic's fragment is not loaded it cannot change,
    so that the store tells it; later the runner does, also while it loads the fragment again.
    """

    def __init__(self, leader: FragmentId, is_former: bool, runners: Runners) -> None:
        """`is_former`: whether the fragment is of a former map, as far as is known.

        That counts if the topic's fragment is damaged: what is sealed for good stays sealed.
        """
        self._leader = leader
        self._runners = runners
        self._last = Standing(is_former, is_former)

    def to_be_read(self) -> FragmentId | None:
        """The topic's fragment, if its standing must be read from the store."""
        return self._leader if self._running() is None else None

    def was_read(self, stored: Standing | None) -> None:
        if stored is not None:
            self._last = stored

    def lead(self, fragment: Fragment) -> None:
        """Let the subscription's fragment be sealed as the topic's is now."""
        running = self._running()
        if running is not None:
            self._last = running
        fragment.seal.follow(self._last)

    def _running(self) -> Standing | None:
        runner = self._runners.running(self._leader)
        return None if runner is None else runner.standing


def read_standing(store: MessageStore, leader: FragmentId) -> Standing | None:
    """The stored standing of a topic's fragment; None if it cannot be read."""
    try:
        image = store.load(leader)
    except StoreError:
        return None
    return standing_of(FragmentSeal(image.records), image.counters)


def standing_of(seal: FragmentSeal, counters: Counters) -> Standing:
    main = counters.lines[MAIN_LINE]
    return Standing(seal.is_sealed, main.count + main.scheduled > 0)
