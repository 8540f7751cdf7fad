"""The `shardbus` command as a process of its own, with a server to talk to."""

import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.support.server import Server

SHARDBUS: Final = str(Path(sys.executable).with_name("shardbus"))
TIMEOUT_S: Final = 60


def run(server: Server, *arguments: str) -> tuple[int, str]:
    """Exit code and output of a command that talks to this server."""
    endpoint = f"http://{server.host}:{server.http_port}"
    done = subprocess.run(
        [SHARDBUS, *arguments, "--endpoint", endpoint],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=TIMEOUT_S,
        check=False,
    )
    return done.returncode, done.stdout.decode()
