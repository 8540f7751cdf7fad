"""An application of the cloud meets the bus by a hosts entry and a trusted certificate alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import certifi
import pytest

from tests.conformance.sdk_programs import needed_program_of, program_of
from tests.support.namespaces import needed_namespaces
from tests.support.tools import needed_node

TIMEOUT_S: Final = 400
# Each speaks AMQP on port 5671 and in a WebSocket on port 443, and administers, if it can.
OTHERS: Final = ("Go", "Java", "JMS", ".NET")
ROOT: Final = Path(__file__).parents[2]


def test_an_application_of_the_cloud_works_without_a_change(
    tmp_path: Path,
) -> None:
    """R37: on the ports 5671 and 443, by the name that is in its connection string."""
    apart = needed_namespaces()
    needed_node()
    others = [name for name in OTHERS if program_of(name).missing is None]
    hosts, bundle = Path("/etc/hosts").read_bytes(), Path(certifi.where()).read_bytes()

    done = subprocess.run(
        [*apart, sys.executable, "-m", "tests.conformance.drop_in_world", str(tmp_path), *others],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["addresses"] == ["127.0.0.1"]
    assert told["before"][0] != 0
    assert "CERTIFICATE_VERIFY_FAILED" in told["before"][1]
    assert told["after"][:2] == [0, "one two\n"], told["after"][2]
    assert [code for code, _ in told["javascript"]] == [0, 0], told["javascript"]
    assert told["others"].keys() == set(others)
    for name, (code, printed, errors) in told["others"].items():
        assert (code, printed) == (0, "one two\n"), (name, errors)
    # What was done there was done to nobody else.
    assert Path("/etc/hosts").read_bytes() == hosts
    assert Path(certifi.where()).read_bytes() == bundle


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.release] if program_of(name).is_slowly_built else [])
        for name in OTHERS
    ],
)
def test_no_sdk_was_left_out(name: str) -> None:
    """R37: where the program of an SDK is missing, the test above runs without it and this says
    so.
    """
    needed_program_of(name)
