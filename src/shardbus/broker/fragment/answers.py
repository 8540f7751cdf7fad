"""Replies that a runner has decided and not given yet: none is given before it is stored."""
# Compiled by mypyc.

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import final

from shardbus.broker.fragment.reading import Lacking
from shardbus.core.errors import Refused, Unavailable
from shardbus.core.fragment.command import Reply
from shardbus.core.messages.command import Received
from shardbus.core.sessions.command import SessionState

log = logging.getLogger(__name__)

Answer = Reply | Refused | Unavailable
ReplyTo = Callable[[Answer], None]


def say(reply_to: ReplyTo, answer: Answer) -> None:
    """Give an answer; a failure of its recipient does not affect the next ones."""
    try:
        reply_to(answer)
    except Exception:
        log.exception("an answer (%s) could not be given", type(answer).__name__)


@final
class Answers:
    """Answers in the order of their commands, with their recipients."""

    def __init__(self) -> None:
        self._waiting: list[tuple[ReplyTo, Answer]] = []
        # What some answers lack, as `are_lacking` found it: payloads by number, states by session.
        self.unread: list[int] = []
        self.session_ids: list[str] = []
        # Whether the decisions are stored, whatever happens to later reads and commits for the
        # answers.
        self._are_stored = False

    def add(self, reply_to: ReplyTo, answer: Answer) -> None:
        self._waiting.append((reply_to, answer))

    def are_lacking(self) -> bool:
        """All decisions are stored. Returns whether something must be read to complete the answers,
        and notes what.
        """
        self._are_stored = True
        unread: list[int] = []
        session_ids: list[str] = []
        for _, answer in self._waiting:
            if isinstance(answer, Received):
                for delivery in answer.deliveries:
                    if delivery.payload is None:
                        unread.append(delivery.entry.sequence_number)
            elif isinstance(answer, SessionState):
                session_ids.append(answer.session_id)
        self.unread = unread
        self.session_ids = session_ids
        return bool(unread or session_ids)

    def fill(self, found: Lacking) -> None:
        """Complete the answers; a delivery whose payload is damaged is left out."""
        waiting, self._waiting = self._waiting, []
        for reply_to, answer in waiting:
            if isinstance(answer, Received):
                for delivery in answer.deliveries:
                    if delivery.payload is None:
                        delivery.payload = found.payloads[delivery.entry.sequence_number]
                answer.deliveries = [d for d in answer.deliveries if d.payload is not None]
            if isinstance(answer, SessionState):
                self._waiting.append((reply_to, _with_state(answer, found)))
            else:
                self._waiting.append((reply_to, answer))

    def give(self) -> None:
        """Give all answers."""
        self._are_stored = False
        waiting, self._waiting = self._waiting, []
        for reply_to, answer in waiting:
            say(reply_to, answer)

    def give_locked(self) -> None:
        """Give the answers that only lock messages in memory: they have nothing to store."""
        waiting, self._waiting = self._waiting, []
        ready: list[tuple[ReplyTo, Answer]] = []
        for reply_to, answer in waiting:
            if isinstance(answer, Received) and _is_locked_and_read(answer):
                ready.append((reply_to, answer))
            else:
                self._waiting.append((reply_to, answer))
        for reply_to, answer in ready:
            say(reply_to, answer)

    def fail(self, reason: str, *, is_unknown: bool) -> None:
        """The decisions will not be stored, or that is unknown; a refusal stays a refusal."""
        is_unknown = is_unknown or self._are_stored
        self._are_stored = False
        waiting, self._waiting = self._waiting, []
        for reply_to, answer in waiting:
            is_refused = isinstance(answer, Refused)
            say(reply_to, answer if is_refused else Unavailable(reason, is_unknown))


def _with_state(answer: SessionState, found: Lacking) -> Answer:
    read_state = found.states[answer.session_id]
    if read_state.error:
        return Unavailable(f"The state of the session cannot be read: {read_state.error}")
    answer.state = read_state.state
    return answer


def _is_locked_and_read(received: Received) -> bool:
    """Whether nothing must be stored or read before these messages are handed out."""
    for delivery in received.deliveries:
        if delivery.payload is None or not delivery.token:
            return False
    return True
