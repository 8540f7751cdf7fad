"""Runs one fragment: drain the inbox, apply everything, commit once, then answer."""
# Compiled by mypyc.

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, final

from shardbus.broker.clock import TimedClock
from shardbus.broker.fragment.alarm import Alarm
from shardbus.broker.fragment.answers import Answers, ReplyTo, say
from shardbus.broker.fragment.biting import Biting, bitten_on
from shardbus.broker.fragment.deciding import Deciding, may_be_overtaken
from shardbus.broker.fragment.handing import take_over
from shardbus.broker.fragment.joint import Broken, Joint, JointPart
from shardbus.broker.fragment.led import Led, standing_of
from shardbus.broker.fragment.outlet import Outlet
from shardbus.broker.fragment.reading import Found, Lacking, Loaded, Reading, feed, read_lacking
from shardbus.broker.fragment.recovery import FragmentRecovery
from shardbus.broker.fragment.storage import Storage
from shardbus.broker.fragment.stored import StoredFragment
from shardbus.broker.fragment.watching import Watchers
from shardbus.core.errors import Unavailable
from shardbus.core.fragment.bounds import Bounds
from shardbus.core.fragment.change import Change, Remove, Update
from shardbus.core.fragment.command import Command, FragmentRules, SetAside
from shardbus.core.fragment.fragment import Fragment
from shardbus.core.fragment.handover import HandOver
from shardbus.core.fragment.need import Need
from shardbus.core.limits import PAGE_BYTES_MAX
from shardbus.core.messages.command import NO_SESSION, Receive
from shardbus.core.sealing.seal import Standing
from shardbus.stores.base.store import (
    Due,
    FragmentCommit,
    FragmentId,
    MessageStore,
    NotStored,
    StoreError,
)

log = logging.getLogger(__name__)

AVAILABLE: Final = "available"
RECOVERING: Final = "recovering"
UNAVAILABLE: Final = "unavailable"

INBOX_MAX: Final = 10_000


@final
class Runner(StoredFragment):
    """The one owner of a fragment.

    While a commit, a page read or a load is under way nothing is applied: commands wait in the
    inbox, so that memory and store cannot diverge. Only a locking receive is answered while a
    commit of removals is being stored.

    After a failed commit the fragment comes back only when a write has succeeded (`recovery`).
    Until then commands are Unavailable, watchers wait, and `browse` shows what is stored.

    The fragment of a topic has an `outlet`: it stores what it publishes together with the
    subscriptions that get it (see `joint`). It does nothing before these are known. Those are `led`
    by it: `standing` is what is stored of it.
    """

    def __init__(  # noqa: PLR0913 - what it is made of
        self,
        fragment_id: FragmentId,
        rules: FragmentRules,
        storage: Storage,
        clock: TimedClock,
        loop: asyncio.AbstractEventLoop,
        outlet: Outlet | None = None,
        bounds: Bounds | None = None,
        handed: HandOver | None = None,
        led: Led | None = None,
    ) -> None:
        super().__init__(fragment_id, storage)
        self.state = RECOVERING
        self._reason = "the fragment is being loaded"
        self._rules, self._bounds = rules, bounds
        self._clock = clock
        self._loop = loop
        self._fragment: Fragment | None = None
        self._handed = handed
        # Numbers up to here are stored; those above may not be stored, and be given out again.
        self.stored_counter = 0
        self._inbox: list[tuple[Command, ReplyTo]] = []
        self._answers = Answers()
        # What the first command of the inbox waits for; and whether that was read.
        self._need: Need | None = None
        self._is_fed = False
        self._watchers = Watchers(loop)
        self._used_ms, self._used_at_ms = clock.steady_ms(), clock.now_ms()
        self._is_busy = True
        self._is_drain_scheduled = False
        # The fragment while a commit of nothing but removals is under way.
        self._removing: Fragment | None = None
        # Whether the inbox has a command that a receive may not overtake.
        self._is_held_up = False
        self._is_stopped = False
        # Commands wait for the very first load; after a failure they are refused instead.
        self._is_first_load = True
        self._recovery = FragmentRecovery(fragment_id, storage, clock, loop)
        self._alarm = Alarm(clock, loop, self._schedule)
        self._biting = Biting(storage, loop, self.submit, self._schedule)
        self._outlet = outlet
        self._led = led
        self.standing: Standing | None = None
        # The joint that this fragment leads, and its part in that of another.
        self._joint: Joint | None = None
        self._part: JointPart | None = None
        self._is_started = False
        if outlet is None or outlet.is_told:
            self.start()
        else:
            self._reason = "the broker has not been told who subscribes to the topic"
            self._is_first_load = False

    def start(self) -> None:
        """Load the fragment, unless that was begun before."""
        if not self._is_started:
            self._is_started = True
            self._is_first_load = True
            self._load()

    @property
    def is_available(self) -> bool:
        return self.state == AVAILABLE

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is under way: everything that was due has been decided and stored."""
        is_working = self._is_busy and self._fragment is not None
        return not (is_working or self._is_drain_scheduled or self._inbox or self._is_first_load)

    @property
    def reason(self) -> str:
        """Why it is unavailable; for an available one, why it accepts no additions."""
        return self._storage.shortage if self.state == AVAILABLE else self._reason

    def submit(self, command: Command, reply_to: ReplyTo) -> None:
        """Apply a command in turn; `reply_to` is called once, after its changes are stored."""
        if self.state != AVAILABLE and not self._is_first_load:
            reply_to(Unavailable(self._why_not()))
        elif len(self._inbox) >= INBOX_MAX:
            reply_to(Unavailable(f"Fragment {self.fragment_id.number} has too many commands."))
        elif not self._answered_beside(command, reply_to):
            self._inbox.append((command, reply_to))
            self._is_held_up = self._is_held_up or not may_be_overtaken(command)
            self._schedule()

    @property
    def unused_ms(self) -> int:
        """For how long no client used the fragment; 0 while a receiver waits for messages."""
        return self._clock.steady_ms() - self._used_ms if self._watchers.is_empty() else 0

    @property
    def last_used_ms(self) -> int:
        """The moment at which `unused_ms` began."""
        return self._used_at_ms if self._watchers.is_empty() else self._clock.now_ms()

    def configure(self, rules: FragmentRules) -> None:
        self._rules = rules
        if self._fragment is not None:
            self._fragment.configure(rules)

    def watch(self, line: int, wake: Callable[[], None], session: bytes = NO_SESSION) -> None:
        """See `dispatch.FragmentPort`."""
        self._watchers.add(self._fragment, line, wake, session)

    def unwatch(self, line: int, wake: Callable[[], None], session: bytes = NO_SESSION) -> None:
        self._watchers.remove(line, wake, session)

    @property
    def is_resting(self) -> bool:
        """Whether nothing is under way, nor waits."""
        is_busy = self._is_busy and (self.state == AVAILABLE or self._is_first_load)
        return not (is_busy or self._inbox or self._is_drain_scheduled or self._part is not None)

    def statistics(self) -> Fragment | None:
        """The fragment, for reading its counters; None while it is not in memory."""
        return self._fragment

    def stop(self) -> None:
        """Give no more answers and drop the fragment from memory; what was stored stays stored."""
        self._is_stopped = True
        self._recovery.stop()
        self.state = UNAVAILABLE
        self._reason = "the fragment was stopped"
        self._fragment = None
        self._is_first_load = False
        self._alarm.cancel()
        self._storage.withdraw(self.fragment_id)
        if self._outlet is not None:
            self._outlet.forget()
        self._leave_joints()
        self._answers.fail(self.reason, is_unknown=True)
        self._turn_away(self.reason)

    def join(self, part: JointPart) -> None:
        """Wait as soon as the work under way is done, and tell the joint."""
        assert self._part is None, "a fragment takes part in the joints of one leader only"
        if self._is_stopped:
            part.joint.left(part)
        elif self.state != AVAILABLE and not self._is_first_load:
            part.joint.break_off(self._why_not())
        else:
            self._part = part
            if not self._is_busy and not self._is_fed:
                self._hold(part)

    def deliver(self, part: JointPart, count_max: int) -> int:
        """Take over the next entries that the leader has for this fragment; returns how many."""
        fragment = self._fragment
        assert fragment is not None and self._part is part
        entries = part.entries
        if len(entries) > count_max or part.delivered:
            entries = entries[part.delivered : part.delivered + count_max]
        part.changes += fragment.deliver(entries)
        part.delivered += len(entries)
        return len(entries)

    def take_part(self, part: JointPart) -> FragmentCommit:
        """The part is taken over: decide the commands that wait here."""
        fragment = self._fragment
        assert fragment is not None and self._part is part and part.is_delivered
        changes = part.changes
        changes += self._apply_inbox(fragment)
        changes += fragment.records()
        return FragmentCommit(self.fragment_id, changes, fragment.counters)

    def took_part(self, part: JointPart, error: StoreError | None) -> None:
        """The joint decision is stored, or that is unknown."""
        fragment = self._fragment
        if fragment is None or self._part is not part:
            return
        self._part = None
        self._committed(fragment, error)

    def let_go(self, part: JointPart) -> None:
        """The joint was given up: continue."""
        if self._part is not part:
            return
        self._part = None
        if part.is_held and self._fragment is not None:
            self._is_busy = False
            self._go_on(self._fragment)

    def _hold(self, part: JointPart) -> None:
        self._is_busy = True
        # What the first command needs is read again after the part has been taken over.
        self._need = None
        part.joint.held(part)

    def _leave_joints(self) -> None:
        part, self._part = self._part, None
        if part is not None:
            part.joint.left(part)
        joint, self._joint = self._joint, None
        if joint is not None:
            joint.dissolve()

    def _why_not(self) -> str:
        return f"Fragment {self.fragment_id.number} is {self.state}: {self.reason}"

    def _answered_beside(self, command: Command, reply_to: ReplyTo) -> bool:
        """Answer a receive while removals are being stored, which it neither sees nor changes.

        Receivers got half as much without it (16 fragments: 44,600 messages a second, not 83,600).
        """
        fragment = self._fragment
        is_beside = self._removing is fragment and not self._is_held_up
        if fragment is None or not is_beside or not isinstance(command, Receive):
            return False
        if self._led is not None:
            self._led.lead(fragment)
        now_ms, steady_ms = self._clock.now_ms(), self._clock.steady_ms()
        received = fragment.receive_beside(command, now_ms, steady_ms)
        if received is None:
            return False
        self._used_ms, self._used_at_ms = steady_ms, now_ms
        say(reply_to, received)
        return True

    def _schedule(self) -> None:
        if not self._is_drain_scheduled and not self._is_busy:
            self._is_drain_scheduled = True
            self._loop.call_soon(self._drain)

    def _drain(self) -> None:
        self._is_drain_scheduled = False
        fragment = self._fragment
        if self._is_busy or fragment is None:
            return
        if self._outlet is not None:
            self._outlet.begin_turn()
        try:
            changes = self._apply_inbox(fragment)
        except Exception as bug:
            log.exception("fragment %s: internal error in a decision", self.fragment_id)
            self._forget(NotStored(f"internal error: {bug}"))
            return
        if changes or fragment.is_unfinished:
            self._commit(fragment, changes)
        else:
            self._applied(fragment)

    def _apply_inbox(self, fragment: Fragment) -> list[Change]:
        now_ms, steady_ms = self._clock.now_ms(), self._clock.steady_ms()
        fragment.note_shortage(self._storage.shortage)
        if self._led is not None:
            self._led.lead(fragment)
        is_fed, self._is_fed = self._is_fed, False
        inbox = self._inbox
        if inbox:
            self._used_ms, self._used_at_ms = steady_ms, now_ms
        deciding = Deciding(fragment, self._outlet, self._answers, now_ms, steady_ms)
        try:
            deciding.apply(inbox, is_fed=is_fed)
        finally:
            self._inbox = inbox[deciding.applied :]
            self._is_held_up = bool(self._inbox)
        self._need = deciding.need
        return deciding.changes + fragment.tickets.changes()

    def _decide_on(self, fragment: Fragment, changes: list[Change]) -> None:
        """Continue a decision that is too large for one turn of the loop.

        Nothing of it is stored, answered or visible before it is complete, and commands wait.
        """
        if self._fragment is not fragment:
            return
        try:
            changes += self._decided_on(fragment)
        except Exception as bug:
            log.exception("fragment %s: internal error in a decision", self.fragment_id)
            self._forget(NotStored(f"internal error: {bug}"))
            return
        self._commit(fragment, changes)

    def _decided_on(self, fragment: Fragment) -> list[Change]:
        """The changes that one more turn of the loop decides."""
        outlet = self._outlet
        if outlet is not None:
            outlet.begin_turn()
            outlet.publish_on(fragment)
            if outlet.is_unfinished:
                return []
        if fragment.is_unfinished:
            return bitten_on(fragment, outlet)
        return self._apply_inbox(fragment)

    def _wants_turn(self, fragment: Fragment) -> bool:
        """Whether more is to be decided before anything is stored."""
        is_waiting = bool(self._inbox) and self._need is None and not fragment.lacks_much()
        is_asked_for = self._outlet is not None and self._outlet.wants_turn(is_waiting)
        return is_asked_for or fragment.is_unfinished

    def _commit(self, fragment: Fragment, changes: list[Change]) -> None:
        self._is_busy = True
        if self._wants_turn(fragment):
            self._loop.call_soon(self._decide_on, fragment, changes)
            return
        if all(isinstance(change, Remove) for change in changes):
            self._removing = fragment
        changes += fragment.records()
        commit = FragmentCommit(self.fragment_id, changes, fragment.counters)

        def done(error: StoreError | None) -> None:
            if self._fragment is fragment:
                self._committed(fragment, error)

        if self._outlet is not None:
            deliveries = self._outlet.take()
            if deliveries:
                self._joint = Joint(
                    commit, self._storage, done, self._loop, self._outlet.delivered_max
                )
                self._joint.begin(deliveries)
                return
        self._storage.commit(commit, done)
        if self._removing is fragment:
            # Receives that were decided together with removals need not wait for them either.
            self._answers.give_locked()

    def _committed(self, fragment: Fragment, error: StoreError | None) -> None:
        self._is_busy = False
        self._removing = None
        self._joint = None
        if error is None:
            self._applied(fragment)
            return
        if not isinstance(error, NotStored):
            self._recovery.note_unwritten()
        self._forget(error)

    def _applied(self, fragment: Fragment) -> None:
        """Everything applied is stored: read what replies lack, answer, continue."""
        if self._answers.are_lacking():
            self._read_lacking(fragment)
        else:
            self._answer(fragment)

    def _answer(self, fragment: Fragment) -> None:
        fragment.after_commit()
        self._note_stored(fragment)
        self._answers.give()
        if self._fragment is fragment:
            self._go_on(fragment)

    def _note_stored(self, fragment: Fragment) -> None:
        self.stored_counter = fragment.counters.last_counter
        if self._outlet is not None:
            self.standing = standing_of(fragment.seal, fragment.counters)

    def _go_on(self, fragment: Fragment) -> None:
        """Between two drains: read pages, expire, wake receivers, publish, set the alarm."""
        self._biting.go_on(fragment)
        if self._part is not None and not self._is_fed:
            self._watchers.wake(fragment)
            self._hold(self._part)
            return
        now_ms = self._clock.now_ms()
        need, self._need = self._need, None
        if need is not None:
            self._read(fragment, need, is_for_command=True)
        elif self._is_fed:
            self._schedule()
        elif (page := fragment.reads.wanted()) is not None:
            self._read(fragment, page, is_for_command=False)
        elif fragment.wants_due(now_ms):
            self._read_due(fragment, now_ms)
        else:
            self._alarm.set(fragment.due_at_ms(), fragment.deadline_ms())
            if self._inbox:
                self._schedule()
        self._watchers.wake(fragment)

    def _read_lacking(self, fragment: Fragment) -> None:
        self._is_busy = True
        fragment_id = self.fragment_id
        numbers, session_ids = self._answers.unread, self._answers.session_ids

        def job(store: MessageStore) -> Lacking:
            return read_lacking(store, fragment_id, numbers, session_ids)

        def done(found: Lacking | StoreError) -> None:
            if self._fragment is not fragment:
                return
            self._is_busy = False
            if isinstance(found, StoreError):
                self._forget(found)
            else:
                self._fill(fragment, found)

        self._storage.read(job, done)

    def _fill(self, fragment: Fragment, found: Lacking) -> None:
        self._answers.fill(found)
        damaged = [number for number, payload in found.payloads.items() if payload is None]
        if damaged:
            clock = self._clock
            outcome = fragment.apply(SetAside(damaged), clock.now_ms(), clock.steady_ms())
            updated = [change for change in outcome.changes if isinstance(change, Update)]
            if updated:
                aside = [entry.sequence_number for each in updated for entry in each.entries]
                log.error("fragment %s: damaged messages %s set aside", self.fragment_id, aside)
                self._commit(fragment, outcome.changes)
                return
        # A message that was released and removed in the same turn is gone, not damaged.
        self._answer(fragment)

    def _read(self, fragment: Fragment, need: Need, *, is_for_command: bool) -> None:
        self._is_busy = True
        reading = Reading(self.fragment_id, need)

        def done(found: Found | StoreError | None) -> None:
            if self._fragment is not fragment:
                return
            if found is None:
                self._storage.read(reading.step, done)
                return
            self._is_busy = False
            if isinstance(found, StoreError):
                self._forget(found)
                return
            changes = feed(fragment, need, found, self._clock.now_ms())
            self._is_fed = is_for_command
            self._commit_or_go_on(fragment, changes)

        self._storage.read(reading.step, done)

    def _read_due(self, fragment: Fragment, now_ms: int) -> None:
        self._is_busy = True
        fragment_id, count_max = self.fragment_id, fragment.due_count_max()
        # No claim changes before the answer comes.
        claimed = fragment.claims()

        def job(store: MessageStore) -> Due:
            return store.read_due(
                fragment_id,
                now_ms=now_ms,
                count_max=count_max,
                bytes_max=PAGE_BYTES_MAX,
                claimed=claimed,
            )

        def done(due: Due | StoreError) -> None:
            if self._fragment is not fragment:
                return
            self._is_busy = False
            if isinstance(due, StoreError):
                self._forget(due)
                return
            if self._outlet is not None and self._outlet.is_held:
                # Nothing is published with incomplete rules: the messages are read again later.
                self._go_on(fragment)
                return
            if due.damaged:
                log.error("fragment %s: damaged messages %s set aside", fragment_id, due.damaged)
            try:
                changes = fragment.due_in(due.entries, due.damaged, due.next_due_ms, now_ms)
                if self._outlet is not None:
                    self._outlet.begin_turn()
                    self._outlet.publish(fragment)
            except Exception as bug:
                log.exception("fragment %s: internal error in a decision", self.fragment_id)
                self._forget(NotStored(f"internal error: {bug}"))
                return
            self._commit_or_go_on(fragment, changes)

        self._storage.read(job, done)

    def _commit_or_go_on(self, fragment: Fragment, changes: list[Change]) -> None:
        if changes:
            self._commit(fragment, changes)
        else:
            self._go_on(fragment)

    def _load(self) -> None:
        followers = [] if self._outlet is None else self._outlet.followers()
        leader = None if self._led is None else self._led.to_be_read()
        window_ms = self._rules.duplicate_window_ms
        self._recovery.load(window_ms, followers, self._loaded, self._handed, leader)

    def _loaded(self, loaded: Loaded | StoreError) -> None:
        steady_ms = self._clock.steady_ms()
        fragment = self._recovery.fragment(loaded, self._rules, self._bounds, steady_ms)
        if isinstance(fragment, StoreError):
            self._load_failed(fragment)
            return
        assert isinstance(loaded, Loaded)
        self._fragment = fragment
        take_over(fragment, self._handed, loaded, steady_ms)
        self._handed = None
        self._note_stored(fragment)
        if self._led is not None:
            self._led.was_read(loaded.leader)
        self.state = AVAILABLE
        self._reason = ""
        self._is_first_load = False
        self._is_busy = False
        self._recovery.note_loaded()
        self._watchers.wake_sessions()
        self._go_on(fragment)

    def _forget(self, error: StoreError) -> None:
        """A failed commit is unknown unless the error says otherwise: load the fragment again."""
        log.error("fragment %s: %s; it is loaded again", self.fragment_id, error)
        self._recovery.note_lost(is_own_fault=not isinstance(error, Broken))
        self._fragment = None
        self._need = None
        self._is_fed = False
        self._alarm.cancel()
        if self._outlet is not None:
            self._outlet.forget()
        self._answers.fail(str(error), is_unknown=not isinstance(error, NotStored))
        self._load_failed(error)

    def _load_failed(self, error: StoreError) -> None:
        self.state = UNAVAILABLE
        self._reason = str(error)
        self._is_first_load = False
        self._is_busy = True
        self._turn_away(str(error))
        part, self._part = self._part, None
        if part is not None:
            part.joint.break_off(self._why_not())
        # Unavailable until it succeeds: an attempt that fails again was no recovery.
        self._recovery.again_later(self._load)

    def _turn_away(self, reason: str) -> None:
        """Refuse the commands that were not applied yet as unavailable."""
        inbox, self._inbox = self._inbox, []
        for _, reply_to in inbox:
            say(reply_to, Unavailable(reason))
