"""Who may send with which keys now: the first that came with a key goes first.

A batch in several fragments takes several steps. A message that is sent with one of its keys in the
meantime, through the same router, waits until the batch is done; so does the next batch that shares
a key. All others pass.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import final


@final
class Turn:
    """A turn that holds its keys, or waits for earlier ones."""

    def __init__(self, keys: list[str], begin: Callable[[Turn], None]) -> None:
        self.keys = keys
        self.begin = begin
        self.waits_for = 0


@final
class KeyTurns:
    """Nobody waits for ever if everybody that begins calls `end`: a place is taken for all keys at
    once, so no two wait for each other.
    """

    def __init__(self) -> None:
        self.held: dict[str, deque[Turn]] = {}

    def take(self, keys: Iterable[str], begin: Callable[[Turn], None]) -> None:
        """Call `begin` once all earlier turns with one of these distinct keys have ended."""
        turn = Turn(list(keys), begin)
        for key in turn.keys:
            queue = self.held.get(key)
            if queue is None:
                self.held[key] = deque([turn])
            else:
                queue.append(turn)
                turn.waits_for += 1
        if turn.waits_for == 0:
            begin(turn)

    def end(self, turn: Turn) -> None:
        """A turn is done; those that waited for it alone begin."""
        free: list[Turn] = []
        for key in turn.keys:
            queue = self.held[key]
            queue.popleft()
            if not queue:
                del self.held[key]
                continue
            queue[0].waits_for -= 1
            if queue[0].waits_for == 0:
                free.append(queue[0])
        for each in free:
            each.begin(each)
