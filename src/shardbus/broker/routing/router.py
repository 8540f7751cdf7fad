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
from shardbus.broker.routing.dispatch import Dispatcher, FragmentPort, ReceiverCount, ignore
from shardbus.broker.routing.joint_holds import HeldLink, HeldLinks, tokens_in
from shardbus.broker.routing.key_turns import KeyTurns, Turn
from shardbus.broker.routing.outbox import Outbox
from shardbus.broker.routing.sessions import SessionAcceptor
from shardbus.core.errors import (
    NOT_ALLOWED,
    QUOTA_EXCEEDED,
    REPARTITIONING,
    Refused,
    Unavailable,
)
from shardbus.core.message import DEAD_LETTER_LINE, MAIN_LINE, TRANSFER_DEAD_LETTER_LINE, Message
from shardbus.core.messages.command import RELEASE, Settle, Settled
from shardbus.core.namespace.placement import (
    RoundRobin,
    former_path,
    fragment_at,
    hash_point,
    key_of,
)
from shardbus.core.sealing.seal import SEALED_TEXT
from shardbus.core.sequence import TOKEN_BYTES, fragment_of, fragment_of_token
from shardbus.core.sessions.command import ReleaseSession, SessionAccepted

# How long the bus tries to place a message without a key while fragments are unavailable (R16).
PLACING_MS_MAX: Final = 15_000
PLACING_RETRY_MS: Final = 100

# How long, and how many, sends wait for the new map of an entity that is being repartitioned.
HELD_MS_MAX: Final = 5_000
HELD_MAX: Final = 50_000

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
        # The order in which jobs began, and the map by which the messages were placed.
        self.number = router.next_job()
        self.map_count = router.map_count
        self.is_keyed = True
        self.keeps_reply = False
        self.started_ms = 0
        self.tries = 0
        self.full_fragments = 0

    def fail(self) -> None:
        self.reply_to(Refused(REPARTITIONING, SEALED_TEXT))

    def start(self) -> None:
        self.router.under_way += 1
        outbox = self.router.outboxes[self.index]
        outbox.send(self.messages, self.answered, keeps_reply=self.keeps_reply)

    def start_spread(self, spread: BatchSpread) -> None:
        """Send to several fragments."""
        self.router.under_way += 1
        self.router.batches.send(spread, self.answered, keeps_reply=self.keeps_reply)

    def answered(self, answer: Answer) -> None:
        if isinstance(answer, Refused) and answer.kind is REPARTITIONING:
            self.router.refused_by_seal(self, answer)
        else:
            self._answered(answer)
        self.router.is_answered()

    def _answered(self, answer: Answer) -> None:
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

    `ports[i]` serves the fragment with number `numbers[i]`. The first `former_count` are those of
    former maps; of the others, the one at `former_count + i` owns the hash range that starts at
    `hash_starts[i]`. Positions never change: another map adds fragments at the end. `former_starts`
    has the hash starts of the former maps, the oldest first.
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
        former_count: int = 0,
        former_starts: list[list[int]] | None = None,
    ) -> None:
        self.ports = ports
        self._sender = new_seed()
        self.outboxes = [Outbox(port, self._sender, loop=loop, clock=clock) for port in ports]
        self.numbers = numbers
        self.requires_session = requires_session
        self._new_seed = new_seed
        self._hash_starts = hash_starts
        self._index_of = {number: index for index, number in enumerate(numbers)}
        self._detects_duplicates = detects_duplicates
        self._loop = loop
        self._clock = clock
        self._round_robin = RoundRobin(len(hash_starts))
        self._former_count = former_count
        self._former_starts: list[list[int]] = [] if former_starts is None else former_starts
        self.held_links = HeldLinks()
        self.sessions = SessionAcceptor(
            self, self.release_session, former_count, loop=loop, new_seed=new_seed
        )
        self.map_count = 0
        self._job_count = 0
        # Sends that are not answered; those that wait for the next map, and until when; and that
        # map, as soon as it is known.
        self.under_way = 0
        self._held: list[_SendJob] | None = None
        self._holding: asyncio.TimerHandle | None = None
        self._next_map: tuple[list[int], int, list[list[int]]] | None = None
        self._total = ReceiverCount()
        self._dispatchers = [
            Dispatcher(ports, line, new_seed, total=self._total if line == MAIN_LINE else None)
            for line in LINES
        ]
        for dispatcher in self._dispatchers:
            dispatcher.grow([], former_count, loop)
        self._turns = KeyTurns()
        fragments = BatchFragments(entity_id, ports, numbers, self.outboxes)
        self.batches = Batches(fragments, self._turns, loop=loop, clock=clock, new_seed=new_seed)

    @property
    def is_partitioned(self) -> bool:
        return len(self._hash_starts) > 1

    @property
    def former_count(self) -> int:
        return self._former_count

    @property
    def present_count(self) -> int:
        """How many fragments accept messages."""
        return len(self._hash_starts)

    @property
    def is_holding(self) -> bool:
        """Whether sends wait for another map."""
        return self._held is not None

    # Another map.

    def remap(
        self,
        ports: list[FragmentPort],
        numbers: list[int],
        hash_starts: list[int],
        former_count: int,
        former_starts: list[list[int]],
    ) -> None:
        """Use another map, with these fragments in addition.

        Sends that are under way are answered first, so that no message overtakes another with the
        same key; those that come in the meantime wait.
        """
        for number, port in zip(numbers, ports, strict=True):
            self._index_of[number] = len(self.ports)
            self.ports.append(port)
            self.numbers.append(number)
            self.outboxes.append(Outbox(port, self._sender, loop=self._loop, clock=self._clock))
        for dispatcher in self._dispatchers:
            dispatcher.grow(ports, former_count, self._loop)
        self._next_map = (hash_starts, former_count, former_starts)
        if self._held is None:
            self._held = []
        self._switch_if_still()

    def next_job(self) -> int:
        self._job_count += 1
        return self._job_count

    def is_answered(self) -> None:
        self.under_way -= 1
        if self._next_map is not None:
            self._switch_if_still()

    def refused_by_seal(self, job: _SendJob, refusal: Refused) -> None:
        """Send the messages again by the next map, as soon as it is known."""
        if self._held is None and job.map_count < self.map_count:
            self.send_batch(job.messages, job.reply_to, keeps_reply=job.keeps_reply)
        else:
            self._hold(job)

    def _hold(self, job: _SendJob) -> None:
        if self._held is None:
            self._held = []
        if len(self._held) >= HELD_MAX:
            job.fail()
            return
        self._held.append(job)
        if self._holding is None:
            self._holding = self._loop.call_later(HELD_MS_MAX / 1000, self._give_held_up)

    def _give_held_up(self) -> None:
        self._holding = None
        held = [] if self._held is None else self._held
        self._held = None if self._next_map is None else []
        for job in held:
            job.fail()

    def _switch_if_still(self) -> None:
        if self.under_way > 0 or self._next_map is None:
            return
        self._hash_starts, self._former_count, self._former_starts = self._next_map
        self._next_map = None
        self.map_count += 1
        self._round_robin = RoundRobin(len(self._hash_starts))
        held = [] if self._held is None else self._held
        self._held = None
        if self._holding is not None:
            self._holding.cancel()
            self._holding = None
        for job in sorted(held, key=_number_of):
            self.send_batch(job.messages, job.reply_to, keeps_reply=job.keeps_reply)
        if self.requires_session:
            self.sessions.remap(self._former_count)
            self.held_links.extend()

    def dispatcher(self, line: int) -> Dispatcher:
        return self._dispatchers[line]

    def receiver_count(self) -> int:
        """How many clients of this gateway receive from the main line or wait for a session."""
        return self._total.count + self.sessions.waiting_count

    def session_dispatcher(
        self, accepted: SessionAccepted, line: int, *, is_lasting: bool = False
    ) -> Dispatcher:
        """Serves the receiver of one held session, from the fragments where it is held.

        With `is_lasting` the session is also served from those that it gets later.
        """
        present, *former = tokens_in(accepted.token)
        tokens = [*former, present]
        ports = [self.ports[self.index_of_token(token)] for token in tokens]
        dispatcher = Dispatcher(ports, line, self._new_seed, tokens, self._total)
        dispatcher.grow([], len(former), self._loop)
        if is_lasting:
            dispatcher.keeper = HeldLink(self.held_links, self, accepted, dispatcher)
        return dispatcher

    def release_session(self, token: bytes) -> None:
        """Release a session if it is held; if that fails, it ends by its deadline."""
        for each in self.held_links.tokens_of(token):
            index = self.index_of_token(each)
            if index >= 0:
                self.ports[index].submit(ReleaseSession(each), ignore)

    def new_token_seed(self) -> bytes:
        return self._new_seed()

    def call_later(self, delay_ms: int, then: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_later(delay_ms / 1000, then)

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
                keyed.setdefault(self._former_count, []).append(position)
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
            index += self._former_count
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
            index = self.next_index()
            self._start(index, messages, reply_to, is_keyed=False, keeps_reply=keeps_reply)
        else:
            self._send_in_turn(
                [key], self.index_of_key(key), messages, reply_to, keeps_reply=keeps_reply
            )

    def _send_spread(self, spread: BatchSpread, reply_to: ReplyTo, keeps_reply: bool) -> None:
        """Send a batch of several keys; if one fragment has all of them, like any other batch."""
        spread.place(self.index_of_key, self._round_robin.next())
        if len(spread.shares) > 1:
            job = _SendJob(self, 0, spread.messages, reply_to)
            job.keeps_reply = keeps_reply
            if self._held is None:
                job.start_spread(spread)
            else:
                self._hold(job)
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

        map_count = self.map_count

        def begin(turn: Turn) -> None:
            if self.map_count == map_count:
                self._start(index, messages, reply_to, is_keyed=True, keeps_reply=keeps_reply)
            else:
                # Behind the others with its keys, which do the same one after the other.
                self.send_batch(messages, reply_to, keeps_reply=keeps_reply)
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
                index = self.index_of_key(key) if key is not None else self._former_count
                keyed.setdefault(index, []).append(position)
        placed = [Placed(index, positions, is_keyed=True) for index, positions in keyed.items()]
        if unkeyed:
            placed.append(Placed(self.next_index(), unkeyed, is_keyed=False))
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
        return self._former_count + fragment_at(hash_point(key), self._hash_starts)

    def path_of_key(self, key: str) -> list[int]:
        """The positions of all fragments that may have messages with this key, the oldest first."""
        former = former_path(key, self._former_starts, self._former_count)
        return [*former, self.index_of_key(key)]

    def next_index(self) -> int:
        """The position of the next fragment for a message without a key."""
        return self._former_count + self._round_robin.next()

    def _index_after(self, index: int) -> int:
        """The position of the fragment to try after one that did not take a message."""
        first = self._former_count
        return first + (index - first + 1) % len(self._hash_starts)

    def place_elsewhere(self, job: _SendJob, answer: Unavailable) -> None:
        """Try the other fragments in turn, again and again, as long as R16 allows."""
        if self._clock.steady_ms() - job.started_ms >= PLACING_MS_MAX:
            job.reply_to(answer)
            return
        job.tries += 1
        job.index = self._index_after(job.index)
        if job.tries % len(self._hash_starts) == 0:
            self._loop.call_later(PLACING_RETRY_MS / 1000, job.start)
        else:
            job.start()

    def place_where_there_is_room(self, job: _SendJob, answer: Refused) -> None:
        """Try each other fragment once: an entity is full when all of its fragments are (R9)."""
        job.full_fragments += 1
        if job.full_fragments >= len(self._hash_starts):
            job.reply_to(answer)
            return
        job.index = self._index_after(job.index)
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
        job.is_keyed = is_keyed or len(self._hash_starts) == 1
        job.keeps_reply = keeps_reply
        job.started_ms = self._clock.steady_ms()
        if self._held is None:
            job.start()
        else:
            self._hold(job)


def _number_of(job: _SendJob) -> int:
    return job.number


def part_of(command: Settle, tokens: list[bytes]) -> Settle:
    """The same settlement of some of its tokens."""
    return Settle(
        command.how,
        tokens,
        reason=command.reason,
        description=command.description,
        modified=command.modified,
        delay_ms=command.delay_ms,
        session=command.session,
    )
