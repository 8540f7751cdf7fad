"""How long `shardbus triage` takes to group many dead letters (P7: a million in two minutes).

Run as `python -m bench.triage [--letters N] [--kind order|short] [--json]`. It starts a bus with a
queue of 16 fragments, writes the letters with the sink of the bulk lane, lets them expire into the
dead letters, and measures the whole command `shardbus triage letters --out DIR`, with the start of
Spark. The report says whether the bus is compiled, and how busy the machine was; a busy machine
gives no result that can be compared.

`order` letters have 20 values of JSON in 60 % of cases and a text otherwise, with seven subjects;
`short` ones have three short values.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa

from bench import machine
from shardbus_spark.client import connect
from tests.support.ports import free_port
from tests.support.server import running_server

LETTERS: Final = 1_000_000
ROWS: Final = 20_000
QUEUE: Final = "letters"
SUBJECTS: Final = 7
JSON_OF_TEN: Final = 6
EXPIRED_S_MAX: Final = 1_800.0
COMMAND_S_MAX: Final = 3_600.0
_TYPES: Final[dict[str, pa.DataType]] = {
    "body": pa.binary(),
    "subject": pa.string(),
    "time_to_live_ms": pa.int64(),
}


def body_of(number: int, kind: str) -> bytes:
    """The body of a letter; equal numbers have equal bodies."""
    if kind == "short":
        return json.dumps({"order": number, "paid": number % 2 == 0, "note": "late"}).encode()
    if number % 10 >= JSON_OF_TEN:
        return f"order {number}: {number % 97} lamps, please".encode()
    values = {f"value_{at}": number * at for at in range(19)}
    return json.dumps({"order": number, **values}).encode()


def batches(letters: int, kind: str) -> Iterator[pa.RecordBatch]:
    """Rows of messages that expire at once."""
    for start in range(0, letters, ROWS):
        numbers = range(start, min(start + ROWS, letters))
        rows = [
            {
                "body": body_of(number, kind),
                "subject": f"subject {'abcdefg'[number % SUBJECTS]}",
                "time_to_live_ms": 1_000,
            }
            for number in numbers
        ]
        yield pa.RecordBatch.from_pylist(rows, schema=pa.schema(_TYPES))


def measured(letters: int, kind: str, directory: Path) -> dict[str, object]:
    """Seconds of the command, and its report."""
    port = free_port()
    lane = f"grpc://127.0.0.1:{port}"
    setup = directory / "setup.toml"
    setup.write_text(
        f'[[queue]]\nname = "{QUEUE}"\npartitioning = true\ndead-letter-on-expiration = true\n',
        encoding="utf-8",
    )
    options = ("--flight-port", str(port), "--config", str(setup))
    with running_server(directory / "data", *options) as server:
        _fill(lane, letters, kind)
        endpoint = f"http://127.0.0.1:{server.http_port}"
        _await_letters(lane, letters)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        begun_s = time.monotonic()
        report = _triage(endpoint, lane, directory / "out")
        elapsed_s = time.monotonic() - begun_s
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert report["letters"] == letters, "all letters are in groups"
    return {
        "letters": letters,
        "kind": kind,
        "groups": report["group_count"],
        "seconds": round(elapsed_s, 1),
        "processor_seconds_of_the_command": round(used_s, 1),
        "load": [round(load, 1) for load in os.getloadavg()],
        **machine.describe(directory),
    }


def _fill(lane: str, letters: int, kind: str) -> None:
    client = connect(lane)
    put = client.stage(QUEUE, "bench/letters", batches(letters, kind))
    stages = [{"stage": "bench/letters", "count": put.rows}]
    body = {"producer": "bench", "batch": 1, "stages": stages}
    client.act("publish", QUEUE, body, retry_s=EXPIRED_S_MAX)
    client.close()


def _await_letters(lane: str, letters: int) -> None:
    """Until all messages have expired."""
    client = connect(lane)
    deadline_s = time.monotonic() + EXPIRED_S_MAX
    while True:
        fragments = client.describe(f"{QUEUE}/$DeadLetterQueue")["fragments"]
        assert isinstance(fragments, list)
        if sum(int(part["waiting"]) for part in fragments) == letters:
            break
        if time.monotonic() > deadline_s:
            raise SystemExit("the messages did not expire in time")
        time.sleep(1)
    client.close()


def _triage(endpoint: str, lane: str, out: Path) -> dict[str, object]:
    command = [sys.executable, "-m", "shardbus", "triage", QUEUE, "--out", str(out)]
    places = ["--endpoint", endpoint, "--flight-url", lane]
    subprocess.run(
        [*command, *places], check=True, stdout=subprocess.DEVNULL, timeout=COMMAND_S_MAX
    )
    report: dict[str, object] = json.loads((out / "report.json").read_text("utf-8"))
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--letters", type=int, default=LETTERS)
    parser.add_argument("--kind", choices=("order", "short"), default="order")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-triage-") as directory:
        found = measured(asked.letters, asked.kind, Path(directory))
    if asked.json:
        sys.stdout.write(json.dumps(found, indent=1) + "\n")
        return
    for name, value in found.items():
        sys.stdout.write(f"{name:36} {value}\n")


if __name__ == "__main__":
    main()
