"""The overview that consoles poll, and the history of its numbers (R9, R29, R45)."""

import gzip
import json
from datetime import datetime, timedelta

import pytest

from shardbus.broker.broker import Broker
from shardbus.broker.survey import Survey
from shardbus.core.errors import Unavailable
from shardbus.gateway.http.observing.history import (
    COARSE_STEPS,
    FINE_COUNT,
    History,
)
from shardbus.gateway.http.observing.snapshot import Snapshots
from tests.unit.gateway.http.web import Web, header

Json = dict[str, object]


def show(web: Web, path: str = "overview", **headers: str) -> Json:
    response = web.fetch("GET", f"/api/v1/{path}", headers=headers)
    assert response.status == 200, response.body
    document: Json = json.loads(response.body)
    return document


def later(web: Web, ms: int = 1_000) -> None:
    web.pass_s(ms / 1_000)


def entity(document: Json, name: str) -> Json:
    entities = document["entities"]
    assert isinstance(entities, list)
    found: Json = next(each for each in entities if each["name"] == name)
    return found


def test_the_overview_counts_every_entity_and_adds_them_up(web: Web) -> None:
    """R9, R29."""
    web.create_topic("news")
    web.subscribe("news", "eu")
    for _ in range(3):
        web.send("many")
    web.send("news")
    web.send("q", b"x", {"ScheduledEnqueueTimeUtc": "9000-01-01T00:00:00Z"})

    document = show(web)

    names = [each["name"] for each in document["entities"]]  # type: ignore[attr-defined]  # a list
    assert names == ["many", "news", "news/Subscriptions/eu", "q"]
    many = entity(document, "many")
    assert (many["active"], many["fragment_count"], many["is_partial"]) == (3, 16, False)
    assert many["size_bytes_max"] == 16 * 1024**3
    assert many["oldest_at"]
    assert entity(document, "news/Subscriptions/eu")["active"] == 1
    assert entity(document, "q")["scheduled"] == 1
    totals = document["totals"]
    assert isinstance(totals, dict)
    assert (totals["active"], totals["scheduled"], totals["is_partial"]) == (4, 1, False)
    assert document["is_complete"] is True


def test_rates_are_those_of_the_last_second(web: Web) -> None:
    """R45."""
    show(web)
    for number in range(10):
        web.send("many", b"x", {"PartitionKey": f"{number}"})
    for _ in range(4):
        web.take("many")
    later(web, 2_000)

    moving = entity(show(web), "many")
    later(web)
    still = entity(show(web), "many")

    assert 3 < float(str(moving["in_per_s"])) <= 5
    assert 1 < float(str(moving["out_per_s"])) <= 2
    assert (still["in_per_s"], still["out_per_s"], still["active"]) == (0.0, 0.0, 6)


def test_each_broker_tells_the_messages_and_rates_of_its_fragments(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R45: what a topic passes on is counted where it waits."""
    web.create_topic("news")
    web.subscribe("news", "eu")
    show(web)
    for _ in range(4):
        web.send("many")
    web.send("news")
    later(web)

    [busy] = brokers(show(web))
    totals = show(web)["totals"]
    assert isinstance(totals, dict)
    assert (busy["active"], totals["active"]) == (5, 5)
    assert busy["in_per_s"] == pytest.approx(totals["in_per_s"], abs=0.2)
    assert totals["in_per_s"] > 4 and busy["out_per_s"] == 0

    async def out(since: int) -> Survey:
        raise Unavailable("broker b0 is out")

    monkeypatch.setattr(web.broker, "survey", out)
    later(web)
    [gone] = brokers(show(web))
    assert (gone["active"], gone["in_per_s"], gone["out_per_s"]) == (None, None, None)


def brokers(document: Json) -> list[Json]:
    found = document["brokers"]
    assert isinstance(found, list)
    return found


def test_what_has_not_changed_is_not_sent_again(web: Web) -> None:
    first = web.fetch("GET", "/api/v1/overview")
    etag = header(first, "ETag")
    later(web)

    same = web.fetch("GET", "/api/v1/overview", headers={"If-None-Match": etag})
    web.send("q")
    later(web)
    other = web.fetch("GET", "/api/v1/overview", headers={"If-None-Match": etag})

    assert (same.status, same.body, header(same, "ETag")) == (304, b"", etag)
    assert other.status == 200 and header(other, "ETag") != etag


def test_the_overview_is_compressed_for_clients_that_can_read_that(web: Web) -> None:
    plain = web.fetch("GET", "/api/v1/overview")
    packed = web.fetch("GET", "/api/v1/overview", headers={"Accept-Encoding": "gzip, br"})

    assert header(packed, "Content-Encoding") == "gzip"
    assert gzip.decompress(packed.body) == plain.body


def test_brokers_are_asked_once_a_second_whoever_asks(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    survey = web.broker.survey

    async def counted(since: int) -> Survey:
        asked.append(since)
        return await survey(since)

    monkeypatch.setattr(web.broker, "survey", counted)
    for _ in range(20):
        show(web)
    later(web)
    show(web)

    assert len(asked) == 2
    assert asked[0] == 0 and asked[1] > 0


def test_an_answer_has_only_what_changed(web: Web) -> None:
    web.send("many", b"x", {"PartitionKey": "k"})
    first = web.run(web.broker.survey(0))
    web.send("many", b"x", {"PartitionKey": "k"})

    second = web.run(web.broker.survey(first.version))
    third = web.run(web.broker.survey(second.version))

    assert first.is_new and len(first.rows) == 17
    assert [row.active for row in second.rows] == [2]
    assert not third.rows


def test_an_entity_of_an_unreachable_broker_is_partial(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R29."""
    web.send("q")
    show(web)

    async def out(since: int) -> Survey:
        raise Unavailable("broker b0 is out")

    monkeypatch.setattr(web.broker, "survey", out)
    later(web)
    document = show(web)

    found = entity(document, "q")
    assert (found["is_partial"], found["availability"]) == (True, "Limited")
    assert (found["fragments_out"], found["active"]) == (1, 0)


def test_a_deleted_entity_is_no_longer_counted(web: Web) -> None:
    web.send("q")
    show(web)
    web.run(web.namespace.delete("q"))
    later(web)

    document = show(web)

    assert [each["name"] for each in document["entities"]] == ["many"]  # type: ignore[attr-defined]  # a list


def test_entities_that_nobody_used_since_the_start_are_counted_from_the_store(web: Web) -> None:
    web.send("q")
    started = Broker("b0", web.storage, web.clock, web.loop)

    survey = web.run(started.survey(0))

    [row] = [row for row in survey.rows if row.active]
    assert (row.active, row.oldest_ms > 0, survey.is_complete) == (1, True, True)
    assert len(survey.rows) == 17


def test_receivers_are_counted(web: Web) -> None:
    waiting = web.start(web.request("POST", "/q/messages/head?timeout=30"))
    later(web)

    assert entity(show(web), "q")["receivers"] == 1
    web.send("q")
    later(web)
    assert waiting.done()
    assert entity(show(web), "q")["receivers"] == 0


def test_a_fragment_tells_its_load_age_and_store(web: Web) -> None:
    """R45."""
    show(web)
    web.send("many", b"x", {"PartitionKey": "k"})
    later(web, 2_000)

    parts = show(web, "entities/many/fragments")["fragments"]
    assert isinstance(parts, list)
    [busy] = [part for part in parts if part["active"]]

    assert busy["in_per_s"] > 0 and busy["oldest_at"] and busy["store"] == "store-0"
    assert busy["size_bytes_max"] == 1024**3
    assert sum(part["in_per_s"] for part in parts) == busy["in_per_s"]


def test_history_shows_rates_depth_and_age(web: Web) -> None:
    """R45."""
    record(web)
    for _ in range(10):
        web.send("q")
    later(web, 5_000)
    record(web)
    later(web, 5_000)
    record(web)

    of_queue = show(web, "entities/q/history")
    of_all = show(web, "history?step=5s")

    for document in (of_queue, of_all):
        series = document["series"]
        assert isinstance(series, dict)
        assert series["active"] == [0.0, 10.0, 10.0]
        assert series["in_per_s"][0] is None
        assert 1.5 < series["in_per_s"][1] <= 2.1
        assert series["in_per_s"][2] == 0.0
        assert series["oldest_age_ms"][0] is None
        assert 4_000 < series["oldest_age_ms"][2] - series["oldest_age_ms"][1] < 6_000
        assert (document["step_ms"], document["count"]) == (5_000, 3)


def test_history_continues_after_a_moment(web: Web) -> None:
    for _ in range(4):
        record(web)
        later(web, 5_000)
    first = show(web, "history")
    record(web)

    more = show(web, f"history?since={last_of(first)}")

    assert (first["count"], more["count"]) == (4, 1)


@pytest.mark.parametrize("path", ["history", "entities/q/history", "pipelines/archive/history"])
def test_history_is_written_once_a_step_and_sent_where_it_is_not_known(
    web: Web, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    web.progresses["archive"] = {"rows_per_s": 2.0, "backlog": 7, "state": "running"}
    record(web)
    written = counted_windows(monkeypatch)
    url = f"/api/v1/{path}"

    first = web.fetch("GET", url)
    etag = header(first, "ETag")
    same = web.fetch("GET", url, headers={"If-None-Match": etag})
    packed = web.fetch("GET", url, headers={"Accept-Encoding": "gzip"})
    assert (same.status, same.body, header(same, "ETag")) == (304, b"", etag)
    assert gzip.decompress(packed.body) == first.body and len(written) == 1

    later(web, 5_000)
    record(web)
    other = web.fetch("GET", url, headers={"If-None-Match": etag})
    assert (other.status, json.loads(other.body)["count"], len(written)) == (200, 2, 2)
    assert header(other, "ETag") != etag


def counted_windows(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    keys: list[str] = []
    fine = History.fine

    def counted(history: History, key: str, count: int) -> list[list[float | None]]:
        keys.append(key)
        return fine(history, key, count)

    monkeypatch.setattr(History, "fine", counted)
    return keys


def test_each_window_of_a_history_is_an_answer_of_its_own(web: Web) -> None:
    for _ in range(COARSE_STEPS + 1):
        record(web)
        later(web, 5_000)
    fine, coarse = show(web, "history?step=5s"), show(web, "history?step=1m")
    since = show(web, f"history?since={fine['first_at']}")

    assert (fine["count"], since["count"], coarse["count"]) == (13, 12, 1)
    assert (fine["step_ms"], coarse["step_ms"]) == (5_000, 60_000)


def test_the_day_of_a_history_is_written_once_a_minute(web: Web) -> None:
    for _ in range(COARSE_STEPS):
        record(web)
        later(web, 5_000)
    first = web.fetch("GET", "/api/v1/history?step=1m")
    record(web)
    same = {"If-None-Match": header(first, "ETag")}

    assert web.fetch("GET", "/api/v1/history?step=1m", headers=same).status == 304


def test_a_snapshot_that_was_not_asked_for_makes_room() -> None:
    snapshots = Snapshots(count_max=2)
    written: list[str] = []

    def write(name: str) -> bytes:
        written.append(name)
        return name.encode()

    def ask(name: str) -> None:
        snapshots.get((name,), 1, lambda: write(name))

    for name in ("a", "b", "a", "c", "a", "b"):
        ask(name)

    assert written == ["a", "b", "c", "b"]


def last_of(document: Json) -> str:
    first = datetime.fromisoformat(str(document["first_at"]))
    steps = int(str(document["count"])) - 1
    last = first + timedelta(milliseconds=int(str(document["step_ms"])) * steps)
    return last.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


@pytest.mark.parametrize("query", ["step=7s", "since=yesterday", "stp=5s"])
def test_a_wrong_question_about_history_is_refused(web: Web, query: str) -> None:
    assert web.fetch("GET", f"/api/v1/history?{query}").status == 400


def test_history_has_a_minute_for_twelve_steps() -> None:
    history = History(("rate", "depth"), averaged=1)
    for step in range(1, 3 * COARSE_STEPS + 1):
        history.advance(step * 5_000)
        history.record("a", (12.0 if step <= COARSE_STEPS else 0.0, float(step)))

    assert history.coarse("a", 10) == [[12.0, 0.0, 0.0], [12.0, 24.0, 36.0]]


def test_history_keeps_an_hour_and_what_stands_still_costs_nothing() -> None:
    history = History(("rate",), averaged=1)
    for step in range(1, 3 * FINE_COUNT):
        history.advance(step * 5_000)
        history.record("busy", (float(step),))
        history.record("idle", (7.0,))

    [busy], [idle] = history.fine("busy", 9_999), history.fine("idle", 9_999)
    assert len(busy) == len(idle) == FINE_COUNT
    assert (busy[-1], busy[0]) == (3.0 * FINE_COUNT - 1, 2.0 * FINE_COUNT)
    assert set(idle) == {7.0}
    assert history.row_count < FINE_COUNT + 64 + 3 * FINE_COUNT // COARSE_STEPS + 5


def test_history_forgets_what_stood_still_for_longest_when_there_is_too_much() -> None:
    history = History(("rate",), averaged=1, rows_max=1_000)
    for step in range(1, 300):
        history.advance(step * 5_000)
        for name in ("a", "b", "c", "d", "e"):
            history.record(name, (float(step),))
        history.record("idle", (1.0,))

    assert history.row_count <= 1_000


def test_the_states_of_a_pipeline_are_in_its_history(web: Web) -> None:
    """R47: a failure of some seconds is seen in the history of a day."""
    for step in range(1, 2 * COARSE_STEPS + 1):
        state = "failing" if step == 3 else "starting" if step < 6 else "running"
        web.progresses["archive"] = {"rows_per_s": 2.0, "backlog": 7, "state": state}
        record(web)
        later(web, 5_000)
    web.progresses["archive"]["state"] = "unheard of"
    record(web)

    fine, coarse = (
        show(web, "pipelines/archive/history"),
        show(web, "pipelines/archive/history?step=1m"),
    )

    assert isinstance(fine["states"], list)
    assert fine["states"][:7] == ["starting", "starting", "failing", *2 * ["starting"],
                                  *2 * ["running"]]  # fmt: skip
    assert fine["states"][-2:] == ["running", None]
    assert coarse["states"] == ["failing", "running"]
    assert isinstance(fine["series"], dict)
    assert set(fine["series"]) == {"rows_per_s", "backlog", "batch_ms"}
    assert len(fine["states"]) == fine["count"]
    assert web.fetch("GET", "/api/v1/pipelines/other/history").status == 404


def record(web: Web) -> None:
    async def work() -> None:
        await web.overviews.current()
        web.overviews.record()

    web.run(work())
