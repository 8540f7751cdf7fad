"""`shardbus backup`: what is asked of the API, and what people see (R43)."""

import json
import time
from typing import Protocol

import pytest
from click.testing import CliRunner, Result

from shardbus.app.cli.access import ClientAccess
from shardbus.app.cli.api_client import ApiClient, Document
from shardbus.app.cli.main import main
from tests.unit.app.scripted_api import Script, refusal


class Runner(Protocol):
    def __call__(self, script: Script, *arguments: str) -> Result: ...


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Runner:
    def run_with(script: Script, *arguments: str) -> Result:
        def api(access: ClientAccess, timeout_s: float = 0) -> ApiClient:
            return script.api()

        monkeypatch.setattr(ClientAccess, "api", api)
        monkeypatch.setattr(time, "sleep", lambda _: None)
        return CliRunner().invoke(main, ["backup", *arguments])

    return run_with


def backup(state: str, *, is_gathered: bool = True, error: str = "") -> Document:
    return {
        "name": "nightly",
        "state": state,
        "error": error,
        "path": "/backups/nightly",
        "cut_at": "2026-01-02T03:04:05.000Z",
        "hold_ms": 7,
        "done_bytes": 100,
        "size_bytes": 100,
        "messages": 42,
        "is_gathered": is_gathered,
        "files": [{"name": "broker-0.db", "where": "far:/backups/nightly/broker-0.db"}],
    }


def test_a_backup_is_asked_for_and_followed_to_its_end(run: Runner) -> None:
    script = Script(backup("running"), backup("running"), backup("done"))

    result = run(script, "nightly")

    assert result.exit_code == 0, result.output
    assert script.asked == [
        ("POST backups", {"name": "nightly"}),
        ("GET backups/nightly", {}),
        ("GET backups/nightly", {}),
    ]
    assert "42 messages" in result.stdout
    assert "writes waited for 7 ms" in result.stdout


def test_without_a_name_the_server_chooses_one(run: Runner) -> None:
    script = Script(backup("running"), backup("done"))

    result = run(script, "--json")

    assert json.loads(result.stdout)["state"] == "done"
    assert script.asked[0] == ("POST backups", {})


def test_a_backup_that_fails_says_why(run: Runner) -> None:
    result = run(Script(backup("running"), backup("failed", error="broker-1: full")), "nightly")

    assert result.exit_code == 1
    assert "the backup failed: broker-1: full" in result.stderr


def test_files_on_other_machines_are_named(run: Runner) -> None:
    result = run(Script(backup("running"), backup("done", is_gathered=False)), "nightly")

    assert "copy them into the directory" in result.stdout
    assert "far:/backups/nightly/broker-0.db" in result.stdout


def test_a_server_that_goes_away_meanwhile_leaves_it_open(run: Runner) -> None:
    result = run(Script(backup("running"), refusal(503, "gone")), "nightly")

    assert result.exit_code == 3
    assert "manifest.json" in result.stderr


def test_a_refusal_is_passed_on(run: Runner) -> None:
    result = run(Script(refusal(409, "The backup x is being made")), "nightly")

    assert result.exit_code == 1
    assert "is being made" in result.stderr
