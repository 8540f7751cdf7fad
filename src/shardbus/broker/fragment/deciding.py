"""The commands of a fragment that are decided in one turn of the loop."""
# Compiled by mypyc.

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from shardbus.broker.fragment.answers import Answer, Answers, ReplyTo
from shardbus.broker.fragment.outlet import Outlet
from shardbus.core.errors import Refused
from shardbus.core.fragment.change import Change
from shardbus.core.fragment.command import Command, Tick
from shardbus.core.fragment.fragment import Fragment
from shardbus.core.fragment.need import Need
from shardbus.core.message import NEVER_MS
from shardbus.core.messages.command import COMPLETE, Send, Settle
from shardbus.core.sessions.command import GetState, SetState
from shardbus.core.stages.command import PublishOn
from shardbus.core.transactions.command import Decide, Transact

# Messages that are sent or settled by the commands of one turn; the others have the next.
TURN_MESSAGES_MAX: Final = 8_192


@final
class Deciding:
    """Decides commands in their order, until one has to wait for something.

    `applied` are decided, also when the next one raises; `need` is what that one needs.
    """

    def __init__(
        self,
        fragment: Fragment,
        outlet: Outlet | None,
        answers: Answers,
        now_ms: int,
        steady_ms: int,
    ) -> None:
        self.changes: list[Change] = []
        self.applied = 0
        self.need: Need | None = None
        self._fragment = fragment
        self._outlet = outlet
        self._answers = answers
        self._now_ms = now_ms
        self._steady_ms = steady_ms

    def apply(self, inbox: Sequence[tuple[Command, ReplyTo]], *, is_fed: bool) -> None:
        """`is_fed`: something was read for the first of them."""
        fragment = self._fragment
        outlet = self._outlet
        messages = 0
        is_reading_state = False
        for command, reply_to in self._after_time(inbox, is_fed):
            if fragment.lacks_much() or (outlet is not None and outlet.is_full()):
                break
            self.need = fragment.need(command, self._now_ms, self._steady_ms)
            if self.need is not None:
                # What waits in the store alone comes first: the rest stays in line.
                break
            if isinstance(command, GetState):
                is_reading_state = True
            elif is_reading_state and _sets_state(command):
                # A state is read after the commit, when this one must not be there yet.
                break
            self._answers.add(reply_to, self._decided(command))
            self.applied += 1
            if isinstance(command, Send):
                messages += len(command.messages)
            elif isinstance(command, Settle):
                messages += len(command.tokens)
            if messages >= TURN_MESSAGES_MAX or fragment.is_unfinished:
                break

    def _after_time(
        self, inbox: Sequence[tuple[Command, ReplyTo]], is_fed: bool
    ) -> Sequence[tuple[Command, ReplyTo]]:
        """What is decided after time has had its effect: of what it ends others may be in need."""
        fragment = self._fragment
        if not NEVER_MS < fragment.deadline_ms() <= self._steady_ms:
            return inbox
        if is_fed:
            # What was read would be stale: the first is decided as it is, and then time has effect.
            return inbox[:1]
        self.changes += fragment.apply(Tick(), self._now_ms, self._steady_ms).changes
        return inbox

    def _decided(self, command: Command) -> Answer:
        outlet = self._outlet
        if outlet is not None:
            outlet.measure(self._fragment, self._steady_ms)
        try:
            outcome = self._fragment.apply(command, self._now_ms, self._steady_ms)
        except Refused as refusal:
            return refusal
        self.changes += outcome.changes
        if outlet is not None:
            outlet.publish(self._fragment)
        return outcome.reply


def may_be_overtaken(command: Command) -> bool:
    """Whether a receive that came later may be answered first.

    Not what puts messages back: those come before the ones that a receive would find.
    """
    if isinstance(command, (Send, PublishOn)):
        return True
    return isinstance(command, Settle) and command.how == COMPLETE


def _sets_state(command: Command) -> bool:
    """A promised state is none of these: nobody reads it before it is set."""
    if isinstance(command, (Transact, Decide)):
        return len(command.work.states) > 0
    return isinstance(command, SetState)
