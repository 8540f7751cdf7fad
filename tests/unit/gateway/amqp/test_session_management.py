"""The $management node and sessions: renewing, state, lists, and whose session it is."""

import pytest

from shardbus.amqp.link import Link
from shardbus.amqp.outcomes import Modified, Rejected
from shardbus.codec.codes import STRING32
from shardbus.codec.types import Array, Int, Symbol, Timestamp, Uint, Value, integer_of
from shardbus.core.message import NEVER_MS
from shardbus.message.sections import decode_message
from tests.support.messages import annotations_of, seen
from tests.unit.gateway.amqp.bench import Bench
from tests.unit.gateway.amqp.client import Client
from tests.unit.gateway.amqp.desk import Desk, condition_of, status_of, tokens_of

LOST = Symbol("com.microsoft:session-lock-lost")
# "last-updated-time 253402300800000 lists sessions having messages or state".
ALL = Timestamp(253_402_300_800_000)


class Holder:
    """A client that holds a session, and asks about it."""

    def __init__(self, bench: Bench, queue: str, session_id: str = "one", credit: int = 0) -> None:
        self.bench = bench
        self.client: Client = bench.client()
        self.link: Link = self.client.session_receiver(queue, session_id, credit, name="mine")
        bench.pass_s()
        assert self.client.is_opened(self.link)
        self.desk = Desk(bench, self.client, queue)

    def leave(self) -> None:
        self.link.detach()
        self.client.flush()
        self.bench.pass_s()


@pytest.fixture(params=["one fragment", "sixteen"])
def queue(bench: Bench, request: pytest.FixtureRequest) -> str:
    bench.create_sessions("sq", is_partitioned=request.param == "sixteen")
    return "sq"


@pytest.fixture
def sq(bench: Bench) -> str:
    bench.create_sessions("sq")
    return "sq"


@pytest.mark.parametrize("is_named", [True, False])
def test_renewing_a_session_moves_its_deadline(bench: Bench, queue: str, is_named: bool) -> None:
    """R26."""
    holder = Holder(bench, queue)
    bench.pass_s(40)
    asked_at_ms = bench.clock.now_ms()

    answer = holder.desk.ask(
        "renew-session-lock", {"session-id": "one"}, holder.link if is_named else None
    )
    bench.pass_s(40)

    assert status_of(answer) == Int(200)
    assert isinstance(answer.body, dict)
    expiration = answer.body["expiration"]
    assert isinstance(expiration, Timestamp)
    assert 60_000 <= expiration.value - asked_at_ms < 60_100
    assert holder.link.is_attached
    bench.pass_s(21)
    assert holder.client.detach_error(holder.link).condition == LOST.value


def test_a_lost_session_cannot_be_renewed(bench: Bench, queue: str) -> None:
    holder = Holder(bench, queue)
    bench.pass_s(61)

    answer = holder.desk.ask("renew-session-lock", {"session-id": "one"}, holder.link)

    assert status_of(answer) == Int(410)
    assert condition_of(answer) == LOST


def test_state_is_kept_per_session_and_outlives_its_holder(bench: Bench, queue: str) -> None:
    """R26."""
    holder = Holder(bench, queue)
    other = Holder(bench, queue, "two")

    before = holder.desk.ask("get-session-state", {"session-id": "one"}, holder.link)
    put = holder.desk.ask(
        "set-session-state", {"session-id": "one", "session-state": b"\x00state"}, holder.link
    )
    holder.leave()
    again = Holder(bench, queue)
    after = again.desk.ask("get-session-state", {"session-id": "one"}, again.link)
    elsewhere = other.desk.ask("get-session-state", {"session-id": "two"}, other.link)

    assert [status_of(answer) for answer in (before, put, after)] == [Int(200)] * 3
    assert before.body == {"session-state": None}
    assert put.body == {}
    assert after.body == {"session-state": b"\x00state"}
    assert elsewhere.body == {"session-state": None}


@pytest.mark.parametrize(
    "cleared", [{"session-id": "one", "session-state": None}, {"session-id": "one"}]
)
def test_a_null_state_clears_it(bench: Bench, sq: str, cleared: dict[str, Value]) -> None:
    holder = Holder(bench, sq)
    holder.desk.ask("set-session-state", {"session-id": "one", "session-state": b"x"})

    answer = holder.desk.ask("set-session-state", cleared)

    assert status_of(answer) == Int(200)
    after = holder.desk.ask("get-session-state", {"session-id": "one"})
    assert after.body == {"session-state": None}


def test_a_state_that_is_too_large_is_beyond_the_quota(bench: Bench, sq: str) -> None:
    holder = Holder(bench, sq)

    answer = holder.desk.ask(
        "set-session-state", {"session-id": "one", "session-state": b"x" * (256 * 1024 + 1)}
    )

    assert status_of(answer) == Int(403)
    assert condition_of(answer) == Symbol("amqp:resource-limit-exceeded")
    after = holder.desk.ask("get-session-state", {"session-id": "one"})
    assert after.body == {"session-state": None}


OF_A_HOLDER: list[tuple[str, dict[str, Value]]] = [
    ("renew-session-lock", {"session-id": "one"}),
    ("get-session-state", {"session-id": "one"}),
    ("set-session-state", {"session-id": "one", "session-state": b"mine"}),
    (
        "receive-by-sequence-number",
        {
            "session-id": "one",
            "sequence-numbers": Array(0x81, [1]),
            "receiver-settle-mode": Uint(1),
        },
    ),
    (
        "batch-delete-messages",
        {
            "session-id": "one",
            "message-count": Int(1),
            "enqueued-time-utc": Timestamp(253_402_300_799_999),
        },
    ),
    (
        "update-disposition",
        {
            "session-id": "one",
            "disposition-status": "completed",
            "lock-tokens": [b"0123456789abcdef"],
        },
    ),
]


@pytest.mark.parametrize(("operation", "body"), OF_A_HOLDER)
def test_only_the_connection_that_holds_a_session_may_ask_about_it(
    bench: Bench, sq: str, operation: str, body: dict[str, Value]
) -> None:
    """R26."""
    Holder(bench, sq)
    stranger = Holder(bench, sq, "other")

    answers = [
        stranger.desk.ask(operation, body),
        stranger.desk.ask(operation, body, stranger.link),
    ]

    assert [status_of(answer) for answer in answers] == [Int(410)] * 2
    assert [condition_of(answer) for answer in answers] == [LOST] * 2


@pytest.mark.parametrize("node", ["q", "sq/$DeadLetterQueue"])
@pytest.mark.parametrize(
    ("operation", "body"),
    [
        *OF_A_HOLDER[:3],
        ("get-message-sessions", {"last-updated-time": ALL, "skip": 0, "top": 10}),
        (
            "peek-message",
            {"from-sequence-number": 1, "message-count": 1, "session-id": "one"},
        ),
    ],
)
def test_where_there_are_no_sessions_nothing_is_asked_about_them(
    bench: Bench, sq: str, node: str, operation: str, body: dict[str, Value]
) -> None:
    desk = Desk(bench, bench.client(), node)

    answer = desk.ask(operation, body)

    assert status_of(answer) == Int(400)
    assert condition_of(answer) == Symbol("amqp:not-allowed")


def test_a_closed_link_holds_nothing_any_more(bench: Bench, sq: str) -> None:
    holder = Holder(bench, sq)
    holder.leave()

    answer = holder.desk.ask("get-session-state", {"session-id": "one"}, holder.link)

    assert condition_of(answer) == LOST


def test_a_session_accepted_again_on_a_link_of_the_same_name_is_found(
    bench: Bench, sq: str
) -> None:
    holder = Holder(bench, sq)
    holder.leave()
    again = holder.client.session_receiver(sq, "two", name="mine")
    bench.pass_s()

    answers = [
        holder.desk.ask("get-session-state", {"session-id": session_id}, again)
        for session_id in ("one", "two")
    ]

    assert [status_of(answer) for answer in answers] == [Int(410), Int(200)]


def test_settling_by_management_in_a_session(bench: Bench, queue: str) -> None:
    bench.send_to(queue, "one", b"1", b"2")
    holder = Holder(bench, queue, credit=2)
    deliveries = holder.client.received(holder.link)

    answers = [
        holder.desk.ask(
            "update-disposition",
            {
                "session-id": "one",
                "disposition-status": status,
                "lock-tokens": tokens_of([delivery]),
            },
            holder.link,
        )
        for status, delivery in zip(("completed", "defered"), deliveries, strict=True)
    ]

    assert [status_of(answer) for answer in answers] == [Int(200)] * 2
    assert [message.body for message in holder.desk.peek(1, 10)] == [b"2"]


def test_deferred_messages_of_a_session_are_received_by_its_holder(
    bench: Bench, queue: str
) -> None:
    """R26."""
    bench.send_to(queue, "one", b"1")
    holder = Holder(bench, queue, credit=1)
    [delivery] = holder.client.received(holder.link)
    number = seen(delivery.payload).sequence_number
    holder.desk.ask(
        "update-disposition",
        {
            "session-id": "one",
            "disposition-status": "defered",
            "lock-tokens": tokens_of([delivery]),
        },
        holder.link,
    )
    holder.leave()
    again = Holder(bench, queue)
    stranger = Holder(bench, queue, "two")
    body: dict[str, Value] = {
        "sequence-numbers": Array(0x81, [number]),
        "receiver-settle-mode": Uint(1),
    }

    foreign = stranger.desk.ask(
        "receive-by-sequence-number", {**body, "session-id": "two"}, stranger.link
    )
    own = again.desk.ask("receive-by-sequence-number", {**body, "session-id": "one"}, again.link)

    assert condition_of(foreign) == Symbol("com.microsoft:message-not-found")
    assert status_of(own) == Int(200)
    assert isinstance(own.body, dict)
    [item] = own.body["messages"]
    assert seen(item["message"]).body == b"1"
    annotations = annotations_of(item["message"], decode_message(item["message"]).head)
    assert annotations["x-opt-message-state"] == Int(1)
    until_ms = integer_of(annotations["x-opt-locked-until"])
    assert until_ms is not None and until_ms > bench.clock.now_ms()


def test_a_deferred_dead_letter_of_a_queue_of_sessions_has_a_lock_of_its_own(
    bench: Bench, queue: str
) -> None:
    bench.send_to(queue, "one", b"1")
    holder = Holder(bench, queue, credit=1)
    [delivery] = holder.client.received(holder.link)
    holder.client.settle(holder.link, [delivery.delivery_id], Rejected())
    bench.pass_s()
    dead_letters = f"{queue}/$DeadLetterQueue"
    link = holder.client.receiver(dead_letters, 1, name="dead")
    bench.pass_s()
    [dead] = holder.client.received(link)
    holder.client.settle(link, [dead.delivery_id], Modified(undeliverable_here=True))
    bench.pass_s()

    answer = Desk(bench, holder.client, dead_letters).ask(
        "receive-by-sequence-number",
        {
            "sequence-numbers": Array(0x81, [seen(dead.payload).sequence_number]),
            "receiver-settle-mode": Uint(1),
        },
    )

    assert isinstance(answer.body, dict)
    [item] = answer.body["messages"]
    annotations = annotations_of(item["message"], decode_message(item["message"]).head)
    locked_until_ms = integer_of(annotations["x-opt-locked-until"])
    assert locked_until_ms is not None
    assert 59_000 < locked_until_ms - bench.clock.now_ms() <= 60_000


def test_a_peek_of_a_session_shows_its_messages_only(bench: Bench, queue: str) -> None:
    """R20, R26."""
    for number in range(4):
        bench.send_to(queue, "a", b"a%d" % number)
        bench.send_to(queue, "b", b"b%d" % number)
    desk = Desk(bench, bench.client(), queue)

    first = desk.ask(
        "peek-message", {"from-sequence-number": 1, "message-count": 3, "session-id": "b"}
    )
    assert isinstance(first.body, dict)
    page = [seen(item["message"]) for item in first.body["messages"]]
    rest = desk.ask(
        "peek-message",
        {
            "from-sequence-number": page[-1].sequence_number + 1,
            "message-count": 3,
            "session-id": "b",
        },
    )

    assert [message.body for message in page] == [b"b0", b"b1", b"b2"]
    assert isinstance(rest.body, dict)
    assert [seen(item["message"]).body for item in rest.body["messages"]] == [b"b3"]


def sessions(desk: Desk, skip: int = 0, top: int = 100, after: Timestamp = ALL) -> list[Value]:
    answer = desk.ask(
        "get-message-sessions",
        {"last-updated-time": after, "skip": Int(skip), "top": Int(top)},
    )
    assert isinstance(answer.body, dict)
    if status_of(answer) == Int(204):
        assert condition_of(answer) == Symbol("com.microsoft:session-not-found")
        assert answer.body == {}
        return []
    assert status_of(answer) == Int(200)
    found = answer.body["sessions-ids"]
    assert isinstance(found, Array)
    assert found.code == STRING32
    assert answer.body["skip"] == Int(skip + len(found.values))
    return found.values


def test_sessions_are_listed_page_by_page(bench: Bench, queue: str) -> None:
    """R26."""
    names = [f"s{number:02}" for number in range(25)]
    for name in names:
        bench.send_to(queue, name, b"x")
    desk = Desk(bench, bench.client(), queue)

    pages = [sessions(desk, skip, 10) for skip in (0, 10, 20)]

    assert [len(page) for page in pages] == [10, 10, 5]
    assert sorted(str(name) for page in pages for name in page) == names
    assert sessions(desk, 25, 10) == []


def test_sessions_are_listed_by_when_their_state_was_set(bench: Bench, queue: str) -> None:
    bench.send_to(queue, "messages only", b"x")
    early = Holder(bench, queue, "early")
    early.desk.ask("set-session-state", {"session-id": "early", "session-state": b"1"})
    bench.pass_s(10)
    between = Timestamp(bench.clock.now_ms())
    bench.pass_s(10)
    late = Holder(bench, queue, "late")
    late.desk.ask("set-session-state", {"session-id": "late", "session-state": b"1"})
    desk = Desk(bench, bench.client(), queue)

    assert sessions(desk, after=between) == ["late"]
    assert sorted(map(str, sessions(desk, after=Timestamp(NEVER_MS)))) == ["early", "late"]
    for every in (ALL, Timestamp(ALL.value - 1), Timestamp(ALL.value - 14 * 3_600_000)):
        found = sessions(desk, after=every)
        assert sorted(map(str, found)) == ["early", "late", "messages only"]


def test_deleting_in_a_held_session_takes_its_messages_only(bench: Bench, queue: str) -> None:
    """R32."""
    bench.send_to(queue, "a", b"a0", b"a1", b"a2")
    bench.send_to(queue, "b", b"b0")
    holder = Holder(bench, queue, "a")

    answer = holder.desk.ask(
        "batch-delete-messages",
        {
            "session-id": "a",
            "message-count": Int(2),
            "enqueued-time-utc": Timestamp(bench.clock.now_ms()),
        },
        holder.link,
    )

    assert status_of(answer) == Int(200)
    assert answer.body == {"message-count": Int(2)}
    assert sorted(message.body for message in holder.desk.peek(1, 10)) == [b"a2", b"b0"]
