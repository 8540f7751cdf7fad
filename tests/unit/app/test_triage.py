"""`shardbus triage`: which letters are sent again, in which jobs, and what is told of them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from shardbus.app.cli.api_client import ApiClient, Document
from shardbus.app.cli.client import Answer
from shardbus.app.cli.console import Console
from shardbus.app.cli.failures import Interrupted, NotFound, Refused, Usage
from shardbus.app.cli.sas import Credential
from shardbus.app.cli.triage import redrive as redriving
from shardbus.app.cli.triage.analysis import entities_of, filters_of, kept_report
from shardbus.app.cli.triage.redrive import Redrive, found_group, read_order, undo
from shardbus.app.cli.triage.view import shown
from tests.support.refusals import check_named

GROUP: Document = {
    "id": "abc",
    "entity": "orders",
    "count": 7,
    "reason": "Bad",
    "shape": "json $.a:number",
    "samples": [{"sequence_number": 1, "message_id": "m", "excerpt": "{}"}],
}
REPORT: Document = {
    "version": 1,
    "entities": ["orders"],
    "made_at": "2026-01-02T00:00:00Z",
    "letters": 7,
    "group_count": 2,
    "groups": [GROUP],
}


class Bus:
    """Has jobs that end at the second look, and remembers what was asked."""

    def __init__(self, state: str = "done", created_at: str = "2026-01-01T00:00:00Z") -> None:
        self.lines: list[str] = []
        self.jobs: list[Document] = []
        self._state = state
        self._created_at = created_at

    def ask(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None
    ) -> Answer:
        self.lines.append(f"{method} {target.removeprefix('/api/v1/')}")
        given: Document = json.loads(body) if body else {}
        return Answer(200, json.dumps(self._answer(method, target, given)).encode())

    def _answer(self, method: str, target: str, given: Document) -> Document:
        if target.endswith("/jobs"):
            self.jobs.append(given)
            return {"id": "j", "state": "running", "destination": "orders", "warnings": ["beware"]}
        if target.endswith("/edit-test"):
            change = {"name": "a", "before": "1", "after": "\x1b[2"}
            return {"results": [{"number": "1", "error": "", "changes": [change]}]}
        if target.endswith("/subscriptions"):
            return {"subscriptions": []}
        if "/jobs/" in target:
            count = len(self._numbers())
            return {
                "state": self._state,
                "done": count - 1,
                "skipped": 1,
                "warnings": ["beware"],
                "error": "full" if self._state == "failed" else "",
            }
        kind = "topic" if target.endswith("/events") else "queue"
        return {"name": target.rpartition("/")[2], "kind": kind, "created_at": self._created_at}

    def _numbers(self) -> Sequence[object]:
        selection = self.jobs[-1].get("selection", {"numbers": [1, 2, 3]})
        assert isinstance(selection, Mapping)
        numbers = selection["numbers"]
        assert isinstance(numbers, Sequence)
        return numbers


def _api(bus: Bus) -> ApiClient:
    return ApiClient(bus, "http://127.0.0.1:5300", Credential(), clock=lambda: 1000.0)


def _redrive(bus: Bus, *body_set: str, **options: str | int | bool) -> Redrive:
    order = read_order("abc", body_set, options)
    assert order is not None
    return Redrive(_api(bus), order, GROUP, lambda: iter(range(1, 8)), pause=lambda _: None)


def test_a_dry_run_changes_nothing_and_shows_what_would_be(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """P7"""
    bus = Bus()

    _redrive(bus, repair="SET a = 2").run(Console(is_json=False))

    told = capsys.readouterr().out
    assert [job["is_dry_run"] for job in bus.jobs] == [True]
    assert "would redrive 7 dead letters of orders to orders" in told
    assert "  - a = 1\n  + a =  [2" in told
    assert "beware" in told


@pytest.mark.parametrize("is_applied", [True, False])
def test_letters_that_expired_are_not_sent_to_expire_again_without_a_word(
    capsys: pytest.CaptureFixture[str], is_applied: bool
) -> None:
    """P7: an entity that does not dead-letter them removes them after their time to live."""
    told: list[str] = []
    for repair in ("SET a = 2", "SET sys.TimeToLive = NULL"):
        order = read_order("abc", (), {"repair": repair, "is_applied": is_applied})
        assert order is not None
        group: Document = {**GROUP, "reason": "TTLExpiredException"}
        redrive = Redrive(_api(Bus()), order, group, lambda: iter([1]), pause=lambda _: None)
        redrive.run(Console(is_json=False))
        told.append(capsys.readouterr().out)

    assert ["SET sys.TimeToLive = NULL' sends" in each for each in told] == [True, False]


def test_letters_are_redriven_in_jobs_of_bounded_length(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """P7"""
    monkeypatch.setattr(redriving, "CHUNK_COUNT", 3)
    bus = Bus()

    _redrive(bus, "$.a=2", rate=9, is_applied=True).run(Console(is_json=True))

    selections = [job["selection"] for job in bus.jobs]
    assert selections == [{"numbers": some} for some in ([1, 2, 3], [4, 5, 6], [7])]
    assert {json.dumps(job["edit"]) for job in bus.jobs} == {'{"body_set": {"$.a": 2}}'}
    assert {job["rate_max"] for job in bus.jobs} == {9}
    assert bus.lines.count("DELETE entities/orders/$DeadLetterQueue/jobs/j") == 3
    document = json.loads(capsys.readouterr().out)
    assert (document["redriven"], document["skipped"]) == (4, 3)
    assert document["warnings"] == ["beware"]


@pytest.mark.parametrize(
    ("target", "action"), [("/Orders/", "resubmit"), ("news/Subscriptions/eu", "move")]
)
def test_letters_go_where_they_are_wanted(target: str, action: str) -> None:
    """P7"""
    bus = Bus()

    _redrive(bus, target=target, body_repair="SET a = 1", is_applied=True).run(
        Console(is_json=True)
    )

    [job] = bus.jobs
    assert (job["action"], job["destination"], job["mark"]) == (
        action, target.strip("/"), "triage-abc",
    )  # fmt: skip
    assert job["edit"] == {"body_action": "SET a = 1"}


def test_an_undo_asks_for_what_was_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    """P7"""
    monkeypatch.setattr(redriving, "POLL_S", 0.0)
    bus = Bus()

    found = undo(_api(bus), ["orders", "other"], "abc", {"rate": 5})

    assert bus.jobs == [{"action": "undo", "mark": "triage-abc", "rate_max": 5}] * 2
    assert found == {"group": "abc", "undone": 4, "skipped": 2, "warnings": ["beware"]}
    with pytest.raises(Refused):
        undo(_api(Bus("failed")), ["orders"], "abc", {})


def test_a_job_that_fails_is_told_with_what_was_done() -> None:
    """P7"""
    redrive = _redrive(Bus("failed"), is_applied=True)

    with pytest.raises(Refused) as caught:
        redrive.run(Console(is_json=False))
    check_named(str(caught.value), "full", "6", "orders")


def test_a_refusal_before_the_first_letter_promises_nothing() -> None:
    """P7: the same command would be refused again."""
    order = read_order("abc", (), {"is_applied": True})
    assert order is not None
    redrive = Redrive(_api(Bus("failed")), order, GROUP, lambda: iter([1]), pause=lambda _: None)

    with pytest.raises(Refused) as caught:
        redrive.run(Console(is_json=False))
    assert str(caught.value) == "full"


def test_an_interruption_stops_the_job() -> None:
    """P7"""
    bus = Bus()

    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    order = read_order("abc", (), {"is_applied": True})
    assert order is not None
    redrive = Redrive(_api(bus), order, GROUP, lambda: iter([1]), pause=interrupted)

    with pytest.raises(Interrupted, match="orders"):
        redrive.run(Console(is_json=False))
    assert bus.lines[-1] == "POST entities/orders/$DeadLetterQueue/jobs/j/stop"


@pytest.mark.parametrize(
    ("group", "body_set", "options", "told"),
    [
        ("", (), {"is_applied": True}, "--group"),
        ("", ("$.a=1",), {}, "--group"),
        ("", (), {"target": "x"}, "--group"),
        ("abc", (), {"undo": "abc"}, "--undo"),
        ("abc", ("$.a",), {}, r"\$\.a"),
        ("abc", ("$.a=text",), {}, "'text'"),
    ],
)
def test_options_that_make_no_sense_are_told_before_anything_is_read(
    group: str, body_set: tuple[str, ...], options: dict[str, str | int | bool | None], told: str
) -> None:
    with pytest.raises(Usage, match=told):
        read_order(group, body_set, options)


def test_a_group_that_is_gone_is_told() -> None:
    with pytest.raises(NotFound, match="xyz"):
        found_group(REPORT, "xyz")
    assert found_group(REPORT, "abc") == GROUP


def test_a_topic_without_subscriptions_has_no_dead_letters() -> None:
    assert entities_of(_api(Bus()), "orders/$DeadLetterQueue") == ["orders"]
    with pytest.raises(NotFound, match="events"):
        entities_of(_api(Bus()), "events")


def test_a_report_of_an_entity_that_was_created_since_is_not_used(tmp_path: Path) -> None:
    """P7: the numbers in it would mean other messages."""
    (tmp_path / "report.json").write_text(json.dumps(REPORT))

    assert kept_report(_api(Bus()), tmp_path, ["orders"]) == REPORT
    with pytest.raises(Refused) as caught:
        kept_report(_api(Bus(created_at="2026-01-02T00:00:01Z")), tmp_path, ["orders"])
    check_named(str(caught.value), "orders", str(tmp_path))
    with pytest.raises(Usage, match="other"):
        kept_report(_api(Bus()), tmp_path, ["other"])
    with pytest.raises(Usage, match="nowhere"):
        kept_report(_api(Bus()), tmp_path / "nowhere", ["orders"])


def test_groups_are_shown_with_a_sample_and_what_was_left_out() -> None:
    """P7"""
    text = shown(REPORT, 1)

    assert "7 dead letters in 2 groups" in text
    assert "abc" in text
    assert "e.g. 1 m: {}" in text
    assert "and 1 smaller group" in text
    assert shown({**REPORT, "groups": []}, 1) == "there are no dead letters"


def test_a_rule_is_one_of_subscriptions_and_is_parsed_before_spark_starts() -> None:
    """P7, P5: one rule language."""
    assert filters_of("  ") == ""
    [[one]] = json.loads(filters_of("total > 100 AND sys.Label = 'x'"))
    assert one[0] == "all"
    for rule in ("total >", "newid() = 'x'"):
        with pytest.raises(Usage) as refused:
            filters_of(rule)
        check_named(str(refused.value), "--rule")
