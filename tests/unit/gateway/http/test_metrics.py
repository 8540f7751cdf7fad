"""Metrics in the text format of Prometheus: right, bounded, and readable by who may."""

import json
import re

import pytest

from shardbus.core.errors import Unavailable
from shardbus.core.message import DEAD_LETTER_LINE, MAIN_LINE
from shardbus.core.namespace.access import LISTEN, SEND, AccessRule
from shardbus.core.namespace.entity import EntitySpec
from shardbus.gateway import readings
from shardbus.gateway.http.observing import metrics as names
from shardbus.gateway.http.observing import readers as reader_metrics
from shardbus.gateway.http.observing.exposition import GAUGE, Family
from shardbus.gateway.http.observing.metrics import TABLE
from shardbus.gateway.http.observing.readers import Follower
from tests.unit.gateway.http.web import Web

LINE = re.compile(r'([a-z_]+)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\.)*",?)*)\})? ([-+.e0-9]+)')
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scrape(web: Web) -> Samples:
    """As a scraper reads it: every line is a comment or a sample, none comes twice."""
    web.pass_s(1)
    response = web.fetch("GET", "/metrics")
    assert (response.status, response.content_type) == (
        200,
        "text/plain; version=0.0.4; charset=utf-8",
    )
    found: Samples = {}
    for line in response.body.decode().splitlines():
        if line.startswith("#"):
            assert re.fullmatch(r"# (HELP|TYPE) [a-z_]+ .+", line)
            continue
        match = LINE.fullmatch(line)
        assert match is not None, line
        key = (match[1], tuple(LABEL.findall(match[2] or "")))
        assert key not in found
        found[key] = float(match[3])
    return found


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[(name, tuple(labels.items()))]


def test_messages_are_told_by_entity_and_state(web: Web) -> None:
    """R29."""
    for _ in range(3):
        web.send("many")
    web.send("many", b"x", {"ScheduledEnqueueTimeUtc": "9000-01-01T00:00:00Z"})
    web.take("many")

    samples = scrape(web)

    assert value(samples, names.MESSAGES, entity="many", state="active") == 2
    assert value(samples, names.MESSAGES, entity="many", state="scheduled") == 1
    assert value(samples, names.MESSAGES, entity="q", state="active") == 0
    assert value(samples, names.SENT, entity="many") == 4
    assert value(samples, names.SIZE, entity="many") > 0
    assert value(samples, names.SIZE_MAX, entity="many") == 16 * 1024**3
    assert value(samples, names.FRAGMENTS, entity="many", state="available") == 16
    assert value(samples, names.PARTIAL, entity="many") == 0
    assert value(samples, names.HTTP_MESSAGES, entity="many", action="sent") == 4
    assert value(samples, names.HTTP_MESSAGES, entity="many", action="deleted") == 1
    assert value(samples, names.REQUESTS, method="POST", status="201") == 4


def test_topics_and_their_subscriptions_stand_beside_queues(web: Web) -> None:
    """R29."""
    web.create_topic("news")
    for name in ("europe", "asia"):
        web.subscribe("news", name)
    web.send("news")

    samples = scrape(web)

    europe = "news/Subscriptions/europe"
    states = {dict(labels)["state"] for name, labels in samples if ("entity", "news") in labels
              and name == names.MESSAGES}  # fmt: skip
    assert states == {"scheduled", "set_aside"}
    assert value(samples, names.SENT, entity="news") == 1
    assert value(samples, names.MESSAGES, entity=europe, state="active") == 1
    assert value(samples, names.MESSAGES, entity=europe, state="transfer") == 0
    size_bytes = value(samples, names.SIZE, entity=europe)
    assert value(samples, names.SIZE, entity="news") == 2 * size_bytes > 0
    assert value(samples, names.FRAGMENTS, entity="news", state="available") == 1
    assert (value(samples, names.ENTITIES), value(samples, names.ENTITIES_SHOWN)) == (3, 5)


def test_subscriptions_count_among_the_entities_that_are_shown() -> None:
    web = Web(entities_max=3)
    web.create_topic("a")
    for number in range(5):
        web.subscribe("a", f"s{number}")

    shown = {dict(labels)["entity"] for name, labels in scrape(web) if name == names.SIZE}

    assert shown == {"a", "a/Subscriptions/s0", "a/Subscriptions/s1"}
    web.close()


def test_what_happens_over_amqp_is_told(web: Web) -> None:
    web.fill("q", b"1", b"2")
    web.messages_of("q")
    client = web.client()
    client.sender("q")
    web.pass_s()

    samples = scrape(web)

    assert value(samples, readings.AMQP_MESSAGES, action="sent") == 2
    assert value(samples, readings.AMQP_MESSAGES, action="delivered") == 2
    assert value(samples, readings.LINKS, role="sender") == 1
    assert value(samples, readings.TRANSACTIONS, outcome="committed") == 0
    web.leave(client)


def test_requests_without_a_right_are_told(web: Web) -> None:
    """R34."""
    web.fetch("GET", "/api/v1/namespace", token="")
    web.fetch("POST", "/q/messages", b"x", token=web.token(key="wrong"))

    assert value(scrape(web), readings.TOKENS_REFUSED, protocol="http") == 2


def test_the_process_and_its_connections_are_told(web: Web) -> None:
    client = web.client()
    web.reasons = ["a", "b"]

    samples = scrape(web)

    assert value(samples, names.CONNECTIONS, protocol="amqp") == 1
    assert value(samples, names.PROBLEMS) == 2
    assert value(samples, names.CPU) > 0
    assert value(samples, names.MEMORY) > 1024**2
    assert value(samples, names.FILES) > 0
    web.leave(client)
    assert value(scrape(web), names.CONNECTIONS, protocol="amqp") == 0


def test_every_metric_has_its_help_and_kind_once(web: Web) -> None:
    text = web.fetch("GET", "/metrics").body.decode()

    assert re.findall(r"^# TYPE (\S+)", text, re.MULTILINE) == [name for name, _, _ in TABLE]
    for name, kind, help_text in TABLE:
        assert f"# HELP {name} {help_text}\n# TYPE {name} {kind}\n" in text
        assert name.endswith("_total") == (kind == "counter")


def test_labels_are_bounded_however_many_entities_there_are() -> None:
    web = Web(entities_max=3)
    for number in range(6):
        web.create(f"x{number}")
        web.send(f"x{number}")

    samples = scrape(web)

    shown = {dict(labels)["entity"] for name, labels in samples if name == names.SIZE}
    counted = {dict(labels)["entity"] for name, labels in samples if name == names.HTTP_MESSAGES}
    assert shown == {"many", "q", "x0"}
    assert counted == {"x0", "x1", "x2", "(other)"}
    assert value(samples, names.HTTP_MESSAGES, entity="(other)", action="sent") == 3
    assert (value(samples, names.ENTITIES), value(samples, names.ENTITIES_SHOWN)) == (8, 3)
    web.close()


def test_a_deleted_entity_makes_room_for_another() -> None:
    web = Web(entities_max=1)
    web.send("q")
    web.run(web.namespace.delete("q"))
    web.send("many")

    assert web.counts.messages == {("many", "sent"): 1}
    web.close()


def test_what_cannot_be_counted_is_marked_and_no_counter_falls(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R29."""
    web.send("q")

    async def out(*_: object) -> None:
        raise Unavailable("no route")

    monkeypatch.setattr(web.broker, "statistics", out)
    samples = scrape(web)

    assert value(samples, names.PARTIAL, entity="q") == 1
    assert value(samples, names.FRAGMENTS, entity="q", state="unavailable") == 1
    assert not [name for name, _ in samples if name == names.SENT]


def test_a_broker_that_does_not_answer_does_not_stop_the_scraping(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(*_: object) -> None:
        await web.loop.create_future()

    monkeypatch.setattr(web.broker, "statistics", silent)
    started = web.loop.time()

    samples = scrape(web)

    assert value(samples, names.ENTITIES_SHOWN) == 0
    assert web.loop.time() - started < 7


def test_throttled_requests_are_counted() -> None:
    web = Web(credits_per_s=1)
    web.send("q")
    web.fetch("POST", "/q/messages", b"x")

    assert value(scrape(web), readings.THROTTLED, protocol="http") == 1
    web.close()


def test_metrics_are_open_on_the_loopback_and_otherwise_for_who_may_listen() -> None:
    """R34: on the namespace."""
    spec = EntitySpec()
    spec.access_rules = [AccessRule("reader", LISTEN, "r")]
    web, opened = Web(), Web(is_open=True)
    web.create("guarded", spec=spec)
    web.run(
        web.namespace.set_rules([AccessRule("scraper", LISTEN, "k"), AccessRule("in", SEND, "s")])
    )

    def status(name: str, key: str, resource: str = "http://bus/") -> int:
        token = web.token(resource, key_name=name, key=key)
        return web.fetch("GET", "/metrics", token=token).status

    assert opened.fetch("GET", "/metrics", token="").status == 200
    assert opened.fetch("GET", "/api/v1/metrics", token="").status == 200
    assert web.fetch("GET", "/metrics", token="").status == 401
    assert web.fetch("GET", "/api/v1/metrics", token="").status == 401
    assert status("scraper", "k") == 200
    assert status("in", "s") == 401
    assert status("reader", "r", "http://bus/guarded") == 401
    web.close()
    opened.close()


def test_the_same_numbers_are_there_as_json(web: Web) -> None:
    web.send("q")
    samples = scrape(web)

    families = json.loads(web.fetch("GET", "/api/v1/metrics").body)["families"]

    told = {
        (family["name"], tuple(sample["labels"].items())): sample["value"]
        for family in families
        for sample in family["samples"]
    }
    assert told == samples


def test_who_asks_again_at_once_gets_the_same_numbers(web: Web) -> None:
    before = web.fetch("GET", "/metrics").body
    web.send("q")

    assert web.fetch("GET", "/metrics").body == before
    assert scrape(web)[(names.SENT, (("entity", "q"),))] == 1


def test_texts_are_escaped() -> None:
    family = Family("m", GAUGE, "back\\slash\nline")
    family.add(1, label='a"b\\c\nd')

    assert family.to_text() == (
        '# HELP m back\\\\slash\\nline\n# TYPE m gauge\nm{label="a\\"b\\\\c\\nd"} 1\n'
    )


def lags(samples: Samples, name: str = reader_metrics.LAG) -> dict[tuple[str, ...], float]:
    """By entity, reader, mode and fragment."""
    return {
        tuple(label for _, label in labels): number
        for (family, labels), number in samples.items()
        if family == name
    }


def test_readers_are_told_by_fragment_with_what_they_have_yet_to_do(web: Web) -> None:
    """P1: a query that falls behind is seen without asking it."""
    for _ in range(32):
        web.send("many")
    for _ in range(3):
        web.send("q")
    many, queue = web.bus.find("many"), web.bus.find("q")
    assert many is not None and queue is not None
    web.run(many.readers.open(MAIN_LINE, "r", b"me", b"id"))
    web.run(many.readers.claim(5, MAIN_LINE, "r", b"me", 1, count_max=1))
    web.run(queue.readers.open(DEAD_LETTER_LINE, "dead", b"me", b"id"))
    web.run(queue.readers.open(MAIN_LINE, "r", b"me", b"id"))

    samples = scrape(web)

    expected = {("many", "r", "consume", str(each)): 2.0 for each in range(16)}
    expected["many", "r", "consume", "5"] = 1
    expected["q", "r", "consume", "0"] = 3
    expected["q/$DeadLetterQueue", "dead", "consume", "0"] = 0
    assert lags(samples) == expected
    assert lags(samples, reader_metrics.CLAIMED)["many", "r", "consume", "5"] == 1
    assert sum(lags(samples, reader_metrics.CLAIMED).values()) == 1
    assert value(samples, reader_metrics.READERS) == 3
    assert value(samples, reader_metrics.READERS_SHOWN) == 3


def test_who_only_browses_is_behind_by_what_was_sent_since(web: Web) -> None:
    """P4: a capture with keep; one of an entity that is no more is behind nothing."""
    entity = web.bus.find("q")
    assert entity is not None
    incarnation = str(entity.entity.entity_id)
    web.metrics.watch_followers(
        lambda: [
            Follower("archive", "Q", incarnation, {0: 3, 7: 1}),
            Follower("ahead", "q", incarnation, {0: 100}),
            Follower("old", "q", "other", {0: 1}),
            Follower("elsewhere", "gone", incarnation, {0: 1}),
        ]
    )
    for _ in range(5):
        web.send("q")
    web.take("q")

    samples = scrape(web)

    assert lags(samples) == {
        ("q", "archive", "browse", "0"): 3,
        ("q", "ahead", "browse", "0"): 0,
    }
    assert not lags(samples, reader_metrics.CLAIMED)
    assert value(samples, reader_metrics.READERS) == 2


def test_however_many_readers_there_are_their_samples_are_bounded_and_whole() -> None:
    web = Web(reader_fragments_max=33)
    many, queue = web.bus.find("many"), web.bus.find("q")
    assert many is not None and queue is not None
    for name in ("a", "b", "c"):
        web.run(many.readers.open(MAIN_LINE, name, b"me", b"id"))
    web.run(queue.readers.open(MAIN_LINE, "d", b"me", b"id"))

    samples = scrape(web)

    shown = [key[1] for key in lags(samples)]
    assert (shown.count("a"), shown.count("b"), shown.count("d"), len(shown)) == (16, 16, 1, 33)
    assert (value(samples, reader_metrics.READERS), len(set(shown))) == (4, 3)
    assert value(samples, reader_metrics.READERS_SHOWN) == 3
    web.close()


def test_the_readers_of_a_fragment_that_cannot_be_counted_are_not_told(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = web.bus.find("q")
    assert queue is not None
    web.run(queue.readers.open(MAIN_LINE, "r", b"me", b"id"))

    async def out(*_: object) -> None:
        raise Unavailable("no route")

    monkeypatch.setattr(web.broker, "statistics", out)

    assert not lags(scrape(web))
