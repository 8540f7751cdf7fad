"""The statements with which brokers change the rows of slots and members.

Each locks one row, checks whether its newest version is as expected (`holds`), and writes a new
version (`changed`), all in one transaction with its other writes. The statements that a driver
sends to a database must do exactly this; the model database of the tests does it by calling these
methods.
"""

from __future__ import annotations

from typing import ClassVar, Final, final

from shardbus.core.cluster.rows import NOBODY, MemberRow, SlotRow, raised

# How a row is locked while a statement reads it. Only a second UPDATE waits and sees the newest
# version; the two others may read a row that is being changed.
NO_LOCK: Final = 0
KEY_SHARE: Final = 1
UPDATE: Final = 2


class SlotStatement:
    """Changes the row of a slot."""

    LOCK: ClassVar[int] = UPDATE

    def __init__(self, slot: int) -> None:
        self.slot = slot

    def holds(self, row: SlotRow) -> bool:
        """Whether the row is as this statement expects; otherwise the statement does nothing."""
        raise NotImplementedError

    def changed(self, row: SlotRow) -> SlotRow:
        raise NotImplementedError


@final
class Commit(SlotStatement):
    """The fence of a commit, which precedes all of its writes.

    Because of the number, a commit that was sent twice is stored once. The incarnation
    distinguishes epochs of two timelines.
    """

    LOCK: ClassVar[int] = UPDATE

    def __init__(self, slot: int, epoch: int, incarnation: int, number: int) -> None:
        super().__init__(slot)
        self.epoch = epoch
        self.incarnation = incarnation
        self.number = number

    def holds(self, row: SlotRow) -> bool:
        is_owner = row.epoch == self.epoch and row.incarnation == self.incarnation
        return is_owner and row.commits == self.number - 1

    def changed(self, row: SlotRow) -> SlotRow:
        return SlotRow(row.slot, row.epoch, self.number, row.owner, row.incarnation)


@final
class Take(SlotStatement):
    """Take a slot, or fence the broker's own earlier statements, by raising the epoch.

    Answered with `Taken`. Hand-over data that is not inherited is deleted.
    """

    def __init__(
        self, slot: int, epoch: int, owner: str, incarnation: int, timeline: int = 1
    ) -> None:
        super().__init__(slot)
        self.epoch = epoch
        self.timeline = timeline
        self.owner = owner
        self.incarnation = incarnation

    def holds(self, row: SlotRow) -> bool:
        return row.epoch == self.epoch

    def changed(self, row: SlotRow) -> SlotRow:
        epoch = raised(row.epoch, self.timeline)
        return SlotRow(row.slot, epoch, row.commits, self.owner, self.incarnation)

    def inherits(self, row: SlotRow, given_epoch: int) -> bool:
        """Whether the data that was written when the slot was given away, at that epoch, is for the
        taker.

        It is if nobody has taken the slot since, or if the taker has and did not get the answer.
        Any other owner has used the data, and locks that ended must not return.
        """
        return given_epoch == row.epoch or row.incarnation == self.incarnation


@final
class Give(SlotStatement):
    """Give a slot away, with the data for its next owner: locks and held sessions.

    `data` is stored in the same transaction, with the epoch that the row has afterwards.
    """

    def __init__(
        self, held: Commit, to: str, to_incarnation: int, data: bytes, timeline: int = 1
    ) -> None:
        """`held` is the fence that the next commit would have had."""
        super().__init__(held.slot)
        self.held = held
        self.to = to
        self.to_incarnation = to_incarnation
        self.data = data
        self.timeline = timeline

    def holds(self, row: SlotRow) -> bool:
        return self.held.holds(row)

    def changed(self, row: SlotRow) -> SlotRow:
        epoch = raised(row.epoch, self.timeline)
        return SlotRow(row.slot, epoch, row.commits, self.to, self.to_incarnation)


class MemberStatement:
    """Changes the row of a member; None is no row."""

    LOCK: ClassVar[int] = UPDATE

    def __init__(self, name: str, incarnation: int) -> None:
        self.name = name
        self.incarnation = incarnation

    def holds(self, row: MemberRow | None) -> bool:
        """Whether the row is as this statement expects; otherwise the statement changes nothing."""
        return row is not None and row.incarnation == self.incarnation

    def changed(self, row: MemberRow | None, time_ms: int) -> MemberRow | None:
        raise NotImplementedError


@final
class Beat(MemberStatement):
    """Raise the counter of a member, then read all rows. Answered with `View`.

    The read must see everything that was committed before the row was locked: in a database where a
    statement sees the rows as of its beginning, these are two statements.
    """

    def __init__(self, name: str, incarnation: int, is_leaving: bool) -> None:
        super().__init__(name, incarnation)
        self.is_leaving = is_leaving

    def changed(self, row: MemberRow | None, time_ms: int) -> MemberRow | None:
        assert row is not None
        return MemberRow(row.name, row.incarnation, row.beat + 1, self.is_leaving, time_ms)


@final
class Join(MemberStatement):
    """Become a member, in place of the incarnation of the same name that was seen, or of none."""

    def __init__(self, name: str, incarnation: int, seen: int) -> None:
        super().__init__(name, incarnation)
        self.seen = seen

    def holds(self, row: MemberRow | None) -> bool:
        return (NOBODY if row is None else row.incarnation) == self.seen

    def changed(self, row: MemberRow | None, time_ms: int) -> MemberRow | None:
        return MemberRow(self.name, self.incarnation, 0, False, time_ms)


@final
class Bury(MemberStatement):
    """Declare a member dead if its counter is still the observed one.

    A member that beats in the meantime lives, however late this statement arrives.
    """

    def __init__(self, name: str, incarnation: int, beat: int) -> None:
        super().__init__(name, incarnation)
        self.beat = beat

    def holds(self, row: MemberRow | None) -> bool:
        return row is not None and row.incarnation == self.incarnation and row.beat == self.beat

    def changed(self, row: MemberRow | None, time_ms: int) -> MemberRow | None:
        return None


@final
class Leave(MemberStatement):
    """Leave the cluster, after all slots were given away."""

    def changed(self, row: MemberRow | None, time_ms: int) -> MemberRow | None:
        return None


Statement = SlotStatement | MemberStatement
