"""`shardbus fragments`: what is asked, what is shown."""

import pytest
from click.testing import CliRunner

from shardbus.app.cli.api_client import Document
from shardbus.app.cli.main import main
from shardbus.app.cli.operations.fragments import Watched, shown, watch

PART: Document = {
    "number": 0,
    "broker": "broker-1",
    "state": "available",
    "reason": "",
    "active": 3,
    "deferred": 2,
    "scheduled": 5,
    "dead_letter": 1,
    "size_bytes": 400,
}


def test_each_fragment_is_a_row() -> None:
    text = shown({"name": "orders", "availability": "Available", "fragments": [PART]})

    title, heading, row = text.splitlines()
    assert title == "orders: Available"
    assert heading.split()[:3] == ["FRAGMENT", "BROKER", "STATE"]
    assert row.split() == ["0", "broker-1", "available", "3", "2", "5", "1", "400", "B"]


def test_what_a_fragment_out_of_reach_holds_is_not_claimed_to_be_nothing() -> None:
    out = {**PART, "state": "unavailable", "reason": "it was killed"}

    text = shown({"name": "orders", "availability": "Limited", "fragments": [out]})

    *_, row, reason = text.splitlines()
    assert row.split() == ["0", "broker-1", "unavailable", *["?"] * 5]
    assert reason == "fragment 0: it was killed"


def test_all_that_is_known_about_fragments_fits_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    full = {name: 12_345_678 if isinstance(value, int) else value for name, value in PART.items()}
    out = {**PART, "number": 15, "state": "unavailable", "reason": "broker-1 is not responding"}
    document: Document = {"name": "q", "availability": "Limited", "fragments": [full, out]}

    texts = [shown(document), Watched(lambda: 0.0).shown(document)]

    assert max(len(line) for text in texts for line in text.splitlines()) <= 80
    assert "11.8 MB" in texts[0]


def test_two_looks_tell_how_fast_a_fragment_fills_and_empties() -> None:
    now_s = 100.0
    watched = Watched(lambda: now_s)

    def row(**changed: int) -> list[str]:
        document: Document = {"name": "q", "fragments": [{**PART, **changed}]}
        return watched.shown(document).splitlines()[2].split()[-2:]

    assert row(sent_total=50, active=3, dead_letter=1) == ["-", "-"]
    now_s += 2
    assert row(sent_total=90, active=23, dead_letter=1) == ["20", "10"]


def test_a_fragment_out_of_reach_has_no_rates() -> None:
    out: Document = {**PART, "state": "unavailable", "reason": "killed"}

    lines = Watched(lambda: 0.0).shown({"name": "q", "fragments": [out]}).splitlines()

    assert lines[1].split()[-2:] == ["IN/S", "OUT/S"]
    assert lines[2].split()[-2:] == ["?", "?"]


def test_watching_shows_again_until_interrupted(capsys: pytest.CaptureFixture[str]) -> None:
    looks: list[str] = []

    def wait(seconds: float) -> None:
        looks.append("x")
        if len(looks) == 3:
            raise KeyboardInterrupt

    watch(lambda: f"look {len(looks)}", wait)

    assert [line for line in capsys.readouterr().out.splitlines() if "look" in line] == [
        "look 0",
        "look 1",
        "look 2",
    ]


def test_watching_and_json_exclude_each_other() -> None:
    result = CliRunner().invoke(main, ["fragments", "orders", "--watch", "--json"])

    assert result.exit_code == 2
    assert "give one of them" in result.output
