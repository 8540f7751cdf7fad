"""Logs refused requests: enough to help, and never enough to fill a disk."""

from __future__ import annotations

import logging
from typing import Final, final

from shardbus.broker.clock import Clock

log = logging.getLogger(__name__)

WINDOW_MS: Final = 60_000
OF_PEER_MAX: Final = 20
"""Refusals of one address that are logged in a minute ..."""
LINES_MAX: Final = 200
"""... and of all addresses together."""


@final
class RefusalLog:
    """Logs refusals at INFO while they are few, and the others at DEBUG.

    Anybody who reaches the port can be refused, without a token and as often as they like.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._window = -1
        self._told_by_peer: dict[str, int] = {}
        self._told = 0
        self._left_out = 0

    def note(self, text: str) -> None:
        """For operators who look closely only."""
        log.debug("%s", text)

    def tell(self, peer: str, text: str) -> None:
        """`peer` is the address that the client counts for."""
        self._turn()
        told = self._told_by_peer.get(peer, 0)
        if told >= OF_PEER_MAX or self._told >= LINES_MAX:
            self._left_out += 1
            log.debug("%s", text)
            return
        self._told_by_peer[peer] = told + 1
        self._told += 1
        log.info("%s", text)

    def _turn(self) -> None:
        """Start counting again when a minute is over."""
        window = self._clock.steady_ms() // WINDOW_MS
        if window == self._window:
            return
        if self._left_out:
            log.info("%d more refusals were logged at DEBUG only", self._left_out)
        self._window = window
        self._told_by_peer.clear()
        self._told = self._left_out = 0
