"""`shardbus send`: where messages come from, what options say of them, how they are grouped."""

import io
import json
from datetime import UTC, datetime
from itertools import repeat
from pathlib import Path

import pytest

from shardbus.app.cli.api_client import Document
from shardbus.app.cli.failures import Refused, ServerUnavailable, Usage
from shardbus.app.cli.messages.options import members_from, read_property
from shardbus.app.cli.messages.send import BATCH_COUNT_MAX, SendWork, batches
from shardbus.app.cli.messages.source import MessageSource, body_document
from tests.support.refusals import check_named
from tests.unit.app.scripted_api import Script, refusal

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "input"


def test_lines_are_messages_without_their_ends(file: Path) -> None:
    file.write_bytes(b"one\r\n\ntwo\xff\nlast")

    assert list(MessageSource(str(file)).lines()) == [
        {"body": "one"}, {"body": ""}, {"body_base64": "dHdv/w=="}, {"body": "last"},
    ]  # fmt: skip


def test_a_whole_file_is_one_message(file: Path) -> None:
    file.write_bytes(b"a\nb\n")

    assert MessageSource(str(file)).body() == {"body": "a\nb\n"}


@pytest.mark.parametrize(
    "text", ['{"body": "a"}\n\n{"body": "b"}\n', '[\n{"body": "a"},\n{"body": "b"}\n]\n']
)
def test_documents_are_lines_or_one_list(file: Path, text: str) -> None:
    file.write_text(text)

    assert list(MessageSource(str(file)).documents()) == [{"body": "a"}, {"body": "b"}]


@pytest.mark.parametrize(
    ("text", "words"),
    [("{}\n{bad\n", "line 2 is not JSON"), ("7\n", "line 1 is not a JSON object"),
     ("[1]", "message 1 is not a JSON object"), ("[", "not JSON")],
)  # fmt: skip
def test_a_document_that_is_none_is_told_with_its_place(file: Path, text: str, words: str) -> None:
    file.write_text(text)

    with pytest.raises(Usage, match=words):
        list(MessageSource(str(file)).documents())


def test_a_file_that_cannot_be_read_is_told(file: Path) -> None:
    with pytest.raises(Usage, match="cannot be read"):
        MessageSource(str(file)).body()


def test_standard_input_is_read_unless_somebody_sits_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"typed")))
    assert MessageSource(None).body() == {"body": "typed"}

    terminal = io.TextIOWrapper(io.BytesIO())
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdin", terminal)
    with pytest.raises(Usage, match="give a BODY"):
        MessageSource("-").body()


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [("a=b", "a", "b"), ("a=b=c", "a", "b=c"), ("a:=7", "a", 7), ("a:=true", "a", True),
     ("a:=null", "a", None), ("a=:=", "a", ":="), ("a=", "a", ""), ("x:y=z", "x:y", "z")],
)  # fmt: skip
def test_a_property_is_text_or_json(text: str, name: str, value: object) -> None:
    assert read_property(text) == (name, value)


@pytest.mark.parametrize("text", ["a", "=b", "a:=b"])
def test_a_property_that_is_none_is_told(text: str) -> None:
    with pytest.raises(Usage, match="--property"):
        read_property(text)


def test_options_become_members() -> None:
    options = {"session_id": "s", "subject": "t", "ttl": "2m", "at": "+1h"}

    assert members_from(options, ["a=1"], NOW) == {
        "session_id": "s",
        "subject": "t",
        "properties": {"a": "1"},
        "time_to_live_ms": 120_000,
        "scheduled_at": "2026-01-02T04:04:05+00:00",
    }


@pytest.mark.parametrize(
    ("text", "moment"),
    [("2026-05-06T07:08:09Z", "2026-05-06T07:08:09+00:00"),
     ("2026-05-06T07:08:09", "2026-05-06T07:08:09+00:00"),
     ("2026-05-06T07:08:09+02:00", "2026-05-06T05:08:09+00:00")],
)  # fmt: skip
def test_a_time_without_an_offset_is_in_utc(text: str, moment: str) -> None:
    assert members_from({"at": text}, [], NOW) == {"scheduled_at": moment}


@pytest.mark.parametrize("options", [{"at": "soon"}, {"at": "+soon"}, {"ttl": "7"}])
def test_a_time_that_is_none_is_told(options: dict[str, str | int | bool | None]) -> None:
    with pytest.raises(Usage, match="write"):
        members_from(options, [], NOW)


def test_a_request_holds_no_more_than_the_bus_takes() -> None:
    small = list(batches(repeat({"body": "x"}, BATCH_COUNT_MAX + 1)))
    large = list(batches(repeat({"body": "x" * 200_000}, 8)))

    assert [len(batch) for batch in small] == [BATCH_COUNT_MAX, 1]
    assert [len(batch) for batch in large] == [3, 3, 2]
    assert all(len(json.dumps({"messages": batch})) < 1024 * 1024 for batch in large)


def test_what_is_sent_is_counted_over_all_requests() -> None:
    answer: Document = {"sent": 400, "duplicates": 100, "failures": []}
    sending = SendWork(repeat(body_document(b"x"), 2 * BATCH_COUNT_MAX), 2 * BATCH_COUNT_MAX)

    sending.run(Script(answer).api(), "q")

    assert sending.document("q") == {"entity": "q", "sent": 800, "duplicates": 200}
    assert sending.text("q") == "sent 800 messages to q, 200 dropped as duplicates"


def test_a_failure_says_how_far_it_came() -> None:
    good: Document = {"sent": 500, "duplicates": 0, "failures": []}
    failure: Document = {"position": 3, "code": "quota-exceeded", "message": "full"}
    bad: Document = {"sent": 499, "duplicates": 0, "failures": [failure]}

    with pytest.raises(Refused) as refused:
        SendWork(repeat({"body": "x"}, 1000), 1000).run(Script(good, bad).api(), "q")
    check_named(str(refused.value), "999", "504", "full")
    with pytest.raises(ServerUnavailable, match="500 messages sent before"):
        SendWork(repeat({"body": "x"}, 1000), 1000).run(
            Script(good, refusal(503, "busy")).api(), "q"
        )


def test_a_message_without_a_session_is_refused_with_the_option_that_is_missing() -> None:
    """R31"""
    said = "The SessionId was not set on a message, and it cannot be sent to the entity."
    script = Script(refusal(400, said))

    with pytest.raises(Refused) as failure:
        SendWork(repeat({"body": "x"}, 1), 1).run(script.api(), "carts")

    assert str(failure.value) == (
        "carts requires sessions, and a message has none: give --session ID"
    )
