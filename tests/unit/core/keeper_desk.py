"""A keeper, the rows that its beats see, and whoever answers it."""

from __future__ import annotations

from typing import TypeVar

from shardbus.core.cluster.decision import Ask, Decision
from shardbus.core.cluster.keeper import Keeper
from shardbus.core.cluster.rows import JOIN_BITS, NOBODY, MemberRow, SlotRow, Taken, View
from shardbus.core.cluster.statement import Beat, Join, Statement, Take

D = TypeVar("D", bound=Decision)
S = TypeVar("S", bound=Statement)

ME = 9 << JOIN_BITS | 1
OTHER = 4 << JOIN_BITS | 1


class Desk:
    """A keeper called `a`, and the rows that its beats see."""

    def __init__(self, slots: int = 2, timeline: int = 1) -> None:
        self.keeper = Keeper("a", 9, "c1", timeline)
        self.now_ms = 50_000
        self.timeline = 1
        self.cluster_id = "c1"
        self.members: dict[str, MemberRow] = {}
        self.slots = {slot: SlotRow(slot, 0, 0, "", NOBODY) for slot in range(slots)}
        self.decided: list[Decision] = []

    def note(self, decisions: list[Decision]) -> None:
        self.decided = decisions

    def all(self, kind: type[D]) -> list[D]:
        return [decision for decision in self.decided if isinstance(decision, kind)]

    def asked(self, kind: type[S]) -> list[S]:
        statements = [decision.statement for decision in self.all(Ask)]
        return [statement for statement in statements if isinstance(statement, kind)]

    def view(self) -> View:
        me = self.members.get("a")
        is_member = me is not None and me.incarnation == self.keeper.incarnation
        rows, slots = list(self.members.values()), list(self.slots.values())
        return View(self.cluster_id, self.timeline, 0, is_member, rows, slots)

    def join(self) -> Desk:
        self.note(self.keeper.connected(self.now_ms))
        [beat] = self.asked(Beat)
        self.note(self.keeper.answered(beat, self.view(), self.now_ms))
        [joining] = self.asked(Join)
        self.members["a"] = MemberRow("a", joining.incarnation, 0, False, 0)
        self.note(self.keeper.answered(joining, True, self.now_ms))
        return self.answer()

    def answer(self, after_ms: int = 0) -> Desk:
        """Answer the beat that is under way."""
        [beat] = self.asked(Beat)
        self.now_ms += after_ms
        self.note(self.keeper.answered(beat, self.view(), self.now_ms))
        return self

    def beat(self, after_ms: int = 1_000) -> Desk:
        self.now_ms += after_ms
        self.note(self.keeper.tick(self.now_ms))
        return self.answer()

    def take(self, commits: int = 0, data: bytes | None = None) -> Desk:
        """Let every take that is under way succeed."""
        decided: list[Decision] = []
        for take in self.asked(Take):
            self.slots[take.slot] = take.changed(self.slots[take.slot])
            taken = Taken(self.slots[take.slot].epoch, commits, data)
            decided += self.keeper.answered(take, taken, self.now_ms)
        self.note(decided)
        return self

    def break_up(self) -> Desk:
        self.note(self.keeper.disconnected(self.now_ms))
        return self

    def reconnect(self) -> Desk:
        self.note(self.keeper.connected(self.now_ms))
        return self.answer()

    def commit(self, slot: int = 0) -> Desk:
        """Store a commit."""
        fence = self.keeper.commit(slot, self.now_ms)
        assert fence is not None
        self.slots[slot] = fence.changed(self.slots[slot])
        self.note(self.keeper.committed(fence, True))
        return self

    def serves(self, slot: int = 0) -> bool:
        return self.keeper.serves(slot, self.now_ms)

    def add(self, name: str, incarnation: int = OTHER, beat: int = 0) -> None:
        self.members[name] = MemberRow(name, incarnation, beat, False, 0)
