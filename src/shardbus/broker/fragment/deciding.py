"""Decides the commands of a fragment in one turn of the loop."""
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

# Messages that the commands of one turn send or settle; the others wait for the next.
TURN_MESSAGES_MAX: Final = 8_192


@final
class Deciding:
    """Decides commands in order, until one has to wait.

    `applied` are decided, even if the next one raises; `need` is what the next one needs.
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
        """`is_fed`: data was read for the first command."""
        fragment = self._fragment
        outlet = self._outlet
        messages = 0
        is_reading_state = False
        for command, reply_to in self._after_time(inbox, is_fed):
            if fragment.lacks_much() or (outlet is not None and outlet.is_full()):
                break
            self.need = fragment.need(command, self._now_ms, self._steady_ms)
            if self.need is not None:
                # Messages that only the store has come first: the remaining commands wait.
                break
            if isinstance(command, GetState):
                is_reading_state = True
            elif is_reading_state and _sets_state(command):
                # States are read after the commit, when this change must not be stored yet.
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
        """The commands to decide after time has had its effect: they may need what expired items
        release.
        """
        fragment = self._fragment
        if not NEVER_MS < fragment.deadline_ms() <= self._steady_ms:
            return inbox
        if is_fed:
            # Time would make the data stale: decide the first command alone, then let time have its
            # effect.
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

    Not for commands that return messages, which then come before those that a receive would find.
    """
    if isinstance(command, (Send, PublishOn)):
        return True
    return isinstance(command, Settle) and command.how == COMPLETE


def _sets_state(command: Command) -> bool:
    """Whether a command sets a state. A promised state does not count: nobody reads it before it is
    set.
    """
    if isinstance(command, (Transact, Decide)):
        return len(command.work.states) > 0
    return isinstance(command, SetState)
