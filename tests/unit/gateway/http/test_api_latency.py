"""Percentiles of the last hour, from the newest lifecycle records (P8, R45)."""

import json

import pytest

from shardbus.app.cli.report.command import read_report
from shardbus.core.namespace.entity import EntitySpec
from shardbus.gateway.http.api.bulk import latency
from shardbus.gateway.http.api.bulk.latency import KEPT_MS, STEP_MS, STEPS
from tests.unit.gateway.http.web import Web

Json = dict[str, object]
PATH = "/api/v1/entities/timed"


def ask(web: Web, path: str = "", body: Json | None = None, *, status: int = 200) -> Json:
    method = "GET" if body is None else "POST"
    response = web.fetch(method, PATH + path, b"" if body is None else json.dumps(body).encode())
    assert response.status == status, response.body
    found: Json = json.loads(response.body)
    return found


def make(web: Web, *, is_on: bool = True, is_partitioned: bool = True) -> None:
    spec = EntitySpec()
    spec.lifecycle, spec.is_partitioned = is_on, is_partitioned
    web.run(web.namespace.create_queue("timed", spec))


def pass_through(web: Web, count: int, *, wait_s: float, hold_s: float) -> None:
    """Messages that wait, are held, and are completed."""
    ask(web, "/messages", {"messages": [{"body": "x"} for _ in range(count)]})
    web.pass_s(wait_s)
    messages = ask(web, "/messages/receive", {"count": count})["messages"]
    assert isinstance(messages, list) and len(messages) == count
    web.pass_s(hold_s)
    tokens = [message["lock_token"] for message in messages]
    ask(web, "/messages/settle", {"action": "complete", "lock_tokens": tokens})
    web.pass_s(2)


def in_s(percentiles: object) -> tuple[int, ...]:
    """The clock of these tests also passes with each request."""
    assert isinstance(percentiles, dict)
    return percentiles["count"], *(
        percentiles[each] // 1_000 for each in ("p50", "p90", "p99", "max")
    )


def test_the_times_of_the_last_hour_are_shown_by_minute(web: Web) -> None:
    make(web)
    pass_through(web, 9, wait_s=3, hold_s=1)
    pass_through(web, 1, wait_s=40, hold_s=20)

    found = ask(web, "/latency")

    assert in_s(found["time_in_queue_ms"]) == (10, 3, 3, 40, 40)
    assert in_s(found["time_to_settle_ms"]) == (10, 1, 1, 20, 20)
    assert (found["is_on"], found["is_whole"], found["unavailable_fragments"]) == (True, True, [])
    assert (found["count"], found["step_ms"]) == (STEPS, STEP_MS)
    series = found["series"]
    assert isinstance(series, dict)
    assert {len(values) for values in series.values()} == {STEPS}
    assert max(value for value in series["queue_p99_ms"] if value is not None) // 1_000 == 40
    assert series["queue_p50_ms"].count(None) >= STEPS - 3


def test_an_answer_is_shared_for_some_seconds_and_then_made_anew(web: Web) -> None:
    make(web)
    pass_through(web, 1, wait_s=1, hold_s=1)
    first = ask(web, "/latency")
    pass_through(web, 1, wait_s=1, hold_s=1)

    assert ask(web, "/latency") == first
    web.pass_s(KEPT_MS / 1000)
    assert ask(web, "/latency")["time_in_queue_ms"] != first["time_in_queue_ms"]


def test_what_is_older_than_an_hour_is_left_out(web: Web) -> None:
    make(web)
    pass_through(web, 5, wait_s=1, hold_s=1)
    web.pass_s(STEPS * STEP_MS / 1000 + 60)

    found = ask(web, "/latency")

    assert found["time_in_queue_ms"] == {"count": 0, "p50": 0, "p90": 0, "p99": 0, "max": 0}


def test_no_more_than_the_newest_blocks_are_read(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cost does not grow with what was recorded."""
    monkeypatch.setattr(latency, "BLOCKS_MAX", 6)
    make(web, is_partitioned=False)
    for _ in range(5):
        pass_through(web, 1, wait_s=1, hold_s=1)

    found = ask(web, "/latency")

    assert found["is_whole"] is False
    times = found["time_to_settle_ms"]
    assert isinstance(times, dict) and 0 < times["count"] < 5


def test_an_entity_without_records_says_so(web: Web) -> None:
    make(web, is_on=False)
    pass_through(web, 1, wait_s=1, hold_s=1)

    found = ask(web, "/latency")

    assert (found["is_on"], found["is_whole"]) == (False, True)
    ask(web, "%2F$DeadLetterQueue/latency", status=400)


def test_the_report_is_that_of_the_command(web: Web) -> None:
    """R47, P8."""
    make(web)
    pass_through(web, 9, wait_s=3, hold_s=1)
    ask(web, "/messages", {"messages": [{"body": "x", "partition_key": "k"} for _ in range(3)]})

    found = ask(web, "/report")

    assert (found["entity"], found["is_on"], found["is_whole"]) == ("timed", True, True)
    assert in_s(found["time_in_queue_ms"])[:2] == (9, 3)
    assert isinstance(found["events"], dict) and isinstance(found["keys"], list)
    assert (found["events"]["enqueue"], found["events"]["complete"]) == (12, 9)
    assert [(one["key"], one["enqueued"]) for one in found["keys"]] == [("k", 3)]
    assert isinstance(found["over_time"], dict)
    assert sum(found["over_time"]["enqueued"]) == 12
    api = ApiClientOf(web)
    whole = read_report(api, "timed", 10_000, str(found["made_at"]))  # type: ignore[arg-type]  # only its `get` is used
    assert {name: found[name] for name in whole} == whole
    ask(web, "/$DeadLetterQueue/report", status=400)


class ApiClientOf:
    """Asks the web of a test as the command line asks a bus."""

    def __init__(self, web: Web) -> None:
        self._web = web

    def get(self, path: str, **query: object) -> Json:
        asked = "&".join(f"{name}={value}" for name, value in query.items())
        found: Json = json.loads(self._web.fetch("GET", f"/api/v1/{path}?{asked}").body)
        return found
