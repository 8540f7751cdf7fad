"""Links on which clients send: what is accepted when, and what is refused how."""

from collections import Counter

import pytest

from shardbus.amqp.config import ConnectionConfig
from shardbus.amqp.outcomes import ACCEPTED, DeliveryState, Rejected, TransactionalState
from shardbus.codec.value import encode
from shardbus.gateway.amqp.connection.protocol import PENDING_BYTES_MAX
from shardbus.gateway.amqp.links.inbound import BATCH_MESSAGES_MAX, CREDIT
from shardbus.message.sections import BATCH_FORMAT, encode_batch, encode_data_message
from tests.unit.gateway.amqp.bench import Bench

SIXTY_THREE_KB = b"x" * 64_512


def condition_of(state: DeliveryState | None) -> str:
    assert isinstance(state, Rejected)
    assert state.error is not None
    return state.error.condition


def test_a_message_is_accepted_only_after_it_is_stored(bench: Bench) -> None:
    client = bench.client()
    link = client.sender("q")
    bench.pass_s()
    bench.latency_s = 5

    [ident] = client.send(link, b"slow")
    bench.pass_s(9)
    before = client.outcomes(link)
    bench.pass_s(2)

    assert before == {}
    assert client.outcomes(link) == {ident: ACCEPTED}


def test_messages_stored_together_are_accepted_in_one_range(bench: Bench) -> None:
    client = bench.client()
    link = client.sender("q")
    bench.pass_s()

    ids = client.send(link, *(b"%d" % number for number in range(100)))
    bench.pass_s()

    [disposition] = client.frames("disposition")
    assert [disposition.field(index) for index in (1, 2, 3)] == [ids[0], ids[-1], True]


def test_what_is_spread_over_sixteen_fragments_is_accepted_in_one_range(bench: Bench) -> None:
    client = bench.client()
    link = client.sender("many")
    bench.pass_s()

    ids = client.send(link, *(b"%d" % number for number in range(160)))
    bench.pass_s()

    [disposition] = client.frames("disposition")
    assert [disposition.field(index) for index in (1, 2)] == [ids[0], ids[-1]]


def test_a_settled_message_is_stored_and_gets_no_answer(bench: Bench) -> None:
    client = bench.client()
    link = client.sender("q", is_settled=True)
    bench.pass_s()

    client.send(link, b"fire", b"forget", is_settled=True)
    client.send_raw(link, b"nonsense", is_settled=True)
    bench.pass_s()

    assert client.frames("disposition") == []
    assert bench.left("q") == [b"fire", b"forget"]


def test_a_batch_is_stored_in_order_in_one_fragment_with_one_outcome(bench: Bench) -> None:
    client = bench.client()
    link = client.sender("many")
    bench.pass_s()
    contents = [b"%d" % number for number in range(50)]

    batch = encode_batch([encode_data_message(content) for content in contents])
    [ident] = client.send_raw(link, batch, message_format=BATCH_FORMAT)
    bench.pass_s()

    assert client.outcomes(link) == {ident: ACCEPTED}
    assert bench.left("many") == contents


def test_a_batch_between_single_messages_keeps_its_place(bench: Bench) -> None:
    client = bench.client()
    link = client.sender("q")
    bench.pass_s()

    link.send(b"1", encode_data_message(b"first"), False)
    batch = encode_batch([encode_data_message(b"second"), encode_data_message(b"third")])
    link.send(b"2", batch, False, BATCH_FORMAT)
    link.send(b"3", encode_data_message(b"fourth"), False)
    client.flush()
    bench.pass_s()

    assert set(client.outcomes(link).values()) == {ACCEPTED}
    assert bench.left("q") == [b"first", b"second", b"third", b"fourth"]


@pytest.mark.parametrize(
    ("bad", "condition"),
    [
        (b"", "com.microsoft:argument-error"),
        (b"nonsense", "com.microsoft:argument-error"),
        (encode_data_message(b"two", session_id="1", partition_key="2"), "amqp:not-allowed"),
        (encode_data_message(b"two", partition_key="k" * 129), "com.microsoft:argument-error"),
    ],
)
@pytest.mark.parametrize("name", ["q", "many"])
def test_a_batch_with_a_bad_message_stores_nothing_of_it(
    bench: Bench, name: str, bad: bytes, condition: str
) -> None:
    client = bench.client()
    link = client.sender(name)
    bench.pass_s()

    batch = encode_batch([encode_data_message(b"one"), bad])
    [ident] = client.send_raw(link, batch, message_format=BATCH_FORMAT)
    bench.pass_s()

    assert condition_of(client.outcomes(link)[ident]) == condition
    assert bench.left(name) == []
    assert link.is_attached


def test_a_batch_of_several_keys_is_accepted_as_a_whole(bench: Bench) -> None:
    """R49."""
    client = bench.client()
    links = [client.sender("many", "first"), client.sender("q", "second")]
    bench.pass_s()
    messages = [encode_data_message(key.encode(), partition_key=key) for key in "abcdef"]

    for link in links:
        client.send_raw(link, encode_batch(messages), message_format=BATCH_FORMAT)
    bench.pass_s()

    assert [list(client.outcomes(link).values()) for link in links] == [[ACCEPTED], [ACCEPTED]]
    stored = Counter(b"%c" % letter for letter in b"abcdef")
    assert Counter(bench.left("many")) == Counter(bench.left("q")) == stored


@pytest.mark.parametrize(
    "payload",
    [
        b"no message at all",
        encode_batch([]),
        b"\x00\x53\x77" + encode("an amqp-value"),
        encode_batch([encode_data_message(b"")] * (BATCH_MESSAGES_MAX + 1)),
    ],
)
def test_what_is_no_batch_is_refused(bench: Bench, payload: bytes) -> None:
    client = bench.client()
    link = client.sender("q")
    bench.pass_s()

    [ident] = client.send_raw(link, payload, message_format=BATCH_FORMAT)
    bench.pass_s()

    assert condition_of(client.outcomes(link)[ident]) == "com.microsoft:argument-error"
    assert bench.left("q") == []


def test_a_session_id_other_than_the_partition_key_is_refused(bench: Bench) -> None:
    """R12."""
    client = bench.client()
    link = client.sender("many")
    bench.pass_s()
    messages = [
        encode_data_message(b"unequal", session_id="a", partition_key="b"),
        encode_data_message(b"equal", session_id="a", partition_key="a"),
    ]

    [unequal, equal] = client.send_raw(link, *messages)
    bench.pass_s()

    outcomes = client.outcomes(link)
    assert isinstance(outcomes[unequal], Rejected)
    assert outcomes[equal] == ACCEPTED


def test_a_malformed_message_among_good_ones_is_refused_alone(bench: Bench) -> None:
    client = bench.client()
    link = client.sender("q")
    bench.pass_s()
    good = encode_data_message(b"good")

    [first, bad, last] = client.send_raw(link, good, b"\x00\x53\x75\xa0\x09short", good)
    bench.pass_s()

    outcomes = client.outcomes(link)
    assert condition_of(outcomes[bad]) == "com.microsoft:argument-error"
    assert outcomes[first] == outcomes[last] == ACCEPTED
    assert bench.left("q") == [b"good", b"good"]


def test_a_send_in_a_transaction_that_nobody_declared_is_rejected(bench: Bench) -> None:
    client = bench.client()
    link = client.sender("q")
    bench.pass_s()

    ident = link.send(
        b"2", encode_data_message(b"in a transaction"), False, 0, TransactionalState(b"t")
    )
    client.flush()
    bench.pass_s()

    assert condition_of(client.outcomes(link)[ident]) == "amqp:transaction:unknown-id"
    assert bench.left("q") == []


def test_a_failing_store_makes_the_server_busy_and_the_connection_lives(bench: Bench) -> None:
    client = bench.client()
    link = client.sender("q")
    bench.pass_s()
    bench.disk.commit_failures.append("before")

    [failed] = client.send(link, b"lost")
    bench.pass_s(10)
    [stored] = client.send(link, b"kept")
    bench.pass_s()

    outcomes = client.outcomes(link)
    assert condition_of(outcomes[failed]) == "com.microsoft:server-busy"
    assert outcomes[stored] == ACCEPTED
    assert bench.left("q") == [b"kept"]


def test_an_unavailable_fragment_refuses_its_keys_and_nothing_else(bench: Bench) -> None:
    """R14, R15."""
    client = bench.client()
    link = client.sender("many")
    bench.pass_s()
    keyed = encode_data_message(b"keyed", partition_key="a key")
    bench.disk.failing_reads.add("load")
    bench.disk.commit_failures.append("before")
    client.send_raw(link, keyed)
    bench.pass_s(1)

    [refused] = client.send_raw(link, keyed)
    others = client.send(link, *(b"%d" % number for number in range(32)))
    bench.pass_s(1)

    outcomes = client.outcomes(link)
    assert condition_of(outcomes[refused]) == "com.microsoft:server-busy"
    assert [outcomes[ident] for ident in others] == [ACCEPTED] * 32
    bench.disk.failing_reads.clear()
    bench.pass_s(60)
    [accepted] = client.send_raw(link, keyed)
    bench.pass_s()
    assert client.outcomes(link)[accepted] == ACCEPTED


def test_a_full_entity_says_so_and_takes_messages_again_when_there_is_room(
    request: pytest.FixtureRequest,
) -> None:
    bench = Bench(fragment_bytes_max=1000)
    request.addfinalizer(bench.close)
    client = bench.client()
    link = client.sender("q")
    bench.pass_s()
    client.send(link, b"x" * 1000)
    bench.pass_s()

    [full] = client.send(link, b"too much")
    bench.pass_s()
    receiver = client.receiver("q", 1, modes=(1, 0))
    bench.pass_s()
    [again] = client.send(link, b"fits")
    bench.pass_s()

    assert len(client.received(receiver)) == 1
    outcomes = client.outcomes(link)
    assert condition_of(outcomes[full]) == "amqp:resource-limit-exceeded"
    # The words that people's alerts look for.
    told = outcomes[full]
    assert isinstance(told, Rejected) and told.error is not None
    assert "maximum entity size has been reached or exceeded" in told.error.description
    assert outcomes[again] == ACCEPTED


def test_a_message_that_is_too_large_ends_its_link_and_no_other(bench: Bench) -> None:
    client = bench.client()
    large, small = client.sender("q", "large"), client.sender("q", "small")
    bench.pass_s()

    [ident] = client.send(large, b"x" * 300_000)
    client.send(small, b"small")
    bench.pass_s()

    assert condition_of(client.outcomes(large)[ident]) == "amqp:link:message-size-exceeded"
    assert client.detach_error(large).condition == "amqp:link:message-size-exceeded"
    assert bench.left("q") == [b"small"]


def test_credit_is_topped_up_before_it_runs_out(bench: Bench) -> None:
    client = bench.client()
    link = client.sender("q")
    bench.pass_s()
    assert link.credit == CREDIT

    lowest = CREDIT
    for _ in range(100):
        client.send(link, *(b"" for _ in range(100)))
        bench.pass_s(0.05)
        lowest = min(lowest, link.credit)

    assert lowest > CREDIT // 4
    assert len(client.outcomes(link)) == 10_000


def test_messages_that_wait_for_the_store_are_not_given_credit_again(bench: Bench) -> None:
    client = bench.client()
    link = client.sender("q")
    bench.pass_s()
    bench.latency_s = 60

    client.send(link, *(b"" for _ in range(CREDIT)))
    bench.pass_s(30)

    assert link.credit == 0
    bench.pass_s(200)
    assert link.credit == CREDIT


def test_credit_and_what_is_in_flight_are_never_more_than_was_meant(bench: Bench) -> None:
    client = bench.client()
    link = client.sender("q")
    bench.pass_s()
    bench.latency_s = 5
    client.send(link, b"stored first")
    bench.pass_s(0.001)
    client.send(link, *(b"" for _ in range(1800)))
    bench.pass_s(11)

    assert len(client.outcomes(link)) == 1
    assert link.credit <= CREDIT - 1800


def test_more_than_eight_megabytes_waiting_stop_the_reading_until_some_are_stored(
    bench: Bench,
) -> None:
    client = bench.client()
    link = client.sender("q")
    bench.pass_s()
    bench.latency_s = 10

    for _ in range(200):
        client.send(link, SIXTY_THREE_KB)
    bench.pass_s(5)

    assert not client.is_read()
    unread = client.transport.waiting_bytes()
    assert 200 * len(SIXTY_THREE_KB) - unread < PENDING_BYTES_MAX + 2 * len(SIXTY_THREE_KB)
    bench.latency_s = 0.001
    bench.pass_s(120)
    assert client.is_read()
    assert list(client.outcomes(link).values()) == [ACCEPTED] * 200


def test_a_client_that_leaves_while_its_messages_are_stored_harms_nobody(bench: Bench) -> None:
    client = bench.client()
    link = client.sender("q")
    bench.pass_s()
    bench.latency_s = 5

    client.send(link, b"stored all the same")
    bench.pass_s(1)
    client.transport.abort()
    bench.pass_s(20)
    bench.latency_s = 0.001

    assert bench.left("q") == [b"stored all the same"]


def test_a_link_detached_while_its_messages_are_stored_hears_no_more(bench: Bench) -> None:
    client = bench.client()
    link, other = client.sender("q"), client.sender("q", "other")
    bench.pass_s()
    bench.latency_s = 5

    client.send(link, b"one")
    link.detach()
    client.flush()
    bench.pass_s(30)
    bench.latency_s = 0.001
    [ident] = client.send(other, b"two")
    bench.pass_s()

    assert client.outcomes(link) == {}
    assert client.outcomes(other) == {ident: ACCEPTED}
    assert bench.left("q") == [b"one", b"two"]


def test_unsettled_messages_beyond_the_bound_wait_in_the_session_window(
    request: pytest.FixtureRequest,
) -> None:
    config = ConnectionConfig(incoming_window=16, unsettled_max=16)
    bench = Bench(config)
    request.addfinalizer(bench.close)
    client = bench.client()
    link = client.sender("q")
    bench.pass_s()

    client.send(link, *(b"%d" % number for number in range(100)))
    bench.pass_s(5)

    assert list(client.outcomes(link).values()) == [ACCEPTED] * 100
    assert not client.is_closed()
