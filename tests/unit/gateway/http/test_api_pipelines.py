"""Pipelines in the JSON API (P9): what is asked of whoever keeps them, and who may ask."""

import json

import pytest

from shardbus.broker.access.sas import mint_token
from shardbus.gateway.http.api.groups import api_groups
from tests.unit.gateway.http.kept_pipelines import Kept
from tests.unit.gateway.http.web import Web


@pytest.fixture
def kept(web: Web) -> Kept:
    kept = Kept()
    web.with_groups(api_groups(web.bus, web.counts, pipelines=kept))
    return kept


def test_pipelines_are_created_started_stopped_and_deleted(web: Web, kept: Kept) -> None:
    one = "/api/v1/pipelines/archive"
    body = b'{"entity": "orders", "path": "p"}'

    statuses = [
        web.fetch("PUT", one, body).status,
        web.fetch("POST", f"{one}/start").status,
        web.fetch("POST", f"{one}/stop").status,
        web.fetch("POST", f"{one}/stop?finish=1").status,
        web.fetch("DELETE", one).status,
        web.fetch("DELETE", f"{one}?abandon=1").status,
    ]

    assert statuses == [200] * 6
    assert kept.asked == [
        "create archive of orders at p",
        "start archive",
        "stop archive",
        "stop archive finishing",
        "delete archive",
        "delete archive abandoned",
    ]


def test_pipelines_are_listed_and_shown_with_progress_and_log(web: Web, kept: Kept) -> None:
    def show(path: str) -> dict[str, object]:
        document: dict[str, object] = json.loads(web.fetch("GET", path).body)
        return document

    one = "/api/v1/pipelines/archive"
    assert show("/api/v1/pipelines") == {"pipelines": [kept.show("archive")]}
    assert show(one) == kept.show("archive")
    assert show(f"{one}/progress") == kept.show("archive")["progress"]
    hours = show(f"{one}/hours")
    assert hours["series"] == {"enqueued": [3, None]}
    assert hours["keys"] == [{"key": "k", "enqueued": 3, "share": 1.0}]
    report = show(f"{one}/report?top=5")
    assert (report["letters"], report["over_time"], "page" in report) == (3, [2, 1], False)
    assert str(show(f"{one}/report?page=1")["page"]).startswith("<!DOCTYPE html>")
    assert show(f"{one}/logs?top=2") == {"name": "archive", "lines": ["two", "three"]}


def test_what_is_not_there_or_not_known_is_refused(web: Web, kept: Kept) -> None:
    assert web.fetch("GET", "/api/v1/pipelines/nobody").status == 404
    assert web.fetch("PUT", "/api/v1/pipelines/a", b'{"colour": "red"}').status == 400
    assert web.fetch("PUT", "/api/v1/pipelines/archive").status == 400
    assert web.fetch("GET", "/api/v1/pipelines/archive/logs?top=0").status == 400
    assert web.fetch("GET", "/api/v1/pipelines/archive/report?top=501").status == 400
    assert web.fetch("PATCH", "/api/v1/pipelines/archive").status == 405


def test_only_who_manages_the_namespace_may_ask(web: Web, kept: Kept) -> None:
    """R34."""
    body = b'{"rights": ["Send", "Listen"], "primary_key": "k"}'
    assert web.fetch("PUT", "/api/v1/access-rules/user", body).status == 200
    token = mint_token("sb://bus/", "user", "k", web.clock.now_ms() // 1000 + 60)

    for method, path in (("GET", ""), ("GET", "/archive/report"), ("POST", "/archive/start")):
        assert web.fetch(method, f"/api/v1/pipelines{path}", token=token).status == 401
    assert kept.asked == []
