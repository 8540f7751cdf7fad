"""A crowd before the bulk lane, in a process of its own: `python -m tests.support.flight_crowd`.

It reads what to do from the first line of standard input, says `ready`, and goes on until that
ends: streams that are begun and never heard of again, or threads that ask all the time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import pyarrow as pa
import pyarrow.flight as flight

ROWS = pa.RecordBatch.from_arrays([pa.array([b"a", b"b", b"c"])], ["body"])
SILENT = "silent"
ASKING = "asking"


@contextmanager
def crowd(url: str, tokens: Sequence[str], count: int, *, how: str = SILENT) -> Iterator[None]:
    """So many for each of the tokens, all there when this begins."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.flight_crowd"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps([url, list(tokens), count, how]) + "\n")
        process.stdin.flush()
        assert process.stdout.readline() == "ready\n"
        yield
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait()


def put_command(stage: str) -> flight.FlightDescriptor:
    return flight.FlightDescriptor.for_command(json.dumps({"entity": "q", "stage": stage}).encode())


def call_options(token: str) -> flight.FlightCallOptions:
    headers = [(b"authorization", token.encode())] if token else []
    return flight.FlightCallOptions(
        headers=headers,  # type: ignore[arg-type]  # the stubs say str, it wants bytes
        timeout=600,
    )


def _begin(client: flight.FlightClient, token: str, count: int) -> list[object]:
    streams: list[object] = []
    for number in range(count):
        with suppress(pa.ArrowException):
            streams.append(
                client.do_put(put_command(f"silent-{number}"), ROWS.schema, call_options(token))
            )
    return streams


def _ask(url: str, token: str) -> None:
    alone: list[tuple[str, int | str]] = [("grpc.use_local_subchannel_pool", 1)]
    with flight.connect(url, generic_options=alone) as client:
        action = flight.Action("describe", b'{"entity": "q"}')
        while True:
            with suppress(pa.ArrowException):
                list(client.do_action(action, call_options(token)))


def main() -> None:
    url, tokens, count, how = json.loads(sys.stdin.readline())
    streams: list[object] = []
    for token in tokens:
        if how == ASKING:
            for _ in range(count):
                threading.Thread(target=_ask, args=(url, token), daemon=True).start()
        else:
            streams += _begin(flight.connect(url), token, count)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
