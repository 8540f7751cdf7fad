"""A client that guesses keys waits longer and longer for the refusal (R34, ADR 18)."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from typing import Final, final

from shardbus.broker.clock import Clock

log = logging.getLogger(__name__)

FREE_FAILURES: Final = 10
"""This many wrong keys from one address are answered at once: somebody mistyped."""
FORGIVEN_EACH_MS: Final = 6_000
"""One failure is forgotten each time this has passed; a success forgets none."""
FAILURES_MAX: Final = 100
DELAY_MS_MIN: Final = 100
DELAY_MS_MAX: Final = 5_000
PEERS_MAX: Final = 10_000
"""Addresses that are remembered; at the limit the one that failed longest ago is forgotten."""
WAITING_MAX: Final = 1_000
WAITING_OF_PEER_MAX: Final = 50
LOGGED_EACH_MS: Final = 60_000


@final
class _Peer:
    """What is remembered about one address."""

    def __init__(self, steady_ms: int) -> None:
        self.failures = 0
        self.counted_ms = steady_ms
        self.unlogged = 0
        self.logged_ms = steady_ms - LOGGED_EACH_MS
        self.waiting = 0

    def forgive(self, steady_ms: int) -> None:
        forgiven = max(0, steady_ms - self.counted_ms) // FORGIVEN_EACH_MS
        if forgiven >= self.failures:
            self.failures = 0
            self.counted_ms = steady_ms
        else:
            self.failures -= forgiven
            self.counted_ms += forgiven * FORGIVEN_EACH_MS


@final
class Slowdown:
    """Counts wrong keys by address and delays the answers to them.

    No other answer is delayed: a client with a right key is answered at once, whatever others at
    the same address do. `wrong_keys` and `turned_away` count since the start, for the metrics.
    """

    def __init__(self, clock: Clock, *, is_on: bool = True) -> None:
        """Where a key is public there is nothing to guess: `is_on` is False, and wrong keys are
        only counted.
        """
        self.wrong_keys = 0
        self.turned_away = 0
        self.waiting = 0
        self._clock = clock
        self._is_on = is_on
        self._peers: OrderedDict[str, _Peer] = OrderedDict()

    async def hold(self, peer: str) -> bool:
        """Count a wrong key and wait until it may be answered.

        False, at once, when too many answers are already delayed: close the connection instead.
        """
        remembered = self._count(peer)
        delay_ms = self._delay_ms(remembered)
        if not delay_ms:
            return True
        if self.waiting >= WAITING_MAX or remembered.waiting >= WAITING_OF_PEER_MAX:
            self.turned_away += 1
            return False
        self.waiting += 1
        remembered.waiting += 1
        try:
            await asyncio.sleep(delay_ms / 1000)
        finally:
            self.waiting -= 1
            remembered.waiting -= 1
        return True

    def _count(self, peer: str) -> _Peer:
        steady_ms = self._clock.steady_ms()
        self.wrong_keys += 1
        remembered = self._peers.pop(peer, None)
        if remembered is None:
            remembered = _Peer(steady_ms)
            if len(self._peers) >= PEERS_MAX:
                self._peers.popitem(last=False)
        self._peers[peer] = remembered
        remembered.forgive(steady_ms)
        remembered.failures = min(remembered.failures + 1, FAILURES_MAX)
        self._log(peer, remembered, steady_ms)
        return remembered

    def _delay_ms(self, remembered: _Peer) -> int:
        excess = remembered.failures - FREE_FAILURES
        if excess <= 0 or not self._is_on:
            return 0
        return min(DELAY_MS_MAX, DELAY_MS_MIN << min(excess - 1, 16))

    def _log(self, peer: str, remembered: _Peer, steady_ms: int) -> None:
        remembered.unlogged += 1
        if steady_ms - remembered.logged_ms >= LOGGED_EACH_MS:
            whose = peer or "an unknown address"
            log.warning("%d wrong keys from %s in the last minutes", remembered.unlogged, whose)
            remembered.unlogged = 0
            remembered.logged_ms = steady_ms
