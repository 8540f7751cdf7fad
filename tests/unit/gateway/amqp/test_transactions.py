"""Transactions over AMQP: what is enlisted, what is refused, and that all or nothing happens."""

from collections.abc import Iterator

import pytest

from shardbus.amqp.outcomes import (
    ACCEPTED,
    Declared,
    DeliveryState,
    Modified,
    Rejected,
    TransactionalState,
)
from shardbus.amqp.termini import Coordinator
from shardbus.broker.routing.outbox import DOUBT_MS_MAX
from shardbus.codec import codes
from shardbus.codec.types import Described, Symbol, Ulong
from shardbus.core.namespace.entity import EntitySpec
from shardbus.gateway.amqp.transactions.open import BYTES_MAX, OPEN_MAX, TransactionRules
from shardbus.message.sections import (
    BATCH_FORMAT,
    encode_batch,
    encode_data_message,
)
from tests.unit.gateway.amqp.bench import Bench
from tests.unit.gateway.amqp.transacting import Transacting, condition_of, is_enlisted, text_of

NOT_ALLOWED = "amqp:not-allowed"
UNKNOWN = "amqp:transaction:unknown-id"
TIMEOUT = "amqp:transaction:timeout"
ROLLBACK = "amqp:transaction:rollback"
LOCK_LOST = "com.microsoft:message-lock-lost"
DEAD = "$DeadLetterQueue"


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


def test_what_is_sent_appears_when_the_transaction_is_committed(
    bench: Bench, user: Transacting
) -> None:
    """R22: neither before, nor in part."""
    transaction_id = user.declare()
    assert len(transaction_id) == 16
    for content in (b"one", b"two"):
        assert is_enlisted(user.send(transaction_id, "q", content), transaction_id)
    assert bench.left("q") == []

    assert user.commit(transaction_id) == ACCEPTED

    assert bench.left("q") == [b"one", b"two"]


def test_a_rolled_back_transaction_leaves_no_trace(bench: Bench, user: Transacting) -> None:
    """R22: the message that it settled stays locked, and returns when its lock ends."""
    bench.fill("q", b"stays")
    transaction_id = user.declare()
    user.send(transaction_id, "q", b"never")
    link, [delivery] = user.receive("q")
    echo = user.settle(transaction_id, link, delivery, ACCEPTED)
    assert is_enlisted(echo, transaction_id)

    assert user.roll_back(transaction_id) == ACCEPTED

    assert bench.left("q") == []
    bench.pass_s(61)
    assert bench.left("q") == [b"stays"]


def test_a_message_moves_from_one_queue_to_another(bench: Bench, user: Transacting) -> None:
    """R22: received from one entity and sent to another, in one transaction."""
    bench.create("other")
    bench.fill("q", b"in")
    transaction_id = user.declare()
    link, [delivery] = user.receive("q")
    user.send(transaction_id, "other", b"out")
    user.settle(transaction_id, link, delivery, ACCEPTED)

    assert user.commit(transaction_id) == ACCEPTED

    assert bench.left("other") == [b"out"]
    bench.pass_s(61)
    assert bench.left("q") == []


@pytest.mark.parametrize(
    ("outcome", "line"),
    [
        (Modified(delivery_failed=True), "q"),
        (Rejected(None), f"q/{DEAD}"),
    ],
)
def test_every_settlement_can_be_part_of_a_transaction(
    bench: Bench, user: Transacting, outcome: DeliveryState, line: str
) -> None:
    bench.fill("q", b"x")
    transaction_id = user.declare()
    link, [delivery] = user.receive("q")

    echo = user.settle(transaction_id, link, delivery, outcome)

    assert echo == TransactionalState(transaction_id, outcome)
    assert user.commit(transaction_id) == ACCEPTED
    user.client.grant(link, 0)
    bench.leave(user.client)
    assert bench.left(line) == [b"x"]


def test_a_message_of_a_session_is_settled_in_a_transaction(
    bench: Bench, user: Transacting
) -> None:
    bench.create_sessions("talk")
    bench.send_to("talk", "s", b"x", b"y")
    transaction_id = user.declare()
    link = user.client.session_receiver("talk", "s", 1)
    bench.pass_s(1)
    [delivery] = user.client.received(link)
    user.settle(transaction_id, link, delivery, ACCEPTED)
    user.send(transaction_id, "q", b"out")

    assert user.commit(transaction_id) == ACCEPTED

    user.client.grant(link, 1)
    bench.pass_s(1)
    assert user.client.bodies(link) == [b"x", b"y"]
    assert bench.left("q") == [b"out"]


def test_a_session_that_is_let_go_before_the_end_ends_the_transaction(
    bench: Bench, user: Transacting
) -> None:
    bench.create_sessions("talk")
    bench.send_to("talk", "s", b"x")
    transaction_id = user.declare()
    link = user.client.session_receiver("talk", "s", 1)
    bench.pass_s(1)
    [delivery] = user.client.received(link)
    user.settle(transaction_id, link, delivery, ACCEPTED)
    link.detach()
    user.client.flush()
    bench.pass_s()

    assert condition_of(user.commit(transaction_id)) == LOCK_LOST


def test_a_batch_is_sent_in_a_transaction(bench: Bench, user: Transacting) -> None:
    transaction_id = user.declare()
    batch = encode_batch([encode_data_message(b"1"), encode_data_message(b"2")])

    state = user.send_raw(transaction_id, "q", batch, BATCH_FORMAT)

    assert is_enlisted(state, transaction_id)
    assert user.commit(transaction_id) == ACCEPTED
    assert bench.left("q") == [b"1", b"2"]


def test_a_topic_publishes_when_the_transaction_is_committed(
    bench: Bench, user: Transacting
) -> None:
    bench.create_topic("t")
    subscription = bench.subscribe("t", "s")
    transaction_id = user.declare()
    user.send(transaction_id, "t", b"news")
    user.send(transaction_id, "q", b"too")
    assert bench.left(subscription) == []

    assert user.commit(transaction_id) == ACCEPTED

    assert bench.left(subscription) == [b"news"]
    assert bench.left("q") == [b"too"]


def test_a_lock_that_ran_out_meanwhile_ends_the_transaction(
    bench: Bench, user: Transacting
) -> None:
    """R22: then nothing of it happens, in no fragment."""
    bench.create("other")
    bench.fill("q", b"x")
    transaction_id = user.declare()
    link, [delivery] = user.receive("q")
    user.send(transaction_id, "other", b"never")
    user.settle(transaction_id, link, delivery, ACCEPTED)
    bench.pass_s(61)

    assert condition_of(user.commit(transaction_id)) == LOCK_LOST

    assert bench.left("other") == []


def test_an_open_transaction_is_rolled_back_after_two_minutes(
    bench: Bench, user: Transacting
) -> None:
    transaction_id = user.declare()
    user.send(transaction_id, "q")

    bench.pass_s(120)

    assert condition_of(user.send(transaction_id, "q")) == TIMEOUT
    assert condition_of(user.commit(transaction_id)) == TIMEOUT
    assert bench.left("q") == []


@pytest.mark.parametrize("bench", [TransactionRules(lifetime_ms=2_000)], indirect=True)
def test_a_shorter_time_can_be_set(bench: Bench, user: Transacting) -> None:
    transaction_id = user.declare()

    bench.pass_s(2)

    assert condition_of(user.commit(transaction_id)) == TIMEOUT


def test_transactions_that_do_not_exist_are_unknown(bench: Bench, user: Transacting) -> None:
    bench.fill("q", b"x")
    link, [delivery] = user.receive("q")
    ended = user.declare()
    user.roll_back(ended)

    for unknown in (b"nobody's", ended):
        assert condition_of(user.commit(unknown)) == UNKNOWN
        assert condition_of(user.send(unknown, "q")) == UNKNOWN
    assert condition_of(user.settle(ended, link, delivery, ACCEPTED)) == UNKNOWN


@pytest.mark.parametrize("way", ["link", "session", "connection"])
def test_who_loses_the_coordinator_loses_its_transactions(
    bench: Bench, user: Transacting, way: str
) -> None:
    """R22: the link, its session or its connection; nothing of them can be committed then."""
    transaction_id = user.declare()
    user.send(transaction_id, "q")
    if way == "link":
        user.coordinator.detach()
    elif way == "session":
        user.client.session.end()
    else:
        user.client.connection.close()
    user.client.flush()
    bench.pass_s()

    if way == "link":
        user.coordinator = user.client.sender(Coordinator(), "again")
        bench.pass_s()
        assert condition_of(user.commit(transaction_id)) == UNKNOWN
    assert bench.left("q") == []


def test_a_transaction_belongs_to_its_connection(bench: Bench, user: Transacting) -> None:
    transaction_id = user.declare()
    other = Transacting(bench)

    assert condition_of(other.send(transaction_id, "q")) == UNKNOWN
    assert condition_of(other.commit(transaction_id)) == UNKNOWN
    assert user.commit(transaction_id) == ACCEPTED


# What partitioned and session-aware entities refuse (R23, R24).


def refused(bench: Bench, user: Transacting, entity: str, transaction_id: bytes) -> None:
    """The last send was a violation: the transaction has no effect."""
    state = user.commit(transaction_id)
    assert condition_of(state) == ROLLBACK
    assert bench.left(entity) == []


def test_a_message_without_a_key_is_refused_by_a_partitioned_entity(
    bench: Bench, user: Transacting
) -> None:
    """R23."""
    transaction_id = user.declare()
    user.send(transaction_id, "many", partition_key="k")

    assert condition_of(user.send(transaction_id, "many")) == NOT_ALLOWED

    refused(bench, user, "many", transaction_id)


def test_two_keys_are_refused_by_a_partitioned_entity(bench: Bench, user: Transacting) -> None:
    """R23."""
    transaction_id = user.declare()
    user.send(transaction_id, "many", partition_key="one")

    state = user.send(transaction_id, "many", partition_key="two")

    assert condition_of(state) == NOT_ALLOWED
    refused(bench, user, "many", transaction_id)


def test_one_key_is_enough_for_a_partitioned_entity(bench: Bench, user: Transacting) -> None:
    """R23, R25: and all of it is in the fragment of the key."""
    transaction_id = user.declare()
    for content in (b"1", b"2"):
        user.send(transaction_id, "many", content, partition_key="k")

    assert user.commit(transaction_id) == ACCEPTED

    assert bench.left("many") == [b"1", b"2"]


def test_a_message_id_is_a_key_where_duplicates_are_detected(
    bench: Bench, user: Transacting
) -> None:
    """R23, R13."""
    spec = EntitySpec()
    spec.requires_duplicate_detection = True
    bench.create("ids", is_partitioned=True, spec=spec)
    transaction_id = user.declare()
    same = encode_data_message(b"x", message_id="a")
    assert is_enlisted(user.send_raw(transaction_id, "ids", same), transaction_id)
    assert user.commit(transaction_id) == ACCEPTED

    transaction_id = user.declare()
    user.send_raw(transaction_id, "ids", encode_data_message(b"x", message_id="b"))
    other = user.send_raw(transaction_id, "ids", encode_data_message(b"x", message_id="c"))
    assert condition_of(other) == NOT_ALLOWED


@pytest.mark.parametrize("is_partitioned", [False, True])
def test_a_session_aware_entity_wants_a_session(
    bench: Bench, user: Transacting, is_partitioned: bool
) -> None:
    """R24."""
    bench.create_sessions("talk", is_partitioned=is_partitioned)
    transaction_id = user.declare()

    state = user.send(transaction_id, "talk", partition_key="k")

    assert condition_of(state) == NOT_ALLOWED
    assert condition_of(user.commit(transaction_id)) == ROLLBACK


@pytest.mark.parametrize("is_partitioned", [False, True])
def test_two_sessions_are_refused_by_partitioned_entities_alone(
    bench: Bench, user: Transacting, is_partitioned: bool
) -> None:
    """R24."""
    bench.create_sessions("talk", is_partitioned=is_partitioned)
    transaction_id = user.declare()
    user.send(transaction_id, "talk", session_id="a")

    state = user.send(transaction_id, "talk", session_id="b")

    if is_partitioned:
        assert condition_of(state) == NOT_ALLOWED
        assert condition_of(user.commit(transaction_id)) == ROLLBACK
    else:
        assert user.commit(transaction_id) == ACCEPTED


@pytest.mark.parametrize(
    "bench", [TransactionRules(is_extended=True, messages_max=1_000)], indirect=True
)
def test_extended_transactions_take_any_keys(bench: Bench, user: Transacting) -> None:
    """R22: also over several fragments of one entity."""
    transaction_id = user.declare()
    contents = [b"%d" % number for number in range(20)]
    for content in contents:
        state = user.send(transaction_id, "many", content, partition_key=f"key-{content!r}")
        assert is_enlisted(state, transaction_id)
    user.send(transaction_id, "many", b"no key")

    assert user.commit(transaction_id) == ACCEPTED

    assert sorted(map(str, bench.left("many"))) == sorted(map(str, [*contents, b"no key"]))


# Limits.


def test_the_hundred_and_first_message_is_refused(bench: Bench, user: Transacting) -> None:
    transaction_id = user.declare()
    link = user.sender("q")
    for _ in range(99):
        user.send(transaction_id, "q")
    assert is_enlisted(user.send(transaction_id, "q"), transaction_id)

    state = user.send(transaction_id, "q")

    assert condition_of(state) == NOT_ALLOWED
    assert text_of(state).startswith("Cannot send more than 100 messages in a single transaction.")
    refused(bench, user, "q", transaction_id)
    assert link.credit > 0


def test_a_connection_has_a_bounded_number_of_transactions(user: Transacting) -> None:
    opened = [user.declare() for _ in range(OPEN_MAX)]

    state = user.command(Described(Ulong(codes.DECLARE), [None]))

    assert condition_of(state) == "amqp:resource-limit-exceeded"
    user.roll_back(opened[0])
    user.declare()


def test_open_transactions_hold_a_bounded_number_of_bytes(bench: Bench, user: Transacting) -> None:
    content = bytes(250_000)
    fitting = BYTES_MAX // len(content)
    first, second = user.declare(), user.declare()
    for number in range(fitting):
        chosen = first if number % 2 else second
        assert is_enlisted(user.send(chosen, "q", content), chosen)

    assert condition_of(user.send(second, "q", content)) == "amqp:resource-limit-exceeded"

    assert condition_of(user.send(second, "q", b"x")) == ROLLBACK
    assert condition_of(user.commit(second)) == ROLLBACK

    fresh = user.declare()
    assert is_enlisted(user.send(fresh, "q", content), fresh)


def test_the_basic_tier_has_no_transactions(bench: Bench) -> None:
    bench.namespace.settings.tier.is_basic = True
    client = bench.client()

    link = client.sender(Coordinator())
    bench.pass_s()

    assert client.detach_error(link).condition == NOT_ALLOWED


@pytest.mark.parametrize(
    "body",
    [
        None,
        b"declare",
        Described(Ulong(codes.DISCHARGE), []),
        Described(Ulong(codes.DISCHARGE), [None, False]),
        Described(Ulong(codes.DISCHARGE), ["text", False]),
        Described(Ulong(0x35), []),
        Described(Ulong(codes.DECLARE), "no list"),
        Described(Ulong(codes.DECLARE), [b"global"]),
    ],
)
def test_the_coordinator_rejects_what_it_does_not_know(user: Transacting, body: object) -> None:
    assert body is None or isinstance(body, bytes | Described)

    assert condition_of(user.command(body))

    user.declare()


def test_declare_and_discharge_may_be_named_in_words(bench: Bench, user: Transacting) -> None:
    declared = user.command(Described(Symbol("amqp:declare:list"), []))
    assert isinstance(declared, Declared)
    user.send(declared.transaction_id, "q", b"x")

    body = Described(Symbol("amqp:discharge:list"), [declared.transaction_id])
    assert user.command(body) == ACCEPTED

    assert bench.left("q") == [b"x"]


# An entity that is closed or deleted meanwhile.


@pytest.mark.parametrize(
    ("change", "reason"),
    [("Disabled", "is Disabled"), ("SendDisabled", "is SendDisabled"), ("deleted", "not be found")],
)
def test_nothing_is_sent_to_an_entity_that_was_closed_meanwhile(
    bench: Bench, user: Transacting, change: str, reason: str
) -> None:
    """And it is no outage, after which a client would try the same again."""
    bench.create("closed")
    transaction_id, other_id = user.declare(), user.declare()
    user.send(transaction_id, "q", b"never")
    user.send(transaction_id, "closed", b"never")
    user.send(other_id, "q", b"kept")
    if change == "deleted":
        bench.run(bench.namespace.delete("closed"))
    else:
        bench.set_status("closed", change)
    bench.pass_s()

    state, other = user.commit(transaction_id), user.commit(other_id)

    assert condition_of(state) == ROLLBACK
    assert reason in text_of(state)
    assert other == ACCEPTED
    assert bench.left("q") == [b"kept"]
    if change != "deleted":
        bench.set_status("closed", "Active")
        assert bench.left("closed") == []


def test_what_was_received_before_an_entity_was_closed_is_completed(
    bench: Bench, user: Transacting
) -> None:
    bench.fill("q", b"x")
    link, [delivery] = user.receive("q")
    transaction_id = user.declare()
    user.settle(transaction_id, link, delivery, ACCEPTED)
    bench.set_status("q", "Disabled")
    bench.pass_s()

    assert user.commit(transaction_id) == ACCEPTED
    bench.set_status("q", "Active")
    bench.pass_s(61)
    assert bench.left("q") == []


# A store that fails.


def test_a_commit_that_is_not_known_is_not_called_a_rollback(
    bench: Bench, user: Transacting
) -> None:
    transaction_id = user.declare()
    user.send(transaction_id, "q", b"x")
    bench.disk.commit_failures.extend(["after"] + ["before"] * 1_000)

    user.commit(transaction_id)
    bench.pass_s(DOUBT_MS_MAX / 1000 + 1)
    [*_, state] = user.client.outcomes(user.coordinator).values()

    assert condition_of(state) == "amqp:internal-error"
    assert "is unknown" in text_of(state)
    bench.disk.commit_failures.clear()
    bench.pass_s(60)
    assert bench.left("q") == [b"x"]


@pytest.mark.parametrize(("when", "left"), [("before", []), ("after", [b"x"])])
def test_a_commit_that_failed_is_told_as_what_became_of_it(
    bench: Bench, user: Transacting, when: str, left: list[bytes]
) -> None:
    """Who only sends would store everything twice, if it began anew after a commit that was."""
    transaction_id = user.declare()
    user.send(transaction_id, "q", b"x")
    bench.disk.commit_failures.append(when)

    state = user.commit(transaction_id)

    assert state == ACCEPTED if left else "rolled back" in text_of(state)
    bench.pass_s(30)
    assert bench.left("q") == left


def test_a_fragment_that_is_away_rolls_the_transaction_back(
    bench: Bench, user: Transacting
) -> None:
    bench.create("other")
    bench.left("other")
    transaction_id = user.declare()
    user.send(transaction_id, "q", b"x")
    user.send(transaction_id, "other", b"x")
    bench.disk.is_full = True
    lost = bench.client()
    link = lost.sender("q")
    bench.pass_s()
    lost.send(link, b"in vain")
    bench.pass_s()

    state = user.commit(transaction_id)

    assert condition_of(state) == "com.microsoft:server-busy"
    bench.disk.is_full = False
    bench.pass_s(60)
    assert (bench.left("q"), bench.left("other")) == ([], [])
