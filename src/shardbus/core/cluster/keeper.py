"""Decides for one broker and one database which slots it serves, takes and gives away.

A keeper does no I/O: a driver carries out its decisions, and calls it with the results and the
time. Time is a reading of one steady clock, the same for all calls. After a connection broke, the
driver must not report answers to statements that were sent over it.
"""

from __future__ import annotations

from typing import final

from shardbus.core.cluster.balance import Balance
from shardbus.core.cluster.decision import (
    COMMITS_LOST,
    NAME_TAKEN,
    NEW_TIMELINE,
    OLD_TIMELINE,
    OTHER_CLUSTER,
    Alarm,
    Ask,
    Confirm,
    Decision,
    Drain,
    Drop,
    End,
    Reconnect,
    Resend,
    Resume,
    Serve,
    Settled,
    Stop,
)
from shardbus.core.cluster.rows import JOIN_BITS, NOBODY, TIMELINE_SHIFT, SlotRow, Taken, View
from shardbus.core.cluster.statement import (
    Beat,
    Bury,
    Commit,
    Give,
    Join,
    Leave,
    Statement,
    Take,
)
from shardbus.core.cluster.tenure import (
    DRAINING,
    GIVING,
    LOST,
    NOT_STORED,
    OWNED,
    SAME,
    STORED,
    TAKING,
    UNSURE,
    Tenure,
)
from shardbus.core.cluster.terms import BEAT_MS, LEASE_MS, MOVES_AT_ONCE, SILENCE_MS
from shardbus.core.cluster.watch import Watch
from shardbus.core.message import NEVER_MS, sooner

Answer = View | Taken | bool


@final
class Keeper:
    """The membership, the lease and the slots of one broker in one database."""

    def __init__(self, name: str, nonce: int, cluster_id: str, timeline: int) -> None:
        """`nonce` is unique to this process; `timeline` is the one recorded in the catalogue."""
        self._name = name
        self._nonce = nonce
        self._cluster_id = cluster_id
        self._timeline = timeline
        self._joins = 0
        self._incarnation = NOBODY
        self._joined_on = 0
        self._is_leaving = False
        self._is_ended = False
        self._is_connected = False
        # Whether a beat was answered on this connection; until then it carries no commits.
        self._is_verified = False
        # A beat, or a statement in its place, is unanswered since `_sent_ms`.
        self._is_asking = False
        self._sent_ms = 0
        self._beat_at_ms = 0
        self._beats = 0
        self._lease_until_ms = 0
        # No slot is taken before this time: its owner on the earlier timeline may still serve it.
        self._settled_at_ms = 0
        self._is_settled = True
        self._watch = Watch()
        self._balance = Balance(name)
        self._tenures: dict[int, Tenure] = {}
        # Slots whose hand-over data this incarnation has used, each with the last beat before that.
        self._served: dict[int, int] = {}
        self._out: list[Decision] = []

    # Queries of the driver.

    @property
    def incarnation(self) -> int:
        return self._incarnation

    def is_leased(self, now_ms: int) -> bool:
        """Whether it is certain that no other broker owns our slots."""
        return now_ms < self._lease_until_ms

    def serves(self, slot: int, now_ms: int) -> bool:
        """Whether messages of this slot may be delivered now; to be checked for each delivery."""
        tenure = self._tenures.get(slot)
        if tenure is None or tenure.state != OWNED or tenure.is_kept_back:
            return False
        return self.is_leased(now_ms)

    def commit(self, slot: int, now_ms: int) -> Commit | None:
        """The fence of the next commit of a slot; None if this broker cannot commit to it now."""
        tenure = self._tenures.get(slot)
        if tenure is None or tenure.is_committing or not self._is_verified:
            return None
        if not self.serves(slot, now_ms) and tenure.state != DRAINING:
            return None
        tenure.is_committing = True
        return tenure.fence()

    def has(self, slot: int) -> bool:
        """Whether the slot is ours, or may be, and is or will be served again."""
        return slot in self._tenures

    def fence(self, slot: int) -> Commit:
        """The fence with which a commit is sent again."""
        return self._tenures[slot].fence()

    def next_ms(self) -> int:
        """When `tick` is to be called if nothing happens before; NEVER_MS: it need not be."""
        moments: list[int] = []
        if self._is_connected:
            moments.append(self._sent_ms + LEASE_MS if self._is_asking else self._beat_at_ms)
        if self._has_running():
            moments.append(self._lease_until_ms)
        return min(moments) if moments else NEVER_MS

    # Reports of the driver.

    def connected(self, now_ms: int) -> list[Decision]:
        self._is_connected = True
        self._is_verified = False
        self._watch.begin_anew()
        self._balance.begin_anew()
        self._ask_beat(now_ms)
        return self._decided()

    def disconnected(self, now_ms: int) -> list[Decision]:
        self._broke()
        self._notice_lapse(now_ms)
        return self._decided()

    def tick(self, now_ms: int) -> list[Decision]:
        self._notice_lapse(now_ms)
        if self._is_connected and self._is_asking:
            if now_ms - self._sent_ms >= LEASE_MS:
                # The connection may be broken in one direction only, which no error reports.
                self._out.append(Reconnect())
                self._broke()
        elif self._is_connected and now_ms >= self._beat_at_ms:
            self._ask_beat(now_ms)
        return self._decided()

    def stop(self, now_ms: int) -> list[Decision]:
        """Leave: give all slots away, and tell the others not to give any."""
        self._is_leaving = True
        self._beat_at_ms = now_ms
        self._give_more()
        return self._decided()

    def drained(self, slot: int, data: bytes, now_ms: int) -> list[Decision]:
        """All requests to a slot are answered; `data` has the locks and sessions for its next
        owner.
        """
        tenure = self._tenures.get(slot)
        if tenure is None or tenure.state != DRAINING or tenure.is_committing:
            return []
        if self._is_leaving:
            self._balance.find_heir(tenure)
        if not self._is_leaving and not self._balance.is_there(tenure.to_incarnation):
            tenure.state = OWNED
            self._out.append(Resume(slot))
        elif self.is_leased(now_ms) and self._is_verified:
            self._note(tenure)
            self._out.append(Ask(tenure.give(data, self._timeline)))
        else:
            # It is drained again after its verification, because locks may end until then.
            tenure.state = OWNED
            self._halt(tenure)
        return self._decided()

    def committed(self, commit: Commit, is_stored: bool) -> list[Decision]:
        """A commit was answered; if it was not stored, its fence did not match the row."""
        tenure = self._tenures.get(commit.slot)
        if tenure is None or not tenure.is_committing or tenure.epoch != commit.epoch:
            return []
        if is_stored:
            tenure.committed()
        else:
            self._drop(tenure)
        return self._decided()

    def withdraw(self, commit: Commit) -> None:
        """A commit that is not under way will not be sent: it was refused for another reason than
        its fence, or `Resend` was decided and nobody waits for it any more.
        """
        tenure = self._tenures.get(commit.slot)
        if tenure is None or not tenure.is_committing or tenure.state not in (OWNED, DRAINING):
            return
        if tenure.epoch == commit.epoch and tenure.commits == commit.number - 1:
            tenure.is_committing = False

    def answered(self, statement: Statement, answer: Answer, now_ms: int) -> list[Decision]:
        """The outcome of a statement; False if the row was not as expected."""
        if self._is_ended:
            return []
        if isinstance(statement, Beat):
            assert isinstance(answer, View)
            self._is_asking = False
            self._beat_at_ms = self._sent_ms + BEAT_MS
            self._see(answer, now_ms)
        elif isinstance(statement, Join):
            self._is_asking = False
            self._beat_at_ms = now_ms
            if answer:
                self._incarnation = statement.incarnation
                self._joined_on = self._timeline
            self._ask_beat(now_ms)
        elif isinstance(statement, Bury):
            self._beat_at_ms = now_ms
        elif isinstance(statement, Leave):
            self._end()
        elif isinstance(statement, Take):
            self._took(statement, answer)
        elif isinstance(statement, Give):
            self._gave(statement, bool(answer))
        return self._decided()

    # Beats.

    def _ask_beat(self, now_ms: int) -> None:
        self._beats += 1
        for tenure in self._tenures.values():
            tenure.commits_at_beat = tenure.commits
        self._send(Beat(self._name, self._incarnation, self._is_leaving), now_ms)

    def _send(self, statement: Statement, now_ms: int) -> None:
        self._is_asking = True
        self._sent_ms = now_ms
        self._out.append(Ask(statement))

    def _see(self, view: View, now_ms: int) -> None:
        if not self._accepts(view):
            self._out.append(Reconnect())
            self._broke()
            return
        has_lapsed = not self.is_leased(now_ms)
        if view.timeline > self._timeline:
            self._begin_timeline(view.timeline, has_lapsed, now_ms)
        if has_lapsed:
            # A broker that could not beat for this long cannot know whether others did.
            self._watch.begin_anew()
        self._is_verified = True
        if not view.is_member:
            self._join(view, now_ms)
            return
        # Our row exists on this timeline. If another process's row replaces it later, that process
        # joined after us.
        self._joined_on = view.timeline
        self._lease_until_ms = self._sent_ms + LEASE_MS
        if not self._is_settled and now_ms >= self._settled_at_ms:
            self._settle()
        for bury in self._watch.silent(view, self._name, self._sent_ms, now_ms):
            self._out.append(Ask(bury))
        # At once, and not with the next beat, up to a second later.
        self._beat_at_ms = sooner(self._beat_at_ms, self._watch.due_ms)
        self._verify(view)
        self._balance.see(view, self._incarnation, self._tenures, self._beats)
        if self._is_settled:
            self._take_more()
            self._give_more()
        if self._is_leaving and not self._tenures and not self._balance.mine:
            self._out.append(Ask(Leave(self._name, self._incarnation)))

    def _accepts(self, view: View) -> bool:
        if view.cluster_id != self._cluster_id:
            text = f"The database is of cluster {view.cluster_id!r}, not {self._cluster_id!r}."
            self._alarm(OTHER_CLUSTER, text)
            return False
        if view.timeline < self._timeline:
            text = (
                f"The database is on timeline {view.timeline}; timeline {self._timeline} was seen "
                "before. It is an old copy or an old primary: connect to the present one."
            )
            self._alarm(OLD_TIMELINE, text)
            return False
        return True

    def _begin_timeline(self, timeline: int, has_lapsed: bool, now_ms: int) -> None:
        """The failover may have lost the last take-overs of the earlier timeline, whose owners
        serve until their leases end. A broker that had its lease all the time lost no slot.
        """
        self._timeline = timeline
        self._is_settled = False
        self._settled_at_ms = now_ms + SILENCE_MS
        self._watch.begin_anew()
        text = (
            f"The database is on the new timeline {timeline}: the state of each slot is compared."
        )
        self._alarm(NEW_TIMELINE, text)
        for tenure in self._tenures.values():
            if has_lapsed:
                tenure.is_kept_back = True
                self._halt(tenure)

    def _settle(self) -> None:
        self._is_settled = True
        self._out.append(Settled(self._timeline))
        for tenure in self._tenures.values():
            tenure.is_kept_back = False

    def _join(self, view: View, now_ms: int) -> None:
        """Another broker declared us dead, or another process has our name, or we are new."""
        row = view.member(self._name)
        seen = NOBODY if row is None else row.incarnation
        is_other = seen != NOBODY and seen >> JOIN_BITS != self._nonce
        if self._incarnation != NOBODY:
            for tenure in list(self._tenures.values()):
                self._compare(tenure, view)
                self._drop(tenure)
            self._incarnation = NOBODY
            self._served.clear()
            self._lease_until_ms = 0
            if is_other and self._joined_on == view.timeline:
                self._alarm(NAME_TAKEN, f"Another process is broker {self._name!r} now.")
                self._end()
        if self._is_leaving:
            self._end()
        if not self._is_ended:
            self._joins += 1
            joining = Join(self._name, self._nonce << JOIN_BITS | self._joins, seen)
            self._send(joining, now_ms)

    # Slots that are ours.

    def _verify(self, view: View) -> None:
        rows = {row.slot: row for row in view.slots}
        for slot, beat in list(self._served.items()):
            if rows[slot].incarnation != self._incarnation and beat < self._beats:
                # If the slot returns to us later, it has the locks of another owner.
                del self._served[slot]
        for tenure in list(self._tenures.values()):
            row = rows[tenure.slot]
            if tenure.state in (TAKING, GIVING) or tenure.changed_in >= self._beats:
                # The beat may have seen the row before this change.
                continue
            if row.incarnation != self._incarnation or self._is_another(row, tenure):
                self._compare(tenure, view)
                self._drop(tenure)
                self._served.pop(tenure.slot, None)
            elif tenure.state == UNSURE or not self._is_as_known(row, tenure):
                tenure.state = UNSURE
                self._halt(tenure)
                if self._is_settled:
                    self._note(tenure)
                    self._out.append(Ask(tenure.take(row, self._timeline)))
            elif tenure.is_stopped and not tenure.is_kept_back:
                tenure.is_stopped = False
                if tenure.state == OWNED:
                    self._out.append(Resume(tenure.slot))

    def _is_another(self, row: SlotRow, tenure: Tenure) -> bool:
        """Whether another broker may have owned the slot since: it was taken or given on this
        timeline, and our state is that of an earlier timeline, whose end may be lost.
        """
        begin = (self._timeline - 1) << TIMELINE_SHIFT
        return tenure.epoch < begin <= row.epoch

    def _is_as_known(self, row: SlotRow, tenure: Tenure) -> bool:
        return row.epoch == tenure.epoch and row.commits >= tenure.commits_at_beat

    def _compare(self, tenure: Tenure, view: View) -> None:
        """A slot is missing, and perhaps acknowledged commits with it."""
        for row in view.slots:
            if row.slot == tenure.slot and tenure.changed_in < self._beats:
                is_behind = row.commits < tenure.commits_at_beat
                if tenure.is_loaded and (is_behind or row.epoch < tenure.epoch):
                    self._lost(tenure.slot, row.commits, tenure.commits_at_beat)

    def _took(self, take: Take, answer: Answer) -> None:
        tenure = self._tenures.get(take.slot)
        if tenure is None or tenure.state != TAKING or tenure.incarnation != take.incarnation:
            return
        self._note(tenure)
        if not isinstance(answer, Taken):
            tenure.state = UNSURE
            if not tenure.is_loaded:
                del self._tenures[tenure.slot]
            self._take_more()
            return
        known = tenure.commits
        verdict = tenure.taken(answer.epoch, answer.commits)
        if verdict == LOST:
            self._lost(tenure.slot, answer.commits, known)
        elif verdict == STORED:
            self._out.append(Confirm(tenure.slot))
        data = None if tenure.slot in self._served else answer.data
        self._served[tenure.slot] = self._beats
        tenure.is_stopped = False
        must_load = verdict not in (SAME, STORED, NOT_STORED)
        serve = Serve(tenure.slot, tenure.epoch, tenure.commits, must_load, data)
        self._out.append(serve)
        if verdict == NOT_STORED:
            self._out.append(Resend(tenure.slot))
        self._take_more()
        self._give_more()

    def _gave(self, give: Give, is_given: bool) -> None:
        tenure = self._tenures.get(give.slot)
        if tenure is None or tenure.state != GIVING:
            return
        self._note(tenure)
        if is_given:
            self._served.pop(give.slot, None)
            self._drop(tenure)
            self._give_more()
        else:
            tenure.state = UNSURE

    def _take_more(self) -> None:
        """Take slots that the last beat saw and that this broker may take, a few at a time."""
        taking = [each for each in self._tenures.values() if not each.is_loaded]
        for row in self._balance.wanted(MOVES_AT_ONCE - len(taking)):
            if row.slot not in self._tenures:
                tenure = Tenure(row.slot, self._name, self._incarnation)
                self._note(tenure)
                self._tenures[row.slot] = tenure
                self._out.append(Ask(tenure.take(row, self._timeline)))

    def _give_more(self) -> None:
        """Drain slots that are to be given to others, a few at a time."""
        if not self._is_verified:
            return
        going = [each for each in self._tenures.values() if each.state in (DRAINING, GIVING)]
        left = MOVES_AT_ONCE - len(going)
        for tenure in self._balance.surplus(self._tenures, self._is_leaving):
            if left > 0 and not tenure.is_kept_back:
                left -= 1
                tenure.state = DRAINING
                self._out.append(Drain(tenure.slot))

    # Changes of slots.

    def _broke(self) -> None:
        self._is_connected = False
        self._is_verified = False
        self._is_asking = False
        for tenure in list(self._tenures.values()):
            tenure.broke()
            if not tenure.is_loaded:
                # If it was taken, the next view will show it as ours.
                del self._tenures[tenure.slot]
            elif tenure.state == UNSURE:
                self._halt(tenure)

    def _notice_lapse(self, now_ms: int) -> None:
        if not self.is_leased(now_ms):
            for tenure in self._tenures.values():
                self._halt(tenure)

    def _has_running(self) -> bool:
        return any(each.is_loaded and not each.is_stopped for each in self._tenures.values())

    def _halt(self, tenure: Tenure) -> None:
        if tenure.is_loaded and not tenure.is_stopped:
            tenure.is_stopped = True
            self._out.append(Stop(tenure.slot))

    def _drop(self, tenure: Tenure) -> None:
        del self._tenures[tenure.slot]
        if tenure.is_loaded:
            self._out.append(Drop(tenure.slot))

    def _note(self, tenure: Tenure) -> None:
        """The view of an unanswered beat is outdated for this slot."""
        tenure.changed_in = self._beats

    def _end(self) -> None:
        for tenure in list(self._tenures.values()):
            self._drop(tenure)
        self._is_ended = True
        self._is_connected = False
        self._out.append(End())

    def _lost(self, slot: int, stored: int, known: int) -> None:
        text = (
            f"Slot {slot} has {stored} commits and had {known}: the database lost commits that "
            "were acknowledged. It failed over to a copy without them."
        )
        self._out.append(Alarm(COMMITS_LOST, slot, text))

    def _alarm(self, kind: str, text: str) -> None:
        self._out.append(Alarm(kind, -1, text))

    def _decided(self) -> list[Decision]:
        decided, self._out = self._out, []
        return decided
