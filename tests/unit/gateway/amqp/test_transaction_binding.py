"""What binds a compatible transaction to one fragment of each entity, and to its way."""

from collections.abc import Iterator

import pytest

from shardbus.amqp.events import IncomingDelivery
from shardbus.amqp.link import Link
from shardbus.amqp.outcomes import ACCEPTED, DeliveryState, TransactionalState
from shardbus.codec.types import Int, Symbol, Value
from shardbus.codec.value import encode
from shardbus.core.sequence import fragment_of_token
from shardbus.gateway.amqp.transactions.open import TransactionRules
from shardbus.message.sections import encode_data_message
from tests.unit.gateway.amqp.bench import Bench
from tests.unit.gateway.amqp.desk import Desk, status_of, tokens_of
from tests.unit.gateway.amqp.transacting import Transacting, condition_of, is_enlisted, text_of

NOT_ALLOWED = "amqp:not-allowed"
ROLLBACK = "amqp:transaction:rollback"
EXTENDED = TransactionRules(is_extended=True)
KEYS = [str(number) for number in range(20)]


@pytest.fixture
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    """With the rules that a test names, and another partitioned queue."""
    rules: TransactionRules | None = getattr(request, "param", None)
    bench = Bench(transaction_rules=rules)
    bench.create("far", is_partitioned=True)
    yield bench
    bench.close()


@pytest.fixture
def user(bench: Bench) -> Transacting:
    return Transacting(bench)


def by_way(key: str | None, via_key: str | None, content: bytes = b"x") -> bytes:
    """A message with a key, a key of the way, or both, as SDKs annotate it."""
    annotations: dict[Value, Value] = {}
    if key is not None:
        annotations[Symbol("x-opt-partition-key")] = key
    if via_key is not None:
        annotations[Symbol("x-opt-via-partition-key")] = via_key
    return b"\x00\x53\x72" + encode(annotations) + encode_data_message(content)


def fill_many(bench: Bench, name: str = "many") -> None:
    client = bench.client()
    link = client.sender(name)
    bench.pass_s()
    client.send_raw(link, *(by_way(key, None, key.encode()) for key in KEYS))
    bench.pass_s(1)
    bench.leave(client)


def enlist(
    user: Transacting, transaction_id: bytes, entity: str, *payloads: bytes
) -> list[DeliveryState | None]:
    return [user.send_raw(transaction_id, entity, payload) for payload in payloads]


def share_session(user: Transacting, *entities: str) -> None:
    """Senders to several entities beside the coordinator: the first is the way."""
    for entity in entities:
        user.sender(entity)


# Settling.


def two_fragments(user: Transacting) -> tuple[Link, list[int], list[int]]:
    """A receiver with its deliveries: two of one fragment, and one of another."""
    link, deliveries = user.receive("many", len(KEYS))
    found: dict[int, list[int]] = {}
    for delivery in deliveries:
        found.setdefault(fragment_of_token(delivery.tag), []).append(delivery.delivery_id)
    same = next(ids for ids in found.values() if len(ids) > 1)
    other = next(ids for ids in found.values() if ids is not same)
    return link, same[:2], other[:1]


def settle(
    user: Transacting, transaction_id: bytes, link: Link, ident: int
) -> DeliveryState | None:
    [delivery] = [d for d in user.client.received(link) if d.delivery_id == ident]
    return user.settle(transaction_id, link, delivery, ACCEPTED)


def test_messages_of_one_fragment_are_settled_together(bench: Bench, user: Transacting) -> None:
    fill_many(bench)
    link, same, _ = two_fragments(user)
    transaction_id = user.declare()
    for ident in same:
        settle(user, transaction_id, link, ident)

    assert user.commit(transaction_id) == ACCEPTED


def test_messages_of_two_fragments_are_not_settled_in_one_transaction(
    bench: Bench, user: Transacting
) -> None:
    """As messages with two keys are not sent in one (R23)."""
    fill_many(bench)
    link, same, other = two_fragments(user)
    transaction_id = user.declare()
    settle(user, transaction_id, link, same[0])

    refused = settle(user, transaction_id, link, other[0])

    assert condition_of(refused) == NOT_ALLOWED
    assert condition_of(user.commit(transaction_id)) == ROLLBACK
    user.client.settle(link, same + other, ACCEPTED)
    bench.pass_s(1)
    assert {str(user.client.outcomes(link)[each]) for each in same[1:]} == {str(ACCEPTED)}


def test_what_a_transaction_must_not_settle_stays_locked(bench: Bench, user: Transacting) -> None:
    """R36: a live test of .NET completes it by its token after the rollback."""
    fill_many(bench)
    link, same, other = two_fragments(user)
    received = {each.delivery_id: each for each in user.client.received(link)}
    transaction_id = user.declare()
    settle(user, transaction_id, link, same[0])
    settle(user, transaction_id, link, other[0])
    user.roll_back(transaction_id)
    desk = Desk(bench, user.client, "many")

    answers = [
        desk.ask(
            "update-disposition",
            {"disposition-status": "completed", "lock-tokens": tokens_of([received[ident]])},
            link,
        )
        for ident in (same[0], other[0])
    ]

    assert [status_of(answer) for answer in answers] == [Int(200)] * 2


def received_keys(user: Transacting) -> tuple[Link, IncomingDelivery, str, str]:
    """A receiver, a delivery of it, the key of that, and one of another fragment."""
    link, deliveries = user.receive("many", len(KEYS))
    keys = [str(body, "ascii") for body in user.client.bodies(link) if isinstance(body, bytes)]
    first = deliveries[0]
    foreign = next(
        key
        for delivery, key in zip(deliveries, keys, strict=True)
        if fragment_of_token(delivery.tag) != fragment_of_token(first.tag)
    )
    return link, first, keys[0], foreign


@pytest.mark.parametrize("is_own", [True, False])
def test_a_message_is_not_sent_to_another_fragment_than_one_is_settled_in(
    bench: Bench, user: Transacting, is_own: bool
) -> None:
    fill_many(bench)
    link, first, own, foreign = received_keys(user)
    transaction_id = user.declare()
    user.settle(transaction_id, link, first, ACCEPTED)

    state = user.send(transaction_id, "many", b"reply", partition_key=own if is_own else foreign)

    if is_own:
        assert is_enlisted(state, transaction_id)
    else:
        assert condition_of(state) == NOT_ALLOWED


@pytest.mark.parametrize("bench", [EXTENDED], indirect=True)
def test_extended_transactions_settle_in_any_fragments(bench: Bench, user: Transacting) -> None:
    fill_many(bench)
    link, same, other = two_fragments(user)
    transaction_id = user.declare()
    for ident in same + other:
        settle(user, transaction_id, link, ident)
    user.send(transaction_id, "many", b"more", partition_key="any")

    assert user.commit(transaction_id) == ACCEPTED


def test_two_keys_of_one_fragment_are_two_keys(bench: Bench, user: Transacting) -> None:
    """R23."""
    handle = bench.bus.find("many")
    assert handle is not None
    homes: dict[int, list[str]] = {}
    for key in KEYS:
        homes.setdefault(handle.router.index_of_key(key), []).append(key)
    first, second = next(keys for keys in homes.values() if len(keys) > 1)[:2]
    transaction_id = user.declare()

    taken, refused = enlist(user, transaction_id, "many", by_way(first, None), by_way(second, None))

    assert is_enlisted(taken, transaction_id)
    assert condition_of(refused) == NOT_ALLOWED


# The key of the way.


@pytest.mark.parametrize("is_named", [True, False])
def test_a_key_of_the_way_stands_for_the_key(
    bench: Bench, user: Transacting, is_named: bool
) -> None:
    """By way of another entity: the one that the link names, or the first of the session."""
    if is_named:
        user.sender_via("many", "far")
    else:
        share_session(user, "many", "far")
    transaction_id = user.declare()

    payloads = [by_way(None, "v", b"%d" % number) for number in range(3)]
    states = enlist(user, transaction_id, "far", *payloads)

    assert all(is_enlisted(state, transaction_id) for state in states)
    assert user.commit(transaction_id) == ACCEPTED
    assert sorted(map(str, bench.left("far"))) == ["b'0'", "b'1'", "b'2'"]
    assert bench.left("many") == []


def test_the_fragment_of_the_destination_is_free(bench: Bench, user: Transacting) -> None:
    share_session(user, "many", "far")
    transaction_id = user.declare()

    states = enlist(user, transaction_id, "far", *(by_way(key, "v") for key in KEYS))

    assert all(is_enlisted(state, transaction_id) for state in states)
    assert user.commit(transaction_id) == ACCEPTED
    assert len(bench.left("far")) == len(KEYS)


@pytest.mark.parametrize("destination", ["far", "q"])
def test_two_keys_of_the_way_are_refused(bench: Bench, user: Transacting, destination: str) -> None:
    """They would take the transaction to two fragments of the way."""
    share_session(user, "many", destination)
    transaction_id = user.declare()

    first, second = enlist(user, transaction_id, destination, by_way(None, "a"), by_way(None, "b"))

    assert is_enlisted(first, transaction_id)
    assert condition_of(second) == NOT_ALLOWED
    assert "'a' and 'b'" in text_of(second)
    assert condition_of(user.commit(transaction_id)) == ROLLBACK


@pytest.mark.parametrize("is_own", [True, False])
def test_the_key_of_the_way_does_not_bind_what_is_settled_there(
    bench: Bench, user: Transacting, is_own: bool
) -> None:
    """Decision 0128: the message may have come there without a key, into any fragment."""
    fill_many(bench)
    link, first, own, foreign = received_keys(user)
    user.sender("far")
    transaction_id = user.declare()
    user.settle(transaction_id, link, first, ACCEPTED)

    [state] = enlist(user, transaction_id, "far", by_way(None, own if is_own else foreign))

    assert is_enlisted(state, transaction_id)
    assert user.commit(transaction_id) == ACCEPTED
    assert len(bench.left("far")) == 1


def test_a_key_of_the_way_is_none_where_nothing_has_a_way(bench: Bench, user: Transacting) -> None:
    """R23: clients without transactions over several entities have a session for each link."""
    session = user.client.connection.begin_session()
    link = session.attach_sender("apart", target="many", snd_settle_mode=0)
    user.client.flush()
    bench.pass_s()
    transaction_id = user.declare()
    state = TransactionalState(transaction_id, None)

    ident = link.send(b"t", by_way(None, "v"), False, 0, state)
    user.client.flush()
    bench.pass_s(1)

    assert condition_of(user.client.outcomes(link)[ident]) == NOT_ALLOWED


def test_what_stays_where_the_way_begins_goes_to_its_fragment(
    bench: Bench, user: Transacting
) -> None:
    """Also before there is a link of another entity: clients attach when they first send."""
    transaction_id = user.declare()

    states = enlist(user, transaction_id, "many", by_way(None, "v"), by_way("v", None))
    states += enlist(user, transaction_id, "far", by_way(None, "v"))

    assert all(is_enlisted(state, transaction_id) for state in states)
    assert condition_of(*enlist(user, transaction_id, "many", by_way(None, "w"))) == NOT_ALLOWED


@pytest.mark.parametrize("bench", [EXTENDED], indirect=True)
def test_extended_transactions_pass_over_the_key_of_the_way(
    bench: Bench, user: Transacting
) -> None:
    share_session(user, "many", "far")
    transaction_id = user.declare()

    payloads = [by_way(None, "a"), by_way(None, "b"), by_way("k", "c"), by_way(None, None)]
    states = enlist(user, transaction_id, "far", *payloads)

    assert all(is_enlisted(state, transaction_id) for state in states)
    assert user.commit(transaction_id) == ACCEPTED


# The order of links.


def receiver_of(bench: Bench, user: Transacting, entity: str) -> Link:
    link = user.client.receiver(entity, 1, name=f"receiver of {entity}")
    bench.pass_s()
    return link


def test_a_receiver_of_another_entity_is_refused_after_a_sender(
    bench: Bench, user: Transacting
) -> None:
    """The client gives its session up then, and goes on with another."""
    user.sender("q")
    refused = receiver_of(bench, user, "far")

    error = user.client.detach_error(refused)

    assert error.condition == NOT_ALLOWED
    assert "'far'" in error.description and "'q'" in error.description
    session = user.client.connection.begin_session()
    link = user.client.receiver("far", 1, name="again", session=session)
    bench.pass_s()
    assert user.client.is_opened(link)


def test_senders_and_receivers_of_the_way_itself_are_taken(bench: Bench, user: Transacting) -> None:
    bench.create_topic("t")
    subscription = bench.subscribe("t", "s")
    for entity in ("t", "far", "q"):
        user.sender(entity)

    assert user.client.is_opened(receiver_of(bench, user, subscription))
    assert user.client.is_opened(receiver_of(bench, user, f"{subscription}/$DeadLetterQueue"))
    assert all(user.client.is_opened(user.sender(entity)) for entity in ("t", "far", "q"))


def test_receivers_come_before_senders_and_the_first_of_all_is_remembered(
    bench: Bench, user: Transacting
) -> None:
    """Also when its link is gone meanwhile."""
    first, second = receiver_of(bench, user, "q"), receiver_of(bench, user, "many")
    assert user.client.is_opened(first) and user.client.is_opened(second)
    user.sender("far")
    first.detach()
    user.client.flush()
    bench.pass_s()

    again = user.client.receiver("q", 1, name="again")
    bench.pass_s()
    assert user.client.is_opened(again)
    refused = receiver_of(bench, user, "far")
    assert user.client.detach_error(refused).condition == NOT_ALLOWED


def test_a_refused_link_is_nobodys_way(bench: Bench, user: Transacting) -> None:
    for entity in ("nowhere", "q"):
        user.sender(entity)

    assert user.client.is_opened(receiver_of(bench, user, "q"))


def test_a_session_without_transactions_takes_links_in_any_order(bench: Bench) -> None:
    client = bench.client()
    client.sender("q", "to q")
    bench.pass_s()

    link = client.receiver("many", 1)
    bench.pass_s()

    assert client.is_opened(link)


@pytest.mark.parametrize("bench", [EXTENDED], indirect=True)
def test_extended_transactions_take_links_in_any_order(bench: Bench, user: Transacting) -> None:
    user.sender("q")

    assert user.client.is_opened(receiver_of(bench, user, "many"))


def test_a_session_receiver_of_another_entity_is_refused_too(
    bench: Bench, user: Transacting
) -> None:
    bench.create_sessions("talk")
    user.sender("q")

    link = user.client.session_receiver("talk", "s", 1)
    bench.pass_s(1)

    assert user.client.detach_error(link).condition == NOT_ALLOWED


def test_requests_are_no_receivers(bench: Bench, user: Transacting) -> None:
    """Clients ask on sessions of their own, but need not."""
    user.sender("q")
    desk = Desk(bench, user.client, "far")

    answer = desk.ask("peek-message", {"from-sequence-number": 1, "message-count": 1})

    assert status_of(answer) == Int(204)
