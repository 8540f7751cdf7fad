"""`shardbus orphans`: what is asked of the API, and what people see."""

import json

import pytest
from click.testing import CliRunner, Result

from shardbus.app.cli.access import ClientAccess
from shardbus.app.cli.api_client import ApiClient, Document
from shardbus.app.cli.main import main
from tests.unit.app.scripted_api import Script, refusal

ORPHAN: Document = {
    "entity_id": 41,
    "broker": "broker-1",
    "fragments": [1, 3],
    "messages": 12,
    "size_bytes": 3_400,
    "problem": "",
}


def run(monkeypatch: pytest.MonkeyPatch, script: Script, *arguments: str) -> Result:
    def api(_: ClientAccess) -> ApiClient:
        return script.api()

    monkeypatch.setattr(ClientAccess, "api", api)
    return CliRunner().invoke(main, ["orphans", *arguments])


def test_each_orphan_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(monkeypatch, Script({"orphans": [ORPHAN]}), "list")

    heading, row = result.stdout.splitlines()
    assert heading.split()[:2] == ["ENTITY", "ID"]
    assert row.split() == ["41", "broker-1", "1,", "3", "12", "3.3", "KB"]
    assert run(monkeypatch, Script({"orphans": []}), "list").stdout == "there are no orphans\n"
    shown = run(monkeypatch, Script({"orphans": [ORPHAN]}), "list", "--json")
    assert json.loads(shown.stdout) == [ORPHAN]


def test_nothing_is_removed_that_nobody_is_sure_of(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script({"orphans": [ORPHAN]})

    result = run(monkeypatch, script, "remove", "41")

    assert result.exit_code == 2 and "pass --yes" in result.stderr
    assert script.lines() == ["GET orphans"]


def test_orphans_are_removed_by_their_id(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script({"entity_id": 41, "is_removed": True})

    result = run(monkeypatch, script, "remove", "41", "--yes")

    assert result.exit_code == 0, result.output
    assert script.asked == [("POST orphans/remove", {"entity_id": 41})]


def test_orphans_become_a_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script({"entity_id": 41, "name": "rescued", "fragments": 16})

    result = run(monkeypatch, script, "recover", "41", "rescued", "--requires-session")

    assert result.stdout == "'rescued' now has the 16 fragments\n"
    assert script.asked == [
        (
            "POST orphans/recover",
            {"entity_id": 41, "name": "rescued", "requires_session": True},
        )
    ]


def test_what_the_bus_refuses_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(monkeypatch, Script(refusal(404, "No store holds it.")), "remove", "9", "--yes")

    assert result.exit_code != 0
    assert "No store holds it." in result.stderr
