"""`shardbus apply` and `shardbus export` against an endpoint: what they print and how they end."""

import json
import shlex
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from shardbus.app.cli.main import main
from tests.unit.app.setup.reading import resource, template
from tests.unit.app.setup.site import Town
from tests.unit.gateway.site import run_client

Run = Callable[[str], Result]
"""Runs a command line, without the name of the program, in the directory of the test."""

TEXT = """
brokers = 2

[[access-rule]]
name = "reader"
rights = ["Listen"]
primary-key = "reader-key"

[[queue]]
name = "orders"
lock-duration = "30s"

[[topic]]
name = "news"
[[topic.subscription]]
name = "europe"
[[topic.subscription.rule]]
name = "eu"
sql = "region = 'eu'"
"""


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bus.toml").write_text(TEXT, encoding="utf-8")
    return tmp_path


def with_commands(directory: Path, work: Callable[[Run], None]) -> None:
    town = Town()

    def served() -> None:
        at = f"http://127.0.0.1:{town.port}"

        def run(line: str) -> Result:
            words = [*shlex.split(line), "--endpoint", at]
            return CliRunner().invoke(main, words, catch_exceptions=False)

        work(run)

    run_client(town, directory, served)


def test_a_dry_run_tells_and_changes_nothing_and_a_second_apply_does_nothing(
    directory: Path,
) -> None:
    """R31. Exit codes: 5 when there is something to do, 0 when there is not."""

    def work(run: Run) -> None:
        first, again = run("apply bus.toml --dry-run"), run("apply bus.toml --dry-run")
        applied = run("apply bus.toml")
        second = run("apply bus.toml")
        last = run("apply bus.toml --dry-run")

        assert (first.exit_code, again.exit_code) == (5, 5)
        assert first.stdout == again.stdout
        assert "+ queue orders\n" in first.stdout
        assert first.stdout.endswith("4 changes to make\n")
        assert applied.exit_code == 0
        assert applied.stdout.endswith("4 of 4 changes made\n")
        assert "= queue orders\n" in second.stdout
        assert second.stdout.endswith("0 of 0 changes made\n")
        assert (last.exit_code, last.stdout.splitlines()[-1]) == (0, "nothing to do")

    with_commands(directory, work)


def test_programs_get_one_document_whatever_happens(directory: Path) -> None:
    (directory / "bad.toml").write_text(
        '[[queue]]\nname = "a"\n[[queue]]\nname = "b"\nlock-duration = "1h"\n', encoding="utf-8"
    )

    def work(run: Run) -> None:
        done = json.loads(run("apply bus.toml --json").stdout)
        failed = run("apply bad.toml --json")
        blocked = run("apply bus.toml bad.toml --json --dry-run")

        assert [step["is_done"] for step in done["steps"]] == [True] * 4
        document = json.loads(failed.stdout)
        assert failed.exit_code == 1
        assert [(step["name"], step["is_done"]) for step in document["steps"]] == [
            ("a", True),
            ("b", False),
        ]
        assert "queue b: " in document["error"]["message"]
        assert "LockDuration" in failed.stderr
        assert json.loads(blocked.stdout)["is_dry_run"] is True

    with_commands(directory, work)


def test_what_cannot_be_done_ends_a_dry_run_with_1(directory: Path) -> None:
    """R6."""
    text = TEXT.replace('lock-duration = "30s"', "sessions = true")
    (directory / "other.toml").write_text(text, encoding="utf-8")

    def work(run: Run) -> None:
        run("apply bus.toml")
        dry, real = run("apply other.toml --dry-run"), run("apply other.toml")

        assert dry.exit_code == 1
        assert "! queue orders: RequiresSession is fixed at creation" in dry.stdout
        assert real.exit_code == 1
        assert "nothing was changed" in real.stderr

    with_commands(directory, work)


def test_deleting_is_asked_for(directory: Path) -> None:
    (directory / "less.toml").write_text('[[topic]]\nname = "news"\n', encoding="utf-8")

    def work(run: Run) -> None:
        run("apply bus.toml")
        kept = run("apply less.toml --dry-run")
        dropped = run("apply less.toml --delete-missing")

        assert kept.stdout == "= topic news\nnothing to do\n"
        lines = dropped.stdout.splitlines()
        assert "- queue orders: with every message in it" in lines
        assert "- access rule reader" in lines
        assert json.loads(run("queue list --json").stdout) == []

    with_commands(directory, work)


def test_parameters_are_given_by_word_and_by_file(directory: Path) -> None:
    queue = resource("/queues", "[concat(parameters('bus'), '/', parameters('queue'))]")
    document = template(queue, parameters={"bus": {}, "queue": {"type": "string"}})
    (directory / "t.json").write_text(json.dumps(document), encoding="utf-8")
    values = {"parameters": {"queue": {"value": "by-file"}}}
    (directory / "p.json").write_text(json.dumps(values), encoding="utf-8")

    def work(run: Run) -> None:
        assert "+ queue by-file" in run("apply t.json --parameters p.json --dry-run").stdout
        given = run("apply t.json --parameters p.json --parameter queue=by-word --dry-run")
        assert "+ queue by-word" in given.stdout
        missing = run("apply t.json --dry-run")
        assert missing.exit_code == 2
        assert "--parameter queue=VALUE" in missing.stderr

    with_commands(directory, work)


@pytest.mark.parametrize("form", ["toml", "emulator", "arm"])
def test_an_export_is_no_difference(directory: Path, form: str) -> None:
    name = "out.toml" if form == "toml" else "out.json"

    def work(run: Run) -> None:
        run("apply bus.toml")
        exported = run(f"export --form {form} --out {name}")
        again = run(f"apply {name} --dry-run")

        assert exported.exit_code == 0
        assert exported.stdout == f"wrote {name}\n"
        assert ("cannot express the access rule reader" in exported.stderr) == (form == "emulator")
        assert (again.exit_code, again.stdout.splitlines()[-1]) == (0, "nothing to do")
        assert stat.S_IMODE((directory / name).stat().st_mode) == 0o600

    with_commands(directory, work)


def test_keys_are_exported_only_when_asked_for(directory: Path) -> None:
    """R34."""

    def work(run: Run) -> None:
        run("apply bus.toml")

        assert "reader-key" not in run("export").stdout
        assert 'primary-key = "reader-key"' in run("export --keys").stdout
        told = run("export --form arm --keys")
        assert "cannot express the keys of the access rule reader" in told.stderr
        assert "reader-key" not in told.stdout + told.stderr
        assert set(json.loads(run("export --json").stdout)) == {"text", "losses"}

    with_commands(directory, work)


@pytest.mark.parametrize("text", ["", "brokers = 2\n"])
@pytest.mark.parametrize("files", ["less.toml", "bus.toml less.toml"])
def test_a_file_that_names_nothing_deletes_nothing(directory: Path, text: str, files: str) -> None:
    """R31: a file that was cut short is no wish for an empty namespace."""
    (directory / "less.toml").write_text(text, encoding="utf-8")

    def work(run: Run) -> None:
        run("apply bus.toml")
        refused = run(f"apply {files} --delete-missing")
        after = run("apply bus.toml --dry-run")

        assert refused.exit_code == 2
        assert "less.toml has no entity" in refused.output
        assert after.exit_code == 0

    with_commands(directory, work)
