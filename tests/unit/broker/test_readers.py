"""Readers over all fragments of an entity: claims, leases and fragments that are away."""

from collections.abc import Callable

import pytest

from shardbus.broker.fragment.answers import ReplyTo
from shardbus.broker.fragment.runner import Runner
from shardbus.broker.operations.browse import BrowseCursor
from shardbus.broker.operations.readers import PIECE_BYTES_MAX, Readers, WantedClaim
from shardbus.broker.remote.broker import RemoteBroker
from shardbus.core.errors import (
    CLAIM_LOST,
    INVALID_ARGUMENT,
    READER_IN_USE,
    READER_LOST,
    READER_NOT_FOUND,
    SERVER_BUSY,
    Refused,
    Unavailable,
)
from shardbus.core.fragment.command import Command
from shardbus.core.limits import OWNER_MS_MAX
from shardbus.core.message import DEAD_LETTER_LINE, MAIN_LINE, Message
from shardbus.core.messages.command import NO_SESSION, RELEASE
from shardbus.core.readers.command import Claim, ClaimSummary
from shardbus.core.sequence import sequence_number
from shardbus.stores.base.store import FragmentId
from tests.unit.broker.house import House, payloads_of, send_of
from tests.unit.broker.queues import Queue
from tests.unit.broker.test_failing_broker import Desk
from tests.unit.broker.wires import Wire, World, connected, send

NAME = "lake"
OWNER = b"driver 1"
ID = b"id"
OTHER = b"driver 2"
LEASE_MS = 20_000


@pytest.fixture
def queue(house: House) -> Queue:
    return Queue(house, 3)


def readers_of(queue: Queue) -> Readers:
    return Readers(queue.runners, [0, 1, 2])


def fill(queue: Queue, count: int = 4) -> None:
    for fragment in range(3):
        queue.send(fragment, *(Message(b"%d-%d" % (fragment, each)) for each in range(count)))


def claim(queue: Queue, number: int, ordinal: int, count_max: int = 2) -> ClaimSummary:
    readers = readers_of(queue)
    claimed = queue.do(readers.claim(number, MAIN_LINE, NAME, OWNER, ordinal, count_max=count_max))
    assert claimed.claim is not None
    return claimed.claim


def read(queue: Queue, number: int, ordinal: int) -> list[bytes | None]:
    entries = queue.do(readers_of(queue).read(number, MAIN_LINE, NAME, ordinal))
    return [entry.payload for entry in entries]


def test_a_reader_reads_and_completes_in_every_fragment(queue: Queue) -> None:
    readers = readers_of(queue)
    fill(queue)

    opened = queue.do(readers.open(MAIN_LINE, NAME, OWNER, ID))
    claims = [claim(queue, number, 1) for number in readers.numbers()]
    first = [read(queue, number, 1) for number in readers.numbers()]
    completed = queue.do(readers.complete(MAIN_LINE, NAME, OWNER, {0: 1, 2: 1}))

    assert sorted(opened.found) == [0, 1, 2] and opened.missing == {}
    assert claims[2].first == sequence_number(2, 1)
    assert first == [[b"%d-0" % number, b"%d-1" % number] for number in range(3)]
    assert completed.found == {0: 1, 2: 1}
    assert payloads_of(queue.house.receive(queue.runners[0])) == [b"0-2", b"0-3"]
    again = queue.do(readers.open(MAIN_LINE, NAME, OWNER, ID)).found
    assert [again[number].completed for number in range(3)] == [1, 0, 1]
    assert read(queue, 1, 1) == [b"1-0", b"1-1"]


def test_many_claims_are_completed_by_one_call(queue: Queue) -> None:
    readers = readers_of(queue)
    fill(queue, 6)
    queue.do(readers.open(MAIN_LINE, NAME, OWNER, ID))
    for ordinal in range(1, 7):
        claim(queue, 0, ordinal, 1)

    completed = queue.do(readers.complete(MAIN_LINE, NAME, OWNER, {0: 5}))

    assert completed.found == {0: 5}
    assert queue.house.disk.kept.load(FragmentId(1, 0)).counters.lines[MAIN_LINE].count == 1


def test_the_next_claims_complete_those_before_with_a_commit_for_both(queue: Queue) -> None:
    """P2: a batch of three claims, and the next one of two."""
    readers = readers_of(queue)
    fill(queue, 6)
    queue.do(readers.open(MAIN_LINE, NAME, OWNER, ID))
    for ordinal in (1, 2, 3):
        claim(queue, 0, ordinal, 1)
    before = len(queue.house.disk.transactions)

    wanted_claims = [WantedClaim(4, 1, 100), WantedClaim(5, 1, 100)]
    advanced = queue.do(readers.advance(0, MAIN_LINE, NAME, OWNER, wanted_claims, 3))

    assert [each.claim.ordinal for each in advanced.claims if each.claim] == [4, 5]
    assert (advanced.completed, advanced.failure) == (3, None)
    assert len(queue.house.disk.transactions) - before == 3
    assert [read(queue, 0, ordinal) for ordinal in (4, 5)] == [[b"0-3"], [b"0-4"]]


class Full:
    """A fragment that has no room for a claim until all that is done is completed."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    def submit(self, command: Command, reply_to: ReplyTo) -> None:
        if isinstance(command, Claim) and command.done:
            reply_to(Refused(SERVER_BUSY, "complete some claims first"))
            return
        self._runner.submit(command, reply_to)

    def watch(self, line: int, wake: Callable[[], None], session: bytes = NO_SESSION) -> None:
        raise NotImplementedError

    unwatch = watch
    is_available = True


def test_what_is_done_makes_room_for_the_next_claim(queue: Queue) -> None:
    fill(queue)
    queue.do(readers_of(queue).open(MAIN_LINE, NAME, OWNER, ID))
    for ordinal in (1, 2, 3):
        claim(queue, 0, ordinal, 1)
    readers = Readers([Full(queue.runners[0])], [0])

    advanced = queue.do(readers.advance(0, MAIN_LINE, NAME, OWNER, [WantedClaim(4, 1, 100)], 3))

    assert advanced.completed == 3
    assert read(queue, 0, 4) == [b"0-3"]


def test_a_lost_claim_is_not_passed_over_by_the_next(queue: Queue) -> None:
    readers = readers_of(queue)
    fill(queue)
    queue.do(readers.open(MAIN_LINE, NAME, OWNER, ID))
    claim(queue, 0, 1)
    queue.do(readers.release(MAIN_LINE, NAME, OWNER))

    with pytest.raises(Refused) as refused:
        queue.do(readers.advance(0, MAIN_LINE, NAME, OWNER, [WantedClaim(2, 1, 100)], 1))

    assert refused.value.kind is CLAIM_LOST


def test_a_large_claim_is_read_in_pieces(queue: Queue) -> None:
    readers = readers_of(queue)
    queue.send(0, *(Message(bytes([each]) * (PIECE_BYTES_MAX // 3)) for each in range(7)))
    queue.do(readers.open(MAIN_LINE, NAME, OWNER, ID))
    claim(queue, 0, 1, 7)

    async def sizes() -> list[int]:
        return [len(piece) async for piece in readers.pieces(0, MAIN_LINE, NAME, 1)]

    assert queue.do(sizes()) == [3, 3, 1]
    assert [payload[0] for payload in read(queue, 0, 1) if payload] == list(range(7))


def test_a_fragment_that_is_away_is_named_and_not_waited_for(queue: Queue) -> None:
    readers = readers_of(queue)
    fill(queue)
    queue.runners[1].stop()

    opened = queue.do(readers.open(MAIN_LINE, NAME, OWNER, ID))
    claim(queue, 0, 1)
    kept = queue.do(readers.keep(MAIN_LINE, NAME, OWNER))
    completed = queue.do(readers.complete(MAIN_LINE, NAME, OWNER, {0: 1, 1: 1}))
    known = queue.do(readers.known())

    assert sorted(opened.found) == [0, 2] and list(opened.missing) == [1]
    assert list(kept.missing) == list(completed.missing) == list(known.missing) == [1]
    assert completed.found == {0: 1}
    with pytest.raises(Unavailable):
        queue.do(readers.claim(1, MAIN_LINE, NAME, OWNER, 1))


def test_a_claim_whose_answer_was_lost_tells_what_it_has(queue: Queue) -> None:
    readers = readers_of(queue)
    fill(queue)
    queue.do(readers.open(MAIN_LINE, NAME, OWNER, ID))
    queue.house.disk.commit_failures.append("after")

    with pytest.raises(Unavailable) as failure:
        claim(queue, 0, 1)
    queue.house.pass_s(5)

    assert failure.value.is_unknown
    assert claim(queue, 0, 1).count == 2
    assert read(queue, 0, 1) == [b"0-0", b"0-1"]


def test_a_completion_whose_answer_was_lost_is_repeated(queue: Queue) -> None:
    readers = readers_of(queue)
    fill(queue)
    queue.do(readers.open(MAIN_LINE, NAME, OWNER, ID))
    claim(queue, 0, 1)
    queue.house.disk.commit_failures.append("after")

    lost = queue.do(readers.complete(MAIN_LINE, NAME, OWNER, {0: 1}))
    queue.house.pass_s(5)
    again = queue.do(readers.complete(MAIN_LINE, NAME, OWNER, {0: 1}))

    assert lost.missing[0].is_unknown
    assert again.found == {0: 1}
    assert payloads_of(queue.house.receive(queue.runners[0])) == [b"0-2", b"0-3"]


def test_released_messages_wake_whoever_waits_for_messages(queue: Queue) -> None:
    readers = readers_of(queue)
    fill(queue, 2)
    queue.do(readers.open(MAIN_LINE, NAME, OWNER, ID))
    claim(queue, 0, 1)
    assert queue.house.receive(queue.runners[0]) == []
    rung: list[int] = []
    queue.runners[0].watch(MAIN_LINE, lambda: rung.append(1))
    queue.house.pass_s(1)
    assert rung == []

    queue.do(readers.release(MAIN_LINE, NAME, OWNER))
    queue.house.pass_s(1)

    assert rung == [1]
    assert payloads_of(queue.house.receive(queue.runners[0])) == [b"0-0", b"0-1"]


def test_a_lease_runs_out_without_anybody_asking(queue: Queue) -> None:
    readers = readers_of(queue)
    fill(queue, 2)
    queue.do(readers.open(MAIN_LINE, NAME, OWNER, ID, lease_ms=LEASE_MS))
    claim(queue, 0, 1)
    queue.house.receive(queue.runners[0])
    rung: list[int] = []
    queue.runners[0].watch(MAIN_LINE, lambda: rung.append(1))

    queue.house.pass_s(LEASE_MS / 1000 - 1)
    assert rung == []
    queue.house.pass_s(2)

    assert rung == [1]
    with pytest.raises(Refused) as refused:
        read(queue, 0, 1)
    assert refused.value.kind is CLAIM_LOST


def test_another_driver_waits_until_the_first_is_silent(queue: Queue) -> None:
    readers = readers_of(queue)
    fill(queue)
    queue.do(readers.open(MAIN_LINE, NAME, OWNER, ID))
    claim(queue, 0, 1)

    with pytest.raises(Refused) as refused:
        queue.do(readers.open(MAIN_LINE, NAME, OTHER, ID))
    queue.house.pass_s(OWNER_MS_MAX / 1000 + 1)
    opened = queue.do(readers.open(MAIN_LINE, NAME, OTHER, ID))

    assert refused.value.kind is READER_IN_USE
    assert [each.ordinal for each in opened.found[0].claims] == [1]
    with pytest.raises(Refused) as fenced:
        queue.do(readers.complete(MAIN_LINE, NAME, OWNER, {0: 1}))
    assert fenced.value.kind is READER_LOST


def test_a_reader_is_dropped_where_it_is_known(queue: Queue) -> None:
    readers = readers_of(queue)
    fill(queue, 2)
    queue.runners[2].stop()
    queue.do(readers.open(MAIN_LINE, NAME, OWNER, ID))
    claim(queue, 0, 1)

    dropped = queue.do(readers.drop(MAIN_LINE, NAME))

    assert sorted(dropped.found) == [0, 1] and list(dropped.missing) == [2]
    assert payloads_of(queue.house.receive(queue.runners[0])) == [b"0-0", b"0-1"]
    with pytest.raises(Refused) as refused:
        queue.do(Readers(queue.runners[:2], [0, 1]).drop(MAIN_LINE, NAME))
    assert refused.value.kind is READER_NOT_FOUND


def test_readers_are_listed_by_fragment(queue: Queue) -> None:
    readers = readers_of(queue)
    fill(queue)
    queue.do(readers.open(MAIN_LINE, NAME, OWNER, ID))
    queue.do(readers.open(DEAD_LETTER_LINE, NAME, OWNER, ID))
    claim(queue, 1, 1)

    known = queue.do(readers.known(MAIN_LINE)).found

    assert [[each.name for each in known[number]] for number in range(3)] == [[NAME]] * 3
    assert [known[number][0].claimed for number in range(3)] == [0, 2, 0]
    assert [known[number][0].waiting for number in range(3)] == [4, 2, 4]
    assert len(queue.do(readers.known()).found[0]) == 2


def test_a_fragment_that_does_not_exist_is_refused(queue: Queue) -> None:
    readers = readers_of(queue)

    for work in (
        readers.claim(7, MAIN_LINE, NAME, OWNER, 1),
        readers.describe(7, MAIN_LINE, NAME, 1),
        readers.read(7, MAIN_LINE, NAME, 1),
        readers.complete(MAIN_LINE, NAME, OWNER, {7: 1}),
    ):
        with pytest.raises(Refused) as refused:
            queue.do(work)
        assert refused.value.kind is INVALID_ARGUMENT


def test_a_damaged_message_is_set_aside_when_it_is_read(queue: Queue) -> None:
    """D4: reported and left out, never served and never fatal to the rest."""
    readers = readers_of(queue)
    fill(queue)
    queue.do(readers.open(MAIN_LINE, NAME, OWNER, ID))
    claim(queue, 0, 1, 3)
    queue.house.disk.kept.damage(FragmentId(1, 0), 2)

    assert read(queue, 0, 1) == [b"0-0", b"0-2"]
    assert queue.do(readers.describe(0, MAIN_LINE, NAME, 1)).runs.numbers() == [1, 3]
    assert queue.do(readers.complete(MAIN_LINE, NAME, OWNER, {0: 1})).found == {0: 1}


def test_claims_are_made_without_reading_payloads(queue: Queue) -> None:
    readers = readers_of(queue)
    fill(queue)
    queue.do(readers.open(MAIN_LINE, NAME, OWNER, ID))
    queue.runners[0].stop()
    fresh = queue.house.runner(0)
    queue.house.pass_s()
    queue.house.disk.reads.clear()

    claimed = queue.do(Readers([fresh], [0]).claim(0, MAIN_LINE, NAME, OWNER, 1))

    assert claimed.claim is not None and claimed.claim.count == 4
    assert queue.house.disk.reads == ["heads"]


def test_statistics_tell_how_many_messages_are_claimed(house: House) -> None:
    desk = Desk(house)
    entity = desk.create("orders")
    house.answer(desk.broker.runner(entity, 3), send_of(b"second"))
    handle = desk.bus.find("orders")
    assert handle is not None
    run = house.loop.run_until_complete
    run(handle.readers.open(MAIN_LINE, NAME, OWNER, ID))
    run(handle.readers.claim(3, MAIN_LINE, NAME, OWNER, 1, count_max=1))

    running = desk.statistics(entity)
    stored = Desk(house).statistics(entity)

    for statistics in (running, stored):
        assert (statistics.claimed_count, statistics.active_count) == (1, 2)
        standings = {part.number: part.readers[0] for part in statistics.fragments}
        assert [one.name for one in standings.values()] == [NAME] * len(standings)
        assert (standings[3].waiting, standings[3].claimed) == (1, 1)
        assert (standings[0].waiting, standings[0].claimed) == (0, 0)


def test_readers_work_the_same_over_a_wire() -> None:
    async def story(world: World, wire: Wire, remote: RemoteBroker) -> None:
        fragments = [remote.runner(world.entity, number) for number in (0, 1)]
        await send(fragments[0], b"one", b"two", b"three")
        readers = Readers(fragments, [0, 1])

        opened = await readers.open(MAIN_LINE, NAME, OWNER, ID, lease_ms=LEASE_MS)
        claimed = await readers.claim(0, MAIN_LINE, NAME, OWNER, 1, count_max=2)
        entries = await readers.read(0, MAIN_LINE, NAME, 1)
        runs = await readers.describe(0, MAIN_LINE, NAME, 1)
        known = await readers.known()
        statistics = await remote.statistics(world.entity.entity_id, [0])
        completed = await readers.complete(MAIN_LINE, NAME, OWNER, {0: 1})

        assert sorted(opened.found) == [0, 1]
        assert claimed.claim is not None and claimed.is_more
        assert [entry.payload for entry in entries] == [b"one", b"two"]
        assert runs.runs.pairs() == [(1, 2)]
        assert (known.found[0][0].claimed, known.found[0][0].lease_ms) == (2, LEASE_MS)
        assert statistics[0].claimed_count == 2
        [standing] = statistics[0].readers
        assert (standing.line, standing.name) == (MAIN_LINE, NAME)
        assert (standing.waiting, standing.claimed) == (1, 2)
        assert completed.found == {0: 1}
        with pytest.raises(Refused) as refused:
            await readers.claim(0, MAIN_LINE, NAME, OTHER, 2)
        assert refused.value.kind is READER_LOST
        await readers.release(MAIN_LINE, NAME, OWNER)
        await readers.drop(MAIN_LINE, NAME)

    connected(story)


def test_a_locked_message_is_claimed_when_it_comes_back(queue: Queue) -> None:
    readers = readers_of(queue)
    fill(queue, 3)
    queue.do(readers.open(MAIN_LINE, NAME, OWNER, ID))
    [locked] = queue.house.receive(queue.runners[0], 1)

    claim(queue, 0, 1, 9)
    queue.house.settle(queue.runners[0], RELEASE, locked)

    assert read(queue, 0, 1) == [b"0-1", b"0-2"]
    assert claim(queue, 0, 2, 9).first == 1


def test_peeking_shows_what_is_claimed(queue: Queue) -> None:
    readers = readers_of(queue)
    fill(queue, 2)
    queue.do(readers.open(MAIN_LINE, NAME, OWNER, ID))
    claim(queue, 0, 1)

    seen = queue.do(queue.operations.peek(MAIN_LINE, start=0, count_max=10, cursor=BrowseCursor()))

    assert len(seen) == 6


def test_using_a_reader_is_using_the_entity(queue: Queue) -> None:
    """AutoDeleteOnIdle goes by this."""
    readers = readers_of(queue)
    queue.do(readers.open(MAIN_LINE, NAME, OWNER, ID))
    queue.house.pass_s(100)

    queue.do(readers.keep(MAIN_LINE, NAME, OWNER))

    assert all(runner.unused_ms < 1_000 for runner in queue.runners)
