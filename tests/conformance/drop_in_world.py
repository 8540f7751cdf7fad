"""A machine of its own for test_drop_in: run inside new network and mount namespaces.

Arguments: a directory, and SDKs beside those of Python and JavaScript. What it prints is a JSON
document of what happened.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import Final

import certifi

from tests.conformance.sdk_programs import make_trust_store, program_of, trusting
from tests.conformance.test_trust import VARIABLES
from tests.support.server import COMMAND, running_server
from tests.support.tools import JS

NAME: Final = "contoso-orders.servicebus.windows.net"
KEY: Final = "the-key-that-the-application-has-in-its-connection-string"
CONNECTING: Final = (
    f"Endpoint=sb://{NAME}/;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey={KEY}"
)
PYTHON: Final = [sys.executable, str(Path(__file__).with_name("drop_in_application.py"))]
JAVASCRIPT: Final = ["node", "trusting.mjs"]
# The application in Python creates it.
QUEUE: Final = "q"
TIMEOUT_S: Final = 120
_UP_AND_RUNNING: Final = 0x41


def main(directory: Path, names: list[str]) -> None:
    raise_loopback()
    replace_content(
        Path("/etc/hosts"), directory / "hosts", f"127.0.0.1 localhost\n127.0.0.1 {NAME}\n"
    )
    made = subprocess.run(
        [COMMAND[0], "cert", "--name", NAME, "--out", str(directory / "tls"), "--json"],
        capture_output=True,
        check=True,
        timeout=TIMEOUT_S,
    )
    files = json.loads(made.stdout)
    key_file = directory / "key"
    key_file.write_text(KEY)
    options = [
        "--tls-port", "5671", "--http-port", "443", "--sas-key-file", str(key_file),
        "--tls-cert", files["certificate"], "--tls-key", files["key"], "--brokers", "1",
    ]  # fmt: skip
    store = directory / "trust.p12"
    make_trust_store(store, [Path(files["authority"])])
    trust = trusting(Path(files["authority"]), store)
    with running_server(directory / "data", *options):
        before = run(PYTHON, {})
        bundle = Path(certifi.where())
        trusted = bundle.read_text(encoding="utf-8") + Path(files["authority"]).read_text()
        replace_content(bundle, directory / "bundle.pem", trusted)
        after = run(PYTHON, {"SSL_CERT_FILE": files["authority"]})
        javascript = [run([*JAVASCRIPT, side, CONNECTING], trust) for side in ("amqp", "http")]
        others = {name: run(program_of(name).mode("application", QUEUE), trust) for name in names}
    told = {
        "before": [before.returncode, before.stderr[-3000:]],
        "after": [after.returncode, after.stdout, after.stderr[-3000:]],
        "javascript": [[each.returncode, each.stderr[-3000:]] for each in javascript],
        "others": {
            name: [each.returncode, each.stdout, each.stderr[:3000]]
            for name, each in others.items()
        },
        "addresses": sorted({each[4][0] for each in socket.getaddrinfo(NAME, 443)}),
    }
    sys.stdout.write(json.dumps(told))


def run(words: list[str], variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run an application, which is told nothing but what it has been told in the cloud."""
    machine = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    return subprocess.run(
        words,
        cwd=JS,
        env={**machine, "SERVICEBUS_CONNECTION_STRING": CONNECTING, **variables},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def raise_loopback() -> None:
    """`ip link set lo up`, where there may be no `ip`."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh14x", b"lo", _UP_AND_RUNNING)
        fcntl.ioctl(any_socket, 0x8914, request)  # SIOCSIFFLAGS


def replace_content(path: Path, by: Path, content: str) -> None:
    """Show another content at a path, to this mount namespace alone."""
    mount = shutil.which("mount")
    assert mount is not None, "there is no mount"
    by.write_text(content, encoding="utf-8")
    subprocess.run([mount, "--bind", str(by), str(path)], check=True, timeout=TIMEOUT_S)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
