"""How the SDKs are made to trust the authority of a development certificate.

What `shardbus cert` says of Python and JavaScript, sentence by sentence, and what does not work.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import certifi
import pytest

from shardbus.app.cli.operations.cert import how_to_trust
from shardbus.gateway.listening.tls import development_certificate
from tests.support.queues import create_queue
from tests.support.server import running_server
from tests.support.tools import JS, needed_node

# The Python SDK drops the port of an endpoint when it speaks TLS: the default port, on an address
# of our own.
HOST: Final = "127.0.0.98"
PORT: Final = 5671
ROOT: Final = Path(__file__).parents[2]
TIMEOUT_S: Final = 120
# What the machine may have set for itself.
VARIABLES: Final = (
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
)
NOTHING: Final = "nothing"
KEYWORD: Final = "connection_verify"
BUNDLE: Final = "bundle"

# Of each client of the Python SDK, what makes it trust; nothing else does.
TRUSTS: Final = {
    "amqp": {KEYWORD, BUNDLE},
    "amqp-aio": {KEYWORD, BUNDLE},
    "http": {KEYWORD, BUNDLE, "REQUESTS_CA_BUNDLE"},
    "http-aio": {KEYWORD, "SSL_CERT_FILE"},
}
WAYS: Final = (NOTHING, KEYWORD, BUNDLE, "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE")


@dataclass(frozen=True)
class Secured:
    """A bus inside TLS, the authority to trust, and a `certifi` that has it in its bundle."""

    connection_string: str
    authority: Path
    bundled: Path


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("trust")
    files = development_certificate(
        directory / "tls", now_ms=int(time.time() * 1000), hosts=("localhost", HOST)
    )
    bundled = directory / "bundled"
    shutil.copytree(Path(certifi.__file__).parent, bundled / "certifi")
    with (bundled / "certifi" / "cacert.pem").open("ab") as bundle:
        bundle.write(b"\n" + files.authority.read_bytes())
    options = [
        "--host", HOST, "--tls-port", str(PORT),
        "--tls-cert", str(files.certificate), "--tls-key", str(files.key),
    ]  # fmt: skip
    with running_server(directory / "data", *options) as server:
        create_queue(server, "q")
        yield Secured(
            f"Endpoint=sb://{HOST}:{PORT};SharedAccessKeyName=RootManageSharedAccessKey;"
            "SharedAccessKey=SAS_KEY_VALUE",
            files.authority,
            bundled,
        )


def run(words: list[str], cwd: Path, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    return subprocess.run(
        words,
        cwd=cwd,
        env={**kept, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=TIMEOUT_S,
        check=False,
        text=True,
    )


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("client", TRUSTS)
def test_the_python_sdk_trusts_by_what_is_said_and_by_nothing_else(
    secured: Secured, client: str, way: str
) -> None:
    """R34, R36: `SSL_CERT_FILE` in particular does nothing for its AMQP side."""
    words = {KEYWORD: str(secured.authority)} if way == KEYWORD else {}
    variables = {way: str(secured.authority)} if way.isupper() else {}
    if way == BUNDLE:
        variables["PYTHONPATH"] = f"{secured.bundled}:{os.environ.get('PYTHONPATH', '')}"

    done = run(
        [
            *(sys.executable, "-m", "tests.conformance.trusting"),
            *(client, secured.connection_string, json.dumps(words)),
        ],
        ROOT,
        variables,
    )

    is_trusted = way in TRUSTS[client]
    assert (done.returncode == 0) == is_trusted, done.stdout
    assert is_trusted or "CERTIFICATE_VERIFY_FAILED" in done.stdout


@pytest.mark.parametrize("side", ["amqp", "http"])
def test_the_javascript_sdk_trusts_by_one_variable(secured: Secured, side: str) -> None:
    """R34, R36."""
    node = needed_node()
    words = [node, "trusting.mjs", side, secured.connection_string]

    trusting = run(words, JS, {"NODE_EXTRA_CA_CERTS": str(secured.authority)})
    others = [run(words, JS, named) for named in ({}, {"SSL_CERT_FILE": str(secured.authority)})]

    assert trusting.returncode == 0, trusting.stdout
    assert all(other.returncode != 0 for other in others)


def test_what_is_said_is_what_was_tried() -> None:
    """The sentences that the tests above are of."""
    path = Path("/somewhere/ca.pem")
    how = how_to_trust(path)

    over_amqp, over_http = how["Python, AMQP"], how["Python, HTTP"]
    for text in (over_amqp, over_http):
        assert f"{KEYWORD}={str(path)!r}" in text
    assert "`python -m certifi`" in over_amqp
    assert "environment variables have no effect" in over_amqp
    assert f"REQUESTS_CA_BUNDLE={path} for the synchronous one" in over_http
    assert f"SSL_CERT_FILE={path} for that of aio" in over_http
    assert how["JavaScript, AMQP and HTTP"] == f"NODE_EXTRA_CA_CERTS={path} node ..."
