"""Moves the messages of one queue or subscription: journal, send, journal, remove.

Without draining the source is only browsed. A message is removed from the source only when the
journal says that the target has it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, final

from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusClient,
    ServiceBusMessageState,
    ServiceBusReceivedMessage,
    ServiceBusReceiver,
    ServiceBusSender,
    ServiceBusSubQueue,
)
from azure.servicebus.exceptions import (
    MessageLockLostError,
    MessageNotFoundError,
    MessageSizeExceededError,
    OperationTimeoutError,
    SessionLockLostError,
)

from shardbus.app.cli.console import counted
from shardbus.app.cli.failures import Refused
from shardbus.app.migrate.journal import Journal
from shardbus.app.migrate.outgoing import (
    DESCRIPTION,
    ORIGIN,
    REASON,
    Outgoing,
    id_of,
    key_of,
    outgoing,
)
from shardbus.app.migrate.typed import plain_text

BATCH_COUNT: Final = 100
WAIT_S: Final = 3.0
"""A line that delivers nothing for this long counts as empty."""
LOOK_S: Final = 1.0
SOON: Final = timedelta(seconds=60)
"""A message that is due sooner is moved when it is due: it might not be cancelled in time. One that
the target has is cancelled in any case: with its activation it would become another message.
"""
PATIENCE: Final = 3
DEAD_LETTERS: Final = "/$DeadLetterQueue"


@dataclass(slots=True)
class Moved:
    """The result of a migration for one line."""

    line: str
    sent: int = 0
    scheduled: int = 0
    removed: int = 0
    known: int = 0
    sessions: int = 0
    left_deferred: int = 0
    left_locked: int = 0
    in_doubt: int = 0
    left_late: int = 0


@final
@dataclass(frozen=True, slots=True)
class Line:
    """Messages of the source, and the entity of the target that gets them.

    `tag` is the value by which the subscription of the target knows its messages; empty for queues.
    `life` distinguishes the entities from earlier and later ones with the same path. A line is
    closed when the subscriptions of its topic have their rules: nothing can be sent to only one of
    them.
    """

    path: str
    life: str
    tag: str = ""
    detects_duplicates: bool = False
    is_closed: bool = False
    has_sessions: bool = False
    is_dead: bool = False
    lock_s: float = 60.0

    @property
    def name(self) -> str:
        return self.path + DEAD_LETTERS if self.is_dead else self.path

    @property
    def key(self) -> str:
        """The name in the journal."""
        return f"{self.name} {self.life}"

    def origin(self, number: int) -> str:
        """The mark of a message on the target."""
        return f"{self.name}@{number} {self.life}"

    @property
    def target(self) -> str:
        return self.path.partition("/Subscriptions/")[0]


@final
class LineMove:
    """One run over one line. A later run continues where this run ended."""

    def __init__(
        self,
        clients: tuple[ServiceBusClient, ServiceBusClient],
        line: Line,
        journal: Journal,
        *,
        is_draining: bool,
        advance: Callable[[int], None],
        counts: tuple[Callable[[], int], Callable[[], int]],
    ) -> None:
        """`clients` are those of the source and of the target. `counts` return how many messages
        the line has on the source, including locked ones, and how many active ones the entity has
        on the target.
        """
        self._source, self._target = clients
        self._line = line
        self._journal = journal
        self._is_draining = is_draining
        self._advance = advance
        self._left, self._waiting = counts
        self._is_way_free = False
        self.moved = Moved(line.name)

    def run(self) -> Moved:
        self._resolve_doubts()
        if self._line.is_closed:
            self.moved.left_late = self._late_count()
            if self.moved.left_late or not self._is_draining:
                return self.moved
        until_s = time.monotonic() + self._line.lock_s + WAIT_S
        with self._sender() as sender:
            self._pass(sender)
            # Messages that are locked, perhaps by a killed run, come when their locks have expired.
            while self._has_locked() and time.monotonic() < until_s:
                time.sleep(LOOK_S)
                self._pass(sender)
        self.moved.left_locked = max(0, self._left()) if self._has_locked() else 0
        return self.moved

    def _late_count(self) -> int:
        """How many messages of the source the journal does not know. In sessions, these are all
        that are left, because moved ones were removed.
        """
        if self._line.has_sessions and not self._line.is_dead:
            return self._left()
        with self._receiver(self._source) as receiver:
            numbers = [
                _number(each)
                for page in walk(receiver)
                for each in page
                if each.state == ServiceBusMessageState.ACTIVE
            ]
        return sum(not self._journal.is_done(self._line.key, each) for each in numbers)

    def _has_locked(self) -> bool:
        return self._is_draining and self._left() > self.moved.left_deferred

    def _pass(self, sender: ServiceBusSender) -> None:
        self.moved.left_deferred = 0
        if self._line.has_sessions and not self._line.is_dead:
            self._drain_sessions(sender)
            return
        with self._receiver(self._source) as receiver:
            self._browse(receiver, sender)
            if self._is_draining:
                self._drain(receiver, sender)

    # The source.

    def _browse(self, receiver: ServiceBusReceiver, sender: ServiceBusSender) -> None:
        """Copy the messages that can be browsed. With draining, copy only scheduled messages,
        because they cannot be received.
        """
        for page in walk(receiver):
            states = ServiceBusMessageState
            deferred = [each for each in page if each.state == states.DEFERRED]
            self.moved.left_deferred += len(deferred)
            self._schedule([each for each in page if each.state == states.SCHEDULED], sender)
            if not self._is_draining:
                self._send([each for each in page if each.state == states.ACTIVE], sender)

    def _drain(self, receiver: ServiceBusReceiver, sender: ServiceBusSender) -> None:
        while batch := receiver.receive_messages(BATCH_COUNT, max_wait_time=WAIT_S):
            self._send(batch, sender)
            self._complete(receiver, batch)

    def _drain_sessions(self, sender: ServiceBusSender) -> None:
        """Move one session after another, each in order and with its state."""
        silent = 0
        while silent < PATIENCE:
            try:
                receiver = self._session_receiver(self._source, NEXT_AVAILABLE_SESSION)
                with receiver:
                    session_id = receiver.session.session_id or ""
                    before = self.moved.sent + self.moved.removed
                    self._browse(receiver, sender)
                    self._drain(receiver, sender)
                    self._take_state(receiver, session_id)
                    self.moved.sessions += 1
                    silent = 0 if self.moved.sent + self.moved.removed > before else silent + 1
            except OperationTimeoutError:
                return
            except SessionLockLostError:
                silent += 1

    def _take_state(self, receiver: ServiceBusReceiver, session_id: str) -> None:
        state = receiver.session.get_state()
        if not state:
            return
        with self._session_receiver(self._target, session_id) as there:
            there.session.set_state(state)

    def _complete(
        self, receiver: ServiceBusReceiver, batch: Sequence[ServiceBusReceivedMessage]
    ) -> None:
        for message in batch:
            # If the lock was lost, the message is delivered again, and the journal knows it.
            with suppress(MessageLockLostError):
                receiver.complete_message(message)
                self.moved.removed += 1

    # The target.

    def _send(
        self, messages: Sequence[ServiceBusReceivedMessage], sender: ServiceBusSender
    ) -> None:
        for group in groups(self._new(messages)):
            self._send_group(group, sender)

    def _new(
        self, messages: Sequence[ServiceBusReceivedMessage]
    ) -> list[ServiceBusReceivedMessage]:
        new = [
            each for each in messages if not self._journal.is_done(self._line.key, _number(each))
        ]
        if new and self._line.is_closed:
            raise Refused(
                f"{self._line.name} got a message after its topic was moved; the message stays on "
                "the source"
            )
        self.moved.known += len(messages) - len(new)
        return new

    def _send_group(
        self, group: Sequence[ServiceBusReceivedMessage], sender: ServiceBusSender
    ) -> None:
        numbers = [_number(each) for each in group]
        made = [self._outgoing(each) for each in group]
        if self._line.is_dead:
            self._check_way()
        self._begin(group)
        try:
            sender.send_messages(made)
        except MessageSizeExceededError:
            self._journal.refute(self._line.key, numbers)
            if len(group) == 1:
                raise Refused(
                    f"message {numbers[0]} of {self._line.name} is larger than the target allows: "
                    "it and all messages after it stay on the source"
                ) from None
            half = len(group) // 2
            self._send_group(group[:half], sender)
            self._send_group(group[half:], sender)
            return
        if self._line.is_dead:
            self._bury({self._line.origin(number) for number in numbers}, group[0].session_id)
        self._journal.done(self._line.key, numbers)
        self.moved.sent += len(group)
        self._advance(len(group))

    def _begin(self, group: Sequence[ServiceBusReceivedMessage]) -> None:
        """Record that these are about to be sent. Refused when the target would drop one."""
        numbers = [_number(each) for each in group]
        ids: list[str] = []
        if self._line.detects_duplicates and not self._line.tag:
            ids = [id_of(each) for each in group]
            self._check_ids(dict(zip(numbers, ids, strict=True)))
        self._journal.begin(self._line.key, numbers, group[0].session_id or "", ids)

    def _check_ids(self, ids: dict[int, str]) -> None:
        """Refused if two messages of the source have one id: the target would drop the second."""
        seen: dict[str, int] = {}
        for number, message_id in ids.items():
            if not message_id:
                continue
            other = self._journal.number_of_id(self._line.key, message_id)
            first = seen.setdefault(message_id, number if other is None else other)
            if first != number:
                raise Refused(
                    f"message {number} of {self._line.name} has the id {message_id!r}, as message "
                    f"{first} has, and the target would drop it as a duplicate; it and all "
                    "messages after it stay on the source. Receive it there, or create "
                    f"{self._line.target} on the target without duplicate detection"
                )

    def _check_way(self) -> None:
        """Refused when messages wait on the target: dead letters pass through its main line, where
        they must be received.
        """
        waiting = 0 if self._is_way_free else self._waiting()
        if waiting:
            raise Refused(
                f"{self._line.path} has {counted(waiting, 'message')} on the target, which would "
                "be received and counted as delivered while dead letters pass: run it when "
                f"{self._line.path} is empty there, or without --dead-letters"
            )
        self._is_way_free = True

    def _bury(self, origins: set[str], session_id: str | None) -> None:
        """Receive these messages on the target, and dead-letter them with their old reasons."""
        with self._looking_receiver(session_id or "") as receiver:
            others: list[ServiceBusReceivedMessage] = []
            while origins:
                batch = receiver.receive_messages(BATCH_COUNT, max_wait_time=WAIT_S)
                for message in batch:
                    said = _properties(message)
                    origin = plain_text(said.get(ORIGIN))
                    if origin not in origins:
                        others.append(message)
                        continue
                    receiver.dead_letter_message(
                        message,
                        reason=plain_text(said.get(REASON)),
                        error_description=plain_text(said.get(DESCRIPTION)),
                    )
                    origins.discard(origin)
                if not batch:
                    break
            for message in others:
                receiver.abandon_message(message)
        if origins:
            raise Refused(
                f"{counted(len(origins), 'dead letter')} of {self._line.path} reached the target "
                "and were received there before they could be dead-lettered: stop the receivers "
                "of the target until the migration has ended"
            )

    def _schedule(
        self, messages: Sequence[ServiceBusReceivedMessage], sender: ServiceBusSender
    ) -> None:
        if not messages:
            return
        with closing(self._source.get_queue_sender(self._line.path)) as canceller:
            for message in messages:
                number = _number(message)
                is_known = self._journal.is_done(self._line.key, number)
                if not is_known and _due(message) <= datetime.now(UTC) + SOON:
                    continue
                if self._new([message]):
                    self._begin([message])
                    sender.schedule_messages(self._outgoing(message), _due(message))
                    self._journal.done(self._line.key, [number])
                    self.moved.scheduled += 1
                    self._advance(1)
                self._cancel(number, canceller)

    def _cancel(self, number: int, canceller: ServiceBusSender) -> None:
        # A scheduled message of a topic belongs to all of its subscriptions.
        if not self._is_draining or self._line.tag:
            return
        with suppress(MessageNotFoundError):
            canceller.cancel_scheduled_messages(number)
            self.moved.removed += 1

    def _outgoing(self, message: ServiceBusReceivedMessage) -> Outgoing:
        line = self._line
        return outgoing(
            message,
            line.origin(_number(message)),
            tag=line.tag,
            now=datetime.now(UTC),
            is_dead=line.is_dead,
            has_own_id=bool(line.tag) and line.detects_duplicates,
        )

    # Doubts of an earlier run.

    def _resolve_doubts(self) -> None:
        """Look on the target for messages that were being sent when an earlier run was killed."""
        doubtful = self._journal.in_doubt(self._line.key)
        if not doubtful:
            return
        origins = {self._line.origin(number): number for number in doubtful}
        found: set[int] = set()
        for session_id in sorted(set(doubtful.values())):
            with self._looking_receiver(session_id) as receiver:
                marks = _marks(receiver) & origins.keys()
            if marks and self._line.is_dead:
                self._bury(set(marks), session_id)
            found |= {origins[mark] for mark in marks}
        if self._line.is_dead:
            with self._receiver(self._target) as receiver:
                found |= {origins[mark] for mark in _marks(receiver) & origins.keys()}
        missing = sorted(set(doubtful) - found)
        if found:
            self._journal.done(self._line.key, sorted(found))
        if missing:
            self._journal.refute(self._line.key, missing)
            self.moved.in_doubt += len(missing)

    def _looking_receiver(self, session_id: str) -> AbstractContextManager[ServiceBusReceiver]:
        if self._line.has_sessions:
            return self._session_receiver(self._target, session_id)
        return self._receiver(self._target, is_dead=False)

    # Links.

    def _sender(self) -> AbstractContextManager[ServiceBusSender]:
        if self._line.tag:
            return self._target.get_topic_sender(self._line.target)
        return self._target.get_queue_sender(self._line.target)

    def _receiver(
        self, client: ServiceBusClient, *, is_dead: bool | None = None
    ) -> ServiceBusReceiver:
        dead = self._line.is_dead if is_dead is None else is_dead
        sub_queue = ServiceBusSubQueue.DEAD_LETTER if dead else None
        topic, separator, name = self._line.path.partition("/Subscriptions/")
        if separator:
            return client.get_subscription_receiver(topic, name, sub_queue=sub_queue)
        return client.get_queue_receiver(topic, sub_queue=sub_queue)

    def _session_receiver(
        self, client: ServiceBusClient, session_id: str | object
    ) -> ServiceBusReceiver:
        topic, separator, name = self._line.path.partition("/Subscriptions/")
        wanted = session_id if isinstance(session_id, str) else NEXT_AVAILABLE_SESSION
        if separator:
            return client.get_subscription_receiver(
                topic, name, session_id=wanted, max_wait_time=WAIT_S
            )
        return client.get_queue_receiver(topic, session_id=wanted, max_wait_time=WAIT_S)


def walk(receiver: ServiceBusReceiver) -> Iterator[list[ServiceBusReceivedMessage]]:
    """All messages of a line, page by page, in every state, each once.

    Pages of a partitioned entity are in the order of time, so numbers rise only within a partition.
    The namespace remembers the last message of a page, and continues after it even if an earlier
    message has a higher number. If the namespace has forgotten it (its gateway was restarted), it
    continues by number alone, and misses messages. So the line is walked again until a walk shows
    no new message.
    """
    seen: set[int] = set()
    walks, is_new = 0, True
    while is_new and walks < PATIENCE:
        walks, is_new, start = walks + 1, False, 1
        while page := receiver.peek_messages(BATCH_COUNT, sequence_number=start):
            new = [each for each in page if _number(each) not in seen]
            if new:
                is_new = True
                seen.update(_number(each) for each in new)
                yield new
            start = _number(page[-1]) + 1


def _marks(receiver: ServiceBusReceiver) -> set[str]:
    return {
        plain_text(_properties(message).get(ORIGIN)) for page in walk(receiver) for message in page
    }


def groups(
    messages: Sequence[ServiceBusReceivedMessage],
) -> list[list[ServiceBusReceivedMessage]]:
    """Batches that the service accepts: each with one key, in order."""
    found: dict[str, list[ServiceBusReceivedMessage]] = {}
    for message in messages:
        found.setdefault(key_of(message), []).append(message)
    return list(found.values())


def _number(message: ServiceBusReceivedMessage) -> int:
    number = message.sequence_number
    assert number is not None, "every message of the service has one"
    return number


def _due(message: ServiceBusReceivedMessage) -> datetime:
    return message.scheduled_enqueue_time_utc or datetime.fromtimestamp(0, UTC)


def _properties(message: ServiceBusReceivedMessage) -> dict[object, object]:
    said = message.application_properties or {}
    return {name: value for name, value in said.items()}  # noqa: C416 - of a narrower type
