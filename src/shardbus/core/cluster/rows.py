"""The rows of a shared database that leases use, and the view of them in one beat.

These objects never change: a statement returns a new row.
"""

from __future__ import annotations

from typing import Final, final

# An incarnation that no process ever has: that of a slot without an owner.
NOBODY: Final = 0
# An incarnation is `nonce << JOIN_BITS | join`: unique to each joining of a process.
JOIN_BITS: Final = 20
# An epoch that was raised on a timeline is at least `(timeline - 1) << TIMELINE_SHIFT`.
TIMELINE_SHIFT: Final = 32


def raised(epoch: int, timeline: int) -> int:
    """The epoch after this one; it is unique to the timeline, even if a failover lost later
    epochs.
    """
    return max(epoch + 1, (timeline - 1) << TIMELINE_SHIFT)


@final
class SlotRow:
    """A slot: its owner, its epoch, and its number of commits."""

    def __init__(self, slot: int, epoch: int, commits: int, owner: str, incarnation: int) -> None:
        self.slot = slot
        self.epoch = epoch
        self.commits = commits
        # The name outlives its member, so that a process that starts again finds its slots.
        self.owner = owner
        self.incarnation = incarnation


@final
class MemberRow:
    """A broker that has joined and was not declared dead."""

    def __init__(
        self, name: str, incarnation: int, beat: int, is_leaving: bool, beat_at_ms: int
    ) -> None:
        self.name = name
        self.incarnation = incarnation
        self.beat = beat
        self.is_leaving = is_leaving
        # By the database's clock, which may be set: shown to users, and never used for decisions.
        self.beat_at_ms = beat_at_ms


@final
class View:
    """What a beat saw: all rows at one moment, after its own change.

    `is_member`: whether it found its own row and raised the counter there.
    """

    def __init__(
        self,
        cluster_id: str,
        timeline: int,
        time_ms: int,
        is_member: bool,
        members: list[MemberRow],
        slots: list[SlotRow],
    ) -> None:
        self.cluster_id = cluster_id
        self.timeline = timeline
        # The database's clock, as in `beat_at_ms`.
        self.time_ms = time_ms
        self.is_member = is_member
        self.members = members
        self.slots = slots

    def member(self, name: str) -> MemberRow | None:
        for row in self.members:
            if row.name == name:
                return row
        return None


@final
class Taken:
    """The answer to a `Take` that found the slot as expected: its present row.

    `data` is what the previous owner wrote for the next one; None: nothing was handed over.
    """

    def __init__(self, epoch: int, commits: int, data: bytes | None) -> None:
        self.epoch = epoch
        self.commits = commits
        self.data = data
