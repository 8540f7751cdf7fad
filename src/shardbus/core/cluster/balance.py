"""Which slots a broker should take or give away, according to the view of its last beat."""

from __future__ import annotations

from typing import final

from shardbus.core.cluster.rows import NOBODY, SlotRow, View
from shardbus.core.cluster.shares import cap, moves, ranked
from shardbus.core.cluster.tenure import OWNED, Tenure
from shardbus.core.cluster.terms import CALM_BEATS


@final
class _Free:
    """A slot without an owner, at an epoch, and the beat that saw it first."""

    def __init__(self, epoch: int, since: int) -> None:
        self.epoch = epoch
        self.since = since


@final
class Balance:
    """The conclusions of one broker from the views of its beats."""

    def __init__(self, name: str) -> None:
        self._name = name
        # Slots whose rows name this broker as the owner although it does not serve them.
        self.mine: list[SlotRow] = []
        self._wanted: list[SlotRow] = []
        self._free: dict[int, _Free] = {}
        # The incarnations of members that may get slots, and their numbers of slots.
        self._takers: dict[str, int] = {}
        self._counts: dict[str, int] = {}
        self._most = 0
        # The slots to give away, and their new owners.
        self._going: dict[int, str] = {}
        self._picture: list[tuple[str, int, bool]] = []
        self._owners: dict[int, int] = {}
        self._calm = 0

    def begin_anew(self) -> None:
        self.mine = []
        self._wanted = []
        self._free = {}
        self._going = {}
        self._calm = 0

    def see(self, view: View, incarnation: int, tenures: dict[int, Tenure], beat: int) -> None:
        names = {row.incarnation: row.name for row in view.members}
        self._takers = {row.name: row.incarnation for row in view.members if not row.is_leaving}
        self._counts = dict.fromkeys(self._takers, 0)
        for row in view.slots:
            owner = names.get(row.incarnation)
            if owner is not None and owner in self._counts:
                self._counts[owner] += 1
        if self._name in self._counts:
            self._counts[self._name] = max(self._counts[self._name], len(tenures))
        self._most = cap(len(view.slots), max(1, len(self._takers)))
        self.mine = [
            row for row in view.slots if row.incarnation == incarnation and row.slot not in tenures
        ]
        free = [row for row in view.slots if row.incarnation not in names]
        self._wanted = [*self.mine, *self._due(free, beat)]
        self._notice_calm(view, has_free=len(free) > 0)
        self._going = self._planned(view, names)

    def wanted(self, count: int) -> list[SlotRow]:
        """The next slots to take, at most `count`."""
        if count <= 0:
            return []
        wanted, self._wanted = self._wanted[:count], self._wanted[count:]
        return wanted

    def surplus(self, tenures: dict[int, Tenure], is_leaving: bool) -> list[Tenure]:
        """The slots to give away: all, if the broker is leaving."""
        if is_leaving:
            return [each for each in tenures.values() if each.state == OWNED]
        going: list[Tenure] = []
        for slot, name in self._going.items():
            tenure = tenures.get(slot)
            if tenure is not None and tenure.state == OWNED:
                tenure.to = name
                tenure.to_incarnation = self._takers[name]
                going.append(tenure)
        return going

    def is_there(self, incarnation: int) -> bool:
        """Whether slots may be given to this member."""
        return incarnation in self._takers.values()

    def find_heir(self, tenure: Tenure) -> None:
        """The member that gets a slot of a leaving owner; None if there is no other member."""
        others = {name: count for name, count in self._counts.items() if name != self._name}
        tenure.to, tenure.to_incarnation = self._name, NOBODY
        if others:
            most = max(self._most, min(others.values()) + 1)
            tenure.to = ranked(tenure.slot, "", others, most)[0]
            tenure.to_incarnation = self._takers[tenure.to]
            self._counts[tenure.to] += 1

    def _due(self, free: list[SlotRow], beat: int) -> list[SlotRow]:
        """The free slots that this broker may take now: it waits one beat for each broker that
        precedes it in the order of the slot.

        All brokers compute the same order, so that one broker takes each slot, and another only if
        the first one does not.
        """
        before, self._free = self._free, {}
        counts = dict(self._counts)
        due: list[SlotRow] = []
        for row in free:
            seen = before.get(row.slot)
            if seen is None or seen.epoch != row.epoch:
                seen = _Free(row.epoch, beat)
            self._free[row.slot] = seen
            order = ranked(row.slot, row.owner, counts, self._most)
            if not order:
                continue
            taker = order[0]
            if self._name in order and beat - seen.since >= order.index(self._name):
                taker = self._name
                due.append(row)
            counts[taker] += 1
        return due

    def _notice_calm(self, view: View, has_free: bool) -> None:
        """Counts the beats since anything changed."""
        picture = [(row.name, row.incarnation, row.is_leaving) for row in view.members]
        picture.sort()
        owners = {row.slot: row.incarnation for row in view.slots}
        if has_free or picture != self._picture or owners != self._owners:
            self._calm = 0
        else:
            self._calm += 1
        self._picture = picture
        self._owners = owners

    def _planned(self, view: View, names: dict[int, str]) -> dict[int, str]:
        """The slots to give to others so that all members have about the same number; only after
        some beats without a change, so that all see the same state.
        """
        if self._calm < CALM_BEATS:
            return {}
        owners = {row.slot: names[row.incarnation] for row in view.slots}
        planned = moves(owners, sorted(self._takers))
        return {move.slot: move.taker for move in planned if move.giver == self._name}
