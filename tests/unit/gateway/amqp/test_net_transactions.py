"""Transactions over several entities as the .NET SDK makes them, at the level of frames.

Its client has one session for all links, and attaches two coordinators to it: one when the session
begins, so that the service knows, and one for the transactions.
"""

from dataclasses import replace

from shardbus.amqp.outcomes import ACCEPTED
from shardbus.amqp.termini import Coordinator
from tests.unit.gateway.amqp.bench import Bench
from tests.unit.gateway.amqp.client import plain
from tests.unit.gateway.amqp.transacting import Transacting, condition_of, is_enlisted

LOCK_S = 61.0


class OneSession(Transacting):
    """One session with both coordinators."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self.coordinator = self.client.sender(Coordinator(), "coordinator of transactions")
        bench.pass_s()


def far(bench: Bench) -> None:
    for name in ("b", "c"):
        bench.create(name)


def test_a_message_moves_to_two_entities_with_the_second_coordinator(bench: Bench) -> None:
    """R22: the receiver came first, so its entity is the way."""
    far(bench)
    bench.fill("q", b"1")
    user = OneSession(bench)
    link, [delivery] = user.receive("q")
    transaction_id = user.declare()

    completed = user.settle(transaction_id, link, delivery, ACCEPTED)
    sent = [user.send(transaction_id, name, b"1") for name in ("b", "c")]

    assert is_enlisted(completed, transaction_id)
    assert all(is_enlisted(state, transaction_id) for state in sent)
    assert [bench.left(name) for name in ("b", "c")] == [[], []]
    assert user.commit(transaction_id) == ACCEPTED
    assert [bench.left(name) for name in ("q", "b", "c")] == [[], [b"1"], [b"1"]]


def test_a_transaction_ends_with_its_connection_and_the_message_comes_again(bench: Bench) -> None:
    """R22: CrossEntityTransactionConnectionDropped. The client discharges what it had begun over
    its new connection, whose coordinator does not know it, and says so with an error.
    """
    far(bench)
    bench.fill("q", b"1")
    user = OneSession(bench)
    link, [delivery] = user.receive("q")
    lost = user.declare()
    assert is_enlisted(user.settle(lost, link, delivery, ACCEPTED), lost)

    user.client.protocol.connection_lost(None)
    bench.pass_s()
    again = OneSession(bench)
    assert condition_of(again.roll_back(lost)) == "amqp:transaction:unknown-id"
    link = again.client.receiver("q", 1, name="from q")
    bench.pass_s(LOCK_S)
    [delivery] = again.client.received(link)
    transaction_id = again.declare()
    assert is_enlisted(again.settle(transaction_id, link, delivery, ACCEPTED), transaction_id)
    assert is_enlisted(again.send(transaction_id, "b", b"2"), transaction_id)
    assert again.commit(transaction_id) == ACCEPTED

    assert [bench.left(name) for name in ("q", "b")] == [[], [b"2"]]


def test_the_first_operation_of_a_session_is_in_a_transaction(bench: Bench) -> None:
    """R22: CrossEntityTransactionFirstOperationTransacted: declared before there is any link."""
    far(bench)
    user = OneSession(bench)
    transaction_id = user.declare()

    sent = [user.send(transaction_id, name) for name in ("b", "c")]

    assert all(is_enlisted(state, transaction_id) for state in sent)
    assert user.roll_back(transaction_id) == ACCEPTED
    assert [bench.left(name) for name in ("b", "c")] == [[], []]


def test_a_session_with_the_widest_window_gets_all_that_its_links_ask_for(bench: Bench) -> None:
    """R36: CanHaveManyUnsettledMessages: the window of .NET's sessions is 2^32 - 1, in each of
    their flows, while the ids of transfers go on.
    """
    bench.fill("q", *[b"x"] * 3_000)
    client = bench.client(replace(plain(), incoming_window=2**32 - 1))
    link = client.receiver("q", 2_000)
    bench.pass_s(2)
    assert len(client.received(link)) == 2_000

    client.settle(link, [delivery.delivery_id for delivery in client.received(link)], ACCEPTED)
    client.grant(link, 2_000)
    bench.pass_s(2)

    assert len(client.received(link)) == 3_000
