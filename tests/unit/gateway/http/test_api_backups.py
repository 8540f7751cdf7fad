"""Backups in the JSON API (R43): what is asked of whoever makes them, and who may ask."""

import json

import pytest

from shardbus.broker.access.sas import mint_token
from shardbus.gateway.http.api.groups import api_groups
from tests.unit.gateway.http.kept_backups import Kept
from tests.unit.gateway.http.web import Web

BACKUPS = "/api/v1/backups"


@pytest.fixture
def kept(web: Web) -> Kept:
    kept = Kept()
    web.with_groups(api_groups(web.bus, web.counts, backups=kept))
    return kept


def test_backups_are_begun_listed_and_shown(web: Web, kept: Kept) -> None:
    assert web.fetch("POST", BACKUPS, b'{"name": "nightly"}').status == 200
    assert web.fetch("POST", BACKUPS).status == 200
    assert kept.asked == ["nightly", ""]
    shown = json.loads(web.fetch("GET", f"{BACKUPS}/nightly").body)
    assert (shown["name"], shown["state"]) == ("nightly", "done")
    assert json.loads(web.fetch("GET", BACKUPS).body) == {"backups": [shown]}


def test_what_is_not_there_or_not_known_is_refused(web: Web, kept: Kept) -> None:
    assert web.fetch("GET", f"{BACKUPS}/nobody").status == 404
    assert web.fetch("POST", BACKUPS, b'{"path": "/etc"}').status == 400
    assert web.fetch("POST", BACKUPS, b'{"name": 7}').status == 400
    assert web.fetch("POST", BACKUPS, b'{"name": "%s"}' % (b"a" * 101)).status == 400
    assert web.fetch("DELETE", f"{BACKUPS}/nightly").status == 405


def test_only_who_manages_the_namespace_may_ask(web: Web, kept: Kept) -> None:
    """R34."""
    body = b'{"rights": ["Send", "Listen"], "primary_key": "k"}'
    assert web.fetch("PUT", "/api/v1/access-rules/user", body).status == 200
    token = mint_token("sb://bus/", "user", "k", web.clock.now_ms() // 1000 + 60)

    for method, path in (("GET", ""), ("GET", "/nightly"), ("POST", "")):
        assert web.fetch(method, f"{BACKUPS}{path}", token=token).status == 401
    assert kept.asked == []
