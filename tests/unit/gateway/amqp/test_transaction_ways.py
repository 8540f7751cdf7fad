"""Transactions by other ways: sends by way of another entity, and requests to $management."""

import pytest

from shardbus.amqp.outcomes import ACCEPTED, TransactionalState
from shardbus.broker.access.sas import mint_token
from shardbus.codec import codes
from shardbus.codec.types import Array, Symbol, Uuid, integer_of
from shardbus.core.namespace.access import LISTEN, SEND, AccessRule
from shardbus.gateway.amqp.management.fields import guid_swapped
from shardbus.message.sections import build_message, decode_message
from tests.unit.gateway.amqp.bench import Bench
from tests.unit.gateway.amqp.client import anonymous
from tests.unit.gateway.amqp.transacting import Transacting, condition_of, is_enlisted

NOT_ALLOWED = "amqp:not-allowed"
ROLLBACK = "amqp:transaction:rollback"


@pytest.fixture
def user(bench: Bench) -> Transacting:
    return Transacting(bench)


# By way of another entity.


def test_a_message_is_sent_by_way_of_another_entity(bench: Bench, user: Transacting) -> None:
    bench.create("destination")
    user.sender_via("q", "destination")
    transaction_id = user.declare()

    state = user.send(transaction_id, "destination", b"x")

    assert is_enlisted(state, transaction_id)
    assert user.commit(transaction_id) == ACCEPTED
    assert (bench.left("destination"), bench.left("q")) == ([b"x"], [])


def test_the_way_and_the_destination_must_exist(bench: Bench, user: Transacting) -> None:
    link = user.sender_via("q", "nowhere")

    assert user.client.detach_error(link).condition == "amqp:not-found"


@pytest.mark.parametrize("change", ["SendDisabled", "deleted"])
def test_nothing_goes_by_way_of_an_entity_that_was_closed_meanwhile(
    bench: Bench, user: Transacting, change: str
) -> None:
    bench.create("way")
    bench.create("destination")
    link = user.sender_via("way", "destination")
    transaction_id = user.declare()
    user.send(transaction_id, "destination", b"never")
    if change == "deleted":
        bench.run(bench.namespace.delete("way"))
    else:
        bench.set_status("way", change)
    bench.pass_s()

    state = user.commit(transaction_id)

    told = "amqp:not-found" if change == "deleted" else "com.microsoft:entity-disabled"
    assert user.client.detach_error(link).condition == told
    assert condition_of(state) == ROLLBACK
    assert bench.left("destination") == []


def test_the_right_to_send_is_needed_for_both(bench: Bench) -> None:
    bench.create("destination")
    spec = bench.namespace.get("q").spec.copy()
    spec.access_rules = [AccessRule("half", SEND | LISTEN, "key")]
    bench.run(bench.namespace.update_queue("q", spec))
    client = bench.client(anonymous())
    asking, answering = client.sender("$cbs", "ask"), client.receiver("$cbs", 10, name="answer")
    bench.pass_s()
    resource = "sb://shardbus/q"
    token = mint_token(resource, "half", "key", bench.clock.now_ms() // 1000 + 3600)
    properties = {
        "operation": "put-token",
        "type": "servicebus.windows.net:sastoken",
        "name": resource,
    }
    client.ask(asking, token, properties, reply_to=answering.name)
    bench.pass_s()

    link = client.session.attach_sender(
        "via",
        target="q",
        snd_settle_mode=0,
        properties={"com.microsoft:transfer-destination-address": "destination"},
    )
    client.flush()
    bench.pass_s()

    assert client.detach_error(link).condition == "amqp:unauthorized-access"


# Through $management.


def asked(
    bench: Bench,
    user: Transacting,
    entity: str,
    transaction_id: bytes,
    request: tuple[str, dict[str, object]],
) -> tuple[int | None, object]:
    """The status and condition of a management request in a transaction."""
    operation, body = request
    node = f"{entity}/$management"
    name = f"answers-{entity}-{operation}"
    answers = user.client.receiver(node, 10, name=name, modes=(1, 0), target=name)
    sender = user.client.sender(node, f"asking-{entity}-{operation}")
    bench.pass_s()
    payload = build_message(
        body=body,
        application_properties={"operation": f"com.microsoft:{operation}"},
        message_id="1",
        reply_to=name,
    )
    ident = sender.send(b"1", payload, False, 0, TransactionalState(transaction_id, None))
    user.client.flush()
    bench.pass_s(1)
    assert is_enlisted(user.client.outcomes(sender)[ident], transaction_id)
    [delivery] = user.client.received(answers)
    properties = decode_message(delivery.payload).application_properties
    return integer_of(properties["statusCode"]), properties.get("errorCondition")


def test_a_settlement_through_management_is_enlisted(bench: Bench, user: Transacting) -> None:
    bench.fill("q", b"x")
    transaction_id = user.declare()
    _, [delivery] = user.receive("q")
    tokens = Array(codes.UUID, [Uuid(guid_swapped(delivery.tag))])
    body: dict[str, object] = {"disposition-status": "completed", "lock-tokens": tokens}

    status, _ = asked(bench, user, "q", transaction_id, ("update-disposition", body))

    assert status == 200
    assert user.commit(transaction_id) == ACCEPTED
    bench.pass_s(61)
    assert bench.left("q") == []


@pytest.mark.parametrize("is_partitioned", [False, True])
def test_rules_are_not_changed_in_a_transaction(
    bench: Bench, user: Transacting, is_partitioned: bool
) -> None:
    """R30."""
    bench.create_topic("t", is_partitioned=is_partitioned)
    subscription = bench.subscribe("t", "s")
    transaction_id = user.declare()

    answer = asked(
        bench, user, subscription, transaction_id, ("remove-rule", {"rule-name": "$Default"})
    )

    assert answer == (400, Symbol(NOT_ALLOWED))
    assert condition_of(user.commit(transaction_id)) == ROLLBACK
