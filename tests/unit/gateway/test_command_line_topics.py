"""`shardbus topic|subscription|rule` against the endpoint (R30, R31)."""

import json
import shlex
from collections.abc import Callable
from pathlib import Path

from click.testing import CliRunner, Result

from shardbus.app.cli.main import main
from tests.unit.gateway.site import Endpoint, run_client

Run = Callable[[str], Result]
"""Runs a command line, without the name of the program."""


def with_commands(tmp_path: Path, work: Callable[[Run], None]) -> Endpoint:
    endpoint = Endpoint()

    def served() -> None:
        at = f"http://127.0.0.1:{endpoint.port}"

        def run(line: str) -> Result:
            words = [*shlex.split(line), "--endpoint", at]
            return CliRunner().invoke(main, words, catch_exceptions=False)

        work(run)

    run_client(endpoint, tmp_path, served)
    return endpoint


def document(result: Result) -> dict[str, object]:
    assert result.exit_code == 0, result.stderr
    found: dict[str, object] = json.loads(result.stdout)
    return found


def test_a_topic_is_created_shown_listed_updated_and_deleted(tmp_path: Path) -> None:
    """R5, R9, R31."""

    def work(run: Run) -> None:
        made = document(run("topic create News --size-gb 2 --duplicate-detection --json"))
        assert (made["name"], made["fragment_count"], made["size_max_mb"]) == ("News", 16, 32_768)
        assert made["subscription_count"] == 0
        assert run("topic update News --default-ttl 3d").exit_code == 0
        shown = run("topic show news").stdout
        assert "default time to live   3d" in shown
        assert "32 GB (2 GB x 16 fragments)" in shown
        assert run("topic list").stdout.splitlines()[1].split()[:2] == ["News", "16"]
        unasked = run("topic delete News")
        assert (unasked.exit_code, "--yes" in unasked.stderr) == (2, True)
        assert run("topic delete News --yes").stdout == "deleted News\n"
        gone = run("topic show News")
        assert (gone.exit_code, "there is no topic News" in gone.stderr) == (4, True)

    with_commands(tmp_path, work)


def test_a_subscription_is_created_shown_listed_updated_and_deleted(tmp_path: Path) -> None:
    """R30, R31."""

    def work(run: Run) -> None:
        run("topic create t")
        made = document(
            run(
                "subscription create t s --sessions --no-dead-letter-on-filter-errors"
                " --lock-duration 30s --json"
            )
        )
        properties = made["properties"]
        assert isinstance(properties, dict)
        assert (made["name"], made["topic"], made["message_count"]) == ("s", "t", 0)
        assert properties["RequiresSession"] == "true"
        assert properties["DeadLetteringOnFilterEvaluationExceptions"] == "false"
        assert run("subscription update t s --max-delivery-count 3").exit_code == 0
        shown = run("subscription show t s").stdout
        assert "maximum deliveries            3" in shown
        assert "lock duration                 30s" in shown
        assert run("subscription list t").stdout.splitlines()[1].split() == [
            "s",
            "0",
            "0",
            "Active",
        ]
        unasked = run("subscription delete t s")
        assert (unasked.exit_code, "--yes" in unasked.stderr) == (2, True)
        assert run("subscription delete t s --yes").exit_code == 0
        gone = run("subscription show t s")
        assert gone.exit_code == 4
        assert "`shardbus subscription list t` shows" in gone.stderr

    with_commands(tmp_path, work)


def test_a_subscription_is_created_with_the_rule_that_was_typed(tmp_path: Path) -> None:
    """R30."""

    def work(run: Run) -> None:
        run("topic create t")
        run('subscription create t s --sql "a > 5" --action "SET b = 1"')
        shown = document(run("rule show t s $Default --json"))
        assert shown["filter"] == {"kind": "sql", "expression": "a > 5", "parameters": []}
        assert shown["action"] == {"expression": "SET b = 1", "parameters": []}

    with_commands(tmp_path, work)


def test_a_rule_of_each_kind_is_created_shown_and_listed(tmp_path: Path) -> None:
    """R30."""

    def work(run: Run) -> None:
        run("topic create t")
        run("subscription create t s")
        sql = document(
            run(
                'rule create t s big --sql "amount > @low" --parameter low:int=5'
                ' --action "SET tag = @word" --action-parameter word=large --json'
            )
        )
        assert sql["filter"] == {
            "kind": "sql",
            "expression": "amount > @low",
            "parameters": [{"name": "low", "type": "int", "value": "5"}],
        }
        same = document(
            run("rule create t s same --label x --property n:long=7 --property colour=red --json")
        )
        assert same["filter"] == {
            "kind": "correlation",
            "fields": {"Label": "x"},
            "properties": [
                {"name": "n", "type": "long", "value": "7"},
                {"name": "colour", "type": "string", "value": "red"},
            ],
        }
        assert run("rule create t s none --never").exit_code == 0
        lines = run("rule list t s").stdout.splitlines()
        assert [line.split()[:2] for line in lines[1:]] == [
            ["$Default", "true"],
            ["big", "amount"],
            ["none", "false"],
            ["same", "Label"],
        ]
        assert "  @low   5 (int)" in run("rule show t s big").stdout
        assert run('rule update t s big --sql "amount > 9"').exit_code == 0
        assert document(run("rule show t s big --json"))["action"] is None
        unasked = run("rule delete t s big")
        assert (unasked.exit_code, "--yes" in unasked.stderr) == (2, True)
        assert run("rule delete t s big --yes").stdout == "deleted big\n"
        assert run("rule show t s big").exit_code == 4

    with_commands(tmp_path, work)


def test_what_cannot_be_is_refused_with_the_reason(tmp_path: Path) -> None:
    def work(run: Run) -> None:
        run("topic create t")
        run("subscription create t s")
        run("queue create q")
        bad = run('rule create t s r --sql "a >"')
        assert (bad.exit_code, "line 1, column 4" in bad.stderr) == (1, True)
        both = run('rule create t s r --sql "a = 1" --label x')
        assert (both.exit_code, "one filter" in both.stderr) == (2, True)
        untyped = run("rule create t s r --property n:fish=1")
        assert (untyped.exit_code, "'fish' is not a type" in untyped.stderr) == (2, True)
        unnamed = run("rule create t s r --property red")
        assert (unnamed.exit_code, "NAME[:TYPE]=VALUE" in unnamed.stderr) == (2, True)
        useless = run("rule create t s r --parameter low=5")
        assert (useless.exit_code, "--sql: give --sql too" in useless.stderr) == (2, True)
        assert run("topic update t").exit_code == 2
        # A command deletes only what is of its kind.
        assert run("topic delete q --yes").exit_code == 4
        assert run("queue delete t --yes").exit_code == 4
        assert run("queue show q").exit_code == 0

    endpoint = with_commands(tmp_path, work)

    assert [rule.name for rule in endpoint.namespace.rules("t/subscriptions/s")] == ["$Default"]


def test_forwarding_that_hardly_anybody_can_want_is_warned_of(tmp_path: Path) -> None:
    def work(run: Run) -> None:
        made = run("queue create ring --forward-to ring")
        assert made.exit_code == 0
        assert "warning" in made.stdout
        assert "ForwardTo makes a loop" in made.stdout
        run("topic create t")
        told = document(run("subscription create t s --sessions --forward-to ring --json"))
        warnings = told["warnings"]
        assert isinstance(warnings, list)
        assert "requires sessions and forwards nothing" in warnings[0]
        assert "warning" not in run("queue create plain").stdout

    with_commands(tmp_path, work)
