"""Who may send with which keys now: what came first with a key goes first.

A batch in several fragments takes several steps. What is sent with one of its keys meanwhile, over
the same way to the entity, waits until it is done; so does the next batch that shares a key. All
others pass.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import final


@final
class Turn:
    """One that holds its keys, or waits for those who came before it."""

    def __init__(self, keys: list[str], begin: Callable[[Turn], None]) -> None:
        self.keys = keys
        self.begin = begin
        self.waits_for = 0


@final
class KeyTurns:
    """Nobody waits for ever as long as everybody who begins calls `end`: a place is taken for all
    keys at once, so no two wait for each other.
    """

    def __init__(self) -> None:
        self.held: dict[str, deque[Turn]] = {}

    def take(self, keys: Iterable[str], begin: Callable[[Turn], None]) -> None:
        """Call `begin` once all who came before with one of these different keys have ended."""
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
        """One that began is done; whoever waited for it alone begins."""
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
