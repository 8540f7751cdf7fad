"""The state of one slot that a broker serves or is about to serve."""

from __future__ import annotations

from typing import Final, final

from shardbus.core.cluster.rows import NOBODY, SlotRow
from shardbus.core.cluster.statement import Commit, Give, Take

# States.
TAKING: Final = 0
OWNED: Final = 1
DRAINING: Final = 2
GIVING: Final = 3
# A statement was unanswered when the connection broke, and may still take effect.
UNSURE: Final = 4

# What the number of commits implies for the state in memory after the epoch was raised.
UNLOADED: Final = 0
SAME: Final = 1
STORED: Final = 2
NOT_STORED: Final = 3
LOST: Final = 4
FOREIGN: Final = 5


@final
class Tenure:
    """One slot of one incarnation: its epoch, its commits, and unanswered statements."""

    def __init__(self, slot: int, owner: str, incarnation: int) -> None:
        self.slot = slot
        self.owner = owner
        self.incarnation = incarnation
        self.state = TAKING
        self.epoch = 0
        # Commits that are known to be stored; `is_committing` means the one after them.
        self.commits = 0
        self.is_committing = False
        # Whether the state in memory is the one that these commits stored.
        self.is_loaded = False
        self.is_stopped = False
        # Whether, since a new timeline, the owner of this slot on the old one may still serve it.
        self.is_kept_back = False
        # The state when the last beat was sent, and the number of the beat in which it changed.
        self.commits_at_beat = 0
        self.changed_in = 0
        # The member to which the slot is to be given.
        self.to = ""
        self.to_incarnation = NOBODY

    def fence(self) -> Commit:
        """The fence of the next commit, or of the one under way."""
        return Commit(self.slot, self.epoch, self.incarnation, self.commits + 1)

    def committed(self) -> None:
        self.commits += 1
        self.is_committing = False

    def take(self, row: SlotRow, timeline: int = 1) -> Take:
        """Raise the present epoch of the row; statements sent earlier can have no effect
        afterwards.
        """
        self.state = TAKING
        return Take(self.slot, row.epoch, self.owner, self.incarnation, timeline)

    def give(self, data: bytes, timeline: int = 1) -> Give:
        self.state = GIVING
        return Give(self.fence(), self.to, self.to_incarnation, data, timeline)

    def broke(self) -> None:
        """The connection broke: a statement under way may still take effect, now or later."""
        if self.is_committing or self.state in (TAKING, GIVING):
            self.state = UNSURE

    def taken(self, epoch: int, commits: int) -> int:
        """The epoch was raised; returns what the number of commits implies for the state in
        memory.
        """
        known, self.commits = self.commits, commits
        was_committing, self.is_committing = self.is_committing, False
        was_loaded, self.is_loaded = self.is_loaded, True
        self.state = OWNED
        self.epoch = epoch
        if not was_loaded:
            return UNLOADED
        if commits == known:
            self.is_committing = was_committing
            return NOT_STORED if was_committing else SAME
        if commits == known + 1 and was_committing:
            return STORED
        return LOST if commits < known else FOREIGN
