"""The $management node: renewing, peeking, settling, and requests that make no sense."""

import pytest

from shardbus.amqp.events import IncomingDelivery
from shardbus.amqp.outcomes import Rejected
from shardbus.codec.codes import TIMESTAMP, UUID
from shardbus.codec.types import Array, Int, Symbol, Timestamp, Ulong, Uuid, Value
from shardbus.codec.value import encode
from shardbus.gateway.amqp.management.responses import PENDING_BYTES_MAX
from shardbus.message.sections import decode_message
from tests.support.messages import Seen, annotations_of, seen
from tests.unit.gateway.amqp.bench import Bench
from tests.unit.gateway.amqp.desk import Desk, condition_of, locked, status_of, tokens_of

LOCK_LOST = Symbol("com.microsoft:message-lock-lost")


@pytest.fixture
def desk(bench: Bench) -> Desk:
    return Desk(bench, bench.client(), "q")


def test_statuses_are_in_camel_case_with_an_int_and_a_symbol(desk: Desk) -> None:
    good = desk.ask("peek-message", {"from-sequence-number": 1, "message-count": Int(1)})
    bad = desk.ask("what", {})

    assert set(good.application_properties) == {"statusCode", "statusDescription"}
    assert isinstance(status_of(good), Int)
    assert set(bad.application_properties) == {
        "statusCode",
        "statusDescription",
        "errorCondition",
    }
    assert isinstance(status_of(bad), Int)
    assert isinstance(condition_of(bad), Symbol)


def test_an_unknown_operation_is_not_implemented(desk: Desk) -> None:
    answer = desk.ask("add-rule", {})

    assert status_of(answer) == Int(501)
    assert condition_of(answer) == Symbol("amqp:not-implemented")


@pytest.mark.parametrize("name", ["q", "many"])
def test_renewing_gives_an_array_of_new_deadlines_in_the_order_of_the_tokens(
    bench: Bench, name: str
) -> None:
    client = bench.client()
    desk = Desk(bench, client, name)
    deliveries = locked(bench, client, name, 20)
    bench.pass_s(40)

    asked_at_ms = bench.clock.now_ms()
    answer = desk.ask("renew-lock", {"lock-tokens": tokens_of(deliveries)})

    assert status_of(answer) == Int(200)
    assert isinstance(answer.body, dict)
    expirations = answer.body["expirations"]
    assert isinstance(expirations, Array)
    assert expirations.code == TIMESTAMP
    assert len(expirations.values) == 20
    for deadline in expirations.values:
        assert isinstance(deadline, Timestamp)
        assert 60_000 <= deadline.value - asked_at_ms < 60_100
    bench.pass_s(40)
    assert bench.left(name) == []
    bench.pass_s(20)
    assert len(bench.left(name)) == 20


def test_renewing_is_all_or_nothing_when_a_lock_is_lost(bench: Bench, desk: Desk) -> None:
    deliveries = locked(bench, desk.client, "q", 2)
    lost = IncomingDelivery(9, deliveries[0].tag[:-1] + b"?", b"", False, 0, None)
    bench.pass_s(40)

    answer = desk.ask("renew-lock", {"lock-tokens": tokens_of([*deliveries, lost])})

    assert status_of(answer) == Int(410)
    assert condition_of(answer) == LOCK_LOST
    bench.pass_s(25)
    assert bench.left("q") == [b"0", b"1"]


def test_renewing_after_the_deadline_is_too_late(bench: Bench, desk: Desk) -> None:
    deliveries = locked(bench, desk.client, "q", 1)
    bench.pass_s(61)

    answer = desk.ask("renew-lock", {"lock-tokens": tokens_of(deliveries)})

    assert status_of(answer) == Int(410)


def walk(desk: Desk, count: int) -> list[list[Seen]]:
    """Every page from the start, as a client walks it."""
    pages: list[list[Seen]] = []
    start = 1
    while page := desk.peek(start, count):
        pages.append(page)
        start = page[-1].sequence_number + 1
        assert len(pages) < 100
    return pages


def bodies_of(page: list[Seen]) -> list[bytes]:
    return [message.body for message in page]


def test_a_peek_merges_sixteen_fragments_by_enqueue_time_page_after_page(bench: Bench) -> None:
    """R20, R21."""
    contents = [b"%d" % number for number in range(40)]
    bench.fill("many", *contents)
    desk = Desk(bench, bench.client(), "many")

    pages = walk(desk, 7)

    assert [body for page in pages for body in bodies_of(page)] == contents
    assert [len(page) for page in pages] == [7, 7, 7, 7, 7, 5]
    assert len({message.fragment for page in pages for message in page}) == 16


def test_two_links_that_peek_do_not_disturb_each_other(bench: Bench) -> None:
    """R21."""
    bench.fill("many", *(b"%d" % number for number in range(40)))
    one, other = (Desk(bench, bench.client(), "many") for _ in range(2))

    first = one.peek(1, 5)
    other.peek(1, 11)
    second = one.peek(first[-1].sequence_number + 1, 5)

    assert bodies_of(second) == [b"5", b"6", b"7", b"8", b"9"]


def test_a_peek_from_anywhere_else_walks_the_fragments_on_from_there(bench: Bench) -> None:
    """R21."""
    bench.fill("many", *(b"%d" % number for number in range(40)))
    numbers = [m.sequence_number for m in walk(Desk(bench, bench.client(), "many"), 40)[0]]
    start = sorted(numbers)[5]
    desk = Desk(bench, bench.client(), "many")

    page = desk.peek(start, 100)

    assert [message.sequence_number for message in page] == sorted(numbers)[5:]


def test_a_page_ends_at_256_kilobytes_and_the_next_goes_on(bench: Bench) -> None:
    """R21."""
    bench.fill("many", *(b"%d" % number + b"." * 100_000 for number in range(7)))

    pages = walk(Desk(bench, bench.client(), "many"), 250)

    assert [len(page) for page in pages] == [2, 2, 2, 1]
    assert [body[:1] for page in pages for body in bodies_of(page)] == [
        b"%d" % number for number in range(7)
    ]


def test_a_peek_of_nothing_has_no_content(desk: Desk) -> None:
    assert desk.peek(1, 10) == []


def test_a_peek_shows_locked_messages_and_locks_nothing(bench: Bench, desk: Desk) -> None:
    locked(bench, desk.client, "q", 1)
    bench.fill("q", b"free")

    answer = desk.ask("peek-message", {"from-sequence-number": 1, "message-count": 10})

    assert isinstance(answer.body, dict)
    payloads = [item["message"] for item in answer.body["messages"]]
    assert [seen(payload).body for payload in payloads] == [b"0", b"free"]
    for payload in payloads:
        assert "x-opt-locked-until" not in annotations_of(payload, decode_message(payload).head)
    assert bench.left("q") == [b"free"]


@pytest.mark.parametrize("name", ["q", "many"])
def test_a_peek_shows_the_failed_deliveries_of_a_locked_message(bench: Bench, name: str) -> None:
    """The one under way is none of them."""
    client = bench.client()
    desk = Desk(bench, client, name)
    deliveries = locked(bench, client, name, 1)
    counts = [desk.peek(1, 1)[0].delivery_count]
    for again in ("second", "third"):
        desk.ask(
            "update-disposition",
            {"disposition-status": "abandoned", "lock-tokens": tokens_of(deliveries)},
        )
        link = client.receiver(name, 1, name=again)
        bench.pass_s(1)
        deliveries = client.received(link)
        counts.append(desk.peek(1, 1)[0].delivery_count)

    assert counts == [0, 1, 2]
    assert bench.left(name) == []


@pytest.mark.parametrize("name", ["q", "many"])
def test_completing_by_management_removes_the_messages(bench: Bench, name: str) -> None:
    client = bench.client()
    desk = Desk(bench, client, name)
    deliveries = locked(bench, client, name, 20)

    answer = desk.ask(
        "update-disposition",
        {"disposition-status": "completed", "lock-tokens": tokens_of(deliveries)},
    )

    assert status_of(answer) == Int(200)
    assert desk.peek(1, 100) == []


def test_abandoning_by_management_counts_a_delivery_and_changes_properties(
    bench: Bench, desk: Desk
) -> None:
    deliveries = locked(bench, desk.client, "q", 1)

    answer = desk.ask(
        "update-disposition",
        {
            "disposition-status": "abandoned",
            "lock-tokens": tokens_of(deliveries),
            "properties-to-modify": {"colour": "red"},
        },
    )
    again = desk.client.receiver("q", 1, name="again")
    bench.pass_s()

    assert status_of(answer) == Int(200)
    [message] = desk.client.answers(again)
    assert message.head.delivery_count == 1
    assert message.application_properties == {"colour": "red"}


def test_suspending_by_management_dead_letters_with_reason_and_description(
    bench: Bench, desk: Desk
) -> None:
    deliveries = locked(bench, desk.client, "q", 1)

    answer = desk.ask(
        "update-disposition",
        {
            "disposition-status": "suspended",
            "lock-tokens": tokens_of(deliveries),
            "deadletter-reason": "too old",
            "deadletter-description": "d" * 5000,
        },
    )
    dead = desk.client.receiver("q/$DeadLetterQueue", 1, name="dead")
    bench.pass_s()

    assert status_of(answer) == Int(200)
    [message] = desk.client.answers(dead)
    assert message.application_properties == {
        "DeadLetterReason": "too old",
        "DeadLetterErrorDescription": "d" * 4096,
    }


@pytest.mark.parametrize("value", [Timestamp(1_794_847_355_008), Int(7), 7, True, b"binary"])
@pytest.mark.parametrize(
    ("field", "name"),
    [
        ("deadletter-reason", "DeadLetterReason"),
        ("deadletter-description", "DeadLetterErrorDescription"),
    ],
)
def test_a_reason_given_by_management_keeps_its_type(
    bench: Bench, desk: Desk, field: str, name: str, value: Value
) -> None:
    """In its own field, and among the properties to modify."""
    of_a_field, of_a_property = locked(bench, desk.client, "q", 2)
    asked: list[tuple[IncomingDelivery, dict[str, Value]]] = [
        (of_a_field, {field: value}),
        (of_a_property, {"properties-to-modify": {name: value}}),
    ]

    answers = [
        desk.ask(
            "update-disposition",
            {"disposition-status": "suspended", "lock-tokens": tokens_of([delivery]), **given},
        )
        for delivery, given in asked
    ]
    dead = desk.client.receiver("q/$DeadLetterQueue", 2, name="dead")
    bench.pass_s()

    assert [status_of(answer) for answer in answers] == [Int(200)] * 2
    messages = desk.client.answers(dead)
    assert [message.application_properties for message in messages] == [{name: value}] * 2
    assert {type(message.application_properties[name]) for message in messages} == {type(value)}


def test_a_reason_among_the_properties_of_a_request_is_bounded_and_its_field_goes_first(
    bench: Bench, desk: Desk
) -> None:
    deliveries = locked(bench, desk.client, "q", 1)

    desk.ask(
        "update-disposition",
        {
            "disposition-status": "suspended",
            "lock-tokens": tokens_of(deliveries),
            "deadletter-reason": "of the field",
            "properties-to-modify": {
                "DeadLetterReason": "of the property",
                "DeadLetterErrorDescription": "d" * 5000,
            },
        },
    )
    dead = desk.client.receiver("q/$DeadLetterQueue", 1, name="dead")
    bench.pass_s()

    [message] = desk.client.answers(dead)
    assert message.application_properties == {
        "DeadLetterReason": "of the field",
        "DeadLetterErrorDescription": "d" * 4096,
    }


def test_a_dead_letter_cannot_be_suspended_again(bench: Bench, desk: Desk) -> None:
    deliveries = locked(bench, desk.client, "q", 1)
    suspended = {"disposition-status": "suspended", "lock-tokens": tokens_of(deliveries)}
    desk.ask("update-disposition", suspended)
    dead = desk.client.receiver("q/$DeadLetterQueue", 1, name="dead")
    bench.pass_s()

    again = {
        "disposition-status": "suspended",
        "lock-tokens": tokens_of(desk.client.received(dead)),
    }
    answer = Desk(bench, desk.client, "q/$DeadLetterQueue").ask("update-disposition", again)

    assert status_of(answer) == Int(400)
    assert condition_of(answer) == Symbol("amqp:not-allowed")
    desk.client.grant(dead, 1)
    bench.pass_s(70)
    first, later = desk.client.answers(dead)
    assert (later.body, later.head.delivery_count) == (first.body, first.head.delivery_count)


@pytest.mark.parametrize("status", ["completed", "abandoned", "suspended", "defered"])
def test_settling_by_management_after_the_lock_is_lost_is_gone(
    bench: Bench, desk: Desk, status: str
) -> None:
    deliveries = locked(bench, desk.client, "q", 1)
    bench.pass_s(61)

    answer = desk.ask(
        "update-disposition", {"disposition-status": status, "lock-tokens": tokens_of(deliveries)}
    )

    assert status_of(answer) == Int(410)
    assert condition_of(answer) == LOCK_LOST
    assert bench.left("q") == [b"0"]


def test_a_token_of_another_queue_or_fragment_is_a_lost_lock(bench: Bench, desk: Desk) -> None:
    elsewhere = locked(bench, desk.client, "many", 3)
    unknown = Array(UUID, [Uuid(b"\xff" * 16)])

    answers = [
        desk.ask("renew-lock", {"lock-tokens": tokens})
        for tokens in (tokens_of(elsewhere), unknown)
    ]

    assert [status_of(answer) for answer in answers] == [Int(410)] * 2


def _without(key: str) -> dict[str, Value]:
    whole: dict[str, Value] = {"from-sequence-number": 1, "message-count": 1}
    del whole[key]
    return whole


UNUSABLE: list[tuple[str, Value]] = [
    ("peek-message", _without("message-count")),
    ("peek-message", _without("from-sequence-number")),
    ("peek-message", {"from-sequence-number": "1", "message-count": 1}),
    ("peek-message", {"from-sequence-number": 1, "message-count": 0}),
    ("peek-message", {"from-sequence-number": 1, "message-count": True}),
    ("peek-message", None),
    ("peek-message", "text"),
    ("peek-message", b"data"),
    ("renew-lock", {}),
    ("renew-lock", {"lock-tokens": []}),
    ("renew-lock", {"lock-tokens": [Uuid(bytes(16))] * 5001}),
    ("renew-lock", {"lock-tokens": ["not a token"]}),
    ("renew-lock", {"lock-tokens": Array(TIMESTAMP, [Timestamp(1)])}),
    ("renew-lock", {"lock-tokens": Uuid(bytes(16))}),
    ("update-disposition", {}),
    ("update-disposition", {"disposition-status": "completed"}),
    ("update-disposition", {"disposition-status": "eaten", "lock-tokens": [Uuid(bytes(16))]}),
    ("update-disposition", {"disposition-status": Int(1), "lock-tokens": [Uuid(bytes(16))]}),
    ("update-disposition", {"disposition-status": ["x"], "lock-tokens": [Uuid(bytes(16))]}),
    (
        "update-disposition",
        {
            "disposition-status": "abandoned",
            "lock-tokens": [Uuid(bytes(16))],
            "properties-to-modify": "red",
        },
    ),
]


@pytest.mark.parametrize(("operation", "body"), UNUSABLE)
def test_a_request_that_makes_no_sense_is_a_bad_request_and_nothing_more(
    desk: Desk, operation: str, body: Value
) -> None:
    answer = desk.ask_raw(body, {"operation": f"com.microsoft:{operation}"})

    assert status_of(answer) == Int(400)
    assert condition_of(answer) == Symbol("com.microsoft:argument-error")
    assert desk.peek(1, 1) == []


@pytest.mark.parametrize("start", [-5, 0, 2**48, 2**63 - 1, Ulong(2**64 - 1)])
def test_a_peek_may_start_at_any_number(bench: Bench, start: Value) -> None:
    bench.fill("many", b"one", b"two")
    desk = Desk(bench, bench.client(), "many")

    body = {"from-sequence-number": start, "message-count": 2**31}
    answer = desk.ask("peek-message", body)

    assert status_of(answer) in (Int(200), Int(204))


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"nonsense",
        b"\x00\x53\x74\x40",
        b"\x00\x53\x74" + encode({Int(1): "key is no text"}) + b"\x00\x53\x77" + encode({}),
        b"\x00\x53\x73" + encode("no list"),
        b"\x00\x53\x77\xa1\x05abc",
    ],
)
def test_what_is_no_message_is_rejected_and_the_next_request_answered(
    bench: Bench, desk: Desk, payload: bytes
) -> None:
    [ident] = desk.client.send_raw(desk.requests, payload)
    bench.pass_s()

    state = desk.client.outcomes(desk.requests)[ident]

    assert isinstance(state, Rejected)
    assert state.error is not None
    assert state.error.condition == "amqp:decode-error"
    assert desk.peek(1, 1) == []


def test_a_store_that_fails_makes_the_outcome_unknown_and_the_next_request_works(
    bench: Bench, desk: Desk
) -> None:
    deliveries = locked(bench, desk.client, "q", 1)
    tokens = tokens_of(deliveries)
    bench.disk.commit_failures.append("before")

    answer = desk.ask(
        "update-disposition", {"disposition-status": "completed", "lock-tokens": tokens}
    )
    bench.pass_s(10)

    assert status_of(answer) == Int(408)
    assert condition_of(answer) == Symbol("com.microsoft:timeout")
    assert bodies_of(desk.peek(1, 1)) == [b"0"]


def test_answers_that_nobody_takes_cost_bounded_memory(bench: Bench) -> None:
    bench.fill("q", *[b"x" * 120_000] * 2)
    client = bench.client()
    requests = client.sender("q/$management", "requests")
    links = [client.receiver("q/$management", name=name, target=name) for name in ("a", "b")]
    bench.pass_s()
    body = {"from-sequence-number": 1, "message-count": 10}

    for number in range(60):
        properties = {"operation": "com.microsoft:peek-message"}
        client.ask(requests, body, properties, reply_to="ab"[number % 2])
        bench.pass_s(0.02)
    for link in links:
        client.grant(link, 100)
    bench.pass_s()

    sizes = [len(delivery.payload) for link in links for delivery in client.received(link)]
    assert 6_000_000 < sum(sizes) <= PENDING_BYTES_MAX
    assert all(client.received(link) for link in links)


PEEK: dict[str, Value] = {"operation": "com.microsoft:peek-message"}
FROM_THE_START: dict[str, Value] = {"from-sequence-number": 1, "message-count": 1}


def asked(bench: Bench, desk: Desk, count: int) -> int:
    """Ask as long as there is credit; how many of so many requests were sent."""
    for number in range(count):
        if desk.requests.sendable == 0:
            return number
        desk.client.ask(desk.requests, FROM_THE_START, PEEK)
        bench.pass_s(0.001)
    return count


def test_credit_lets_in_no_more_requests_than_are_answered_at_a_time(
    bench: Bench, desk: Desk
) -> None:
    """A client that renews hundreds of locks over one link waits for credit, and loses nothing."""
    bench.latency_s = 10
    first = asked(bench, desk, 500)
    # Those that take a minute are answered, too, and the fragment works off what it was asked.
    bench.latency_s = 0.001
    bench.pass_s(2000)
    slow = len(desk.client.answers(desk.responses))

    rest: list[int] = []
    for _ in range(4):
        rest.append(asked(bench, desk, 100))
        bench.pass_s(5)

    assert (first, slow, rest) == (100, 100, [100] * 4)
    answers = desk.client.answers(desk.responses)[slow:]
    assert [status_of(answer) for answer in answers] == [Int(204)] * 400
    assert not desk.client.is_closed()


def test_requests_beyond_all_measure_are_told_to_wait(bench: Bench, desk: Desk) -> None:
    """Over several links: a connection that ended would take locks and sessions with it."""
    bench.create("other")
    bench.create("third")
    desks = [desk, *(Desk(bench, desk.client, name) for name in ("other", "third"))]
    bench.latency_s = 10

    assert [asked(bench, each, 200) for each in desks[:2]] == [100, 100]
    assert asked(bench, desks[2], 60) == 60
    bench.pass_s(0.1)
    busy = desk.client.answers(desks[2].responses)
    bench.pass_s(70)

    assert [status_of(answer) for answer in busy] == [Int(503)] * 60
    assert condition_of(busy[0]) == Symbol("com.microsoft:server-busy")
    assert [len(desk.client.answers(each.responses)) for each in desks] == [100, 100, 60]
    assert not desk.client.is_closed()
