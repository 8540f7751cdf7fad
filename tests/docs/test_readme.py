"""The start that the README promises, run as it is written."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from click.testing import CliRunner

from shardbus.app.cli import main
from tests.support.server import Server, running_server

README: Final = Path(__file__).resolve().parents[2] / "README.md"
_BLOCK: Final = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_STRING: Final = re.compile(r"Endpoint=sb://127\.0\.0\.1:5672")


def blocks(language: str) -> list[str]:
    text = README.read_text(encoding="utf-8")
    return [body for found, body in _BLOCK.findall(text) if found == language]


def test_the_sixty_second_start_works_as_written(tmp_path: Path) -> None:
    """R5, R32: create a queue, send with a partition key, receive, complete."""
    with running_server(tmp_path / "data") as server:
        for command in _commands():
            words = command.removeprefix(".venv/bin/shardbus ").split()
            endpoint = f"http://127.0.0.1:{server.http_port}"
            answer = CliRunner().invoke(main, [*words, "--endpoint", endpoint])
            assert answer.exit_code == 0, answer.output

        done = subprocess.run(
            [sys.executable, "-c", _script(server)], capture_output=True, check=False, timeout=60
        )

    assert (done.returncode, done.stdout.strip()) == (0, b"hello"), done.stderr.decode()


def _commands() -> list[str]:
    lines = [line for body in blocks("sh") for line in body.splitlines()]
    commands = [line for line in lines if line.startswith(".venv/bin/shardbus ")]
    assert len(commands) == 2
    return commands


def _script(server: Server) -> str:
    (script,) = blocks("python")
    address = f"Endpoint=sb://127.0.0.1:{server.amqp_port}"
    replaced, count = _STRING.subn(address, script)
    assert count == 1
    return replaced
