"""Requests to $management as part of a transaction: they happen when it is committed (R22)."""

from collections.abc import Iterator

import pytest

from shardbus.amqp.outcomes import ACCEPTED, TransactionalState
from shardbus.codec import codes
from shardbus.codec.codes import LONG, UUID
from shardbus.codec.types import Array, Described, Int, Symbol, Timestamp, Ulong, Value
from shardbus.codec.value import encode
from shardbus.gateway.amqp.transactions.open import BYTES_MAX, TransactionRules
from shardbus.message.sections import DecodedMessage, build_message, encode_data_message
from tests.unit.gateway.amqp.bench import Bench
from tests.unit.gateway.amqp.desk import Desk, condition_of, status_of, tokens_of
from tests.unit.gateway.amqp.test_scheduling import cancel, later, numbers_of
from tests.unit.gateway.amqp.transacting import Transacting
from tests.unit.gateway.amqp.transacting import condition_of as rejection_of

NOT_ALLOWED = "amqp:not-allowed"
ROLLBACK = "amqp:transaction:rollback"
UNKNOWN = Symbol("amqp:transaction:unknown-id")
NOT_FOUND = Symbol("com.microsoft:message-not-found")
SESSION_LOST = "com.microsoft:session-lock-lost"
EXTENDED = TransactionRules(is_extended=True)
BOTH_MODES = pytest.mark.parametrize("bench", [None, EXTENDED], indirect=True)
EITHER_QUEUE = pytest.mark.parametrize("queue", ["q", "many"])


@pytest.fixture
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    """With the rules that a test names."""
    rules: TransactionRules | None = getattr(request, "param", None)
    bench = Bench(transaction_rules=rules)
    yield bench
    bench.close()


@pytest.fixture
def user(bench: Bench) -> Transacting:
    return Transacting(bench)


def messages_in(*payloads: bytes) -> dict[str, Value]:
    return {"messages": [{"message-id": "1", "message": payload} for payload in payloads]}


def schedule(desk: Desk, transaction_id: bytes, *payloads: bytes) -> DecodedMessage:
    return desk.ask("schedule-message", messages_in(*payloads), transaction_id=transaction_id)


def cancel_in(desk: Desk, transaction_id: bytes, *numbers: int) -> DecodedMessage:
    body: dict[str, Value] = {"sequence-numbers": Array(LONG, list(numbers))}
    return desk.ask("cancel-scheduled-message", body, transaction_id=transaction_id)


def scheduled_now(desk: Desk, payload: bytes) -> int:
    [number] = numbers_of(desk.ask("schedule-message", messages_in(payload)))
    return number


def waiting(desk: Desk) -> list[int | None]:
    """The numbers that peeking shows."""
    return [each.sequence_number for each in desk.peek(1, 100)]


# Scheduling.


@BOTH_MODES
@EITHER_QUEUE
def test_what_is_scheduled_appears_when_the_transaction_is_committed(
    bench: Bench, user: Transacting, queue: str
) -> None:
    """The numbers are told before, and good to cancel it afterwards."""
    desk = Desk(bench, user.client, queue)
    transaction_id = user.declare()
    payloads = [later(bench, content, message_id="m") for content in (b"one", b"two")]
    if queue == "many":
        payloads = [with_key(bench, content) for content in (b"one", b"two")]
    numbers = numbers_of(schedule(desk, transaction_id, *payloads))
    assert len(set(numbers)) == 2 and all(numbers)
    assert waiting(desk) == []

    assert user.commit(transaction_id) == ACCEPTED

    assert waiting(desk) == numbers
    assert bench.left(queue) == []
    assert status_of(cancel(desk, numbers[:1])) == Int(200)
    bench.pass_s(61)
    assert bench.left(queue) == [b"two"]


def with_key(bench: Bench, content: bytes, key: str = "k", delay_s: float = 60) -> bytes:
    """A message for later with a partition key, and both in one section."""
    annotations = {
        Symbol("x-opt-scheduled-enqueue-time"): Timestamp(
            bench.clock.now_ms() + int(delay_s * 1000)
        ),
        Symbol("x-opt-partition-key"): key,
    }
    return b"\x00\x53\x72" + encode(annotations) + encode_data_message(content)


@BOTH_MODES
def test_what_is_scheduled_and_rolled_back_never_appears(bench: Bench, user: Transacting) -> None:
    desk = Desk(bench, user.client, "q")
    transaction_id = user.declare()
    [number] = numbers_of(schedule(desk, transaction_id, later(bench, b"never")))

    assert user.roll_back(transaction_id) == ACCEPTED

    assert waiting(desk) == []
    assert condition_of(cancel(desk, [number])) == NOT_FOUND
    bench.pass_s(120)
    assert bench.left("q") == []


def test_what_is_due_before_the_commit_is_sent_with_it(bench: Bench, user: Transacting) -> None:
    desk = Desk(bench, user.client, "q")
    transaction_id = user.declare()
    schedule(desk, transaction_id, later(bench, b"soon", 5), later(bench, b"at once", -5))
    bench.pass_s(10)
    assert bench.left("q") == []

    assert user.commit(transaction_id) == ACCEPTED

    assert bench.left("q") == [b"soon", b"at once"]


def test_a_topic_schedules_in_a_transaction_for_its_subscriptions(
    bench: Bench, user: Transacting
) -> None:
    bench.create_topic("t")
    subscription = bench.subscribe("t", "s")
    desk = Desk(bench, user.client, "t")
    transaction_id = user.declare()
    numbers_of(schedule(desk, transaction_id, later(bench, b"x")))
    assert user.commit(transaction_id) == ACCEPTED
    assert bench.left(subscription) == []

    bench.pass_s(61)

    assert bench.left(subscription) == [b"x"]


def test_scheduling_counts_as_sending(bench: Bench, user: Transacting) -> None:
    """At most 100 messages are sent in one transaction, however they are sent."""
    desk = Desk(bench, user.client, "q")
    transaction_id = user.declare()
    numbers_of(schedule(desk, transaction_id, *[later(bench, b"x")] * 99))
    user.send(transaction_id, "q", b"the hundredth")

    answer = schedule(desk, transaction_id, later(bench, b"one too many"))

    assert (status_of(answer), condition_of(answer)) == (Int(400), Symbol(NOT_ALLOWED))
    assert rejection_of(user.commit(transaction_id)) == ROLLBACK
    assert waiting(desk) == []


def test_what_is_scheduled_counts_towards_the_bytes_of_transactions(
    bench: Bench, user: Transacting
) -> None:
    desk = Desk(bench, user.client, "q")
    large = later(bench, bytes(250_000))
    first, second = user.declare(), user.declare()
    count = BYTES_MAX // len(large) // 4
    for transaction_id in (first, second):
        for _ in range(count):
            assert status_of(schedule(desk, transaction_id, large, large)) == Int(200)

    answers = [schedule(desk, second, large, large) for _ in range(2)]

    assert condition_of(answers[-1]) in (Symbol("amqp:resource-limit-exceeded"), Symbol(ROLLBACK))
    assert user.commit(first) == ACCEPTED


def test_a_partitioned_entity_wants_one_key_for_what_is_scheduled_too(
    bench: Bench, user: Transacting
) -> None:
    """R23."""
    desk = Desk(bench, user.client, "many")
    for payloads in ([later(bench, b"none")], [with_key(bench, b"a"), with_key(bench, b"b", "l")]):
        transaction_id = user.declare()
        answer = schedule(desk, transaction_id, *payloads)
        assert condition_of(answer) == Symbol(NOT_ALLOWED)
        assert rejection_of(user.commit(transaction_id)) == ROLLBACK


@pytest.mark.parametrize("bench", [EXTENDED], indirect=True)
def test_extended_transactions_schedule_anywhere(bench: Bench, user: Transacting) -> None:
    """R24a: with any keys and without."""
    desk = Desk(bench, user.client, "many")
    transaction_id = user.declare()
    payloads = [with_key(bench, b"%d" % key, str(key)) for key in range(9)]
    numbers = numbers_of(schedule(desk, transaction_id, later(bench, b"none"), *payloads))
    assert len({number >> 48 for number in numbers}) > 2

    assert user.commit(transaction_id) == ACCEPTED

    assert sorted(map(str, waiting(desk))) == sorted(map(str, numbers))
    transaction_id = user.declare()
    assert status_of(cancel_in(desk, transaction_id, *numbers)) == Int(200)
    assert user.commit(transaction_id) == ACCEPTED
    assert waiting(desk) == []


def test_who_is_told_of_an_unknown_transaction_has_scheduled_nothing(
    bench: Bench, user: Transacting
) -> None:
    desk = Desk(bench, user.client, "q")

    answer = schedule(desk, b"nobody's", later(bench, b"x"))

    assert condition_of(answer) == UNKNOWN
    assert waiting(desk) == []


def test_a_discharge_that_overtakes_a_request_rolls_everything_back(
    bench: Bench, user: Transacting
) -> None:
    """Nobody can tell whether the client counts on it."""
    desk = Desk(bench, user.client, "q")
    transaction_id = user.declare()
    user.send(transaction_id, "q", b"sent")
    payload = build_message(
        body=messages_in(later(bench, b"x")),
        application_properties={"operation": "com.microsoft:schedule-message"},
        message_id="1",
        reply_to=desk.node,
    )
    desk.requests.send(b"r", payload, False, 0, TransactionalState(transaction_id, None))
    discharge = build_message(body=Described(Ulong(codes.DISCHARGE), [transaction_id, False]))
    ident = user.coordinator.send(b"d", discharge, False, 0, None)
    user.client.flush()
    bench.pass_s(1)

    assert rejection_of(user.client.outcomes(user.coordinator)[ident]) == ROLLBACK
    assert (waiting(desk), bench.left("q")) == ([], [])


# Cancelling.


@BOTH_MODES
@EITHER_QUEUE
@pytest.mark.parametrize("is_commit", [True, False])
def test_a_message_is_cancelled_if_the_transaction_is_committed(
    bench: Bench, user: Transacting, queue: str, is_commit: bool
) -> None:
    desk = Desk(bench, user.client, queue)
    number = scheduled_now(desk, with_key(bench, b"x"))
    transaction_id = user.declare()
    assert status_of(cancel_in(desk, transaction_id, number)) == Int(200)
    assert waiting(desk) == [number]

    user.discharge(transaction_id, is_failed=not is_commit)

    assert waiting(desk) == ([] if is_commit else [number])
    bench.pass_s(61)
    assert bench.left(queue) == ([] if is_commit else [b"x"])


def test_a_transaction_cancels_what_it_has_scheduled_itself(
    bench: Bench, user: Transacting
) -> None:
    desk = Desk(bench, user.client, "q")
    transaction_id = user.declare()
    first, second = numbers_of(
        schedule(desk, transaction_id, later(bench, b"a"), later(bench, b"b"))
    )
    assert condition_of(cancel(desk, [first])) == NOT_FOUND

    assert status_of(cancel_in(desk, transaction_id, first)) == Int(200)

    assert user.commit(transaction_id) == ACCEPTED
    assert waiting(desk) == [second]


def test_what_cannot_be_cancelled_spoils_the_transaction_at_once(
    bench: Bench, user: Transacting
) -> None:
    """A message that is not there, and one that the transaction has cancelled before."""
    desk = Desk(bench, user.client, "q")
    number = scheduled_now(desk, later(bench, b"x"))
    for is_known in (False, True):
        transaction_id = user.declare()
        if is_known:
            assert status_of(cancel_in(desk, transaction_id, number)) == Int(200)
        answer = cancel_in(desk, transaction_id, number if is_known else 99)
        assert condition_of(answer) == NOT_FOUND
        assert rejection_of(user.commit(transaction_id)) == ROLLBACK
    assert waiting(desk) == [number]


@pytest.mark.parametrize("is_due", [True, False])
def test_what_somebody_else_took_before_the_commit_rolls_everything_back(
    bench: Bench, user: Transacting, is_due: bool
) -> None:
    """Cancelled outside of the transaction, or enqueued because its moment came."""
    desk = Desk(bench, user.client, "q")
    number = scheduled_now(desk, later(bench, b"x"))
    transaction_id = user.declare()
    assert status_of(cancel_in(desk, transaction_id, number)) == Int(200)
    user.send(transaction_id, "q", b"never")
    if is_due:
        bench.pass_s(61)
    else:
        assert status_of(cancel(desk, [number])) == Int(200)

    assert rejection_of(user.commit(transaction_id)) == "com.microsoft:message-not-found"

    assert bench.left("q") == ([b"x"] if is_due else [])


def test_cancelling_is_bounded(bench: Bench, user: Transacting) -> None:
    desk = Desk(bench, user.client, "q")
    transaction_id = user.declare()

    answer = cancel_in(desk, transaction_id, *range(1, 102))

    assert condition_of(answer) == Symbol(NOT_ALLOWED)


# The state of a session.


@BOTH_MODES
@pytest.mark.parametrize("is_partitioned", [False, True])
@pytest.mark.parametrize("is_commit", [True, False])
def test_a_state_is_set_if_the_transaction_is_committed(
    bench: Bench, user: Transacting, is_partitioned: bool, is_commit: bool
) -> None:
    bench.create_sessions("talk", is_partitioned=is_partitioned)
    talk = Talk(bench, user)
    talk.set(b"old")
    transaction_id = user.declare()
    for state in (b"newer", b"new"):
        assert status_of(talk.set(state, transaction_id)) == Int(200)
    assert talk.state(transaction_id) == b"old"

    user.discharge(transaction_id, is_failed=not is_commit)

    assert talk.state() == (b"new" if is_commit else b"old")


class Talk:
    """A held session of the queue `talk`."""

    def __init__(self, bench: Bench, user: Transacting) -> None:
        self.link = user.client.session_receiver("talk", "s", 5)
        bench.pass_s(1)
        assert user.client.is_opened(self.link)
        self.desk = Desk(bench, user.client, "talk")

    def set(self, state: bytes | None, transaction_id: bytes | None = None) -> DecodedMessage:
        body: dict[str, Value] = {"session-id": "s", "session-state": state}
        return self.desk.ask("set-session-state", body, self.link, transaction_id)

    def state(self, transaction_id: bytes | None = None) -> Value:
        body = {"session-id": "s"}
        answer = self.desk.ask("get-session-state", body, self.link, transaction_id)
        assert isinstance(answer.body, dict)
        return answer.body["session-state"]


def test_a_state_and_the_message_it_is_about_change_together(
    bench: Bench, user: Transacting
) -> None:
    bench.create_sessions("talk")
    bench.send_to("talk", "s", b"x")
    talk = Talk(bench, user)
    [delivery] = user.client.received(talk.link)
    transaction_id = user.declare()
    talk.set(b"done", transaction_id)
    body: dict[str, Value] = {
        "disposition-status": "completed",
        "lock-tokens": tokens_of([delivery]),
    }
    talk.desk.ask("update-disposition", body, talk.link, transaction_id)

    assert user.commit(transaction_id) == ACCEPTED

    assert talk.state() == b"done"
    assert talk.desk.peek(1, 10) == []


def test_a_session_that_is_lost_before_the_commit_rolls_everything_back(
    bench: Bench, user: Transacting
) -> None:
    bench.create_sessions("talk")
    talk = Talk(bench, user)
    transaction_id = user.declare()
    talk.set(b"never", transaction_id)
    user.send(transaction_id, "q", b"never")
    bench.pass_s(61)

    assert rejection_of(user.commit(transaction_id)) == SESSION_LOST

    assert bench.left("q") == []
    assert Talk(bench, Transacting(bench)).state() is None


def test_a_state_that_cannot_be_set_spoils_the_transaction_at_once(
    bench: Bench, user: Transacting
) -> None:
    """Too large, or of a session that is not held."""
    bench.create_sessions("talk")
    talk = Talk(bench, user)
    transaction_id = user.declare()

    answer = talk.set(bytes(300_000), transaction_id)

    assert status_of(answer) == Int(403)
    assert rejection_of(user.commit(transaction_id)) == ROLLBACK
    bench.pass_s(61)
    transaction_id = user.declare()
    assert condition_of(talk.set(b"x", transaction_id)) == Symbol(SESSION_LOST)
    assert rejection_of(user.commit(transaction_id)) == ROLLBACK


# What is marked as part of a transaction, and is not.


def test_reading_receiving_and_renewing_are_done_at_once_and_spoil_nothing(
    bench: Bench, user: Transacting
) -> None:
    """Clients mark every request that they make while a transaction is open."""
    bench.fill("q", b"x")
    link, [delivery] = user.receive("q")
    desk = Desk(bench, user.client, "q")
    disposition: dict[str, Value] = {
        "disposition-status": "defered",
        "lock-tokens": tokens_of([delivery]),
    }
    assert status_of(desk.ask("update-disposition", disposition, link)) == Int(200)
    [number] = waiting(desk)
    transaction_id = user.declare()
    user.send(transaction_id, "q", b"sent")
    peeked = desk.ask(
        "peek-message", {"from-sequence-number": 1, "message-count": 9}, link, transaction_id
    )
    body: dict[str, Value] = {
        "sequence-numbers": Array(LONG, [number]),
        "receiver-settle-mode": 1,
    }
    received = desk.ask("receive-by-sequence-number", body, link, transaction_id)
    assert isinstance(received.body, dict)
    [item] = received.body["messages"]
    bench.pass_s(1)
    tokens = {"lock-tokens": Array(UUID, [item["lock-token"]])}
    before_ms = bench.clock.now_ms()
    renewed = desk.ask("renew-lock", tokens, link, transaction_id)
    assert isinstance(renewed.body, dict)
    [until] = renewed.body["expirations"].values

    assert [status_of(answer) for answer in (peeked, received, renewed)] == [Int(200)] * 3
    assert isinstance(until, Timestamp)
    assert until.value >= before_ms + 60_000
    assert user.commit(transaction_id) == ACCEPTED
    assert bench.left("q") == [b"sent"]


def test_what_is_asked_about_a_session_is_done_at_once_and_spoils_nothing(
    bench: Bench, user: Transacting
) -> None:
    bench.create_sessions("talk")
    talk = Talk(bench, user)
    talk.set(b"old")
    transaction_id = user.declare()
    assert status_of(talk.set(b"new", transaction_id)) == Int(200)
    bench.pass_s(1)
    before_ms = bench.clock.now_ms()

    body: dict[str, Value] = {"session-id": "s"}
    renewed = talk.desk.ask("renew-session-lock", body, talk.link, transaction_id)
    everything: dict[str, Value] = {
        "last-updated-time": Timestamp(253_402_300_800_000),
        "skip": Int(0),
        "top": Int(10),
    }
    listed = talk.desk.ask("get-message-sessions", everything, talk.link, transaction_id)

    assert talk.state(transaction_id) == b"old"
    assert isinstance(renewed.body, dict)
    until = renewed.body["expiration"]
    assert isinstance(until, Timestamp)
    assert until.value >= before_ms + 60_000
    assert isinstance(listed.body, dict)
    assert listed.body["sessions-ids"].values == ["s"]
    assert user.commit(transaction_id) == ACCEPTED
    assert talk.state() == b"new"


def test_messages_are_not_deleted_in_a_transaction(bench: Bench, user: Transacting) -> None:
    bench.fill("q", b"x")
    desk = Desk(bench, user.client, "q")
    transaction_id = user.declare()
    body: dict[str, Value] = {
        "message-count": 1,
        "enqueued-time-utc": Timestamp(bench.clock.now_ms()),
    }
    answer = desk.ask("batch-delete-messages", body, transaction_id=transaction_id)

    assert condition_of(answer) == Symbol(NOT_ALLOWED)
    assert bench.left("q") == [b"x"]
