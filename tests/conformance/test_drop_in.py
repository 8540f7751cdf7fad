"""An application of the cloud meets the bus by a hosts entry and a trusted certificate alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import certifi
import pytest

from tests.support.tools import needed_node

TIMEOUT_S: Final = 400
ROOT: Final = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def apart() -> list[str]:
    """The command that runs another in network and mount namespaces of its own."""
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("there is no unshare: namespaces cannot be made")
    as_root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    words = [unshare, *as_root, "--net", "--mount"]
    probe = [*words, "mount", "--bind", "/etc/hosts", "/etc/hosts"]
    tried = subprocess.run(probe, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if tried.returncode != 0:
        pytest.skip(f"namespaces cannot be made here: {tried.stderr.strip()}")
    return words


def test_an_application_of_the_cloud_works_without_a_change(
    apart: list[str], tmp_path: Path
) -> None:
    """R37: on the ports 5671 and 443, by the name that is in its connection string."""
    needed_node()
    hosts, bundle = Path("/etc/hosts").read_bytes(), Path(certifi.where()).read_bytes()

    done = subprocess.run(
        [*apart, sys.executable, "-m", "tests.conformance.drop_in_world", str(tmp_path)],
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
    # What was done there was done to nobody else.
    assert Path("/etc/hosts").read_bytes() == hosts
    assert Path(certifi.where()).read_bytes() == bundle
