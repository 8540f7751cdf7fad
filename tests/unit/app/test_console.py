"""How commands end: one line for every failure, and never a traceback."""

import json

import click
import pytest
from click.testing import CliRunner

from shardbus.app.cli.access import access_from, access_options
from shardbus.app.cli.confirm import confirm, yes_option
from shardbus.app.cli.console import Console, counted, run_command, size_text
from shardbus.app.cli.failures import CommandError, Usage
from shardbus.app.cli.groups import first_sentence
from shardbus.app.cli.main import main
from shardbus.app.cli.tables import facts_text, list_text
from tests.support.refusals import check_named

LOCAL = "Endpoint=sb://there:1;SharedAccessKeyName=n;SharedAccessKey=k;UseDevelopmentEmulator=true"


def test_a_mistake_of_ours_is_one_line_with_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> int:
        raise ZeroDivisionError("by nothing")

    assert run_command(Console(is_json=True), fail) == 1

    told = capsys.readouterr()
    assert "internal error at test_console.py:" in told.err
    assert "Traceback" not in told.err
    assert json.loads(told.out)["error"]["kind"] == "error"


def test_an_interrupt_has_its_own_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt() -> int:
        raise KeyboardInterrupt

    assert run_command(Console(is_json=False), interrupt) == 130
    assert capsys.readouterr().err == "shardbus: interrupted\n"


def test_nothing_is_deleted_without_a_terminal_or_a_yes() -> None:
    confirm({"is_sure": True}, "Delete it?")
    with pytest.raises(Usage) as caught:
        confirm({}, "Delete it?")
    check_named(str(caught.value), "Delete it?", "--yes")


@pytest.mark.parametrize(("answer", "is_done"), [("y\n", True), ("n\n", False), ("", False)])
def test_at_a_terminal_a_person_is_asked(
    answer: str, is_done: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    @click.command(params=[yes_option()])
    def delete(**options: bool) -> None:
        monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
        try:
            confirm(options, "Delete it?")
        except CommandError as error:
            click.echo(str(error))
        else:
            click.echo("done")

    output = CliRunner().invoke(delete, [], input=answer).output

    assert output.endswith("done\n" if is_done else "nothing was deleted\n")


def test_a_connection_string_on_the_line_wins_over_the_environment() -> None:
    """A purge must not act on another bus than the one that the line names."""
    found: list[str] = []

    @click.command(params=access_options())
    def look(**options: str | None) -> None:
        access = access_from(options)
        found.append(f"{access.endpoint} {access.credential.key_name}")

    environment = {
        "SHARDBUS_ENDPOINT": "http://elsewhere:5300",
        "SHARDBUS_KEY_NAME": "other",
        "SHARDBUS_KEY": "key",
    }
    for words in (["--connection-string", LOCAL], []):
        CliRunner().invoke(look, words, env=environment, catch_exceptions=False)
    CliRunner().invoke(look, env={"SHARDBUS_CONNECTION_STRING": LOCAL}, catch_exceptions=False)
    endpoint = ["--endpoint", "http://here:1"]
    both = {"SHARDBUS_CONNECTION_STRING": LOCAL}
    CliRunner().invoke(look, endpoint, env=both, catch_exceptions=False)

    assert found == [
        "http://there:1 n",
        "http://elsewhere:5300 other",
        "http://there:1 n",
        "http://here:1 n",
    ]


def test_numbers_have_units() -> None:
    assert [counted(1, "message"), counted(2_000, "message")] == ["1 message", "2,000 messages"]
    assert [size_text(size) for size in (0, 1023, 1536, 1 << 20, (1 << 20) - 1, 5 << 40)] == [
        "0 B", "1023 B", "1.5 KB", "1.0 MB", "1.0 MB", "5.0 TB",
    ]  # fmt: skip


def test_the_version_is_an_option_too() -> None:
    assert (
        CliRunner().invoke(main, ["--version"]).output
        == CliRunner().invoke(main, ["version"]).output
    )


def commands(group: click.Group, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = [path]
    for name, command in group.commands.items():
        here = (*path, name)
        found += commands(command, here) if isinstance(command, click.Group) else [here]
    return found


@pytest.mark.parametrize("path", commands(main), ids=" ".join)
def test_help_fits_80_columns_and_no_sentence_is_cut_off(path: tuple[str, ...]) -> None:
    text = CliRunner().invoke(main, [*path, "--help"], prog_name="shardbus").output

    assert max(map(len, text.splitlines())) <= 80
    assert not [line for line in text.splitlines() if line.endswith("...") and "[" not in line]


def test_a_group_lists_whole_first_sentences() -> None:
    assert first_sentence("One v1.2 of\n  two. Three.") == "One v1.2 of two."
    assert first_sentence("No end\n\nNext.") == "No end"


@pytest.mark.parametrize(
    ("words", "guess"),
    [(["queu"], "queue"), (["queue", "lst"], "list"), (["queue", "list", "--jsn"], "--json")],
)
def test_a_command_or_option_that_was_probably_meant_is_named(words: list[str], guess: str) -> None:
    result = CliRunner().invoke(main, words)

    assert result.exit_code == 2
    assert "Did you mean" in result.output and guess in result.output


def test_a_list_fits_the_terminal_and_is_whole_in_a_pipe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R31: programs need whole names."""
    rows = [("NAME", "STATUS"), ("n" * 120, "Active")]
    monkeypatch.delenv("COLUMNS", raising=False)
    piped = list_text(rows, cut={"NAME": 12})
    monkeypatch.setenv("COLUMNS", "80")
    shown = list_text(rows, cut={"NAME": 12})

    assert "n" * 120 in piped
    assert max(map(len, shown.splitlines())) == 80


def test_long_values_continue_below_and_names_stay_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("name", "n" * 90), ("warning", "The size is more than the tier allows. " * 3 + "End.")]
    monkeypatch.delenv("COLUMNS", raising=False)
    piped = facts_text(rows)
    monkeypatch.setenv("COLUMNS", "60")
    shown = facts_text(rows).splitlines()

    assert len(piped.splitlines()) == 2
    assert shown[0] == "name     " + "n" * 90
    assert all(len(line) <= 60 for line in shown[1:])
    assert shown[2].startswith("         ") and shown[-1].endswith("End.")
    assert " ".join(" ".join(shown[1:]).split()) == f"warning {rows[1][1]}"
