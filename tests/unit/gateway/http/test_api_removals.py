"""Purging, and sending dead letters again: all or nothing, once each (R22)."""

import pytest

from shardbus.core.namespace.access import LISTEN, SEND, AccessRule
from shardbus.core.namespace.entity import EntitySpec
from shardbus.core.transactions.command import Transact
from tests.unit.gateway.http.messages_web import (
    Document,
    MessagesWeb,
    bodies,
    messages_of,
)

KINDS = [("q", "q"), ("many", "many"), ("news", "news/Subscriptions/europe")]


def bury(api: MessagesWeb, entity: str, count: int = 250) -> None:
    """Dead-letter what can be received."""
    tokens = [message["lock_token"] for message in api.get(entity, count=count)]
    api.post(f"{entity}/messages/settle", action="dead_letter", lock_tokens=tokens, reason="bad")


def numbered(count: int, **more: object) -> list[Document]:
    return [{"body": f"{number:03}", **more} for number in range(count)]


@pytest.mark.parametrize(("sent_to", "entity"), KINDS)
def test_dead_letters_go_back_once_each(api: MessagesWeb, sent_to: str, entity: str) -> None:
    """R22."""
    api.create_topic("news", is_partitioned=True)
    api.subscribe("news", "europe")
    api.put(sent_to, *numbered(150, properties={"a": 1}, partition_key="k", message_id="m"))
    bury(api, entity)

    answer = api.post(f"{entity}/dead-letters/resubmit")
    again = api.post(f"{entity}/dead-letters/resubmit")
    back = api.get(entity, count=250, mode="receive_and_delete")

    assert (answer["resubmitted"], answer["has_more"], again["resubmitted"]) == (150, False, 0)
    assert bodies(back) == [f"{number:03}" for number in range(150)]
    assert {message["delivery_count"] for message in back} == {0}
    assert {str(message["properties"]) for message in back} == {"{'a': 1}"}
    assert all("dead_letter_reason" not in message for message in back)
    assert api.peek(f"{entity}/$DeadLetterQueue") == []


@pytest.mark.parametrize("fragments", [1, 4])
def test_dead_letters_of_former_fragments_go_to_the_present_ones(
    api: MessagesWeb, fragments: int
) -> None:
    """P6: a former fragment accepts no messages."""
    api.put("q", *numbered(20, partition_key="k"), *numbered(20))
    bury(api, "q")
    api.run(api.namespace.maps.change("q", 3))
    if fragments == 1:
        api.run(api.namespace.maps.change("q", 1))

    answer = api.post("q/dead-letters/resubmit")

    assert (answer["resubmitted"], answer["has_more"]) == (40, False)
    assert api.peek("q/$DeadLetterQueue") == []
    assert sorted(map(str, bodies(api.get("q", count=250)))) == sorted(
        [f"{n:03}" for n in range(20)] * 2
    )


def test_dead_letters_of_a_subscription_go_to_the_present_fragments_of_its_topic(
    api: MessagesWeb,
) -> None:
    """P6: the fragment of the topic that published them accepts no messages."""
    news = "news%2FSubscriptions%2Feu"
    api.create_topic("news", is_partitioned=False)
    api.subscribe("news", "eu")
    api.put("news", *numbered(20, partition_key="k"), *numbered(20))
    bury(api, news)
    api.run(api.namespace.maps.change("news", 3))

    answer = api.post(f"{news}/dead-letters/resubmit")

    assert (answer["resubmitted"], answer["has_more"]) == (40, False)
    assert api.peek(f"{news}/$DeadLetterQueue") == []
    assert sorted(map(str, bodies(api.get(news, count=250)))) == sorted(
        [f"{n:03}" for n in range(20)] * 2
    )


def test_at_most_as_many_go_back_as_wanted_the_oldest_first(api: MessagesWeb) -> None:
    api.put("q", *numbered(5))
    bury(api, "q")

    answer = api.post("q/dead-letters/resubmit", count=2)

    assert (answer["resubmitted"], answer["has_more"]) == (2, True)
    assert bodies(api.peek("q")) == ["000", "001"]
    assert bodies(api.peek("q/$DeadLetterQueue")) == ["002", "003", "004"]


def test_dead_letters_are_chosen_by_their_numbers(api: MessagesWeb) -> None:
    api.put("many", *numbered(40))
    bury(api, "many")
    dead = api.peek("many/$DeadLetterQueue", "?top=250")
    chosen = [dead[3]["sequence_number"], dead[17]["sequence_number"], 12345]

    answer = api.post("many/dead-letters/resubmit", sequence_numbers=chosen)

    assert (answer["resubmitted"], answer["missing"]) == (2, [12345])
    assert sorted(map(str, bodies(api.peek("many")))) == sorted(
        [str(dead[3]["body"]), str(dead[17]["body"])]
    )
    rest = api.get("many/$DeadLetterQueue", count=250)
    assert len(rest) == 38
    assert {message["delivery_count"] for message in rest} == {0}


def test_duplicate_detection_does_not_swallow_what_goes_back(api: MessagesWeb) -> None:
    """R22: found again by its id, the message would be dropped and lost."""
    spec = EntitySpec()
    spec.requires_duplicate_detection = True
    api.create("once", is_partitioned=True, spec=spec)
    api.put("once", {"message_id": "m", "body": "x"})
    bury(api, "once")

    answer = api.post("once/dead-letters/resubmit")
    duplicate = api.put("once", {"message_id": "m", "body": "again"})

    assert (answer["resubmitted"], duplicate["duplicates"]) == (1, 1)
    [back] = api.get("once")
    assert (back["body"], back["message_id"]) == ("x", "m")


def test_a_dead_letter_returns_to_its_session(api: MessagesWeb) -> None:
    """R26."""
    api.create_sessions("s", is_partitioned=True)
    api.put("s", *numbered(3, session_id="a"))
    held = api.post("s/messages/receive", session_id="a", count=3)
    tokens = [message["lock_token"] for message in messages_of(held)]
    api.post("s/messages/settle", action="dead_letter", lock_tokens=tokens)
    session = held["session"]
    assert isinstance(session, dict)
    api.post("s/sessions/release", session_lock_token=session["lock_token"])

    answer = api.post("s/dead-letters/resubmit")

    assert answer["resubmitted"] == 3
    assert bodies(api.get("s", session_id="a", count=9)) == ["000", "001", "002"]


def test_dead_letters_of_a_queue_that_forwards_go_back_and_on(api: MessagesWeb) -> None:
    """R27."""
    api.put("q", *numbered(3))
    bury(api, "q")
    spec = EntitySpec()
    spec.forward_to = "many"
    api.run(api.namespace.update_queue("q", spec))

    refused, _ = api.refusal("q/messages/receive")
    answer = api.post("q/dead-letters/resubmit")

    assert (refused, answer["resubmitted"]) == (400, 3)
    assert bodies(api.peek("q")) == ["000", "001", "002"]


def test_what_settlements_changed_and_how_long_it_lives_go_with_a_dead_letter(
    api: MessagesWeb,
) -> None:
    api.put("q", {"body": "x", "time_to_live_ms": 60_000, "properties": {"a": 1, "b": 2}})
    [message] = api.get("q")
    api.post(
        "q/messages/settle",
        action="dead_letter",
        lock_tokens=[message["lock_token"]],
        properties={"b": 3},
    )
    api.pass_s(100)

    api.post("q/dead-letters/resubmit")

    [back] = api.peek("q")
    assert back["properties"] == {"a": 1, "b": 3}
    assert back["time_to_live_ms"] == 60_000
    assert str(back["expires_at"]) > str(message["expires_at"])


def test_nothing_goes_back_into_a_full_queue_and_nothing_is_lost() -> None:
    """R22."""
    api = MessagesWeb(fragment_bytes_max=2_000)
    api.put("q", {"body": "x" * 900})
    bury(api, "q")
    while api.call("POST", "q/messages", {"messages": [{"body": "y" * 900}]}).status == 200:
        pass

    status, _ = api.refusal("q/dead-letters/resubmit")
    dead = api.get("q/$DeadLetterQueue")
    api.close()

    assert (status, len(dead)) == (403, 1)


def test_whoever_resubmits_hears_of_a_fragment_that_could_not(api: MessagesWeb) -> None:
    """R22: what is left is not passed over in silence."""
    api.put("many", *numbered(40))
    bury(api, "many")
    api.break_fragment("many", 5, Transact)

    first = api.post("many/dead-letters/resubmit")
    status, _ = api.refusal("many/dead-letters/resubmit")

    left = len(api.peek("many/$DeadLetterQueue", "?top=250"))
    assert left > 0
    assert (first["resubmitted"], first["has_more"], status) == (40 - left, True, 503)


@pytest.mark.parametrize(("resource", "status"), [("news", 200), ("news/subscriptions/eu", 401)])
def test_dead_letters_of_a_subscription_need_the_right_to_its_topic(
    api: MessagesWeb, resource: str, status: int
) -> None:
    """R34: they reach its other subscriptions."""
    api.create_topic("news")
    api.subscribe("news", "eu")
    api.subscribe("news", "us")
    api.put("news", {"body": "x"})
    bury(api, "news/subscriptions/eu")
    api.run(api.namespace.set_rules([AccessRule("both", LISTEN | SEND, "k")]))
    token = api.token(f"sb://shardbus/{resource}", key_name="both", key="k")

    path = "news/subscriptions/eu/dead-letters/resubmit"
    response = api.call("POST", path, {}, token=token)

    assert response.status == status
    assert len(api.peek("news/subscriptions/us")) == (2 if status == 200 else 1)


@pytest.mark.parametrize("entity", ["q", "many"])
def test_a_purge_removes_the_oldest_and_says_whether_there_is_more(
    api: MessagesWeb, entity: str
) -> None:
    api.put(entity, *numbered(30))

    first = api.post(f"{entity}/messages/purge", count=20)
    second = api.post(f"{entity}/messages/purge")

    assert (first, second) == (
        {"purged": 20, "has_more": True},
        {"purged": 10, "has_more": False},
    )
    assert api.peek(entity) == []


def test_a_purge_stops_before_a_moment(api: MessagesWeb) -> None:
    api.put("many", *numbered(10))
    api.pass_s(10)
    api.put("many", {"body": "new"})
    moment = next(m["enqueued_at"] for m in api.peek("many") if m["body"] == "new")

    answer = api.post("many/messages/purge", enqueued_before=moment)

    assert answer["purged"] == 10
    assert bodies(api.peek("many")) == ["new"]


def test_what_is_locked_or_dead_outlives_a_purge(api: MessagesWeb) -> None:
    api.put("q", *numbered(3))
    bury(api, "q", count=1)
    [locked] = api.get("q")

    answer = api.post("q/messages/purge")

    assert answer["purged"] == 1
    assert bodies(api.peek("q")) == [locked["body"]]
    assert api.post("q/$DeadLetterQueue/messages/purge")["purged"] == 1


def test_sessions_are_purged_but_for_those_that_somebody_holds(api: MessagesWeb) -> None:
    """R26."""
    api.create_sessions("s", is_partitioned=True)
    for name in ("a", "b", "c"):
        api.put("s", *numbered(4, session_id=name))
    held = api.post("s/messages/receive", session_id="a")

    one = api.post("s/messages/purge", session_id="b", count=1)
    others = api.post("s/messages/purge")
    status, _ = api.refusal("s/messages/purge", session_id="a")

    assert held["session"] is not None
    assert (one["purged"], others) == (1, {"purged": 7, "has_more": False})
    assert status == 410
    assert len(api.peek("s", "?session=a")) == 4
    assert api.get("s", session_id="b") == []


def test_a_session_of_newer_messages_does_not_keep_a_purge_from_its_end(api: MessagesWeb) -> None:
    api.create_sessions("s")
    api.put("s", *numbered(2, session_id="a"))
    moment = api.peek("s")[0]["enqueued_at"]

    answer = api.post("s/messages/purge", enqueued_before=moment)

    assert answer == {"purged": 0, "has_more": False}
    assert len(api.get("s", session_id="a", count=9)) == 2


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("q/messages/purge", {"count": 0}),
        ("q/messages/purge", {"count": 10_001}),
        ("q/messages/purge", {"enqueued_before": "long ago"}),
        ("q/dead-letters/resubmit", {"count": 0}),
        ("q/dead-letters/resubmit", {"sequence_numbers": [-1]}),
        ("q/dead-letters/resubmit", {"sequence_numbers": "all"}),
    ],
)
def test_a_wish_that_cannot_be_is_refused(api: MessagesWeb, path: str, body: Document) -> None:
    assert api.refusal(path, **body)[0] == 400
