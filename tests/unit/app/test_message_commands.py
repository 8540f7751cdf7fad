"""What peek, deadletter, purge and the rest print, how they name things, and how they end."""

import io
import json
from typing import Protocol

import click
import pytest
from click.testing import CliRunner, Result

from shardbus.app.cli.access import ClientAccess
from shardbus.app.cli.api_client import ApiClient, Document
from shardbus.app.cli.completion import SHELLS, complete_entity, script_of
from shardbus.app.cli.duration import FOREVER_MS, to_ms
from shardbus.app.cli.failures import Usage
from shardbus.app.cli.main import main
from shardbus.app.cli.messages.browsing import browse
from shardbus.app.cli.messages.entity_path import message_path
from shardbus.app.cli.messages.removing import purge, resubmit
from shardbus.app.cli.messages.text import (
    DEAD_LETTERS,
    MESSAGES,
    MessageTable,
    TableForm,
    body_bytes,
    details,
)
from shardbus.app.cli.progress import Progress
from tests.unit.app.scripted_api import Script, refusal

DEAD: Document = {
    "sequence_number": 7,
    "enqueued_at": "2026-01-02T03:04:05.006Z",
    "state": "active",
    "message_id": "m",
    "dead_letter_reason": "bad",
    "body": "two\nlines \x1b[31m" + "x" * 100,
}
PAGE: Document = {"messages": [DEAD], "next": None}


class Run(Protocol):
    def __call__(self, script: Script, *words: str) -> Result: ...


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command line against a script."""

    def invoke(script: Script, *words: str) -> Result:
        def api(access: ClientAccess, timeout_s: float = 0) -> ApiClient:
            return script.api()

        monkeypatch.setattr(ClientAccess, "api", api)
        return CliRunner().invoke(main, words, catch_exceptions=False)

    return invoke


@pytest.mark.parametrize(
    ("entity", "subscription", "is_dead_letter", "path"),
    [
        ("orders", None, False, "orders"),
        ("/a/b/", None, True, "a/b/$DeadLetterQueue"),
        ("news", "europe", False, "news/Subscriptions/europe"),
        ("news/Subscriptions/europe", None, True, "news/Subscriptions/europe/$DeadLetterQueue"),
        ("orders/$deadletterqueue", None, True, "orders/$deadletterqueue"),
    ],
)
def test_a_subscription_is_named_in_two_ways(
    entity: str, subscription: str | None, is_dead_letter: bool, path: str
) -> None:
    options = {"subscription": subscription}

    assert message_path(entity, options, is_dead_letter=is_dead_letter) == path


def test_a_subscription_is_not_named_twice() -> None:
    with pytest.raises(Usage, match="already"):
        message_path("news/Subscriptions/europe", {"subscription": "asia"})
    with pytest.raises(Usage, match="empty"):
        message_path("/", {})


def test_who_forgets_the_word_for_subscriptions_is_told(run: Run) -> None:
    missing = refusal(404, "The messaging entity 'news/europe' does not exist.")
    script = Script(missing, {"queues": []}, {"topics": [{"name": "news"}]})

    result = run(script, "peek", "news/europe")

    assert result.exit_code == 4
    assert "news/Subscriptions/europe" in result.stderr


def test_a_table_shows_nothing_that_moves_the_cursor() -> None:
    [_, row] = MessageTable(MESSAGES).shown([DEAD]).decode().splitlines()

    assert row.isprintable()
    assert row.endswith("…")
    assert "2026-01-02 03:04:05" in row


@pytest.mark.parametrize("form", [MESSAGES, DEAD_LETTERS], ids=["messages", "dead letters"])
def test_a_table_fits_80_columns_and_has_one_heading(
    form: TableForm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    wide: Document = {
        **DEAD,
        "sequence_number": (15 << 48) + 1234,
        "message_id": "i" * 32,
        "session_id": "s" * 40,
        "subject": "t" * 40,
        "dead_letter_description": "d" * 100,
    }
    shown = MessageTable(form)

    lines = [
        *shown.shown([wide, DEAD]).decode().splitlines(),
        *shown.shown([wide]).decode().splitlines(),
    ]

    assert max(map(len, lines)) <= 80
    assert [line.startswith("NUMBER") for line in lines] == [True, False, False, False]
    assert all(str((15 << 48) + 1234) in lines[place] for place in (1, 3))


def test_a_body_is_printed_as_it_was_sent() -> None:
    assert body_bytes({"body": "ä"}) == "ä".encode()
    assert body_bytes({"body_base64": "AP8="}) == b"\x00\xff"
    assert body_bytes({"body_type": "value", "body": {"a": 1}}) == b'{"a": 1}'
    assert body_bytes({}) == b""


def test_details_name_everything() -> None:
    text = details({"message_id": "m", "properties": {"a": 1}, "body": "the body"})

    assert text.splitlines() == ["message_id  m", "  a         1", "", "the body"]


def test_peek_prints_one_json_document_or_one_a_line(run: Run) -> None:
    two: Document = {"messages": [DEAD, DEAD], "next": None}

    as_list = run(Script(two), "peek", "q", "--json")
    as_lines = run(Script(two), "peek", "q", "--jsonl")
    none = run(Script({"messages": [], "next": None}), "peek", "q", "--json")

    assert json.loads(as_list.stdout) == [DEAD, DEAD]
    assert [json.loads(line) for line in as_lines.stdout.splitlines()] == [DEAD, DEAD]
    assert (json.loads(none.stdout), none.exit_code) == ([], 0)


def test_a_list_that_is_cut_short_is_one_document_nevertheless(run: Run) -> None:
    first: Document = {"messages": [DEAD], "next": "m1"}

    cut = run(Script(first, refusal(503, "gone")), "peek", "q", "--all", "--json")
    never = run(Script(refusal(503, "gone")), "peek", "q", "--json")

    assert (json.loads(cut.stdout), cut.exit_code) == ([DEAD], 3)
    assert "gone" in cut.stderr
    assert (json.loads(never.stdout)["error"]["kind"], never.exit_code) == ("unavailable", 3)


def test_pages_follow_each_other_until_enough_is_there() -> None:
    script = Script({"messages": [DEAD], "next": "m1"})

    assert len(list(browse(script.api(), "q", count=3, start=9))) == 3

    assert script.lines() == [
        "GET entities/q/messages?from=9&top=3",
        "GET entities/q/messages?top=2&cursor=m1",
        "GET entities/q/messages?top=1&cursor=m1",
    ]


def test_dead_letters_are_listed_with_their_reasons_and_counted(run: Run) -> None:
    listed = run(Script(PAGE), "deadletter", "list", "q")
    summary = run(Script(PAGE), "deadletter", "list", "q", "--summary", "--json")

    assert listed.stdout.splitlines()[0].split()[2] == "REASON"
    assert "bad" in listed.stdout
    assert json.loads(summary.stdout) == [{"reason": "bad", "count": 1}]


def test_dead_letters_do_not_go_round_for_ever() -> None:
    moved: Document = {"resubmitted": 500, "has_more": True}
    script = Script(moved)

    assert resubmit(script.api(), "q", 1000) == 1000
    assert [body for _, body in script.asked] == [{"count": 500}, {"count": 500}]


def test_a_purge_ends_when_nothing_more_goes() -> None:
    script = Script({"purged": 9, "has_more": True}, {"purged": 0, "has_more": True})

    assert purge(script.api(), "q", before="2026-01-01T00:00:00Z") == 9
    assert script.asked[0][1]["enqueued_before"] == "2026-01-01T00:00:00Z"


def test_nothing_is_purged_unless_somebody_says_yes(run: Run) -> None:
    script = Script({"runtime": {"active": 3}, "purged": 0, "has_more": False})

    refused = run(script, "purge", "q")
    done = run(script, "purge", "q", "--yes", "--json")
    both = run(script, "purge", "q", "--yes", "--before", "2026-01-01", "--older-than", "1d")

    assert (refused.exit_code, "--yes" in refused.stderr) == (2, True)
    assert json.loads(done.stdout) == {"entity": "q", "purged": 0}
    assert both.exit_code == 2


def test_numbers_that_are_no_dead_letters_are_told(run: Run) -> None:
    answer: Document = {"resubmitted": 1, "missing": [9], "has_more": False}

    result = run(Script(answer), "deadletter", "resubmit", "q", "--number", "7", "--number", "9")

    assert result.exit_code == 4
    assert "locked: 9" in result.stderr


def test_sessions_are_listed_to_the_last(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """R26."""
    page: Document = {"sessions": [{"session_id": "a"}], "skip": 0}

    assert json.loads(run(Script(page), "sessions", "q", "--json").stdout) == [{"session_id": "a"}]
    none = run(Script({"sessions": [], "skip": 0}), "sessions", "q")
    assert (none.stdout, "no sessions" in none.stderr) == ("", True)
    held: Document = {
        "session_id": "s" * 90, "messages": 7, "size_bytes": 2_048,
        "oldest_at": "2026-01-02T03:04:05Z", "locked_until": "2026-01-02T03:05:05Z",
    }  # fmt: skip
    whole = run(Script({"sessions": [held], "skip": 0, "is_counted": True}), "sessions", "q")
    partly = run(Script({"sessions": [held], "skip": 0, "is_counted": False}), "sessions", "q")
    assert whole.stdout.splitlines()[1].split()[1:] == [
        "7", "2.0", "KB", "2026-01-02T03:04:05Z", "2026-01-02T03:05:05Z",
    ]  # fmt: skip
    assert "≥ 7" in partly.stdout, "more may have been there"
    monkeypatch.setenv("COLUMNS", "80")
    narrow = run(Script({"sessions": [held], "skip": 0}), "sessions", "q")
    assert max(map(len, narrow.stdout.splitlines())) <= 80


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_has_a_script_that_asks_us(shell: str) -> None:
    assert f"_SHARDBUS_COMPLETE={shell}_complete" in script_of(main, shell)


def test_names_of_access_rules_and_destinations_are_completed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R31"""
    script = Script({"access_rules": [{"name": "reader"}, {"name": "Root"}]})
    monkeypatch.setattr(ClientAccess, "api", lambda access, timeout_s: script.api())
    command = _command("sas", "rule", "show")
    [name] = [one for one in command.params if one.name == "name"]
    context = click.Context(command)

    assert [one.value for one in name.shell_complete(context, "r")] == ["Root", "reader"]
    context.params["entity"] = "orders"
    name.shell_complete(context, "r")
    assert script.lines() == ["GET access-rules", "GET entities/orders/access-rules"]

    entities: Document = {"queues": [{"name": "orders"}], "topics": []}
    monkeypatch.setattr(ClientAccess, "api", lambda access, timeout_s: Script(entities).api())
    for words in (("queue", "create"), ("subscription", "update"), ("triage",)):
        command = _command(*words)
        [option] = [one for one in command.params if one.opts[0] in ("--forward-to", "--to")]
        found = option.shell_complete(click.Context(command), "or")
        assert [one.value for one in found] == ["orders"], words


def _command(*words: str) -> click.Command:
    found: click.Command = main
    for word in words:
        assert isinstance(found, click.Group)
        found = found.commands[word]
    return found


def test_names_are_completed_from_the_bus(monkeypatch: pytest.MonkeyPatch) -> None:
    context = click.Context(main)
    queues: Document = {"queues": [{"name": "Orders"}, {"name": "other"}]}
    script = Script(queues, {"topics": [{"name": "orbit"}]})
    monkeypatch.setattr(ClientAccess, "api", lambda access, timeout_s: script.api())

    assert complete_entity(context, click.Argument(["entity"]), "or") == ["Orders", "orbit"]

    script = Script({"subscriptions": [{"name": "news/Subscriptions/europe"}]})
    found = complete_entity(context, click.Argument(["entity"]), "news/Subscriptions/e")
    assert found == ["news/Subscriptions/europe"]

    script = Script(refusal(503, "away"))
    assert complete_entity(context, click.Argument(["entity"]), "or") == []


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_shown_to_people_when_it_takes_long() -> None:
    now_s, terminal, pipe = 0.0, Terminal(), io.StringIO()
    watched = Progress("sending", 200, stream=terminal, clock=lambda: now_s)
    piped = Progress("sending", 200, stream=pipe, clock=lambda: now_s)

    watched.advance(50)
    early = terminal.getvalue()
    now_s = 2.0
    watched.advance(50)
    piped.advance(100)
    shown = terminal.getvalue()
    watched.end()

    assert (early, pipe.getvalue()) == ("", "")
    assert "50%  100 of 200  50/s" in shown
    assert terminal.getvalue().endswith("\r")


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [("0s", 0), ("5s", 5_000), ("2m", 120_000), ("P1DT2H", 93_600_000), ("PT0.25S", 250),
     ("forever", FOREVER_MS)],
)  # fmt: skip
def test_a_duration_has_milliseconds(text: str, duration_ms: int) -> None:
    assert to_ms(text) == duration_ms
