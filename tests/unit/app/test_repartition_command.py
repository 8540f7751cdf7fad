"""`shardbus repartition`: what is asked of the API, and what people see (P6)."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from click.testing import CliRunner, Result

from shardbus.app.cli.access import ClientAccess
from shardbus.app.cli.api_client import ApiClient, Document
from shardbus.app.cli.client import Answer
from shardbus.app.cli.console import Json
from shardbus.app.cli.failures import ConnectionLost, ServerUnavailable
from shardbus.app.cli.main import main
from shardbus.app.cli.operations import repartition
from tests.unit.app.scripted_api import Script

MAP: Document = {
    "name": "orders",
    "map_number": 1,
    "state": "settled",
    "is_dry_run": False,
    "ranges": [
        {"fragment": 1, "share": 0.25, "sent_total": 40, "active": 3},
        {"fragment": 2, "share": 0.75, "sent_total": 10, "active": 0},
    ],
    "former": [0],
    "left_active": 0,
    "left_deferred": 2,
    "left_scheduled": 0,
    "left_dead_letter": 1,
    "skew": 1.6,
    "advice": "fragment 1 gets more than its share.",
}
STATUS: Document = {
    "name": "orders",
    "fragments": 1,
    "former": 0,
    "is_prepared": False,
    "progress": None,
    "failure": "",
}
DRAINING: Document = {**MAP, "state": "draining", "left_active": 5}


def run(monkeypatch: pytest.MonkeyPatch, script: Script, *arguments: str) -> Result:
    def api(_: ClientAccess) -> ApiClient:
        return script.api()

    monkeypatch.setattr(ClientAccess, "api", api)
    monkeypatch.setattr(repartition, "WATCH_S", 0.0)
    return CliRunner().invoke(main, ["repartition", "orders", *arguments])


def test_the_map_is_shown_with_what_former_fragments_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(MAP)

    title, heading, first, _, former, skew = run(monkeypatch, script).stdout.splitlines()

    assert title == "orders has 2 fragments"
    assert (heading.split(), first.split()) == (
        ["FRAGMENT", "SHARE", "SENT", "ACTIVE"],
        ["1", "25.0%", "40", "3"],
    )
    assert former == (
        "former fragments (0) hold 0 messages to receive, 2 deferred, 1 dead-lettered"
    )
    assert skew.startswith("skew 1.6: fragment 1")
    assert script.lines() == ["GET entities/orders/map"]


def test_a_queue_is_repartitioned_and_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(STATUS, DRAINING, DRAINING, MAP)

    result = run(monkeypatch, script, "--fragments", "2", "--wait", "--json")

    assert result.exit_code == 0 and json.loads(result.stdout) == MAP
    assert result.stderr.count("5 messages to receive") == 2
    assert script.lines() == [
        "GET entities/orders/repartition",
        "POST entities/orders/repartition",
        *["GET entities/orders/map"] * 2,
    ]


def under_way(step: str, done: int = 0, **more: Json) -> Document:
    progress: Document = {
        "fragments": 2,
        "step": step,
        "done": done,
        "total": 2_000,
        "can_be_cancelled": True,
    }
    return {**STATUS, "progress": progress, **more}


class Broken(Script):
    """The connection is lost while the answer to a POST is awaited, and once more later."""

    def ask(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None
    ) -> Answer:
        answer = super().ask(method, target, headers, body)
        if method == "POST":
            raise ConnectionLost("gone")
        if len(self.asked) == 4:
            raise ServerUnavailable("away")
        return answer


@pytest.mark.parametrize("is_broken", [False, True])
def test_a_repartition_that_takes_long_is_watched(
    monkeypatch: pytest.MonkeyPatch, is_broken: bool
) -> None:
    """P6: also if the connection is lost meanwhile."""
    steps = [under_way("recording", 7), under_way("recording", 900), under_way("sealing")]
    ended: Document = {**STATUS, "fragments": 2, "former": 1}
    preparing: Document = {**MAP, "state": "preparing", "progress": under_way("x")["progress"]}
    kind = Broken if is_broken else Script
    script = kind(STATUS, preparing, *steps, ended, MAP)

    result = run(monkeypatch, script, "--fragments", "2", "--json")

    assert result.exit_code == 0 and json.loads(result.stdout) == MAP
    assert script.asked[1][1]["wait_ms"]
    assert script.lines()[2:] == [
        *["GET entities/orders/repartition"] * 4,
        "GET entities/orders/map",
    ]


@pytest.mark.parametrize(
    ("last", "told"),
    [
        ({**STATUS, "failure": "it has unpublished stages"}, "unpublished stages"),
        (STATUS, "ask again"),
    ],
)
def test_a_repartition_that_fails_while_it_is_watched_says_why(
    monkeypatch: pytest.MonkeyPatch, last: Document, told: str
) -> None:
    """P6: by the words of the server, or because the server ended."""
    preparing: Document = {**MAP, "state": "preparing", "progress": under_way("x")["progress"]}
    script = Script(STATUS, preparing, {**STATUS, "is_prepared": True}, last)

    result = run(monkeypatch, script, "--fragments", "2")

    assert result.exit_code == 1 and told in result.stderr


def test_the_map_tells_what_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    preparing: Document = {
        **MAP,
        "state": "preparing",
        "progress": under_way("creating", 40)["progress"],
    }

    result = run(monkeypatch, Script(preparing))

    assert "under way: creating 40 of 2000; --cancel undoes it" in result.stdout


def test_a_plan_and_an_end_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Script({**MAP, "is_dry_run": True})
    result = run(monkeypatch, plan, "--fragments", "2", "--dry-run")
    assert result.stdout.startswith("orders would have 2 fragments")

    ended = Script({**MAP, "state": "preparing"})
    result = run(monkeypatch, ended, "--cancel")
    assert "--cancel undoes it" in result.stdout
    assert ended.lines() == ["POST entities/orders/repartition/cancel"]


@pytest.mark.parametrize("wrong", [("--dry-run",), ("--cancel", "--fragments", "2")])
def test_options_that_do_not_fit_are_refused(
    monkeypatch: pytest.MonkeyPatch, wrong: tuple[str, ...]
) -> None:
    script = Script()
    result = run(monkeypatch, script, *wrong)

    assert result.exit_code == 2 and "--fragments" in result.stderr
    assert script.lines() == []
