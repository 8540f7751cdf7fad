"""Servers of objects that others made: versitygw, which speaks S3, and Azurite, Azure's own.

`make s3` and `make azurite` install them, with the libraries that Spark needs for each.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from typing import Final, final
from urllib.error import URLError
from urllib.request import Request, urlopen

from spark.tests.relay import Upstream

from tests.support.ports import free_port

HERE: Final = Path(__file__).parent
S3_BUILD: Final = HERE / "s3" / "build"
AZURITE: Final = HERE / "azurite"
START_S: Final = 60.0
BUCKET: Final = "tables"
_SECRET: Final = "TheSecretOfTheStoreThatNobodyMayEverSee0123"
_ACCOUNT: Final = "shardbusstore"
_AZURE_SECRET: Final = base64.b64encode(_SECRET.encode()).decode()
_PAUSE_S: Final = 0.1


@final
@dataclass(frozen=True, slots=True)
class RealStore:
    """A server that runs; `conf` are the settings of Spark for it, and `secret` is nowhere to be
    seen.
    """

    upstream: Upstream
    conf: Sequence[str]
    secret: str


@contextmanager
def versitygw(place: Path) -> Iterator[RealStore]:
    """With a directory below this one for its objects."""
    (place / "objects" / BUCKET).mkdir(parents=True)
    port = free_port()
    program, directory = str(S3_BUILD / "versitygw"), str(place / "objects")
    command = [program, "--port", f"127.0.0.1:{port}", "posix", directory]
    with _running(command, {"ROOT_ACCESS_KEY": "operator", "ROOT_SECRET_KEY": _SECRET}, port):
        variables = {
            "AWS_ENDPOINT_URL": "{url}",
            "AWS_ACCESS_KEY_ID": "operator",
            "AWS_SECRET_ACCESS_KEY": _SECRET,
            "AWS_REGION": "us-east-1",
        }
        conf = [f"spark.driver.extraClassPath={S3_BUILD / 'dependencies'}/*"]
        yield RealStore(Upstream(port, f"s3a://{BUCKET}", variables), conf, _SECRET)


@contextmanager
def azurite(place: Path) -> Iterator[RealStore]:
    """With a directory below this one for its blobs."""
    port = free_port()
    program = AZURITE / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    command = [
        *("node", str(program), "--blobHost", "127.0.0.1", "--blobPort", str(port)),
        *("--location", str(place / "blobs"), "--silent", "--skipApiVersionCheck"),
        "--disableTelemetry",
    ]
    with _running(command, {"AZURITE_ACCOUNTS": f"{_ACCOUNT}:{_AZURE_SECRET}"}, port):
        _make_container(port)
        variables = {
            "AZURE_STORAGE_USE_EMULATOR": "true",
            "AZURITE_BLOB_STORAGE_URL": "{url}",
            "AZURE_STORAGE_ACCOUNT_KEY": _AZURE_SECRET,
        }
        conf = [
            f"spark.driver.extraClassPath={AZURITE / 'build' / 'dependencies'}/*",
            f"spark.hadoop.fs.azure.abfs.endpoint=127.0.0.1:{port}",
            "spark.hadoop.fs.azure.always.use.https=false",
            # The other one needs TLS to start.
            "spark.hadoop.fs.azure.networking.library=JDK_HTTP_URL_CONNECTION",
            "spark.hadoop.fs.azure.account.hns.enabled=false",
            "spark.hadoop.fs.azure.fns.account.service.type=BLOB",
        ]
        root = f"abfs://{BUCKET}@{_ACCOUNT}.dfs.core.windows.net"
        yield RealStore(Upstream(port, root, variables), conf, _AZURE_SECRET)


@contextmanager
def _running(command: Sequence[str], variables: Mapping[str, str], port: int) -> Iterator[None]:
    server = subprocess.Popen(
        command,
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _await_answer(port, server, command[0])
        yield
    finally:
        server.kill()
        server.wait()


def _await_answer(port: int, server: subprocess.Popen[bytes], name: str) -> None:
    deadline_s = time.monotonic() + START_S
    while True:
        assert server.poll() is None, f"{name} has ended"
        try:
            urlopen(f"http://127.0.0.1:{port}/", timeout=START_S).close()
        except URLError as error:
            # An answer that says no is an answer.
            if hasattr(error, "code"):
                return
            assert time.monotonic() < deadline_s, f"{name} does not answer"
            time.sleep(_PAUSE_S)
        else:
            return


def _make_container(port: int) -> None:
    """Signed as Azure's reference of its API has it (Shared Key)."""
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-12-02"}
    lines = ["PUT", *[""] * 11]
    lines += [f"{name}:{value}" for name, value in sorted(headers.items())]
    lines += [f"/{_ACCOUNT}/{_ACCOUNT}/{BUCKET}", "restype:container"]
    signed = hmac.digest(_SECRET.encode(), "\n".join(lines).encode(), hashlib.sha256)
    headers["Authorization"] = f"SharedKey {_ACCOUNT}:{base64.b64encode(signed).decode()}"
    # Otherwise Python names a type of its own, which would have to be signed.
    headers["Content-Type"] = ""
    url = f"http://127.0.0.1:{port}/{_ACCOUNT}/{BUCKET}?restype=container"
    urlopen(Request(url, b"", headers, method="PUT"), timeout=START_S).close()
