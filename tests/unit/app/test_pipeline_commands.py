"""`shardbus pipeline`: what is asked of the API, and what people see (P9)."""

import io
import json
import time
from pathlib import Path
from typing import Protocol

import pytest
from click.testing import CliRunner, Result

from shardbus.app.cli.access import ClientAccess
from shardbus.app.cli.api_client import ApiClient, Document
from shardbus.app.cli.entities.pipeline import StopNotice, wait_until_over, watch
from shardbus.app.cli.entities.pipeline_view import duration, progress_line
from shardbus.app.cli.failures import ServerUnavailable
from shardbus.app.cli.main import main
from tests.unit.app.scripted_api import Script, refusal
from tests.unit.app.test_triage import REPORT


class Runner(Protocol):
    """`shardbus pipeline` with an API whose answers are written down beforehand."""

    def __call__(self, script: Script, *arguments: str) -> Result: ...


def pipeline(state: str = "running", *, rows: int = 30, backlog: int = 10) -> Document:
    progress: Document = {
        "at": "2026-01-02T03:04:05Z",
        "batch": 2,
        "rows": 5,
        "rows_total": rows,
        "rows_per_s": 12.5,
        "backlog": backlog,
        "batch_ms": 400,
    }
    return {
        "name": "archive",
        "kind": "capture",
        "entity": "orders",
        "state": state,
        "keep": False,
        "last_error": "",
        "progress": progress,
    }


def replay(state: str, *, rows: int = 250, planned: int = 1_000) -> Document:
    progress: Document = {
        "rows_total": rows,
        "rows_planned": planned,
        "rows_per_s": 10.0,
        "backlog": planned - rows,
        "batch_ms": 80,
    }
    return {"name": "again", "kind": "replay", "state": state, "progress": progress}


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Runner:
    def run_with(script: Script, *arguments: str) -> Result:
        def api(access: ClientAccess, timeout_s: float = 0) -> ApiClient:
            return script.api()

        monkeypatch.setattr(ClientAccess, "api", api)
        monkeypatch.setattr(time, "sleep", lambda seconds: None)
        return CliRunner().invoke(main, ["pipeline", *arguments])

    return run_with


def test_a_report_is_shown_as_that_of_the_command_and_its_page_is_written(
    run: Runner, tmp_path: Path
) -> None:
    """P7"""
    report: Document = {
        **REPORT,
        "name": "1",
        "location": "/data/causes/1",
        "page": "<!DOCTYPE html>",
    }
    page = tmp_path / "page.html"
    script = Script(report, report, report, {"name": ""})

    done = run(script, "report", "causes", "--top", "1", "--html", str(page))
    told = run(script, "report", "causes", "--json")
    nowhere = run(script, "report", "causes", "--html", str(page / "below"))
    before = run(script, "report", "causes")

    assert script.asked[:2] == [
        ("GET pipelines/causes/report?top=1&page=1", {}),
        ("GET pipelines/causes/report?top=20", {}),
    ]
    assert "7 dead letters in 2 groups" in done.output
    assert "/data/causes/1" in done.output
    assert page.read_text() == "<!DOCTYPE html>"
    assert json.loads(told.stdout)["letters"] == 7
    assert (before.exit_code, "no report" in before.output or "not made" in before.output) == (
        4,
        True,
    )
    assert (nowhere.exit_code, "cannot be written" in nowhere.output) == (2, True)


def test_create_sends_what_was_given_and_starts_if_asked_to(run: Runner) -> None:
    script = Script(pipeline("stopped"), pipeline("starting"))

    done = run(script, "create", "archive", "--entity", "orders", "--keep", "--start")

    assert done.exit_code == 0
    assert script.asked == [
        ("PUT pipelines/archive", {"entity": "orders", "path": "archive", "keep": True}),
        ("POST pipelines/archive/start", {}),
    ]
    assert "starting" in done.output


def test_create_of_a_replay_sends_times_condition_rate_and_columns(run: Runner) -> None:
    """P5."""
    script = Script(replay("stopped"))

    done = run(
        script, "create", "again", "--kind", "replay", "--from-pipeline", "archive",
        "--entity", "orders", "--since", "2026-01-01", "--until", "2026-02-01",
        "--where", "subject = 'x'", "--rate", "50", "--column", "body=a=b", "--column", "to=",
        "--body", "json",
    )  # fmt: skip

    assert done.exit_code == 0, done.output
    assert script.asked == [
        (
            "PUT pipelines/again",
            {
                "kind": "replay",
                "entity": "orders",
                "from_pipeline": "archive",
                "from": "2026-01-01",
                "to": "2026-02-01",
                "where": "subject = 'x'",
                "rate_max": 50,
                "body": "json",
                "columns": {"body": "a=b", "to": ""},
            },
        )
    ]
    assert run(Script(), "create", "a", "--entity", "q", "--column", "body").exit_code == 2


def test_create_of_a_capture_says_only_what_was_given(run: Runner) -> None:
    script = Script(pipeline(), pipeline())

    run(script, "create", "a", "--entity", "q", "--format", "delta", "--no-compact")
    run(script, "create", "a", "--entity", "q", "--compact", "--path", "p")

    assert [body for _, body in script.asked] == [
        {"entity": "q", "path": "a", "format": "delta", "compact": False},
        {"entity": "q", "path": "p", "compact": True},
    ]


def test_stop_waits_until_it_has_stopped_unless_told_not_to(run: Runner) -> None:
    script = Script(pipeline("stopping"), pipeline("stopping"), pipeline("stopped"))

    assert "stopped" in run(script, "stop", "archive").output
    assert script.lines() == ["POST pipelines/archive/stop", *["GET pipelines/archive"] * 2]

    hasty = Script(pipeline("stopping"))
    assert "stopping" in run(hasty, "stop", "archive", "--no-wait").output
    assert len(hasty.asked) == 1


def test_stop_may_finish_the_batch_and_says_when_that_failed(run: Runner) -> None:
    """P9"""
    script = Script(pipeline("stopping"), pipeline("stopped"))
    assert run(script, "stop", "archive", "--finish").exit_code == 0
    assert script.lines()[0] == "POST pipelines/archive/stop?finish=1"

    failed = Script(pipeline("stopping"), {**pipeline("stopped"), "last_error": "there is no Java"})
    assert run(failed, "stop", "archive", "--finish").exit_code == 1


def test_list_and_status_show_rows_and_backlog(run: Runner) -> None:
    listed = run(Script({"pipelines": [pipeline()]}), "list")
    assert listed.output.splitlines()[1].split() == [
        "archive", "capture", "orders", "running", "30", "12", "10",
    ]  # fmt: skip

    shown = run(Script(pipeline()), "status", "archive", "--json")
    assert json.loads(shown.output)["progress"]["backlog"] == 10


def test_logs_and_delete(run: Runner) -> None:
    script = Script({"name": "archive", "lines": ["one", "two"]})
    assert run(script, "logs", "archive", "--lines", "2").output == "one\ntwo\n"
    assert script.lines() == ["GET pipelines/archive/logs?top=2"]

    assert run(Script(pipeline()), "delete", "archive").exit_code == 2


def test_delete_completes_a_batch_that_was_cut_off_unless_it_is_abandoned(run: Runner) -> None:
    """P4, P9"""
    one = "pipelines/archive"
    stopped: Document = pipeline("stopped")
    gone: Document = {"is_deleted": True}
    whole = Script(stopped, pipeline("stopping"), pipeline("stopping"), stopped, gone)
    assert run(whole, "delete", "archive", "--yes").output.startswith("deleted")
    assert whole.lines() == [
        f"GET {one}", f"POST {one}/stop?finish=1", f"GET {one}", f"GET {one}", f"DELETE {one}",
    ]  # fmt: skip

    hasty = Script(stopped, gone)
    run(hasty, "delete", "archive", "--yes", "--abandon")
    assert hasty.lines() == [f"GET {one}", f"DELETE {one}?abandon=1"]

    # One that runs is not stopped by the way.
    running = Script(pipeline(), refusal(409, "Pipeline archive is running: stop it first."))
    assert run(running, "delete", "archive", "--yes").exit_code == 1
    assert running.lines() == [f"GET {one}", f"DELETE {one}"]


def test_a_refusal_is_told_and_gives_an_exit_code(run: Runner) -> None:
    done = run(Script(refusal(404, "There is no pipeline 'x'.")), "start", "x")

    assert (done.exit_code, "there is no pipeline x" in done.output) == (4, True)


def test_watching_is_for_people(run: Runner) -> None:
    assert run(Script(pipeline()), "status", "archive", "--watch", "--json").exit_code == 2

    done = run(Script(pipeline(), pipeline("stopped")), "status", "archive", "--watch")
    assert "archive running [#########   ]  75%  30 rows  12/s  10 waiting" in done.output
    assert "archive stopped" in done.output


def test_what_waits_is_shown_before_the_first_batch_has_ended(run: Runner) -> None:
    """P9: no zero stands for what nobody knows yet."""
    begins: Document = {**pipeline("starting", rows=0, backlog=0), "progress": {"at": None}}
    counts: Document = {"runtime": {"active": 3_000}}

    watched = run(Script(begins, counts, pipeline("stopped")), "status", "archive", "--watch")
    shown = run(Script(begins), "status", "archive")
    listed = run(Script({"pipelines": [begins]}), "list")

    assert "archive starting  Spark is starting  3,000 waiting in orders" in watched.output
    assert "no batch yet" in shown.output
    assert listed.output.split()[-3:] == ["-", "-", "-"]


def test_an_error_stands_at_the_end_of_the_line() -> None:
    assert progress_line({**pipeline("failing"), "last_error": "no Java"}).endswith("no Java")
    assert "0%" in progress_line(pipeline("starting", rows=0, backlog=0))


def test_a_replay_shows_how_many_rows_of_how_many_and_how_long_it_may_take() -> None:
    """P5, P9."""
    assert progress_line(replay("running")) == (
        "again running [###         ]  25%  250 of 1,000 rows  10/s  "
        "about 1 min 15 s left  batch 80 ms"
    )
    assert "selecting rows" in progress_line(replay("running", rows=0, planned=0))
    assert "left" not in progress_line(replay("stopped"))
    assert progress_line(replay("finished", rows=0, planned=0)).endswith(
        "[############] 100%  no row was selected"
    )
    assert [duration(4), duration(3_600), duration(86_399)] == ["4 s", "1 h 00 min", "23 h 59 min"]


def test_an_interrupt_ends_the_watching_and_a_stop_that_takes_too_long_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    watch(pipeline, interrupt)
    assert capsys.readouterr().out.endswith("\n")

    with pytest.raises(ServerUnavailable, match="has not stopped"):
        wait_until_over(pipeline, lambda seconds: None)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (
            io.StringIO(),
            "pipeline archive is stopping: its last batch is completed first, which may take "
            "minutes\n",
        ),
        (Terminal(), "pipeline archive is stopping, 3 s"),
    ],
)
def test_a_stop_that_takes_long_says_why_within_three_seconds(
    stream: io.StringIO, expected: str
) -> None:
    """R31"""
    states = iter([*["stopping"] * 40, "stopped"])
    notice = StopNotice("archive", stream)
    told_at: list[float] = []

    def tell(waited_s: float) -> None:
        notice.tell(waited_s)
        if stream.getvalue() and not told_at:
            told_at.append(waited_s)

    found = wait_until_over(lambda: pipeline(next(states)), lambda seconds: None, tell)
    notice.clear()

    assert found["state"] == "stopped"
    assert told_at[0] <= 3.0
    assert expected in stream.getvalue()
    assert stream.getvalue().count("minutes") <= 1
