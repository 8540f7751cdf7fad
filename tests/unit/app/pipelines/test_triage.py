"""Triage as a kind of pipelines: which letters it reads, and its reports (P7)."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import UNSET

from shardbus.app.pipelines.definition import Definition, definition_from
from shardbus.app.pipelines.letter_reports import newest_report, report_of
from shardbus.app.pipelines.triage import ENTITIES_MAX, Triage
from shardbus.core.errors import (
    INVALID_ARGUMENT,
    NOT_ALLOWED,
    NOT_FOUND,
    ErrorKind,
    Unavailable,
)
from shardbus.core.namespace.entity import EntitySpec
from shardbus.gateway.http.api.places import EntityPlaces
from shardbus.gateway.http.server.counts import HttpCounts
from tests.support.refusals import check_named, refusal_of
from tests.unit.app.test_triage import GROUP, REPORT
from tests.unit.gateway.http.web import Web

SAMPLE = {"enqueued_at": "2026-01-01T00:00:00Z", "delivery_count": 1}
WHOLE = {
    **REPORT,
    **dict.fromkeys(("first_at", "last_at"), "2026-01-01T00:00:00Z"),
    "step_s": 1,
    "steps": ["2026-01-01T00:00:00Z"],
    "over_time": [7],
    "groups": [
        {
            **GROUP,
            **dict.fromkeys(("source", "subject", "description"), ""),
            **dict.fromkeys(("first_at", "last_at"), "2026-01-01T00:00:00Z"),
            "samples": [{"sequence_number": 1, "message_id": "m", "excerpt": "{}", **SAMPLE}],
            "over_time": [7],
        }
    ],
}


@pytest.fixture
def web() -> Iterator[Web]:
    web = Web()
    web.create_topic("news")
    web.subscribe("news", "all")
    web.subscribe("news", "mail")
    web.create_topic("lonely")
    held = EntitySpec()
    held.status = "ReceiveDisabled"
    web.subscribe("news", "held", spec=held)
    yield web
    web.close()


def triage(**members: object) -> Triage:
    given = {"name": "nightly", "kind": "triage", "entity": "q", **members}
    task = definition_from(given).task
    assert isinstance(task, Triage)
    return task


def computed(web: Web, **members: object) -> dict[str, str]:
    places = EntityPlaces(web.bus, HttpCounts(), None)
    made = triage(**members)
    made.check_entity(places)
    return made.compute(places)


def test_the_subscriptions_of_a_topic_are_read_together(web: Web) -> None:
    """P7: those that there are when the driver is started; also where receivers are held."""
    names = ["news/Subscriptions/all", "news/Subscriptions/held", "news/Subscriptions/mail"]

    assert computed(web)["entities"] == "q"
    assert computed(web, entity="Q/$DeadLetterQueue")["entities"] == "q"
    assert computed(web, entity="NEWS")["entities"] == ",".join(names)
    assert computed(web, entity=names[1])["entities"] == names[1]
    assert triage(entity="news").opened_entity == "news"


def test_letters_are_selected_by_rules(web: Web) -> None:
    """P5, P7: by the same language as messages of a subscription."""
    found = computed(web, rule="amount > 1", like_subscription="news/Subscriptions/all")

    assert json.loads(found["filters"]) == [
        [["compare", ">", ["user", "amount"], ["constant", "long", "1"]]],
        [["constant", "boolean", "true"]],
    ]


@pytest.mark.parametrize(
    ("members", "kind", "named"),
    [
        ({"entity": "gone"}, NOT_FOUND, "'gone'"),
        ({"entity": "news/Subscriptions/gone"}, NOT_FOUND, "gone"),
        ({"entity": "lonely"}, NOT_ALLOWED, "'lonely'"),
        ({"rule": "amount >"}, INVALID_ARGUMENT, "column 9"),
        ({"like_subscription": "news/Subscriptions/gone"}, NOT_FOUND, "gone"),
        ({"path": "/etc"}, INVALID_ARGUMENT, "path is '/etc'"),
        ({"interval_ms": 59_999}, INVALID_ARGUMENT, "interval_ms"),
        ({"reports_max": 0}, INVALID_ARGUMENT, "reports_max"),
    ],
)
def test_what_cannot_be_read_is_refused(
    web: Web, members: dict[str, object], kind: ErrorKind, named: str
) -> None:
    with refusal_of(kind, named):
        computed(web, **members)


def test_a_topic_may_have_too_many_subscriptions_for_one_plan(web: Web) -> None:
    for number in range(ENTITIES_MAX - 2):
        web.subscribe("news", f"s{number}")

    with refusal_of(NOT_ALLOWED, str(ENTITIES_MAX)):
        computed(web, entity="news")


def keep(root: Path, name: str, content: object = WHOLE) -> Path:
    place = root / name
    place.mkdir(parents=True)
    (place / "report.html").write_text("<!DOCTYPE html>")
    (place / "report.json").write_text(json.dumps(content))
    return place


def test_the_newest_complete_report_is_shown(tmp_path: Path) -> None:
    """P7, P9"""
    first = keep(tmp_path, "20260101T000000000Z")
    keep(tmp_path, "20260102T000000000Z", {**WHOLE, "letters": 9})
    (tmp_path / "20260103T000000000Z" / "letters").mkdir(parents=True)
    keep(tmp_path, "of somebody else", {})
    definition = Definition("nightly", triage())

    found = asyncio.run(report_of(definition, lambda _: str(tmp_path), has_page=True))

    assert (found.letters, found.name) == (9, "20260102T000000000Z")
    assert found.location == str(tmp_path / found.name)
    assert (found.earlier, found.page) == ([first.name], "<!DOCTYPE html>")
    assert found.groups[0].samples[0].message_id == "m"


def test_before_the_first_report_there_is_none(tmp_path: Path) -> None:
    definition = Definition("nightly", triage())

    found = asyncio.run(report_of(definition, lambda _: str(tmp_path / "none"), has_page=True))
    assert (found.name, found.letters, found.groups, found.page) == ("", 0, [], UNSET)
    with refusal_of(NOT_ALLOWED, "s3a://bucket/nightly"):
        asyncio.run(report_of(definition, lambda _: "s3a://bucket/nightly", has_page=False))
    other = definition_from({"name": "archive", "entity": "q"})
    with refusal_of(NOT_ALLOWED, "archive", "capture", "triage"):
        asyncio.run(report_of(other, lambda _: str(tmp_path), has_page=False))


def test_a_damaged_report_is_named(tmp_path: Path) -> None:
    place = keep(tmp_path, "20260101T000000000Z", {"version": 1})

    with pytest.raises(Unavailable) as failure:
        newest_report(tmp_path)
    check_named(failure.value.message, str(place))
