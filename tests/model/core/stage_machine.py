"""The commands about stages, beside all the others, each checked against the model."""

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from shardbus.core.errors import (
    ALREADY_PUBLISHED,
    BATCH_DIFFERS,
    NOT_ALLOWED,
    QUOTA_EXCEEDED,
    SERVER_BUSY,
    STAGE_LOST,
    ErrorKind,
    Refused,
)
from shardbus.core.lifecycle.journal import LIFECYCLE_STAGE
from shardbus.core.limits import PRODUCER_ONCE_KEPT_MS, STAGE_MS_MIN
from shardbus.core.message import NEVER_MS, Message
from shardbus.core.messages.command import Done
from shardbus.core.stages.command import (
    AskProducers,
    AskStages,
    CheckStages,
    DropStages,
    ForgetProducer,
    Producers,
    Publication,
    Stage,
    StagesChecked,
    StageShare,
    StagesHeld,
)
from shardbus.core.transactions.command import Finish, Prepare, Transact, Work
from tests.model.core.machine import TTLS_MS, FragmentMachine, counts
from tests.model.core.model import StageModel

STAGES = (b"a", b"b", b"c")

stages = st.sampled_from(STAGES)
some = st.lists(stages, min_size=1, max_size=3, unique=True)
producers = st.sampled_from([b"p", b"q"])
transactions = st.sampled_from([b"t1", b"t2"])


class StageMachine(FragmentMachine):
    """The same, and the commands about stages. What is large is sent in bites, among the others."""

    publishes_on = False

    @rule(ms=st.sampled_from([STAGE_MS_MIN - 1, STAGE_MS_MIN]), is_noticed=st.booleans())
    def pass_much_time(self, ms: int, is_noticed: bool) -> None:
        self.pass_time(ms, is_noticed)

    @rule(
        name=stages,
        piece=st.integers(min_value=1, max_value=3),
        count=counts,
        message_id=st.one_of(st.none(), st.integers(min_value=0, max_value=20)),
        ttl_ms=st.sampled_from(TTLS_MS),
        delay_ms=st.sampled_from([0, 0, 0, 3_000]),
        lifetime_ms=st.sampled_from([STAGE_MS_MIN, 2 * STAGE_MS_MIN]),
    )
    def stage(  # noqa: PLR0913 - what a stage has
        self,
        name: bytes,
        piece: int,
        count: int,
        message_id: int | None,
        ttl_ms: int,
        delay_ms: int,
        lifetime_ms: int,
    ) -> None:
        at_ms = self.desk.now_ms + delay_ms if delay_ms else NEVER_MS
        messages: list[Message] = []
        for each in self.message_ids(count, message_id):
            self.sent += 1
            payload = b"%d" % self.sent
            message = Message(payload, message_id=each, ttl_ms=ttl_ms, scheduled_at_ms=at_ms)
            messages.append(message)
        stage = self.model.stages.get(name)

        is_taken = any(name in names for names in self.model.taken)

        reply = self.ask(Stage(name, piece, messages, lifetime_ms))

        if isinstance(reply, Refused):
            if stage is None and is_taken:
                assert reply.kind is NOT_ALLOWED
            elif stage is None:
                assert reply.kind is SERVER_BUSY
                assert len(self.model.stages) >= self.bounds.stages_max
            else:
                assert reply.kind is NOT_ALLOWED
                assert stage.promised_to and piece not in stage.pieces
            return
        if stage is None:
            assert len(self.model.stages) < self.bounds.stages_max and not is_taken
            stage = self.model.stages.setdefault(name, StageModel(name))
        if piece not in stage.pieces:
            assert not stage.promised_to
            stage.pieces[piece] = messages
            stage.lifetime_ms = max(stage.lifetime_ms, lifetime_ms)
            stage.expires_at_ms = max(stage.expires_at_ms, self.desk.now_ms + lifetime_ms)
        self.settle_down()

    @rule(names=some)
    def drop_stages(self, names: list[bytes]) -> None:
        assert isinstance(self.ask(DropStages(names)), Done)
        for name in names:
            stage = self.model.stages.get(name)
            if stage is not None and not stage.promised_to:
                del self.model.stages[name]
        self.settle_down()

    @rule(
        names=some,
        producer=st.none() | producers,
        step=st.sampled_from([-1, 0, 1, 1, 1]),
        error=st.sampled_from([0, 0, 0, 0, 1, -1]),
        fingerprint=st.sampled_from([b"", b"these rows", b"other rows"]),
        is_once=st.booleans(),
    )
    def publish(
        self,
        names: list[bytes],
        producer: bytes | None,
        step: int,
        error: int,
        fingerprint: bytes,
        is_once: bool,
    ) -> None:
        shares = self.shares(names, error)
        publication: Publication | None = None
        if producer is not None:
            batch = max(self.model.batches.get(producer, 0) + step, 0)
            publication = Publication(producer, batch, fingerprint, is_once=is_once)
        expected = self.why_not(shares, publication)

        reply = self.ask(Transact(Work([], [], shares, publication)))

        assert (reply.kind if isinstance(reply, Refused) else None) is expected
        if expected is None:
            self.begin_publishing([name for name, _ in shares])
            if publication is not None:
                self.note(publication)
            self.settle_down()

    def note(self, publication: Publication) -> None:
        """One that goes on after it published once is like the others from then on."""
        model, name = self.model, publication.producer
        is_other = name in model.batches and name not in model.once
        model.once.pop(name, None)
        model.batches[name] = publication.batch
        model.fingerprints[name, publication.batch] = publication.fingerprint
        if publication.is_once and not is_other:
            model.once[name] = self.desk.now_ms

    @rule(name=producers)
    def forget_producer(self, name: bytes) -> None:
        assert isinstance(self.ask(ForgetProducer(name)), Done)
        self.model.forget_producer(name)
        self.settle_down()

    @rule(name=producers)
    def ask_producer(self, name: bytes) -> None:
        """Whoever published once, and asks whether it has, is kept for its time again."""
        known = self.ask(AskProducers(name))
        assert isinstance(known, Producers)
        found = {each.name: each.batch for each in known.producers}
        assert found == {each: at for each, at in self.model.batches.items() if each == name}
        if name in self.model.once:
            self.model.once[name] = self.desk.now_ms
        self.settle_down()

    @rule(ms=st.sampled_from([PRODUCER_ONCE_KEPT_MS - 1, PRODUCER_ONCE_KEPT_MS]))
    def pass_an_hour(self, ms: int) -> None:
        self.pass_time(ms, True)

    @rule(names=some)
    def check_stages(self, names: list[bytes]) -> None:
        """What is large is published only when all of it was looked at."""
        while True:
            reply = self.ask(CheckStages(names))
            assert isinstance(reply, StagesChecked)
            if not reply.left_bytes:
                break
        for name in names:
            if name in self.model.stages:
                self.model.stages[name].checked.update(self.model.stages[name].pieces)
        self.settle_down()

    @rule(names=some, producer=producers, is_reloaded=st.booleans())
    def publish_much(self, names: list[bytes], producer: bytes, is_reloaded: bool) -> None:
        for name in names:
            for piece in (1, 2, 3):
                self.stage(name, piece, 3, None, -1, 0, STAGE_MS_MIN)
        self.check_stages(names)
        self.publish(names, producer, 1, 0, b"", is_reloaded)
        if is_reloaded:
            self.crash()

    @precondition(lambda self: self.model.publishing)
    @rule(count=st.integers(min_value=1, max_value=3))
    def bite(self, count: int) -> None:
        for _ in range(count):
            if self.model.publishing:
                self.desk.publish_on()
                self.desk.go_on()
                self.send_bite(self.model.publishing[0])
                self.settle_down()

    @precondition(lambda self: self.model.publishing)
    @rule(is_noticed=st.booleans())
    def publish_for_long(self, is_noticed: bool) -> None:
        """It takes longer than the stages have."""
        self.pass_time(2 * STAGE_MS_MIN, is_noticed)

    @rule(names=some, transaction_id=transactions, error=st.sampled_from([0, 0, 0, 1]))
    def prepare(self, names: list[bytes], transaction_id: bytes, error: int) -> None:
        shares = self.shares(names, error)
        is_known = transaction_id in self.model.promised
        expected = None if is_known else self.why_not(shares, None)

        command = Prepare(transaction_id, Work([], [], shares), (9, 9), 1_000)
        reply = self.ask(command)

        assert (reply.kind if isinstance(reply, Refused) else None) is expected
        if expected is None and not is_known:
            self.model.promised[transaction_id] = [name for name, _ in shares]
            for name, _ in shares:
                self.model.stages[name].promised_to = transaction_id
        self.settle_down()

    @rule(transaction_id=transactions, is_commit=st.booleans())
    def finish(self, transaction_id: bytes, is_commit: bool) -> None:
        assert isinstance(self.ask(Finish(transaction_id, is_commit=is_commit)), Done)
        names = self.model.promised.pop(transaction_id, [])
        if is_commit:
            self.begin_publishing(names)
        else:
            for name in names:
                self.model.stages[name].promised_to = b""
        self.settle_down()

    @rule(names=some, transaction_id=transactions, is_commit=st.booleans())
    def promise_for_long(self, names: list[bytes], transaction_id: bytes, is_commit: bool) -> None:
        """Whoever publishes dies, and it takes longer than the stages have until that is seen."""
        self.prepare(names, transaction_id, 0)
        self.pass_time(2 * STAGE_MS_MIN, True)
        self.the_stages_are_those_of_the_model()
        self.finish(transaction_id, is_commit)

    # What is true after every step.

    @invariant()
    def the_stages_are_those_of_the_model(self) -> None:
        fragment = self.desk.fragment
        now_ms, steady_ms = self.desk.now_ms, self.desk.steady_ms
        held = fragment.apply(AskStages(list(STAGES)), now_ms, steady_ms).reply
        assert isinstance(held, StagesHeld)
        told = {each.stage: (each.pieces.numbers(), each.count) for each in held.stages}
        assert told == {
            stage.name: (sorted(stage.pieces), len(stage.messages()))
            for stage in self.model.stages.values()
        }
        known = fragment.apply(AskProducers(), now_ms, steady_ms).reply
        assert isinstance(known, Producers)
        assert {each.name: each.batch for each in known.producers} == self.model.batches
        staged_bytes = sum(each.size_bytes for each in held.stages)
        assert fragment.size_bytes() == fragment.counters.total_bytes() + staged_bytes

    @invariant()
    def the_store_holds_the_pieces_of_the_model(self) -> None:
        if self.desk.is_pending():
            return
        assert self.desk.fragment.is_publishing == bool(self.model.publishing)
        stages = self.desk.shelf.kept.stages
        kept = {name: sorted(stages[name]) for name in stages if name != LIFECYCLE_STAGE}
        expected = {stage.name: sorted(stage.pieces) for stage in self.model.stages.values()}
        assert kept == expected

    # What both sides know.

    def shares(self, names: list[bytes], error: int) -> list[StageShare]:
        shares: list[StageShare] = []
        for name in names:
            stage = self.model.stages.get(name)
            if stage is not None or error:
                shares.append((name, error + (0 if stage is None else len(stage.messages()))))
        return shares

    def why_not(
        self, shares: list[StageShare], publication: Publication | None
    ) -> ErrorKind | None:
        if publication is not None:
            name, batch = publication.producer, publication.batch
            if batch <= self.model.batches.get(name, -1):
                told = self.model.fingerprints.get((name, batch))
                is_same = told in (b"", publication.fingerprint)
                is_known = is_same or not publication.fingerprint
                return ALREADY_PUBLISHED if is_known else BATCH_DIFFERS
            if not self.has_room_for(publication):
                return SERVER_BUSY if publication.is_once else QUOTA_EXCEEDED
        for name, count in shares:
            stage = self.model.stages.get(name)
            if stage is None or len(stage.messages()) != count:
                return STAGE_LOST
            if stage.promised_to:
                return SERVER_BUSY
        names = [name for name, _ in shares]
        messages = self.messages(names)
        stages = [self.model.stages[name] for name in names]
        if all(set(stage.pieces) <= stage.checked for stage in stages):
            ids: list[str | None] = [str(each) for each in range(len(messages))]
            return QUOTA_EXCEEDED if self.is_history_full(ids) else None
        if len(messages) > self.bounds.whole_count_max:
            return SERVER_BUSY
        ids = [each.message_id for each in messages]
        fresh = self.fresh_ids(ids)
        is_full = self.is_history_full([ids[position] for position in fresh])
        return QUOTA_EXCEEDED if ids and is_full else None

    def has_room_for(self, publication: Publication) -> bool:
        name, once = publication.producer, self.model.once
        if name in self.model.batches and (publication.is_once or name not in once):
            return True
        count = len(once) if publication.is_once else len(self.model.batches) - len(once)
        return count < self.bounds.producers_max

    def is_history_full(self, ids: list[str | None]) -> bool:
        """What is promised or being published has its room."""
        promised = [stage for stage in self.model.stages.values() if stage.promised_to]
        count = sum(len(stage.messages()) for stage in promised)
        is_any = any(name is not None for name in ids)
        return is_any and super().is_history_full([*ids, *[""] * count])

    def messages(self, names: list[bytes]) -> list[Message]:
        return [each for name in names for each in self.model.stages[name].messages()]

    def begin_publishing(self, names: list[bytes]) -> None:
        """It is decided: what is small is visible now, and of the rest the first bite."""
        if len(self.messages(names)) <= self.bounds.whole_count_max:
            for name in names:
                self.make_visible(self.model.stages.pop(name).messages())
            return
        for name in names:
            self.model.stages[name].promised_to = b"itself"
        left = list(names)
        self.model.publishing.append(left)
        self.model.taken.append([])
        self.send_bite(left)
        if left:
            self.model.taken[-1] += left

    def send_bite(self, names: list[bytes]) -> None:
        """Whole pieces until there are enough messages."""
        room = self.bounds.bite_count_max
        while names and room > 0:
            stage = self.model.stages[names[0]]
            messages = stage.pieces.pop(min(stage.pieces))
            self.make_visible(messages)
            room -= len(messages)
            if not stage.pieces:
                del self.model.stages[names.pop(0)]
        if not names:
            del self.model.taken[self.model.publishing.index(names)]
            self.model.publishing.remove(names)

    def make_visible(self, messages: list[Message]) -> None:
        self.admit(messages, self.fresh_ids([each.message_id for each in messages]))

    def teardown(self) -> None:
        if hasattr(self, "desk"):
            self.flush()
            while self.model.publishing:
                self.bite(1)
        super().teardown()
