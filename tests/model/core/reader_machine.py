"""The commands about readers and claims, beside all the others, each checked against the model."""

from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from shardbus.core.errors import (
    CLAIM_COMPLETED,
    CLAIM_LOST,
    INVALID_ARGUMENT,
    READER_IN_USE,
    READER_LOST,
    READER_NOT_FOUND,
    SERVER_BUSY,
    Refused,
)
from shardbus.core.limits import CLAIM_RUNS_PER_SESSION, OWNER_MS_MAX
from shardbus.core.message import MAIN_LINE
from shardbus.core.messages.command import Done
from shardbus.core.readers.command import (
    Claim,
    Claimed,
    ClaimRead,
    ClaimRuns,
    CompleteClaim,
    Completed,
    DescribeClaim,
    DropReader,
    KeepReader,
    ListReaders,
    OpenReader,
    ReadClaim,
    ReaderOpened,
    Readers,
    ReleaseClaims,
)
from tests.model.core.agreement import lines
from tests.model.core.machine import FragmentMachine, counts
from tests.model.core.model import Modelled, ReaderModel

names = st.sampled_from(["lake", "pond"])
owners = st.sampled_from([b"one", b"one", b"one", b"two"])
leases = st.sampled_from([10_000, 60_000])
steps = st.integers(min_value=-2, max_value=2)


class ReaderMachine(FragmentMachine):
    """The same, and the commands about readers."""

    ids_offered = 0

    @rule(ms=st.sampled_from([9_999, 10_000, OWNER_MS_MAX]), is_noticed=st.booleans())
    def pass_much_time(self, ms: int, is_noticed: bool) -> None:
        self.pass_time(ms, is_noticed)

    @rule(line=lines, name=names, owner=owners, lease_ms=leases)
    def open_reader(self, line: int, name: str, owner: bytes, lease_ms: int) -> None:
        now_ms = self.desk.now_ms
        reader = self.model.reader(line, name)

        self.ids_offered += 1
        new_id = b"id %d" % self.ids_offered

        reply = self.ask(OpenReader(line, name, owner, lease_ms, new_id))

        if isinstance(reply, Refused):
            assert reply.kind is READER_IN_USE and reader is not None
            assert reader.owner != owner and now_ms < reader.heard_ms + OWNER_MS_MAX
            return
        assert isinstance(reply, ReaderOpened)
        if reader is None:
            reader = ReaderModel(line, name)
            reader.reader_id = new_id
            self.model.readers.append(reader)
        elif reader.owner != owner:
            assert now_ms >= reader.heard_ms + OWNER_MS_MAX
        reader.owner, reader.lease_ms, reader.heard_ms = owner, lease_ms, now_ms
        told = (reply.reader_id, reply.completed, reply.last)
        assert told == (reader.reader_id, reader.completed, reader.last)
        assert [claim.ordinal for claim in reply.claims] == reader.open
        for claim in reply.claims:
            messages = self.model.claimed(reader, claim.ordinal)
            assert claim.count == len(messages)
            assert claim.size_bytes == sum(len(each.payload) for each in messages)
        self.settle_down()

    def ready(self, line: int, name: str) -> None:
        """See to it that there is somebody to read, and something: without, little happens."""
        self.top_up(line, b"")
        if self.model.reader(line, name) is None:
            self.open_reader(line, name, b"one", 10_000)

    @rule(
        line=lines,
        name=names,
        owner=owners,
        step=steps,
        count_max=counts,
        bytes_max=st.sampled_from([1, 4, 100]),
        done_step=st.none() | steps,
    )
    def claim_any(  # noqa: PLR0913 - who, where, what and how much
        self,
        line: int,
        name: str,
        owner: bytes,
        step: int,
        count_max: int,
        bytes_max: int,
        done_step: int | None,
    ) -> None:
        reader = self.model.reader(line, name)
        ordinal = step + (0 if reader is None else reader.last)
        done = 0
        if done_step is not None and reader is not None:
            done = max(0, reader.completed + 1 + done_step)
        self.claim(line, name, owner, ordinal, count_max, bytes_max, done)

    @rule(
        line=lines,
        name=names,
        count_max=counts,
        bytes_max=st.sampled_from([4, 100]),
        is_done=st.booleans(),
    )
    def claim_next(
        self, line: int, name: str, count_max: int, bytes_max: int, is_done: bool
    ) -> None:
        """What drivers do all day: the next claim, which may complete the last, if not lost."""
        self.ready(line, name)
        reader = self.model.reader(line, name)
        if reader is not None:
            done = reader.last if is_done else 0
            self.claim(line, name, reader.owner, reader.last + 1, count_max, bytes_max, done)

    def claim(  # noqa: PLR0913 - who, where, what and how much
        self,
        line: int,
        name: str,
        owner: bytes,
        ordinal: int,
        count_max: int,
        bytes_max: int,
        done: int = 0,
    ) -> None:
        self.look_at_clocks()
        now_ms = self.desk.now_ms
        reader = self.model.reader(line, name)
        available = self.model.claimable(line, reader, now_ms)
        ending = reader.open[0] if reader and reader.open and reader.open[0] <= done else 0
        without = (reader, ending) if reader and ending else None
        room = min(
            count_max,
            self.bounds.claim_runs_max - self.run_count(without),
            self.sessions_max(line) - self.session_count(without),
        )

        reply = self.ask(Claim(line, name, owner, ordinal, count_max, bytes_max, done))

        if self.is_shut_out(reply, reader, owner):
            return
        assert reader is not None
        if isinstance(reply, Refused):
            if 0 < ordinal <= done:
                assert reply.kind is INVALID_ARGUMENT
            elif done > (reader.last if ending else reader.completed):
                self.check_not_open(reply, reader, done)
            elif ordinal == reader.last + 1:
                assert reply.kind is SERVER_BUSY and room < 1
            else:
                self.check_not_open(reply, reader, ordinal)
            return
        assert isinstance(reply, Claimed)
        assert done < ordinal and (ending or done <= reader.completed)
        reader.heard_ms = now_ms
        if ordinal not in reader.open:
            assert ordinal == reader.last + 1
            expected = _fitting(available[:room], bytes_max)
            self.take_claim(reader, ordinal, expected, reply)
        if ending:
            self.model.complete(reader)
        assert reply.completed == reader.completed
        self.settle_down()

    def look_at_clocks(self) -> None:
        """Nothing that a reader may claim depends on a clock that nobody has read."""

    def take_claim(
        self, reader: ReaderModel, ordinal: int, expected: list[Modelled], reply: Claimed
    ) -> None:
        count = 0 if reply.claim is None else reply.claim.count
        assert count == len(expected) or (count < len(expected) and reply.is_more)
        if reply.claim is None:
            return
        taken = expected[:count]
        claim = reply.claim
        assert (claim.first, claim.last) == (taken[0].number, taken[-1].number)
        assert claim.size_bytes == sum(len(each.payload) for each in taken)
        for message in taken:
            message.reader, message.ordinal = reader, ordinal
        reader.last = ordinal
        reader.open.append(ordinal)

    @rule(line=lines, name=names, back=st.integers(min_value=0, max_value=4))
    def read_claim(self, line: int, name: str, back: int) -> None:
        reader = self.model.reader(line, name)
        ordinal = 1 if reader is None else reader.last - back
        messages = self.model.claimed(reader, ordinal)

        other = self.ask(DescribeClaim(line, name, ordinal, b"other"))
        assert isinstance(other, Refused) and other.kind is READER_NOT_FOUND
        reader_id = b"" if reader is None else reader.reader_id
        described = self.ask(DescribeClaim(line, name, ordinal, reader_id))
        read = self.ask(ReadClaim(line, name, ordinal, 0, 3))

        if reader is None:
            assert isinstance(described, Refused) and described.kind is READER_NOT_FOUND
            assert isinstance(read, Refused) and read.kind is READER_NOT_FOUND
        elif isinstance(described, Refused):
            assert isinstance(read, Refused)
            self.check_not_open(described, reader, ordinal)
            self.check_not_open(read, reader, ordinal)
        else:
            assert isinstance(described, ClaimRuns) and isinstance(read, ClaimRead)
            assert ordinal in reader.open
            assert described.runs.numbers() == [each.number for each in messages]
            found = [(each.sequence_number, each.payload) for each in read.entries]
            assert found == [(each.number, each.payload) for each in messages[: len(found)]]
            assert found and read.is_end == (len(found) == len(messages))
        self.settle_down()

    @rule(line=lines, name=names, owner=owners, step=steps)
    def complete_any(self, line: int, name: str, owner: bytes, step: int) -> None:
        reader = self.model.reader(line, name)
        ordinal = step + (0 if reader is None else reader.completed + 1)
        self.complete(line, name, owner, ordinal)

    @rule(line=lines, name=names)
    def work_on_a_claim(self, line: int, name: str) -> None:
        """Claim, read and complete, as a batch of a driver does."""
        self.claim_next(line, name, 3, 100, False)
        self.read_claim(line, name, 0)
        reader = self.model.reader(line, name)
        if reader is not None and reader.open:
            self.complete(line, name, reader.owner, reader.open[-1])

    def complete(self, line: int, name: str, owner: bytes, ordinal: int) -> None:
        reader = self.model.reader(line, name)

        reply = self.ask(CompleteClaim(line, name, owner, ordinal))

        if self.is_shut_out(reply, reader, owner):
            return
        assert reader is not None
        is_open = bool(reader.open) and reader.open[0] <= ordinal <= reader.last
        if isinstance(reply, Refused):
            assert not is_open and ordinal > reader.completed
            self.check_not_open(reply, reader, ordinal)
            return
        assert isinstance(reply, Completed)
        reader.heard_ms = self.desk.now_ms
        if is_open:
            self.model.complete(reader)
        assert reply.completed == reader.completed
        self.settle_down()

    @rule(line=lines, name=names, owner=owners)
    def keep(self, line: int, name: str, owner: bytes) -> None:
        reader = self.model.reader(line, name)

        reply = self.ask(KeepReader(line, name, owner))

        if not self.is_shut_out(reply, reader, owner):
            assert isinstance(reply, Done) and reader is not None
            reader.heard_ms = self.desk.now_ms
            self.settle_down()

    @rule(line=lines, name=names, owner=owners)
    def release(self, line: int, name: str, owner: bytes) -> None:
        reader = self.model.reader(line, name)

        reply = self.ask(ReleaseClaims(line, name, owner))

        if not self.is_shut_out(reply, reader, owner):
            assert isinstance(reply, Done) and reader is not None
            self.model.lose_claims(reader)
            reader.heard_ms = self.desk.now_ms
            self.settle_down()

    @rule(line=lines, name=names)
    def drop_reader(self, line: int, name: str) -> None:
        reader = self.model.reader(line, name)

        reply = self.ask(DropReader(line, name))

        if reader is None:
            assert isinstance(reply, Refused) and reply.kind is READER_NOT_FOUND
            return
        assert isinstance(reply, Done)
        self.model.lose_claims(reader)
        self.model.readers.remove(reader)
        self.settle_down()

    # What is true after every step.

    @invariant()
    def the_readers_are_those_of_the_model(self) -> None:
        listed = self.desk.fragment.apply(
            ListReaders(), self.desk.now_ms, self.desk.steady_ms
        ).reply
        assert isinstance(listed, Readers)
        readers = sorted(self.model.readers, key=lambda each: (each.line, each.name))
        told = [
            (each.line, each.name, each.owner, each.completed, each.last, each.heard_ms)
            for each in listed.readers
        ]
        assert told == [
            (each.line, each.name, each.owner, each.completed, each.last, each.heard_ms)
            for each in readers
        ]
        assert [each.reader_id for each in listed.readers] == [each.reader_id for each in readers]
        claimed = [each for each in self.model.messages if each.reader is not None]
        standings = [
            (each.line, each.name, each.waiting, each.claimed)
            for each in self.desk.fragment.reader_standings()
        ]
        assert standings == [
            (each.line, each.name, each.waiting, each.claimed) for each in listed.readers
        ]
        for status, reader in zip(listed.readers, readers, strict=True):
            own = [each for each in claimed if each.reader is reader]
            assert (status.claims, status.claimed) == (len(reader.open), len(own))
        assert self.run_count() <= self.bounds.claim_runs_max
        assert self.session_count() <= self.sessions_max(MAIN_LINE)

    # What both sides know.

    def is_shut_out(self, reply: object, reader: ReaderModel | None, owner: bytes) -> bool:
        """Whether a command was refused for who said it."""
        if reader is None:
            assert isinstance(reply, Refused) and reply.kind is READER_NOT_FOUND
            return True
        if reader.owner != owner:
            assert isinstance(reply, Refused) and reply.kind is READER_LOST
            return True
        return False

    def check_not_open(self, refusal: Refused, reader: ReaderModel, ordinal: int) -> None:
        assert ordinal not in reader.open
        if ordinal < 1 or ordinal > reader.last:
            assert refusal.kind is INVALID_ARGUMENT
        else:
            assert refusal.kind is (CLAIM_LOST if ordinal in reader.lost else CLAIM_COMPLETED)

    def sessions_max(self, line: int) -> int:
        """How many sessions claims may hold; elsewhere nothing is bounded by it."""
        if line != MAIN_LINE or not self.requires_session:
            return 1 << 30
        return self.bounds.claim_runs_max // CLAIM_RUNS_PER_SESSION

    def session_count(self, without: tuple[ReaderModel, int] | None = None) -> int:
        """How many sessions the claims have, or all but one of them."""
        claimed = {
            (e.reader, e.ordinal, e.session_id.lower())
            for e in self.model.messages
            if e.reader and e.line == MAIN_LINE and e.session_id is not None
        }
        return sum((reader, ordinal) != without for reader, ordinal, _ in claimed)

    def run_count(self, without: tuple[ReaderModel, int] | None = None) -> int:
        """How many pieces the claims have, or all but one of them."""
        claimed = {e.number: (e.reader, e.ordinal) for e in self.model.messages if e.reader}
        return sum(
            claimed.get(number - 1) != claim
            for number, claim in claimed.items()
            if claim != without
        )


def _fitting(messages: list[Modelled], bytes_max: int) -> list[Modelled]:
    size_bytes = 0
    for position, message in enumerate(messages):
        size_bytes += len(message.payload)
        if position and size_bytes > bytes_max:
            return messages[:position]
    return messages
