"""`shardbus sas ...` against the endpoint: rules, keys, tokens, connection strings (R34)."""

import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from shardbus.app.cli.main import main
from shardbus.app.cli.sas import parse_connection_string
from tests.unit.gateway.site import AMQP_PORT
from tests.unit.gateway.test_command_line_topics import Run, document, with_commands


def test_a_rule_is_created_shown_listed_updated_rotated_and_deleted(tmp_path: Path) -> None:
    """R34."""

    def work(run: Run) -> None:
        assert run("queue create orders").exit_code == 0
        made = document(run("sas rule create reader --rights listen --entity orders --json"))
        assert made["rights"] == ["Listen"]
        again = run("sas rule create reader --rights Send --entity orders")
        assert (again.exit_code, "already" in again.stderr) == (1, True)
        document(run("sas rule update reader --rights Listen,Send --entity orders --json"))
        rotated = document(run("sas rule rotate reader primary --entity orders --json"))
        assert rotated["primary_key"] != made["primary_key"]
        assert rotated["secondary_key"] == made["secondary_key"]
        shown = run("sas rule show reader --entity orders").stdout
        assert str(rotated["primary_key"]) in shown
        assert "Send, Listen" in shown
        listed = run("sas rule list --entity orders").stdout
        assert "reader" in listed
        assert str(rotated["primary_key"]) not in listed
        unasked = run("sas rule delete reader --entity orders")
        assert (unasked.exit_code, "--yes" in unasked.stderr) == (2, True)
        assert run("sas rule delete reader --entity orders --yes").stdout == "deleted reader\n"
        assert run("sas rule show reader --entity orders").exit_code == 4
        assert run("sas rule list --entity nothing").exit_code == 4
        assert "of the settings" in run("sas rule list").stdout

    with_commands(tmp_path, work)


def test_keys_are_read_from_files_and_not_from_the_command_line(tmp_path: Path) -> None:
    key_file = tmp_path / "key"
    key_file.write_text("my-own-key\n")

    def work(run: Run) -> None:
        line = f"sas rule create own --rights Manage --primary-key-file {key_file} --json"
        assert document(run(line))["primary_key"] == "my-own-key"
        missing = run("sas rule create two --rights Send --primary-key-file /nowhere/key")
        assert (missing.exit_code, "/nowhere/key" in missing.stderr) == (2, True)
        told = run("sas rule create three --rights Send --primary-key my-own-key")
        assert told.exit_code == 2

    with_commands(tmp_path, work)


def test_a_token_and_a_connection_string_open_what_they_are_for(tmp_path: Path) -> None:
    """R34: what is printed works."""

    def work(run: Run) -> None:
        assert run("queue create orders").exit_code == 0
        assert run("queue create other").exit_code == 0
        made = document(run("sas rule create reader --rights Manage --entity orders --json"))
        token = run(
            f"sas token --entity orders --ttl 5m --key-name reader --key {made['primary_key']}"
        ).stdout.strip()
        signed = f"--connection-string 'Endpoint=sb://h;SharedAccessSignature={token}'"
        assert run(f"queue show orders {signed}").exit_code == 0
        assert run(f"queue show other {signed}").exit_code == 1

        text = run("sas connection-string --rule reader --entity orders").stdout.strip()
        parsed = parse_connection_string(text)
        assert (parsed.port, parsed.is_emulator) == (AMQP_PORT, True)
        assert parsed.credential.key == made["primary_key"]
        assert text.endswith("EntityPath=orders;UseDevelopmentEmulator=true;")
        hidden = run(
            "sas connection-string --rule RootManageSharedAccessKey --key-name other --key k"
        )
        assert hidden.exit_code == 1

    with_commands(tmp_path, work)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("sas token --ttl forever", "--ttl"),
        ("sas token --ttl 0s", "--ttl"),
        ("sas token --ttl 400d", "--ttl"),
        ("sas token --ttl soon", "--ttl"),
        ("sas rule create x --rights Own", "not a right"),
        ("sas rule create x", "--rights"),
        ("sas rule update x", "nothing to change"),
        ("sas rule show a/b", "slash"),
        ("sas token --connection-string 'Endpoint=sb://h;SharedAccessSignature=x'", "a token"),
    ],
)
def test_what_cannot_be_is_said_before_anybody_is_asked(line: str, reason: str) -> None:
    result = CliRunner().invoke(main, shlex.split(line), catch_exceptions=False)

    assert result.exit_code == 2
    assert reason in result.stderr
