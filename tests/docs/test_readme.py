"""The start that the README promises, run as it is written."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.docs.examples import run, workplace
from tests.docs.readme import blocks, commands
from tests.support.server import Server, running_server

_STRING: Final = re.compile(r"Endpoint=sb://127\.0\.0\.1:5672")


def test_the_sixty_second_start_works_as_written(tmp_path: Path) -> None:
    """R5, R32: create a queue, send with a partition key, receive, complete."""
    with running_server(tmp_path / "data") as server:
        printed = run(commands(), server.http_port, workplace(tmp_path / "shell"))
        done = subprocess.run(
            [sys.executable, "-c", _script(server)], capture_output=True, check=False, timeout=60
        )

    assert "orders" in printed[0]
    assert (done.returncode, done.stdout.strip()) == (0, b"hello"), done.stderr.decode()


def _script(server: Server) -> str:
    (script,) = blocks("python")
    address = f"Endpoint=sb://127.0.0.1:{server.amqp_port}"
    replaced, count = _STRING.subn(address, script)
    assert count == 1
    return replaced
