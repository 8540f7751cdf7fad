"""Definitions of pipelines, and the shelf that they are kept on (P9)."""

import json
import stat
from pathlib import Path

import pytest

from shardbus.app.pipelines.capture import Capture
from shardbus.app.pipelines.definition import KINDS, Definition, definition_from, read_definition
from shardbus.app.pipelines.known import do_collide
from shardbus.app.pipelines.replay import Columns, Replay
from shardbus.app.pipelines.shelf import Intent, Shelf
from shardbus.core.errors import INVALID_ARGUMENT
from shardbus.gateway.http.document import KindReader
from tests.support.refusals import refusal_of

ARCHIVE = Definition("archive", Capture(entity="orders", path="archive/orders"))


def test_what_is_left_out_has_a_default() -> None:
    assert _read("archive", {"entity": "orders", "path": "archive/orders"}) == ARCHIVE


def test_a_definition_is_read_as_it_was_written() -> None:
    task = Capture(
        entity="t/Subscriptions/s",
        path="p",
        keep=True,
        once=True,
        interval_ms=5,
        rows_max=7,
        format="delta",
        compact=False,
    )
    whole = Definition("a", task)

    assert definition_from(whole.to_document()) == whole


@pytest.mark.parametrize("name", ["", "a/b", "..", "-a", "a b", "a" * 65, "ä"])
def test_a_name_is_one_that_can_be_that_of_a_file(name: str) -> None:
    with refusal_of(INVALID_ARGUMENT):
        _read(name, {"entity": "orders", "path": "p"})


@pytest.mark.parametrize(
    "path", ["", "/etc", "../up", "a/../../b", "_a", "a/.b", "s3a://b", "a*", "a\0", "a=b"]
)
def test_a_path_stays_below_the_directory_of_captured_data(path: str) -> None:
    with refusal_of(INVALID_ARGUMENT):
        _read("archive", {"entity": "orders", "path": path})


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"kind": "repair"}, "kind"),
        ({"keep": 1}, "keep"),
        ({"interval_ms": -1}, "interval_ms"),
        ({"rows_max": "many"}, "rows_max"),
        ({"format": "json"}, "format"),
        ({"compact": "yes"}, "compact"),
        ({"rate_max": 1}, "'rate_max'"),
        ({"where": "x > 1"}, "keep"),
        ({"rule": "x > 1"}, "keep"),
        ({"like_subscription": "t/Subscriptions/s"}, "keep"),
        ({"connection_string": "x"}, "connection_string"),
    ],
)
def test_a_member_that_cannot_be_used_is_named(change: dict[str, object], named: str) -> None:
    with refusal_of(INVALID_ARGUMENT, named):
        _read("archive", {"entity": "orders", "path": "p", **change})


AGAIN_TASK = Replay(
    kind="replay",
    entity="orders",
    from_pipeline="archive",
    since="2026-01-01T00:00:00.000000Z",
    until="2026-01-02T09:00:00.000000Z",
    where="subject = 'x'",
    rate_max=5,
    columns=Columns(body="payload", message_id=""),
    body="json",
)
AGAIN = Definition("again", AGAIN_TASK)


def test_a_replay_has_its_times_in_utc_and_its_columns_in_order() -> None:
    """P5."""
    wanted: dict[str, object] = {
        "kind": "replay",
        "entity": "orders",
        "from_pipeline": "archive",
        "from": "2026-01-01",
        "to": "2026-01-02T10:00:00+01:00",
        "where": " subject = 'x' ",
        "rate_max": 5,
        "columns": {"message_id": "", "body": "payload"},
        "body": "json",
    }

    read = _read("again", wanted)

    assert read == AGAIN
    assert definition_from({**AGAIN.to_document(), "incarnation": "i"}) == AGAIN


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"path": ""}, "from_pipeline"),
        ({"path": "../up"}, "path"),
        ({"keep": True}, "'keep'"),
        ({"format": "orc"}, "format"),
        ({"from": "yesterday"}, "'yesterday'"),
        ({"from": "2026-01-02", "to": "2026-01-02"}, "to"),
        ({"where": "x" * 5000}, "where"),
        ({"rate_max": -1}, "rate_max"),
        ({"columns": []}, "columns"),
        ({"columns": {"price": "p"}}, "'price'"),
        ({"columns": {"body": 7}}, "columns.body"),
        ({"body": "xml"}, "body"),
        ({"incarnation": "mine"}, "incarnation"),
    ],
)
def test_of_a_replay_a_member_that_cannot_be_used_is_named(
    change: dict[str, object], named: str
) -> None:
    with refusal_of(INVALID_ARGUMENT, named):
        _read("again", {"kind": "replay", "entity": "orders", "path": "p", **change})


def test_dead_letters_cannot_be_captured_and_kept() -> None:
    with refusal_of(INVALID_ARGUMENT):
        _read("a", {"entity": "orders/$DeadLetterQueue", "path": "p", "keep": True})


@pytest.mark.parametrize(
    ("mine", "theirs", "is_collision"),
    [
        ("a", "a", True),
        ("a/b", "a", True),
        ("a", "a/b/c", True),
        ("a/b", "a/c", False),
        ("", "a", False),
        ("", "", False),
    ],
)
def test_no_pipeline_writes_into_the_directory_of_another(
    mine: str, theirs: str, is_collision: bool
) -> None:
    assert do_collide(mine, theirs) is is_collision


def test_the_shelf_keeps_definitions_to_their_owner(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path / "pipelines")
    assert shelf.load() == {}

    shelf.put(ARCHIVE, Intent.REST)
    shelf.put(ARCHIVE, Intent.RUN)

    assert Shelf(tmp_path / "pipelines").load() == {"archive": (ARCHIVE, Intent.RUN)}
    [file] = (tmp_path / "pipelines").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    shelf.remove("archive")
    assert shelf.load() == {}


@pytest.mark.parametrize(("is_wanted", "intent"), [(True, Intent.RUN), (False, Intent.REST)])
def test_the_shelf_reads_what_earlier_versions_wrote(
    tmp_path: Path, is_wanted: bool, intent: Intent
) -> None:
    document = {"definition": ARCHIVE.to_document(), "is_wanted": is_wanted}
    (tmp_path / "archive.json").write_text(json.dumps(document), "utf-8")

    assert Shelf(tmp_path).load() == {"archive": (ARCHIVE, intent)}


@pytest.mark.parametrize(
    "content", ["", "[]", '{"definition": {}}', '{"definition": {"name": "other"}}', "x" * 70_000]
)
def test_a_file_that_is_no_definition_is_passed_over(tmp_path: Path, content: str) -> None:
    shelf = Shelf(tmp_path)
    shelf.put(ARCHIVE, Intent.REST)
    (tmp_path / "broken.json").write_text(content, "utf-8")

    assert list(shelf.load()) == ["archive"]


def _read(name: str, members: dict[str, object]) -> Definition:
    return read_definition(name, KindReader(KINDS).read(json.dumps(members).encode()))
