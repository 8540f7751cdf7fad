"""Messages that are put into one subscription alone, by stages and by jobs (P5, P7)."""

import json
from collections.abc import Iterator, Sequence

import pytest

from shardbus.core.namespace.access import LISTEN, MANAGE, SEND, AccessRule
from shardbus.core.namespace.entity import EntitySpec
from shardbus.gateway.http.api.groups import api_groups
from shardbus.message.sections import encode_batch, encode_data_message
from shardbus.message.sent import read_batch
from tests.unit.broker.news import sql_rule
from tests.unit.gateway.http.messages_web import Document, MessagesWeb, bodies
from tests.unit.gateway.http.test_api_jobs import DEAD, Desk, Json

EU = "news%2FSubscriptions%2Feu"
US = "news%2FSubscriptions%2Fus"


@pytest.fixture
def api(api: MessagesWeb) -> MessagesWeb:
    api.with_groups(api_groups(api.bus, api.counts, read_batch=read_batch))
    api.create_topic("news", is_partitioned=True)
    for name in ("eu", "us"):
        api.subscribe("news", name)
    return api


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk()
    desk.create_topic("news", is_partitioned=True)
    for name in ("eu", "us"):
        desk.subscribe("news", name)
    yield desk
    desk.serving.cancel()
    desk.pass_s()
    desk.shelf.close()
    desk.close()


def stage(
    api: MessagesWeb,
    entity: str,
    texts: Sequence[str],
    *,
    past: Sequence[int] = (),
    token: str | None = None,
) -> tuple[int, Document]:
    batch = encode_batch([encode_data_message(text.encode()) for text in texts])
    numbers = b"".join(number.to_bytes(8, "big") for number in past)
    path = f"/api/v1/entities/{entity}/stages/one?past={len(past)}"
    response = api.fetch("PUT", path, numbers + batch, token=token)
    return response.status, json.loads(response.body)


def publish(api: MessagesWeb, entity: str, count: int, batch: int = 1) -> Document:
    stages = [{"stage": "one", "count": count}]
    return api.post(f"{entity}/stages/publish", producer="p", batch=batch, stages=stages)


def shown(api: MessagesWeb, entity: str) -> list[str]:
    return sorted(map(str, bodies(api.peek(entity))))


def test_a_stage_for_a_subscription_reaches_no_other(api: MessagesWeb) -> None:
    """P5"""
    assert stage(api, EU, ["a", "b"])[0] == 200

    assert publish(api, EU, 2) == {"is_new": True, "count": 2}
    assert publish(api, EU, 2) == {"is_new": False, "count": 0}

    assert (shown(api, EU), shown(api, US)) == (["a", "b"], [])


def test_a_key_of_one_subscription_reaches_no_stage_of_another(api: MessagesWeb) -> None:
    """Names of stages and producers can be guessed; a subscription has its own."""
    foreign = api.token("sb://shardbus/news/Subscriptions/us")
    stage(api, EU, ["a"])
    named = {"stages": ["one"]}
    early = {"producer": "p", "batch": 9, "stages": [{"stage": "one", "count": 1}]}
    later = {"producer": "p", "batch": 9, "stages": []}

    for path, body in (("discard", named), ("publish", early), ("publish", later)):
        target = f"/api/v1/entities/{US}/stages/{path}"
        api.fetch("POST", target, json.dumps(body).encode(), token=foreign)

    assert shown(api, EU) == []
    assert publish(api, EU, 1) == {"is_new": True, "count": 1}
    assert (shown(api, EU), shown(api, US)) == (["a"], [])


def test_rules_are_not_asked_about_what_is_put_into_a_subscription(api: MessagesWeb) -> None:
    api.subscribe("news", "none", [sql_rule("no", "1 = 0")])
    stage(api, "news%2FSubscriptions%2Fnone", ["a"])
    publish(api, "news%2FSubscriptions%2Fnone", 1)

    assert shown(api, "news%2FSubscriptions%2Fnone") == ["a"]


def test_past_messages_come_by_the_rules_and_before_the_others(api: MessagesWeb) -> None:
    """P5"""
    api.create_topic("line")
    api.subscribe("line", "all")
    api.put("line", *({"body": f"m{n}", "properties": {"n": n}} for n in range(4)))
    rule = sql_rule("odd", "sys.SequenceNumber > 1", "SET seen = 1")
    late = api.subscribe("line", "late", [rule]).replace("/", "%2F")
    api.put("line", {"body": "live"})
    captured = api.peek("line%2FSubscriptions%2Fall")
    numbers = [int(str(one["sequence_number"])) for one in captured]

    status, _ = stage(api, late, [str(one["body"]) for one in captured], past=numbers)
    assert status == 200
    publish(api, late, len(numbers))
    stage(api, late, [str(one["body"]) for one in captured], past=numbers)
    publish(api, late, len(numbers), batch=2)

    found = api.peek(late)
    assert bodies(found) == ["m1", "m2", "m3", "live"]
    assert [one["sequence_number"] for one in found] == numbers[1:]
    assert ["seen" in str(one["properties"]) for one in found] == [True] * 4, found
    assert len(api.peek("line%2FSubscriptions%2Fall")) == 5


@pytest.mark.parametrize(
    ("entity", "past", "told"),
    [
        (EU, [1 << 60], "no fragment"),
        (EU, [999], "not given out"),
        ("news", [1], "past is for a subscription"),
        (EU, [1, 2], "it is 2, and the body has 1"),
    ],
)
def test_numbers_that_the_topic_never_gave_are_refused(
    api: MessagesWeb, entity: str, past: list[int], told: str
) -> None:
    status, answer = stage(api, entity, ["a"], past=past)

    assert (status, told in str(answer["error"])) == (400, True), answer


def test_a_session_is_needed_where_the_subscription_needs_one(api: MessagesWeb) -> None:
    spec = EntitySpec()
    spec.requires_session = True
    path = api.subscribe("news", "held", spec=spec).replace("/", "%2F")

    status, answer = stage(api, path, ["a"])

    assert (status, "requires sessions" in str(answer["error"])) == (400, True)


def test_only_who_may_manage_the_topic_puts_messages_into_a_subscription(api: MessagesWeb) -> None:
    """R34"""
    spec = EntitySpec()
    spec.access_rules = [
        AccessRule("sender", SEND | LISTEN, "s"),
        AccessRule("manager", MANAGE | SEND | LISTEN, "m"),
    ]
    api.create_topic("guarded", spec=spec)
    path = api.subscribe("guarded", "one").replace("/", "%2F")

    def status(key: str) -> int:
        token = api.token("http://bus/guarded", key_name=key, key=key[0])
        return stage(api, path, ["a"], token=token)[0]

    assert (status("sender"), status("manager")) == (401, 200)
    refused = api.refusal(f"{path}/messages", messages=[{"body": "x"}])
    assert (refused[0], "cannot be sent" in refused[1]) == (400, True)


def test_letters_go_back_to_their_subscription_alone(desk: Desk) -> None:
    """P7"""
    desk.bury(EU, 5, of="news")

    job = desk.wait(desk.begin(f"{EU}{DEAD}", "resubmit", destination="news/Subscriptions/eu"))

    assert (job["done"], job["skipped"], job["warnings"]) == (5, 0, []), job
    assert sorted(desk.bodies(EU)) == [f"m{n}" for n in range(5)]
    assert len(desk.bodies(US)) == 5
    assert desk.bodies(f"{EU}{DEAD}") == []


def test_a_move_puts_messages_into_one_subscription_of_another_topic(desk: Desk) -> None:
    """P7"""
    desk.bury("many", 30)

    job = desk.wait(desk.begin(f"many{DEAD}", "move", destination="NEWS/subscriptions/US"))

    assert (job["state"], job["done"]) == ("done", 30), job
    assert (len(desk.bodies(US)), desk.bodies(EU)) == (30, [])


def test_a_job_to_a_subscription_that_was_created_again_ends(desk: Desk) -> None:
    desk.bury("q", 2)
    desk.run(desk.namespace.delete("news/subscriptions/us"))
    missing = desk.begin(f"q{DEAD}", "move", destination="news/Subscriptions/us", status=404)
    assert "does not exist" in str(missing["error"])
    desk.subscribe("news", "us")
    job = desk.begin(f"q{DEAD}", "move", destination="news/Subscriptions/us", rate_max=1)
    desk.serving.cancel()
    desk.pass_s()
    desk.run(desk.namespace.delete("news/subscriptions/us"))
    desk.subscribe("news", "us")
    desk.serve()

    ended = desk.wait(job)

    assert (ended["state"], "created again" in str(ended["error"])) == ("failed", True), ended
    assert len(desk.bodies(f"q{DEAD}")) + int(str(ended["done"])) == 2


@pytest.mark.parametrize(
    ("line", "destination"),
    [(f"{EU}{DEAD}", "news/Subscriptions/us"), (f"{EU}{DEAD}", "news"), (f"q{DEAD}", "many")],
)
def test_letters_are_not_resubmitted_elsewhere(desk: Desk, line: str, destination: str) -> None:
    answer = desk.begin(line, "resubmit", destination=destination, status=400)

    assert "use move" in str(answer["error"])


def test_a_job_to_a_subscription_needs_the_right_to_manage(desk: Desk) -> None:
    """R34"""
    spec = EntitySpec()
    spec.access_rules = [AccessRule("both", SEND | LISTEN, "b")]
    desk.create_topic("guarded", spec=spec)
    path = desk.subscribe("guarded", "one")
    body: Json = {"action": "resubmit", "destination": path}
    token = desk.token("http://bus/guarded", key_name="both", key="b")

    response = desk.fetch(
        "POST",
        f"/api/v1/entities/{path.replace('/', '%2F')}{DEAD}/jobs",
        json.dumps(body).encode(),
        token=token,
    )

    assert (response.status, b"Manage" in response.body) == (401, True), response.body
