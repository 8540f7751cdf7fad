"""What clients say of messages they received, and what they are told in return."""

import pytest

from shardbus.amqp.link import Link
from shardbus.amqp.outcomes import (
    ACCEPTED,
    RELEASED,
    AmqpError,
    DeliveryState,
    Modified,
    Rejected,
    TransactionalState,
)
from shardbus.codec.codes import LONG
from shardbus.codec.types import Array, Described, Int, Symbol, Timestamp, Uint, Ulong, Value
from shardbus.message.sections import decode_message
from tests.support.messages import seen
from tests.unit.gateway.amqp.bench import Bench
from tests.unit.gateway.amqp.client import Client
from tests.unit.gateway.amqp.desk import Desk

TEN = [b"%d" % number for number in range(10)]


class Reader:
    """A client with a number of messages locked for it."""

    def __init__(self, bench: Bench, name: str = "q", count: int = 1) -> None:
        bench.fill(name, *TEN[:count])
        self.client: Client = bench.client()
        self.link: Link = self.client.receiver(name, count)
        bench.pass_s()
        self.ids = [delivery.delivery_id for delivery in self.client.received(self.link)]
        assert len(self.ids) == count

    def settle(self, state: DeliveryState, *, is_settled: bool = False) -> None:
        self.client.settle(self.link, self.ids, state, is_settled=is_settled)

    def told(self) -> list[DeliveryState | None]:
        outcomes = self.client.outcomes(self.link)
        return [outcomes[ident] for ident in self.ids]


def condition_of(state: DeliveryState | None) -> str:
    assert isinstance(state, Rejected)
    assert state.error is not None
    return state.error.condition


def dead_letters(bench: Bench) -> list[dict[str, Value]]:
    client = bench.client()
    link = client.receiver("q/$DeadLetterQueue", 100)
    bench.pass_s()
    return [message.application_properties for message in client.answers(link)]


@pytest.mark.parametrize(
    "state",
    [
        ACCEPTED,
        RELEASED,
        Modified(),
        Modified(delivery_failed=True),
        Rejected(),
    ],
)
def test_an_outcome_is_confirmed_with_the_same_outcome(bench: Bench, state: DeliveryState) -> None:
    reader = Reader(bench)
    reader.settle(state)
    bench.pass_s()

    assert reader.told() == [state]
    [disposition] = reader.client.frames("disposition")
    assert disposition.field(0) is False
    assert disposition.field(3) is True


def test_a_dead_lettering_is_confirmed_without_an_error(bench: Bench) -> None:
    reader = Reader(bench)
    info: dict[Value, Value] = {Symbol("DeadLetterReason"): "why", "colour": "red"}
    reader.settle(Rejected(AmqpError("com.microsoft:dead-letter", "how", info)))
    bench.pass_s()

    assert reader.told() == [Rejected(None)]
    assert dead_letters(bench) == [
        {"DeadLetterReason": "why", "DeadLetterErrorDescription": "how", "colour": "red"}
    ]


def test_the_texts_of_a_dead_lettering_are_bounded(bench: Bench) -> None:
    reader = Reader(bench)
    info: dict[Value, Value] = {"DeadLetterReason": "r" * 5000}
    reader.settle(Rejected(AmqpError("com.microsoft:dead-letter", "d" * 5000, info)))
    bench.pass_s()

    assert dead_letters(bench) == [
        {"DeadLetterReason": "r" * 4096, "DeadLetterErrorDescription": "d" * 4096}
    ]


def test_accepting_removes_a_message_for_good(bench: Bench) -> None:
    Reader(bench).settle(ACCEPTED)
    bench.pass_s(100)

    assert bench.left("q") == []


def delivery_counts(bench: Bench) -> list[int]:
    client = bench.client()
    link = client.receiver("q", 100)
    bench.pass_s()
    return [message.head.delivery_count for message in client.answers(link)]


def test_releasing_returns_a_message_uncounted_and_abandoning_counts(bench: Bench) -> None:
    reader = Reader(bench, count=2)
    reader.client.settle(reader.link, reader.ids[:1], RELEASED)
    reader.client.settle(reader.link, reader.ids[1:], Modified(delivery_failed=True))
    bench.pass_s()

    assert delivery_counts(bench) == [0, 1]


def test_the_tenth_failed_delivery_is_the_last(bench: Bench) -> None:
    reader = Reader(bench)
    for attempt in range(10):
        if attempt:
            reader.client.grant(reader.link, 1)
            bench.pass_s()
        last = reader.client.received(reader.link)[-1]
        reader.client.settle(reader.link, [last.delivery_id], Modified(delivery_failed=True))
        bench.pass_s()

    [properties] = dead_letters(bench)
    assert properties["DeadLetterReason"] == "MaxDeliveryCountExceeded"
    assert bench.left("q") == []


@pytest.mark.parametrize("name", ["q", "many"])
def test_one_disposition_settles_a_range_and_is_answered_for_each(bench: Bench, name: str) -> None:
    reader = Reader(bench, name, 10)
    reader.settle(ACCEPTED)
    bench.pass_s()

    assert reader.told() == [ACCEPTED] * 10
    assert bench.left(name) == []


def test_the_answer_to_a_range_is_a_range(bench: Bench) -> None:
    reader = Reader(bench, "q", 10)
    reader.settle(ACCEPTED)
    bench.pass_s()

    [disposition] = reader.client.frames("disposition")
    assert [disposition.field(index) for index in (1, 2)] == [reader.ids[0], reader.ids[-1]]


def test_a_settlement_is_confirmed_only_after_it_is_stored(bench: Bench) -> None:
    reader = Reader(bench)
    bench.latency_s = 5
    reader.settle(ACCEPTED)
    bench.pass_s(9)
    before = reader.client.frames("disposition")
    bench.pass_s(3)

    assert before == []
    assert reader.told() == [ACCEPTED]


@pytest.mark.parametrize(
    "state", [ACCEPTED, RELEASED, Modified(), Modified(undeliverable_here=True), Rejected()]
)
def test_a_lost_lock_is_rejected_in_the_words_that_sdks_match(
    bench: Bench, state: DeliveryState
) -> None:
    reader = Reader(bench)
    bench.pass_s(61)
    reader.settle(state)
    bench.pass_s()

    [told] = reader.told()
    assert condition_of(told) == "com.microsoft:message-lock-lost"
    assert isinstance(told, Rejected)
    assert told.error is not None
    assert told.error.description.startswith(
        "The lock supplied is invalid. Either the lock expired"
    )


def test_in_a_range_lost_locks_are_rejected_and_the_others_confirmed(bench: Bench) -> None:
    reader = Reader(bench, "q", 3)
    bench.pass_s(55)
    bench.fill("q", b"late")
    reader.client.grant(reader.link, 1)
    bench.pass_s(10)
    late = reader.client.received(reader.link)[-1].delivery_id

    reader.client.settle(reader.link, [*reader.ids, late], ACCEPTED)
    bench.pass_s()

    outcomes = reader.client.outcomes(reader.link)
    assert outcomes[late] == ACCEPTED
    assert [condition_of(outcomes[ident]) for ident in reader.ids] == [
        "com.microsoft:message-lock-lost"
    ] * 3


def test_a_settled_disposition_takes_effect_and_is_not_answered(bench: Bench) -> None:
    reader = Reader(bench)
    reader.settle(ACCEPTED, is_settled=True)
    bench.pass_s(100)

    assert reader.client.frames("disposition") == []
    assert bench.left("q") == []


def test_a_transaction_that_nobody_declared_settles_nothing(bench: Bench) -> None:
    reader = Reader(bench)
    reader.settle(TransactionalState(b"t", ACCEPTED))
    bench.pass_s()

    assert [condition_of(told) for told in reader.told()] == ["amqp:transaction:unknown-id"]
    assert bench.left("q") == []
    bench.pass_s(61)
    assert bench.left("q") == [b"0"]


@pytest.mark.parametrize("kind", ["abandon", "dead-letter"])
def test_properties_that_are_too_large_are_refused(bench: Bench, kind: str) -> None:
    reader = Reader(bench)
    large: dict[Value, Value] = {"note": "x" * 65_537}
    if kind == "abandon":
        reader.settle(Modified(message_annotations=large))
    else:
        reader.settle(Rejected(AmqpError("com.microsoft:dead-letter", "", large)))
    bench.pass_s()

    assert [condition_of(told) for told in reader.told()] == ["com.microsoft:argument-error"]


def test_an_outcome_that_nobody_knows_is_refused(bench: Bench) -> None:
    reader = Reader(bench)
    reader.settle(Described(Ulong(0x99), []))
    bench.pass_s()

    assert [condition_of(told) for told in reader.told()] == ["amqp:not-implemented"]


def test_a_failing_store_rejects_a_settlement_and_the_link_lives(bench: Bench) -> None:
    reader = Reader(bench)
    bench.disk.commit_failures.append("before")
    reader.settle(ACCEPTED)
    bench.pass_s(10)

    # It may be settled: nobody may be told that it is not.
    assert [condition_of(told) for told in reader.told()] == ["com.microsoft:timeout"]
    assert reader.link.is_attached
    reader.client.grant(reader.link, 1)
    bench.pass_s()
    assert reader.client.bodies(reader.link) == [b"0", b"0"]


def test_a_dead_letter_cannot_be_dead_lettered_again(bench: Bench) -> None:
    Reader(bench).settle(Rejected())
    bench.pass_s()
    client = bench.client()
    link = client.receiver("q/$DeadLetterQueue", 1)
    bench.pass_s()
    [delivery] = client.received(link)

    client.settle(link, [delivery.delivery_id], Rejected())
    bench.pass_s()

    assert condition_of(client.outcomes(link)[delivery.delivery_id]) == "amqp:not-allowed"
    assert link.is_attached
    client.grant(link, 1)
    bench.pass_s(70)
    first, again = client.answers(link)
    assert again.body == first.body
    assert again.head.delivery_count == first.head.delivery_count == 0
    client.settle(link, [client.received(link)[1].delivery_id], ACCEPTED)
    bench.pass_s(70)
    assert dead_letters(bench) == []


@pytest.mark.parametrize("way", ["abandoned", "left alone", "deferred"])
def test_deliveries_of_dead_letters_are_not_counted(bench: Bench, way: str) -> None:
    reader = Reader(bench)
    reader.settle(Modified(delivery_failed=True))
    reader.client.grant(reader.link, 1)
    bench.pass_s()
    reader.ids = [reader.client.received(reader.link)[-1].delivery_id]
    reader.settle(Rejected())
    client = bench.client()
    link = client.receiver("q/$DeadLetterQueue", 12)
    bench.pass_s()

    for _ in range(11):
        last = client.received(link)[-1]
        if way == "abandoned":
            client.settle(link, [last.delivery_id], Modified(delivery_failed=True))
        elif way == "deferred":
            client.settle(link, [last.delivery_id], Modified(undeliverable_here=True))
        bench.pass_s(70)

    counts = [message.head.delivery_count for message in client.answers(link)]
    assert counts == ([1] if way == "deferred" else [1] * 12)
    desk = Desk(bench, client, "q/$DeadLetterQueue")
    assert [each.delivery_count for each in desk.peek(1, 10)] == [1]


@pytest.mark.parametrize("name", ["DeadLetterReason", "DeadLetterErrorDescription", "colour"])
@pytest.mark.parametrize("value", [Timestamp(1794847355008), Int(7), b"binary", True])
def test_values_given_with_a_dead_letter_keep_their_type(
    bench: Bench, name: str, value: Value
) -> None:
    reader = Reader(bench)
    reader.settle(Rejected(AmqpError("com.microsoft:dead-letter", "", {Symbol(name): value})))
    bench.pass_s()

    assert reader.told() == [Rejected(None)]
    assert dead_letters(bench) == [{name: value}]


@pytest.mark.parametrize("is_deferring", [False, True])
def test_values_given_with_an_abandon_or_deferral_keep_their_type(
    bench: Bench, is_deferring: bool
) -> None:
    given: dict[Value, Value] = {Symbol("at"): Timestamp(5), Symbol("DeadLetterReason"): Int(1)}
    reader = Reader(bench)
    [delivery] = reader.client.received(reader.link)
    reader.settle(Modified(undeliverable_here=is_deferring, message_annotations=given))
    bench.pass_s()

    if is_deferring:
        answer = Desk(bench, reader.client, "q").ask(
            "receive-by-sequence-number",
            {
                "sequence-numbers": Array(LONG, [seen(delivery.payload).sequence_number]),
                "receiver-settle-mode": Uint(0),
            },
        )
        assert isinstance(answer.body, dict)
        [message] = [decode_message(item["message"]) for item in answer.body["messages"]]
    else:
        [message] = bench.messages_of("q")

    assert message.application_properties == {"at": Timestamp(5), "DeadLetterReason": Int(1)}


def test_a_link_closed_while_a_settlement_is_stored_hears_no_more_of_it(bench: Bench) -> None:
    reader = Reader(bench)
    bench.latency_s = 5
    reader.settle(ACCEPTED)
    bench.pass_s(1)
    reader.link.detach()
    reader.client.flush()
    bench.pass_s(30)
    bench.latency_s = 0.001

    assert reader.client.frames("disposition") == []
    assert bench.left("q") == []
    assert not reader.client.is_closed()
