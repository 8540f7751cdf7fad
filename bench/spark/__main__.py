"""`python -m bench.spark`: fill a bus, read and write it with Spark, print ratios to Parquet."""

import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from bench import machine
from bench.job import Sample
from bench.peers import shardbus
from bench.peers.process import ServerError, free_ports
from bench.report import write
from bench.rounds import MeasurementError
from bench.spark import report
from bench.spark.apart import idle_group
from bench.spark.measuring import beside, run_rounds, send_latency, settle
from bench.spark.orders import FILE_ROWS, write_orders
from bench.spark.plan import QUICK, Plan, Work
from bench.spark.processes import background
from bench.spark.works import LATENCY, Works
from shardbus_spark.errors import ShardbusError
from shardbus_spark.local import local_session

_HOST: Final = "127.0.0.1"
# The orders, the queue with its log, two copies in Parquet, one more while a round writes it, and
# what sinks leave.
_BYTES_PER_MESSAGE: Final = 10 * 1_300
_WORKS: Final = [work.value for work in Work]


@click.command()
@click.option("--quick", is_flag=True, help="A short run: 80,000 messages, two rounds.")
@click.option("--messages", type=click.IntRange(FILE_ROWS, 100_000_000), help="Messages that wait.")
@click.option("--rounds", type=click.IntRange(1, 1000), help="Rounds over all work.")
@click.option("--only", "chosen", multiple=True, type=click.Choice(_WORKS), help="Only this.")
@click.option(
    "--apart",
    is_flag=True,
    help="The server has real-time scheduling, Spark and the bulk lane what is left (root).",
)
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON.")
@click.option(
    "--results",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("bench/results/local"),
    show_default=True,
    help="Where the JSON goes.",
)
def main(  # noqa: PLR0913 - an option each
    quick: bool,
    messages: int | None,
    rounds: int | None,
    chosen: tuple[str, ...],
    apart: bool,
    as_json: bool,
    results: Path,
) -> None:
    """Measure Spark reading and writing the bus beside Spark on Parquet files."""
    # Ended like this the bus is stopped too, as it is by Ctrl-C.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    plan = _plan(quick, rounds, messages)
    works = [Work(name) for name in chosen] or list(Work)
    Path("build").mkdir(exist_ok=True)
    _check_room(Path("build"), plan)
    taken_at = datetime.now(UTC)
    with tempfile.TemporaryDirectory(dir="build", prefix="bench-spark-") as name:
        place = Path(name).resolve()
        try:
            found = _measure(plan, works, place, is_apart=apart)
        except (ServerError, MeasurementError, ShardbusError, PySparkException) as error:
            print(f"bench: {error}", file=sys.stderr)
            sys.exit(1)
    document = report.document(found, f"{taken_at:%Y-%m-%dT%H:%M:%SZ}")
    path = results / f"spark-{taken_at:%Y-%m-%dT%H%M%SZ}.json"
    write(path, document)
    print(json.dumps(document, indent=1) if as_json else report.table(found))
    _say(f"results in {path}")


def _plan(quick: bool, rounds: int | None, messages: int | None) -> Plan:
    plan = QUICK if quick else Plan()
    waiting = messages or plan.messages
    return replace(
        plan,
        rounds=rounds or plan.rounds,
        messages=waiting,
        sink_rows=min(plan.sink_rows, waiting // FILE_ROWS * FILE_ROWS),
    )


def _check_room(directory: Path, plan: Plan) -> None:
    needed = plan.messages * _BYTES_PER_MESSAGE
    free = shutil.disk_usage(directory).free
    if free < needed:
        raise click.ClickException(
            f"{plan.messages:,} messages need {needed >> 20:,} MB of disk, and {free >> 20:,} MB "
            "are free: use --quick or a smaller number of --messages"
        )


def _measure(plan: Plan, chosen: list[Work], place: Path, *, is_apart: bool) -> report.Found:
    load_before = os.getloadavg()
    [flight_port] = free_ports(1)
    options = ("--flight-port", str(flight_port), *(["--real-time"] if is_apart else []))
    with _session(place) as spark, shardbus.serving(place / "bus", options) as server:
        write_orders(place / "orders", plan.messages, _say)
        works = Works(spark, server, f"grpc://{_HOST}:{flight_port}", place, plan)
        works.fill(_say)
        rounds = run_rounds(works, chosen, plan, server.pid, _say)
        with idle_group(background(server.pid)) if is_apart else nullcontext():
            latencies = _latencies(works, server, plan)
        about: dict[str, object] = {
            **machine.describe(place),
            "spark": spark.version,
            "is_apart": is_apart,
            "load_before": load_before,
            "load_after": os.getloadavg(),
        }
    return report.Found(rounds, latencies, plan, about)


@contextmanager
def _session(place: Path) -> Iterator[SparkSession]:
    """Spark, whose own log goes to a file: of ours, progress is to be seen."""
    _say("starting Spark")
    conf: dict[str, object] = {
        "spark.local.dir": str(place / "spark"),
        "spark.log.level": "ERROR",
        "spark.sql.warehouse.dir": str(place / "warehouse"),
    }
    kept = os.dup(sys.stderr.fileno())
    try:
        with (place / "spark.log").open("wb") as log:
            os.dup2(log.fileno(), sys.stderr.fileno())
        spark = local_session("bench", conf=conf)
    finally:
        os.dup2(kept, sys.stderr.fileno())
        os.close(kept)
    try:
        yield spark
    finally:
        # Ctrl-C has ended its Java already, of which py4j complains in several ways.
        with suppress(Exception):
            spark.stop()


def _latencies(works: Works, server: shardbus.Server, plan: Plan) -> dict[str, list[Sample]]:
    endpoint = server.endpoint(LATENCY)
    found: dict[str, list[Sample]] = {name: [] for name in report.LATENCIES}

    def alone() -> Sample:
        return send_latency(endpoint, plan)

    def sinking() -> None:
        works.run(Work.SINK)

    measures: dict[str, Callable[[], Sample]] = {
        report.ALONE: alone,
        report.SCANNING: lambda: beside(lambda: works.run(Work.SCAN), alone),
        report.READING: lambda: beside(lambda: works.run(Work.NOOP), alone),
        report.SINKING: lambda: beside(sinking, alone),
    }

    def measure(name: str, number: int) -> None:
        settle()
        sample = measures[name]()
        found[name].append(sample)
        _say(f"round {number}, p99 of a send {name}: {report.p99_us(sample):,.0f} us")

    quiet = (report.ALONE, report.SCANNING, report.READING)
    for number in range(2 * plan.rounds):
        for name in quiet if number % 2 == 0 else reversed(quiet):
            measure(name, number + 1)
    # The disk has to catch up after what these write: they come last.
    for number in range(2 * plan.rounds):
        measure(report.SINKING, number + 1)
    return found


def _say(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
