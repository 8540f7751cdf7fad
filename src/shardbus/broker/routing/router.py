"""From an entity to its fragments: where messages are sent, and where they are settled
(R10-R17).
"""
# Compiled by mypyc.

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol, final

from shardbus.broker.clock import Clock
from shardbus.broker.fragment.answers import Answer, ReplyTo
from shardbus.broker.routing.batches import Batches, BatchFragments, BatchSpread
from shardbus.broker.routing.dispatch import Dispatcher, FragmentPort, Tally, ignore
from shardbus.broker.routing.outbox import Outbox
from shardbus.broker.routing.sessions import SessionDoor
from shardbus.broker.routing.turns import KeyTurns, Turn
from shardbus.core.errors import NOT_ALLOWED, QUOTA_EXCEEDED, Refused, Unavailable
from shardbus.core.message import DEAD_LETTER_LINE, MAIN_LINE, TRANSFER_DEAD_LETTER_LINE, Message
from shardbus.core.messages.command import RELEASE, Settle, Settled
from shardbus.core.namespace.placement import (
    RoundRobin,
    fragment_at,
    hash_point,
    key_of,
)
from shardbus.core.sequence import TOKEN_BYTES, fragment_of, fragment_of_token
from shardbus.core.sessions.command import ReleaseSession, SessionAccepted

# How long the bus tries to place a message without a key while fragments are unavailable (R16).
PLACING_MS_MAX: Final = 15_000
PLACING_RETRY_MS: Final = 100

LINES: Final = (MAIN_LINE, DEAD_LETTER_LINE, TRANSFER_DEAD_LETTER_LINE)

NO_SESSION_ID_TEXT: Final = (
    "The SessionId was not set on a message, and it cannot be sent to the entity. Entities that "
    "have session support enabled can only receive messages that have the SessionId set to a valid "
    "value."
)


@final
class Placed:
    """The positions of messages that go together to the fragment at `index`.

    Messages without a key may go to any other fragment if this one is away or full.
    """

    def __init__(self, index: int, positions: list[int], *, is_keyed: bool) -> None:
        self.index = index
        self.positions = positions
        self.is_keyed = is_keyed


class SendSink(Protocol):
    """Is told the results of messages that were sent independently of each other."""

    def sent(self, positions: list[int], answer: Answer) -> None: ...


class SettleSink(Protocol):
    """Is told the results of settled deliveries; `lost` runs parallel to `positions`."""

    def settled(self, positions: list[int], answer: Settled | Refused | Unavailable) -> None: ...


@final
class _SendJob:
    """One Send on its way to a fragment that accepts it."""

    def __init__(
        self, router: EntityRouter, index: int, messages: list[Message], reply_to: ReplyTo
    ) -> None:
        self.router = router
        self.index = index
        self.messages = messages
        self.reply_to = reply_to
        self.is_keyed = True
        self.keeps_reply = False
        self.started_ms = 0
        self.tries = 0
        self.full_fragments = 0

    def start(self) -> None:
        outbox = self.router.outboxes[self.index]
        outbox.send(self.messages, self.answered, keeps_reply=self.keeps_reply)

    def answered(self, answer: Answer) -> None:
        # An unknown outcome is passed on: trying elsewhere could store the messages twice.
        if self.is_keyed:
            self.reply_to(answer)
        elif isinstance(answer, Unavailable) and not answer.is_unknown:
            self.router.place_elsewhere(self, answer)
        elif isinstance(answer, Refused) and answer.kind is QUOTA_EXCEEDED:
            self.router.place_where_there_is_room(self, answer)
        else:
            self.reply_to(answer)


@final
class _Share:
    """The part of independent messages that went to one fragment."""

    def __init__(self, sink: SendSink, positions: list[int]) -> None:
        self.sink = sink
        self.positions = positions

    def answered(self, answer: Answer) -> None:
        self.sink.sent(self.positions, answer)


@final
class _SettleShare:
    def __init__(self, sink: SettleSink, positions: list[int]) -> None:
        self.sink = sink
        self.positions = positions

    def answered(self, answer: Answer) -> None:
        assert isinstance(answer, Settled | Refused | Unavailable)
        self.sink.settled(self.positions, answer)


@final
class EntityRouter:
    """Routes the messages of one entity to and from its fragments.

    `ports[i]` serves the fragment with number `numbers[i]`, which owns the hash range that starts
    at `hash_starts[i]`.
    """

    def __init__(  # noqa: PLR0913 - what varies by entity goes by position, the bus by keyword
        self,
        ports: list[FragmentPort],
        numbers: list[int],
        hash_starts: list[int],
        *,
        detects_duplicates: bool,
        requires_session: bool = False,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        new_seed: Callable[[], bytes],
        entity_id: int = 0,
    ) -> None:
        self.ports = ports
        sender = new_seed()
        self.outboxes = [Outbox(port, sender, loop=loop, clock=clock) for port in ports]
        self.numbers = numbers
        self.requires_session = requires_session
        self.sessions = SessionDoor(ports, self.index_of_key, loop=loop, new_seed=new_seed)
        self._new_seed = new_seed
        self._hash_starts = hash_starts
        self._index_of = {number: index for index, number in enumerate(numbers)}
        self._detects_duplicates = detects_duplicates
        self._loop = loop
        self._clock = clock
        self._round_robin = RoundRobin(len(ports))
        self._tally = Tally()
        self._dispatchers = [
            Dispatcher(ports, line, new_seed, tally=self._tally if line == MAIN_LINE else None)
            for line in LINES
        ]
        self._turns = KeyTurns()
        fragments = BatchFragments(entity_id, ports, numbers, self.outboxes)
        self.batches = Batches(fragments, self._turns, loop=loop, clock=clock, new_seed=new_seed)

    @property
    def is_partitioned(self) -> bool:
        return len(self.ports) > 1

    def dispatcher(self, line: int) -> Dispatcher:
        return self._dispatchers[line]

    def receiver_count(self) -> int:
        """How many clients of this gateway receive from the main line or wait for a session."""
        return self._tally.count + self.sessions.waiting_count

    def session_dispatcher(self, accepted: SessionAccepted, line: int) -> Dispatcher:
        """Serves the receiver of one held session, from the session's fragment."""
        port = self.ports[self.index_of_token(accepted.token)]
        return Dispatcher([port], line, self._new_seed, accepted.token, self._tally)

    def release_session(self, token: bytes) -> None:
        """Release a session if it is held; if that fails, it ends by its deadline."""
        index = self.index_of_token(token)
        if index >= 0:
            self.ports[index].submit(ReleaseSession(token), ignore)

    def release(self, tokens: list[bytes]) -> None:
        """Unlock messages that nobody got, if they are locked; if that fails, the locks expire."""
        shares: dict[int, list[bytes]] = {}
        for token in tokens:
            shares.setdefault(self.index_of_token(token), []).append(token)
        for index, share in shares.items():
            if index >= 0:
                self.ports[index].submit(Settle(RELEASE, share), ignore)

    def send_each(
        self, messages: list[Message], sink: SendSink, *, keeps_replies: bool = False
    ) -> None:
        """Send messages that do not depend on each other; the sink is told of each exactly once.

        Without `keeps_replies` a `Sent` may lack the sequence numbers and the duplicates, and only
        say that the message is stored.
        """
        keyed: dict[int, list[int]] = {}
        unkeyed: list[int] = []
        # A message with a key of a batch that is being stored waits for the batch.
        held = self._turns.held
        waiting: dict[str, list[int]] | None = None
        for position, message in enumerate(messages):
            try:
                key = self.key_of(message)
            except Refused as refusal:
                sink.sent([position], refusal)
                continue
            if not self.is_partitioned:
                # A single fragment keeps the order of all, whatever their keys.
                keyed.setdefault(0, []).append(position)
            elif key is None:
                unkeyed.append(position)
            elif held and key in held:
                waiting = {} if waiting is None else waiting
                waiting.setdefault(key, []).append(position)
            else:
                keyed.setdefault(self.index_of_key(key), []).append(position)
        for index, positions in keyed.items():
            self._send_share(index, messages, _Share(sink, positions), True, keeps_replies)
        if waiting is not None:
            for key, positions in waiting.items():
                self._send_in_turn(
                    [key],
                    self.index_of_key(key),
                    [messages[position] for position in positions],
                    _Share(sink, positions).answered,
                    keeps_reply=keeps_replies,
                )
        start = 0
        for index, count in self._round_robin.runs(len(unkeyed)):
            positions = unkeyed[start : start + count]
            start += count
            self._send_share(index, messages, _Share(sink, positions), False, keeps_replies)

    def send_batch(
        self, messages: list[Message], reply_to: ReplyTo, *, keeps_reply: bool = False
    ) -> None:
        """Send messages that are stored together or not at all; `keeps_reply` as in `send_each`.

        With several keys they may go to several fragments (R49).
        """
        try:
            keys = [self.key_of(message) for message in messages]
        except Refused as refusal:
            reply_to(refusal)
            return
        key = keys[0] if keys and self.is_partitioned else None
        if self.is_partitioned and keys.count(key) < len(keys):
            self._send_spread(BatchSpread(messages, keys), reply_to, keeps_reply)
        elif key is None:
            index = self._round_robin.next()
            self._start(index, messages, reply_to, is_keyed=False, keeps_reply=keeps_reply)
        else:
            self._send_in_turn(
                [key], self.index_of_key(key), messages, reply_to, keeps_reply=keeps_reply
            )

    def _send_spread(self, spread: BatchSpread, reply_to: ReplyTo, keeps_reply: bool) -> None:
        """Send a batch of several keys; if one fragment has all of them, like any other batch."""
        spread.place(self.index_of_key, self._round_robin.next())
        if len(spread.shares) > 1:
            self.batches.send(spread, reply_to, keeps_reply=keeps_reply)
            return
        [index] = spread.shares
        self._send_in_turn(
            spread.different_keys(), index, spread.messages, reply_to, keeps_reply=keeps_reply
        )

    def _send_in_turn(
        self,
        keys: list[str],
        index: int,
        messages: list[Message],
        reply_to: ReplyTo,
        *,
        keeps_reply: bool,
    ) -> None:
        """Send to one fragment as soon as the earlier batches with these keys are done."""
        held = self._turns.held
        if not held or not any(key in held for key in keys):
            self._start(index, messages, reply_to, is_keyed=True, keeps_reply=keeps_reply)
            return

        def begin(turn: Turn) -> None:
            self._start(index, messages, reply_to, is_keyed=True, keeps_reply=keeps_reply)
            self._turns.end(turn)

        self._turns.take(keys, begin)

    def place(self, messages: list[Message]) -> list[Placed]:
        """As few shares as the keys of the messages allow; Refused for an invalid message."""
        keyed: dict[int, list[int]] = {}
        unkeyed: list[int] = []
        for position, message in enumerate(messages):
            key = self.key_of(message)
            if key is None and self.is_partitioned:
                unkeyed.append(position)
            else:
                index = self.index_of_key(key) if key is not None else 0
                keyed.setdefault(index, []).append(position)
        placed = [Placed(index, positions, is_keyed=True) for index, positions in keyed.items()]
        if unkeyed:
            placed.append(Placed(self._round_robin.next(), unkeyed, is_keyed=False))
        return placed

    def settle(self, command: Settle, sink: SettleSink) -> None:
        """Settle by lock tokens, each in the fragment that it names."""
        shares: dict[int, list[int]] = {}
        for position, token in enumerate(command.tokens):
            shares.setdefault(self.index_of_token(token), []).append(position)
        for index, positions in shares.items():
            if index < 0:
                sink.settled(positions, Settled([True] * len(positions)))
                continue
            share = part_of(command, [command.tokens[position] for position in positions])
            self.ports[index].submit(share, _SettleShare(sink, positions).answered)

    def index_of_token(self, token: bytes) -> int:
        """The position in `ports` of the fragment in a token; -1 if this entity has no such
        fragment.
        """
        return self._index_of.get(fragment_of_token(token), -1) if len(token) == TOKEN_BYTES else -1

    def index_of_number(self, number: int) -> int:
        """The position in `ports` of the fragment in a sequence number; -1 if there is none."""
        return self._index_of.get(fragment_of(number), -1)

    def index_of_key(self, key: str) -> int:
        """The position in `ports` of the fragment that has all messages with this key."""
        return fragment_at(hash_point(key), self._hash_starts)

    def next_index(self) -> int:
        """The position of the next fragment for a message without a key."""
        return self._round_robin.next()

    def place_elsewhere(self, job: _SendJob, answer: Unavailable) -> None:
        """Try the other fragments in turn, again and again, as long as R16 allows."""
        if self._clock.steady_ms() - job.started_ms >= PLACING_MS_MAX:
            job.reply_to(answer)
            return
        job.tries += 1
        job.index = (job.index + 1) % len(self.ports)
        if job.tries % len(self.ports) == 0:
            self._loop.call_later(PLACING_RETRY_MS / 1000, job.start)
        else:
            job.start()

    def place_where_there_is_room(self, job: _SendJob, answer: Refused) -> None:
        """Try each other fragment once: an entity is full when all of its fragments are (R9)."""
        job.full_fragments += 1
        if job.full_fragments >= len(self.ports):
            job.reply_to(answer)
            return
        job.index = (job.index + 1) % len(self.ports)
        job.start()

    def key_of(self, message: Message) -> str | None:
        """The key that chooses the message's fragment, or None; Refused for an invalid message."""
        if self.requires_session and message.session_id is None:
            raise Refused(NOT_ALLOWED, NO_SESSION_ID_TEXT)
        return key_of(message, self._detects_duplicates)

    def _send_share(
        self,
        index: int,
        messages: list[Message],
        share: _Share,
        is_keyed: bool,
        keeps_reply: bool,
    ) -> None:
        mine = [messages[position] for position in share.positions]
        self._start(index, mine, share.answered, is_keyed=is_keyed, keeps_reply=keeps_reply)

    def _start(
        self,
        index: int,
        messages: list[Message],
        reply_to: ReplyTo,
        *,
        is_keyed: bool,
        keeps_reply: bool = False,
    ) -> None:
        job = _SendJob(self, index, messages, reply_to)
        job.is_keyed = is_keyed or len(self.ports) == 1
        job.keeps_reply = keeps_reply
        job.started_ms = self._clock.steady_ms()
        job.start()


def part_of(command: Settle, tokens: list[bytes]) -> Settle:
    """The same settlement of some of its tokens."""
    return Settle(
        command.how,
        tokens,
        reason=command.reason,
        description=command.description,
        modified=command.modified,
        delay_ms=command.delay_ms,
    )
