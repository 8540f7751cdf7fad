"""What the command line says about words that it does not know (R31)."""

import pytest
from click.testing import CliRunner

from shardbus.app.cli.main import main


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("queue update orders --lock 10h", "Did you mean '--lock-duration'?"),
        ("queue update orders --lok-duration 10h", "Did you mean '--lock-duration'?"),
        ("queue create orders --colour red", "No such option '--colour'."),
        ("--key x queue list", "Options come after the command and its arguments."),
        ("sas xyz", "The commands are: "),
        ("help", "`shardbus --help` lists the commands."),
        ("quee list", "Did you mean 'queue'?"),
    ],
)
def test_an_unknown_word_is_answered_with_those_that_may_be_meant(
    words: str, expected: str
) -> None:
    done = CliRunner().invoke(main, words.split(), prog_name="shardbus")

    assert done.exit_code == 2
    assert expected in " ".join(done.output.split())
    assert "--ca" not in done.output
