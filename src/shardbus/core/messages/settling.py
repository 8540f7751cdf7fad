"""How deliveries end: what a settlement does to locked messages."""

from __future__ import annotations

from typing import Final, final

from shardbus.core.errors import (
    INVALID_ARGUMENT,
    MESSAGE_LOCK_LOST,
    NOT_ALLOWED,
    SESSION_LOCK_LOST,
    Refused,
)
from shardbus.core.fragment.ledger import Ledger
from shardbus.core.lifecycle import rows as events
from shardbus.core.limits import DELAY_MS_MAX, MODIFIED_BYTES_MAX
from shardbus.core.message import MAIN_LINE, Entry
from shardbus.core.messages.command import (
    ABANDON,
    COMPLETE,
    DEAD_LETTER,
    DEFER,
    NO_SESSION,
    RELEASE,
    Settle,
    Settled,
)
from shardbus.core.properties import merge
from shardbus.core.sequence import is_of_seed
from shardbus.core.sessions.holding import SESSION_LOST_TEXT

LOCK_LOST_TEXT: Final = (
    "The lock supplied is invalid. Either the lock expired, or the message has already been "
    "removed from the queue, or was received by a different receiver instance."
)


@final
class Settling:
    """Settles the messages of one fragment."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def settle(self, command: Settle, now_ms: int) -> Settled:
        """End the locks that are held.

        A caller that never learned its lock tokens releases the locks by their seed
        (`sequence.token_of_seed`); the reply reports those tokens as lost.
        """
        self.check(command)
        locks, steady_ms = self._ledger.locks, self._ledger.steady_ms
        lost: list[bool] = []
        entries: list[Entry] = []
        for token in command.tokens:
            entry = locks.release(token, steady_ms)
            lost.append(entry is None)
            if entry is not None:
                entries.append(entry)
            elif command.how == RELEASE and is_of_seed(token):
                unheard = [locks.release(each, steady_ms) for each in locks.of_seed(token)]
                entries += [each for each in unheard if each is not None]
        self.end(command, entries, now_ms)
        return Settled(lost)

    def check(self, command: Settle) -> None:
        """Refused when the settlement is impossible, whoever holds the locks."""
        if command.session != NO_SESSION and not self._is_session_held(command.session):
            raise Refused(SESSION_LOCK_LOST, SESSION_LOST_TEXT)
        if command.how == DEAD_LETTER and self._holds_dead_letter(command.tokens):
            raise Refused(
                NOT_ALLOWED,
                "A message of a dead-letter queue cannot be dead-lettered again: complete or "
                "abandon it, or send a copy to the entity.",
            )
        if not 0 <= command.delay_ms <= DELAY_MS_MAX:
            raise Refused(
                INVALID_ARGUMENT,
                f"The delay of {command.delay_ms} ms is out of range: use 0 to {DELAY_MS_MAX} ms.",
            )
        if command.modified:
            self._check_modified(command)

    def _check_modified(self, command: Settle) -> None:
        """Bound the changed properties: a message may be settled thousands of times."""
        for token in command.tokens:
            entry = self._ledger.locks.held(token, self._ledger.steady_ms)
            if entry is None or len(entry.modified) + len(command.modified) <= MODIFIED_BYTES_MAX:
                continue
            size_bytes = len(merge(entry.modified, command.modified))
            if size_bytes > MODIFIED_BYTES_MAX:
                raise Refused(
                    INVALID_ARGUMENT,
                    "The properties changed by settlements of this message would have "
                    f"{size_bytes} bytes; the maximum is {MODIFIED_BYTES_MAX}. Change fewer "
                    "properties.",
                )

    def check_held(self, commands: list[Settle]) -> None:
        """Refused unless every lock is held, and every message is settled once."""
        locks, steady_ms = self._ledger.locks, self._ledger.steady_ms
        seen: set[bytes] = set()
        for command in commands:
            self.check(command)
            for token in command.tokens:
                if token in seen or locks.held(token, steady_ms) is None:
                    raise Refused(MESSAGE_LOCK_LOST, LOCK_LOST_TEXT)
                seen.add(token)

    def end(self, command: Settle, entries: list[Entry], now_ms: int) -> None:
        """Do what the command says to messages that are already unlocked; its tokens are
        ignored.
        """
        how = command.how
        if how == COMPLETE:
            self._ledger.forget(entries, events.COMPLETE)
        elif how == ABANDON:
            self._ledger.fail(entries, now_ms, command.modified, command.delay_ms, events.ABANDON)
        elif how == DEFER:
            self._ledger.defer(entries, now_ms, command.modified)
        elif how == DEAD_LETTER:
            for entry in entries:
                entry.modified = merge(entry.modified, command.modified)
            self._ledger.dead_letter(entries, command.reason, command.description)
        else:
            assert how == RELEASE
            self._ledger.release(entries, now_ms)

    def _is_session_held(self, token: bytes) -> bool:
        sessions = self._ledger.sessions
        return sessions is not None and sessions.held(token, self._ledger.steady_ms) is not None

    def _holds_dead_letter(self, tokens: list[bytes]) -> bool:
        for token in tokens:
            entry = self._ledger.locks.held(token, self._ledger.steady_ms)
            if entry is not None and entry.line != MAIN_LINE:
                return True
        return False
