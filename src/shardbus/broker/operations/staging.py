"""Stages of an entity over all of its fragments: staging, publishing and discarding.

A stage is messages that nobody sees until they are published. The client names it, for one attempt
of one task, and puts messages into it in numbered pieces. Publishing makes all stages of a batch
visible together, and each batch of a producer is published once, however often and by whomever it
is tried. Large publications appear in bites (docs/adr/0057-bites.md). Everything here raises
Refused and Unavailable, and may be repeated after that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Final, TypeVar, final

from shardbus.broker.clock import Clock
from shardbus.broker.fragment.answers import Answer
from shardbus.broker.operations.asking import ask, ask_all, failure_of, to_port
from shardbus.broker.operations.readers import FragmentAnswers, done, spread
from shardbus.broker.operations.transactions import TransactionPart, Transactor
from shardbus.broker.routing.dispatch import FragmentPort
from shardbus.broker.routing.router import EntityRouter, Placed
from shardbus.core.errors import (
    ALREADY_PUBLISHED,
    BEING_PUBLISHED,
    INVALID_ARGUMENT,
    NOT_ALLOWED,
    QUOTA_EXCEEDED,
    REPARTITIONING,
    SERVER_BUSY,
    STAGE_LOST,
    Refused,
    Unavailable,
)
from shardbus.core.fragment.command import Command
from shardbus.core.limits import (
    BATCH_MAX,
    FINGERPRINT_CHARACTERS_MAX,
    PRODUCER_NAME_CHARACTERS_MAX,
    STAGE_MS_DEFAULT,
    STAGE_NAME_CHARACTERS_MAX,
    STAGES_MAX,
)
from shardbus.core.message import Message
from shardbus.core.messages.command import Done
from shardbus.core.namespace.placement import hash_point
from shardbus.core.sealing.seal import SEALED_TEXT
from shardbus.core.stages.command import (
    AskProducers,
    AskStages,
    CheckStages,
    DropStages,
    ForgetProducer,
    HeldStage,
    Producer,
    Producers,
    ProlongStages,
    Publication,
    Stage,
    StagesChecked,
    StageShare,
    StagesHeld,
)
from shardbus.core.stages.producers import refusal_of_repeat
from shardbus.core.transactions.command import Work

T = TypeVar("T")

# Around the id of the subscription in front of a name: no text in UTF-8 has this byte.
_SCOPE_END: Final = b"\xff"

# How long a client waits for the new map of an entity that is being repartitioned.
MAP_WAIT_MS: Final = 5_000
# Everything in a publication is read before it is decided, which may take long.
DECIDE_MS: Final = 60_000
# How long a request waits for a publication; then the client is told how much is left.
WAIT_MS: Final = 20_000
PAUSE_MS_MIN: Final = 20
PAUSE_MS_MAX: Final = 1_000
BATCH_KEY_BYTES: Final = 16
# Each piece number makes two numbers in a fragment: for messages without a key, and with one.
PIECE_MAX: Final = BATCH_MAX // 2 - 1


@final
class EntityStages:
    """Available as `EntityHandle.staging`. Fragments are asked in parallel."""

    def __init__(
        self,
        entity_id: int,
        router: EntityRouter,
        *,
        clock: Clock,
        new_seed: Callable[[], bytes],
        scope: bytes = b"",
    ) -> None:
        self._scope = scope
        self._entity_id = entity_id
        self._router = router
        self._clock = clock
        self._new_seed = new_seed
        self._transactor = Transactor(clock, DECIDE_MS)

    def of_subscription(self, subscription_id: int) -> EntityStages:
        """The same for messages of one subscription. Its names are its own: with the rights to one
        subscription nobody can publish, discard or skip what is for another one, or for the topic.
        """
        scope = b"%b%d%b" % (_SCOPE_END, subscription_id, _SCOPE_END)
        return EntityStages(
            self._entity_id,
            self._router,
            clock=self._clock,
            new_seed=self._new_seed,
            scope=scope,
        )

    async def stage(
        self,
        stage: str,
        piece: int,
        messages: list[Message],
        *,
        lifetime_ms: int = STAGE_MS_DEFAULT,
    ) -> None:
        """Store messages as a piece of a stage; the same piece again changes nothing.

        Messages with keys go to their fragments; those without go together to one fragment that can
        take them, normally the same one for a repetition. If that fragment is away and the
        repetition goes elsewhere, the stage cannot be published: `publish` refuses a piece that
        exists twice.
        """
        [name] = self._names([stage]).values()
        if not 0 <= piece <= PIECE_MAX:
            raise Refused(INVALID_ARGUMENT, f"The number of a piece must be from 0 to {PIECE_MAX}.")
        await self._with_a_map(lambda: self._stage(stage, name, piece, messages, lifetime_ms))

    async def _with_a_map(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do something; again for a moment while the entity is being repartitioned."""
        until_ms = self._clock.steady_ms() + MAP_WAIT_MS
        while True:
            try:
                return await work()
            except Refused as refusal:
                if refusal.kind is not REPARTITIONING or self._clock.steady_ms() >= until_ms:
                    raise
            await asyncio.sleep(PAUSE_MS_MIN / 1000)

    async def _stage(
        self, stage: str, name: bytes, piece: int, messages: list[Message], lifetime_ms: int
    ) -> None:
        questions = []
        unkeyed: list[Message] = []
        for placed in self._placed(messages):
            share = [messages[position] for position in placed.positions]
            if self._is_free(placed):
                unkeyed = share
                continue
            command = Stage(name, 2 * piece + 2, share, lifetime_ms)
            questions.append(to_port(self._router.ports[placed.index], command))
        failure = failure_of(await ask_all(questions))
        if failure is not None:
            raise failure
        if unkeyed:
            first = hash_point(stage) + piece
            await self._stage_anywhere(Stage(name, 2 * piece + 1, unkeyed, lifetime_ms), first)

    def _placed(self, messages: list[Message]) -> list[Placed]:
        """Past messages belong to the fragments that numbered them, others where a send puts
        them.
        """
        if not messages or not messages[0].past_number:
            return self._router.place(messages)
        shares: dict[int, list[int]] = {}
        for position, message in enumerate(messages):
            index = self._router.index_of_number(message.past_number)
            if index < 0:
                raise Refused(
                    INVALID_ARGUMENT,
                    f"The topic has no fragment that gave out the sequence number "
                    f"{message.past_number}.",
                )
            if index < self._router.former_count:
                raise Refused(
                    NOT_ALLOWED,
                    f"The topic published sequence number {message.past_number} before it was "
                    "repartitioned, and its fragments of that time accept no messages: fill in "
                    "only what was published since, or write the messages under new numbers.",
                )
            shares.setdefault(index, []).append(position)
        return [Placed(index, share, is_keyed=True) for index, share in shares.items()]

    def _is_free(self, placed: Placed) -> bool:
        return not placed.is_keyed and self._router.is_partitioned

    async def _stage_anywhere(self, command: Stage, first: int) -> None:
        ports = self._router.ports[self._router.former_count :]
        failure: Refused | Unavailable | None = None
        for step in range(len(ports)):
            [answer] = await ask_all([to_port(ports[(first + step) % len(ports)], command)])
            if isinstance(answer, Done):
                return
            failure = _failure(answer)
            if isinstance(failure, Refused) and failure.kind is not QUOTA_EXCEEDED:
                break
            if isinstance(failure, Unavailable) and failure.is_unknown:
                break
        assert failure is not None
        raise failure

    async def publish(
        self,
        producer: str,
        batch: int,
        stages: Mapping[str, int],
        *,
        fingerprint: str = "",
        is_once: bool = False,
    ) -> bool:
        """Make all messages of these stages visible, all of them or none.

        Each fragment shows its part at once if that is small. A large part is decided as a whole,
        too, and stored in bites; returns True when the last of them is stored. Refused with
        BEING_PUBLISHED when that takes long: the publication continues, and the client asks again.

        `stages` gives the number of messages of each stage: refused with STAGE_LOST when the
        fragments together do not have exactly those. Returns False when the producer has published
        this batch, or a later one, before: then the stages are discarded. With a fingerprint, which
        identifies the rows, other rows than were published under this number are refused
        (BATCH_DIFFERS), and the stages are kept. A producer that publishes `is_once` must `forget`
        itself afterwards.
        """
        name = self._producer(producer)
        if not 0 <= batch <= BATCH_MAX:
            raise Refused(INVALID_ARGUMENT, f"The number of a batch must be from 0 to {BATCH_MAX}.")
        told = b""
        if fingerprint:
            told = _encoded(fingerprint, "A fingerprint", FINGERPRINT_CHARACTERS_MAX)
        publication = Publication(name, batch, told, is_once=is_once)
        counts = {stage: stages[text] for text, stage in self._names(stages).items()}
        return await self._with_a_map(lambda: self._publish_once(producer, publication, counts))

    async def _publish_once(
        self, producer: str, publication: Publication, counts: dict[bytes, int]
    ) -> bool:
        until_ms = self._clock.steady_ms() + WAIT_MS
        map_count = self._router.map_count
        if not await self._is_published(producer, publication):
            try:
                await self._publish(producer, publication, counts, until_ms, map_count)
            except Refused as refusal:
                if refusal.kind not in (ALREADY_PUBLISHED, STAGE_LOST, SERVER_BUSY):
                    raise
                # Another client may have published them a moment ago, or be about to.
                left_bytes, _ = await self._left(publication, self._router.ports)
                if not await self._is_published(producer, publication):
                    if left_bytes and refusal.kind is STAGE_LOST:
                        raise _under_way(publication, left_bytes, "are promised") from refusal
                    raise
            else:
                return True
        # Fragments that are away cannot tell how much is left; they continue when they are back.
        await self._wait(publication, self._router.ports, until_ms, waits_for_away=False)
        await self._all(DropStages(list(counts)))
        return False

    async def discard(self, stages: Sequence[str]) -> FragmentAnswers[Done]:
        """Drop stages; where that is impossible now, they end when their lifetime is over.

        A name that ends in a slash means all stages whose names begin with it.
        """
        return spread(await self._all(DropStages(list(self._names(stages).values()))), done)

    async def prolong(self, stages: Sequence[str]) -> FragmentAnswers[Done]:
        """Keep stages, named as for `discard`, for their whole lifetime from now on."""
        return spread(await self._all(ProlongStages(list(self._names(stages).values()))), done)

    async def forget(self, producer: str) -> None:
        """A producer that published once knows that, and will not ask again."""
        name = self._producer(producer)
        ports = [self._router.ports[index] for index in self._router.path_of_key(producer)]
        failure = failure_of(await ask_all([to_port(port, ForgetProducer(name)) for port in ports]))
        if failure is not None:
            raise failure

    async def producers(self) -> FragmentAnswers[list[Producer]]:
        """The last batch of each producer, from the fragments that remember it."""
        return spread(await self._all(AskProducers()), _producers)

    async def _is_published(self, producer: str, publication: Publication) -> bool:
        """Whether the batch is published; Refused when other rows were.

        The fragments of former maps remember what they knew when they were sealed. They are asked
        until the producer has published with the present map, and about earlier batches.
        """
        known: Producer | None = None
        for index in reversed(self._router.path_of_key(producer)):
            answer = await ask(self._router.ports[index], AskProducers(publication.producer))
            for each in _producers(answer):
                if known is None:
                    known = each
                else:
                    known.fingerprints = each.fingerprints + known.fingerprints
            if known is not None and _is_decided(known, publication):
                break
        if known is None or known.batch < publication.batch:
            return False
        refusal = refusal_of_repeat(known, publication)
        if refusal.kind is not ALREADY_PUBLISHED:
            raise refusal
        return True

    async def _publish(
        self,
        producer: str,
        publication: Publication,
        counts: dict[bytes, int],
        until_ms: int,
        map_count: int,
    ) -> None:
        found = await self._found(counts)
        await self._check(publication, found, until_ms)
        if self._router.map_count != map_count:
            # What the producer published before was asked for by another map.
            raise Refused(REPARTITIONING, SEALED_TEXT)
        decider = self._router.index_of_key(producer)
        works = {index: Work([], [], _shares(held)) for index, held in found.items()}
        works.setdefault(decider, Work([], [])).publication = publication
        for work in works.values():
            work.batch_key = _batch_key(publication)
        parts = {index: self._part(index, work) for index, work in works.items()}
        transaction_id = self._new_seed() + self._new_seed()
        await self._transactor.commit(transaction_id, list(parts.values()), parts[decider])
        bitten = [self._router.ports[index] for index in found if found[index].takes_bites]
        if bitten:
            await self._wait(publication, bitten, until_ms, waits_for_away=True)

    async def _found(self, counts: dict[bytes, int]) -> dict[int, StagesHeld]:
        """What each fragment is to publish; Refused when something is missing or exists twice.

        A fragment that cannot be asked does not matter if the others have everything.
        """
        answers = await self._all(AskStages(list(counts))) if counts else {}
        found = _Found()
        held: dict[int, StagesHeld] = {}
        for index, number in enumerate(self._router.numbers):
            answer = answers.get(number)
            if isinstance(answer, Refused):
                raise answer
            if isinstance(answer, StagesHeld) and answer.stages:
                held[index] = answer
                found.add(answer.stages)
        found.check(counts, [each for each in answers.values() if isinstance(each, Unavailable)])
        return held

    async def _check(
        self, publication: Publication, found: dict[int, StagesHeld], until_ms: int
    ) -> None:
        """Let fragments check their pieces where these are large, a part at a time.

        They remember the result: a repeated request continues where this one ends.
        """
        left = {index: held.unchecked_bytes for index, held in found.items()}
        while any(left.values()):
            if self._clock.steady_ms() >= until_ms:
                raise _under_way(publication, sum(left.values()), "must be checked")
            asked = [index for index in left if left[index]]
            questions = [
                to_port(
                    self._router.ports[index], CheckStages([n for n, _ in _shares(found[index])])
                )
                for index in asked
            ]
            answers = await ask_all(questions)
            failure = failure_of(answers)
            if failure is not None:
                raise failure
            for index, answer in zip(asked, answers, strict=True):
                assert isinstance(answer, StagesChecked)
                left[index] = answer.left_bytes

    async def _wait(
        self,
        publication: Publication,
        ports: Sequence[FragmentPort],
        until_ms: int,
        *,
        waits_for_away: bool,
    ) -> None:
        """Return when the fragments have stored all of a decided batch."""
        pause_ms = PAUSE_MS_MIN
        while True:
            left_bytes, is_known = await self._left(publication, ports)
            if left_bytes == 0 and (is_known or not waits_for_away):
                return
            if self._clock.steady_ms() >= until_ms:
                raise _under_way(publication, left_bytes, "must be stored")
            await asyncio.sleep(pause_ms / 1000)
            pause_ms = min(2 * pause_ms, PAUSE_MS_MAX)

    async def _left(
        self, publication: Publication, ports: Sequence[FragmentPort]
    ) -> tuple[int, bool]:
        """How many bytes of a batch are promised or not stored yet, and whether all could tell."""
        question = AskStages([], _batch_key(publication))
        answers = await ask_all([to_port(port, question) for port in ports])
        told = [answer.left_bytes for answer in answers if isinstance(answer, StagesHeld)]
        return sum(told), len(told) == len(answers)

    def _part(self, index: int, work: Work) -> TransactionPart:
        home = (self._entity_id, self._router.numbers[index])
        return TransactionPart(self._router.ports[index], home, work)

    def _names(self, stages: Mapping[str, int] | Sequence[str]) -> dict[str, bytes]:
        if len(stages) > STAGES_MAX:
            raise Refused(
                INVALID_ARGUMENT,
                f"The request names {len(stages)} stages; at most {STAGES_MAX} are allowed.",
            )
        what, most = "The name of a stage", STAGE_NAME_CHARACTERS_MAX
        return {stage: self._scope + _encoded(stage, what, most) for stage in stages}

    def _producer(self, name: str) -> bytes:
        return self._scope + _encoded(name, "The name of a producer", PRODUCER_NAME_CHARACTERS_MAX)

    async def _all(self, command: Command) -> dict[int, Answer]:
        answers = await ask_all([to_port(port, command) for port in self._router.ports])
        return dict(zip(self._router.numbers, answers, strict=True))


@final
class _Found:
    """What all fragments have of some stages."""

    def __init__(self) -> None:
        self._counts: dict[bytes, int] = {}
        self._unkeyed: set[tuple[bytes, int]] = set()

    def add(self, stages: list[HeldStage]) -> None:
        for held in stages:
            self._counts[held.stage] = self._counts.get(held.stage, 0) + held.count
            for piece in held.pieces.numbers():
                if piece % 2 == 1:
                    self._add_unkeyed(held.stage, piece)

    def _add_unkeyed(self, stage: bytes, piece: int) -> None:
        """The messages without a key of a piece must be in one fragment only."""
        if (stage, piece) in self._unkeyed:
            raise Refused(
                STAGE_LOST,
                f"Piece {piece // 2} of stage '{_text(stage)}' is in two fragments, because "
                "one was away when the piece was repeated: discard the stage, and stage it "
                "again.",
            )
        self._unkeyed.add((stage, piece))

    def check(self, counts: dict[bytes, int], missing: list[Unavailable]) -> None:
        for stage, expected in counts.items():
            count = self._counts.get(stage, 0)
            if count < expected and missing:
                raise Unavailable(missing[0].message)
            if count != expected:
                raise Refused(
                    STAGE_LOST,
                    f"Stage '{_text(stage)}' has {count} messages, not {expected}: its "
                    "lifetime ended, or it was published or discarded. Stage the messages "
                    "again.",
                )


def _shares(held: StagesHeld) -> list[StageShare]:
    return [(each.stage, each.count) for each in held.stages]


def _batch_key(publication: Publication) -> bytes:
    """The key by which all fragments know a batch."""
    named = publication.batch.to_bytes(8, "big") + publication.producer
    return blake2b(named, digest_size=BATCH_KEY_BYTES).digest()


def _under_way(publication: Publication, left_bytes: int, what: str) -> Refused:
    return Refused(
        BEING_PUBLISHED,
        f"Batch {publication.batch} of '{_text(publication.producer)}' is being published: "
        f"{left_bytes} bytes {what}. Ask again in a moment.",
    )


def _text(name: bytes) -> str:
    """The name that the client gave."""
    return name.rpartition(_SCOPE_END)[2].decode()


def _encoded(name: str, what: str, characters_max: int) -> bytes:
    if not 1 <= len(name) <= characters_max:
        raise Refused(
            INVALID_ARGUMENT, f"{what} must have 1 to {characters_max} characters, not {len(name)}."
        )
    try:
        return name.encode()
    except UnicodeEncodeError as error:
        raise Refused(INVALID_ARGUMENT, f"{what} is not valid text: {error.reason}.") from error


def _failure(answer: Answer) -> Refused | Unavailable:
    assert isinstance(answer, Refused | Unavailable)
    return answer


def _is_decided(known: Producer, publication: Publication) -> bool:
    """Whether this much about a producer tells if the batch is new, or has the same rows."""
    is_new = publication.batch > known.batch
    return is_new or any(batch == publication.batch for batch, _ in known.fingerprints)


def _producers(answer: Answer) -> list[Producer]:
    assert isinstance(answer, Producers)
    return answer.producers
