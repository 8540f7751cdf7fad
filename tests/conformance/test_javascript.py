"""Unmodified JavaScript SDKs: one test here for each file of tests in `js`."""

from __future__ import annotations

import os
import subprocess
from typing import Final

import pytest

from tests.support.server import Server
from tests.support.tools import JS, needed_node

FILES: Final = sorted(path.name for path in JS.glob("*.test.mjs"))
TIMEOUT_S: Final = 240


@pytest.mark.parametrize("file", FILES)
def test_the_javascript_sdk_works_unmodified(server: Server, queue_name: str, file: str) -> None:
    """R32: what each file proves is named in it."""
    node = needed_node()
    environment = {
        **os.environ,
        "SHARDBUS_CONNECTION_STRING": server.connection_string,
        "SHARDBUS_QUEUE_PREFIX": queue_name,
        "NODE_EXTRA_CA_CERTS": str(server.ca_file),
        "NO_COLOR": "1",
    }

    done = subprocess.run(
        [node, "--test", "--test-reporter=spec", file],
        cwd=JS,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=TIMEOUT_S,
        check=False,
    )

    output = done.stdout.decode(errors="replace")
    assert done.returncode == 0, output
    assert "pass 0" not in output, output


def test_there_are_javascript_tests() -> None:
    assert len(FILES) >= 5
