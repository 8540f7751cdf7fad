"""Links on which clients receive: credit, draining, slow readers, and nothing locked for nobody."""

import pytest

from shardbus.amqp.config import ConnectionConfig
from shardbus.amqp.outcomes import ACCEPTED
from shardbus.gateway.amqp.connection.protocol import WRITE_BUFFER_BYTES_MAX
from shardbus.message.sections import encode_data_message
from tests.support.messages import annotations_of, seen
from tests.unit.amqp.frames_seen import names
from tests.unit.gateway.amqp.bench import Bench
from tests.unit.gateway.amqp.client import RECEIVE_AND_DELETE, Client

TEN = [b"%d" % number for number in range(10)]
FORTY = [b"%d" % number for number in range(40)]


def fill_large(bench: Bench, name: str, count: int) -> None:
    """Messages of 100 KB."""
    bench.fill(name, *(b"%d" % number + b"." * 100_000 for number in range(count)))


@pytest.mark.parametrize("name", ["q", "many"])
def test_exactly_as_many_messages_come_as_there_is_credit(bench: Bench, name: str) -> None:
    """R18."""
    bench.fill(name, *FORTY)
    client = bench.client()
    link = client.receiver(name, 3)
    bench.pass_s()
    first = len(client.received(link))
    client.grant(link, 5)
    bench.pass_s()

    assert (first, len(client.received(link))) == (3, 8)
    assert len(bench.left(name)) == 32


def test_without_credit_nothing_is_locked(bench: Bench) -> None:
    """R18."""
    bench.fill("q", *TEN)
    client = bench.client()
    client.receiver("q", 0)
    bench.pass_s()

    assert bench.left("q") == TEN


def test_credit_that_waits_gets_the_message_when_it_comes(bench: Bench) -> None:
    """R17."""
    client = bench.client()
    link = client.receiver("many", 1)
    bench.pass_s(100)
    bench.fill("many", b"at last")

    assert client.bodies(link) == [b"at last"]


def test_messages_of_one_fragment_come_in_order(bench: Bench) -> None:
    bench.fill("q", *FORTY)
    client = bench.client()
    link = client.receiver("q", 7)
    bench.pass_s()
    client.grant(link, 100)
    bench.pass_s()

    assert client.bodies(link) == FORTY


def test_a_delivery_is_stamped_and_its_tag_is_a_lock_token(bench: Bench) -> None:
    bench.fill("many", b"stamped")
    client = bench.client()
    link = client.receiver("many", 1)
    bench.pass_s()

    [delivery] = client.received(link)

    [message] = client.answers(link)
    annotations = annotations_of(delivery.payload, message.head)
    assert {"x-opt-sequence-number", "x-opt-enqueued-time", "x-opt-locked-until"} <= set(
        annotations
    )
    assert seen(delivery.payload).partition_id == seen(delivery.payload).fragment
    assert len(delivery.tag) == 16
    assert not delivery.settled
    assert message.head.header_length > 0


def drained(client: Client) -> list[tuple[object, object]]:
    """(link-credit, delivery-count) of every flow that answered a drain."""
    return [(frame.field(6), frame.field(5)) for frame in client.frames("flow") if frame.field(8)]


@pytest.mark.parametrize("name", ["q", "many"])
def test_a_drain_delivers_what_there_is_and_then_uses_up_the_credit(
    bench: Bench, name: str
) -> None:
    bench.fill(name, *TEN)
    client = bench.client()
    link = client.receiver(name)
    bench.pass_s()

    client.grant(link, 100, drain=True)
    bench.pass_s()

    assert sorted(client.bodies(link), key=str) == TEN
    assert drained(client) == [(0, 100)]
    assert link.credit == 0
    frames = [name for data in client.transport.writes for name in names(data)]
    assert "transfer" not in frames[len(frames) - frames[::-1].index("flow") :]


@pytest.mark.parametrize("name", ["q", "many"])
def test_a_drain_of_an_empty_queue_is_answered_at_once(bench: Bench, name: str) -> None:
    client = bench.client()
    link = client.receiver(name, 20)
    bench.pass_s()

    client.grant(link, 20, drain=True)
    bench.pass_s(0.05)

    assert drained(client) == [(0, 20)]


def test_a_drain_with_less_credit_than_messages_is_answered_too(bench: Bench) -> None:
    bench.fill("many", *FORTY)
    client = bench.client()
    link = client.receiver("many")
    bench.pass_s()

    client.grant(link, 5, drain=True)
    bench.pass_s()

    assert len(client.received(link)) == 5
    assert drained(client) == [(0, 5)]


def test_after_a_drain_credit_works_as_before(bench: Bench) -> None:
    client = bench.client()
    link = client.receiver("q")
    bench.pass_s()
    client.grant(link, 5, drain=True)
    bench.pass_s()

    client.grant(link, 2)
    bench.pass_s()
    bench.fill("q", *TEN)

    assert client.bodies(link) == TEN[:2]


def test_credit_withdrawn_while_messages_are_taken_returns_them_unlocked(bench: Bench) -> None:
    """R18."""
    bench.fill("many", *FORTY)
    client = bench.client()
    link = client.receiver("many")
    bench.pass_s()

    client.grant(link, 40)
    client.grant(link, 0)
    bench.pass_s()

    assert client.received(link) == []
    assert sorted(bench.left("many"), key=str) == sorted(FORTY, key=str)


def test_a_link_closed_while_messages_are_taken_returns_them_unlocked(bench: Bench) -> None:
    """R18."""
    bench.fill("q", *TEN)
    client = bench.client()
    link = client.receiver("q")
    bench.pass_s()

    client.grant(link, 10)
    link.detach()
    client.flush()
    bench.pass_s()

    assert bench.left("q") == TEN


def test_a_connection_lost_while_messages_are_taken_returns_them_unlocked(bench: Bench) -> None:
    """R18."""
    bench.fill("q", *TEN)
    client = bench.client()
    link = client.receiver("q")
    bench.pass_s()

    client.grant(link, 10)
    client.transport.close()
    bench.pass_s()

    assert bench.left("q") == TEN


def test_receive_and_delete_sends_settled_messages_and_keeps_none(bench: Bench) -> None:
    bench.fill("q", *TEN)
    client = bench.client()
    link = client.receiver("q", 4, modes=RECEIVE_AND_DELETE)
    bench.pass_s()

    deliveries = client.received(link)

    assert all(delivery.settled for delivery in deliveries)
    [message, *_] = client.answers(link)
    assert "x-opt-locked-until" not in annotations_of(deliveries[0].payload, message.head)
    client.connection.close()
    client.flush()
    bench.pass_s(100)
    assert bench.left("q") == TEN[4:]


def test_what_was_received_and_deleted_for_withdrawn_credit_comes_with_the_next(
    bench: Bench,
) -> None:
    """R18."""
    bench.fill("many", *FORTY)
    client = bench.client()
    link = client.receiver("many", modes=RECEIVE_AND_DELETE)
    bench.pass_s()
    client.grant(link, 40)
    client.grant(link, 0)
    bench.pass_s()
    before = client.received(link)

    client.grant(link, 15)
    bench.pass_s()
    client.grant(link, 25)
    bench.pass_s()

    assert before == []
    assert sorted(client.bodies(link), key=str) == sorted(FORTY, key=str)


def test_the_end_of_a_session_ends_its_links_and_no_others(bench: Bench) -> None:
    client = bench.client()
    other_session = client.connection.begin_session()
    client.receiver("q", 10, name="ends", session=other_session)
    stays = client.receiver("many", 10, name="stays")
    bench.pass_s()

    other_session.end()
    client.flush()
    bench.pass_s()
    bench.fill("q", b"not for the ended one")
    bench.fill("many", b"for the other")

    assert bench.left("q") == [b"not for the ended one"]
    assert client.bodies(stays) == [b"for the other"]


def test_an_unavailable_fragment_delays_no_receiver(bench: Bench) -> None:
    """R17."""
    bench.fill("many", *FORTY)
    client = bench.client()
    sender = client.sender("many")
    link = client.receiver("many")
    bench.pass_s()
    bench.disk.failing_reads.add("load")
    bench.disk.commit_failures.append("before")
    client.send(sender, b"breaks one fragment")
    bench.pass_s(1)

    client.grant(link, 100)
    bench.pass_s()
    meanwhile = len(client.received(link))
    bench.disk.failing_reads.clear()
    bench.pass_s(30)

    assert 35 <= meanwhile < 40
    assert len(client.received(link)) >= 40


def test_two_receivers_share_what_there_is(bench: Bench) -> None:
    """R19."""
    clients = [bench.client(), bench.client()]
    links = [client.receiver("many", 100) for client in clients]
    bench.pass_s()
    bench.fill("many", *FORTY)

    shares = [client.bodies(link) for client, link in zip(clients, links, strict=True)]

    assert sorted(shares[0] + shares[1], key=str) == sorted(FORTY, key=str)
    assert min(len(share) for share in shares) > 5


def test_a_slow_reader_has_no_more_locked_for_it_than_it_was_sent(bench: Bench) -> None:
    """R18."""
    fill_large(bench, "q", 40)
    client = bench.client()
    link = client.receiver("q")
    bench.pass_s()
    client.transport.stall()

    for credit in range(1, 31):
        # One by one: what is sent in the turn in which the buffer fills is sent.
        client.grant(link, credit)
        bench.pass_s()

    written = client.frames("transfer")[::2]
    assert WRITE_BUFFER_BYTES_MAX < client.transport.get_write_buffer_size() < 2_000_000
    assert len(bench.left("q")) == 40 - len(written)


def test_a_slow_reader_goes_on_where_it_stopped(bench: Bench) -> None:
    fill_large(bench, "many", 40)
    client = bench.client()
    link = client.receiver("many")
    bench.pass_s()
    client.transport.stall()
    client.grant(link, 40)
    bench.pass_s()

    client.transport.flow()
    bench.pass_s()

    assert len(client.received(link)) == 40


def test_a_link_attached_by_a_slow_reader_waits_too(bench: Bench) -> None:
    fill_large(bench, "q", 20)
    bench.fill("many", *TEN)
    client = bench.client()
    client.receiver("q", 20)
    client.transport.stall()
    bench.pass_s()

    late = client.receiver("many", 10, name="late")
    bench.pass_s()

    assert len(bench.left("many")) == 10
    client.transport.flow()
    bench.pass_s(61)
    assert len(client.received(late)) == 10


def test_a_link_with_too_much_unsettled_goes_on_when_some_is_confirmed(
    request: pytest.FixtureRequest,
) -> None:
    bench = Bench(ConnectionConfig(unsettled_max=8))
    request.addfinalizer(bench.close)
    bench.fill("q", *FORTY)
    client = bench.client()
    link = client.receiver("q", 40)
    bench.pass_s()
    assert client.bodies(link) == FORTY[:8]

    client.settle(link, [delivery.delivery_id for delivery in client.received(link)], ACCEPTED)
    bench.pass_s()

    assert client.bodies(link) == FORTY[:16]


def test_a_link_with_too_much_unsettled_goes_on_when_the_client_settles_for_itself(
    request: pytest.FixtureRequest,
) -> None:
    bench = Bench(ConnectionConfig(unsettled_max=8))
    request.addfinalizer(bench.close)
    bench.fill("q", *FORTY)
    client = bench.client()
    link = client.receiver("q", 40)
    bench.pass_s()

    ids = [delivery.delivery_id for delivery in client.received(link)]
    client.settle(link, ids, ACCEPTED, is_settled=True)
    bench.pass_s()

    assert client.bodies(link) == FORTY[:16]


def test_a_session_window_holds_messages_back_until_it_opens(bench: Bench) -> None:
    bench.fill("q", *FORTY)
    narrow = ConnectionConfig(
        sasl_mechanism="PLAIN",
        sasl_response=b"\0RootManageSharedAccessKey\0SAS_KEY_VALUE",
        incoming_window=4,
        unsettled_max=4,
        idle_timeout_ms=0,
    )
    client = bench.client(narrow)
    link = client.receiver("q", 40)
    bench.pass_s()

    settled = 0
    while new := client.received(link)[settled:]:
        settled += len(new)
        client.settle(link, [delivery.delivery_id for delivery in new], ACCEPTED)
        bench.pass_s()

    assert client.bodies(link) == FORTY


def test_a_message_larger_than_a_frame_comes_in_pieces(bench: Bench) -> None:
    small_frames = ConnectionConfig(
        sasl_mechanism="PLAIN",
        sasl_response=b"\0RootManageSharedAccessKey\0SAS_KEY_VALUE",
        max_frame_size=512,
        idle_timeout_ms=0,
    )
    bench.fill("q", b"y" * 5000)
    client = bench.client(small_frames)
    link = client.receiver("q", 1)
    bench.pass_s()

    assert client.bodies(link) == [b"y" * 5000]
    assert len(client.frames("transfer")) > 10


def test_a_failing_store_delays_a_receiver_and_loses_nothing(bench: Bench) -> None:
    bench.fill("q", *TEN)
    client = bench.client()
    sender = client.sender("q")
    link = client.receiver("q")
    bench.pass_s()
    bench.disk.commit_failures.append("before")
    client.send_raw(sender, encode_data_message(b"fails"))
    client.grant(link, 10)

    bench.pass_s(30)

    assert client.bodies(link) == TEN
