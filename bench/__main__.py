"""`python -m bench`: start the servers, run the rounds, print the table, keep the results."""

import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import click

from bench import machine, report
from bench.peers import rabbitmq, shardbus
from bench.peers.process import ServerError
from bench.plan import QUICK, Plan
from bench.rounds import MeasurementError, Peer, run_round

_SERVERS = ("shardbus", "rabbitmq")


@click.command()
@click.option("--quick", is_flag=True, help="A short run: two rounds of few messages.")
@click.option("--rounds", type=click.IntRange(1, 1000), help="Rounds over all workloads.")
@click.option("--messages", type=click.IntRange(100, 10_000_000), help="Messages per sample.")
@click.option(
    "--server",
    "servers",
    multiple=True,
    help="Only these: shardbus, rabbitmq, or the path of another build's shardbus command.",
)
@click.option("--serve-option", "options", multiple=True, help="Passed on to `shardbus serve`.")
@click.option(
    "--results",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("bench/results/local"),
    show_default=True,
    help="Where the JSON goes.",
)
def main(
    quick: bool,
    rounds: int | None,
    messages: int | None,
    servers: tuple[str, ...],
    options: tuple[str, ...],
    results: Path,
) -> None:
    """Measure Shardbus, RabbitMQ and the floor in turn, and print ratios."""
    # Ended like this the servers are stopped too, as they are by Ctrl-C.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    plan = _plan(quick, rounds, messages)
    chosen = servers or _SERVERS
    for each in chosen:
        if each not in _SERVERS and not Path(each).is_file():
            raise click.BadParameter(f"{each} is no server and no command", param_hint="--server")
    # Not the system's directory for temporary files: it may be memory, where fsync costs nothing.
    Path("build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir="build", prefix="bench-") as name:
        directory = Path(name).resolve()
        try:
            with _peers(directory, chosen, options) as peers:
                _measure(plan, peers, directory, results)
        except (ServerError, MeasurementError) as error:
            print(f"bench: {error}", file=sys.stderr)
            sys.exit(1)


def _plan(quick: bool, rounds: int | None, messages: int | None) -> Plan:
    plan = QUICK if quick else Plan()
    return replace(plan, rounds=rounds or plan.rounds, messages=messages or plan.messages)


@contextmanager
def _peers(
    directory: Path, chosen: tuple[str, ...], options: tuple[str, ...]
) -> Iterator[list[Peer]]:
    with ExitStack() as stack:
        peers: list[Peer] = []
        if "shardbus" in chosen:
            endpoint = stack.enter_context(shardbus.running(directory / "shardbus", options))
            peers.append(Peer(report.OURS, endpoint, knows_batches=True))
        for number, program in enumerate(sorted(set(chosen) - set(_SERVERS)), start=1):
            other = shardbus.running(directory / f"other-{number}", options, program)
            name = f"other shardbus {number}"
            peers.append(Peer(name, stack.enter_context(other), knows_batches=True))
        if "rabbitmq" in chosen and not rabbitmq.is_installed():
            print("RabbitMQ is not installed and not measured; `make bench-peers` installs it.")
        elif "rabbitmq" in chosen:
            endpoints = stack.enter_context(rabbitmq.running(directory / "rabbitmq"))
            peers.append(Peer("rabbitmq classic", endpoints[rabbitmq.CLASSIC]))
            peers.append(Peer("rabbitmq quorum", endpoints[rabbitmq.QUORUM]))
        yield peers


def _measure(plan: Plan, peers: list[Peer], directory: Path, results: Path) -> None:
    taken_at = datetime.now(UTC)
    about = machine.describe(directory)
    print(", ".join(f"{key} {value}" for key, value in about.items()))
    done = []
    for number in range(1, plan.rounds + 1):
        # Every other round backwards, so that no server always follows the same one.
        ordered = peers if number % 2 else peers[::-1]
        print(f"round {number} of {plan.rounds}", flush=True)
        done.append(run_round(plan, ordered, directory, _say))
    print()
    print(report.table(done))
    path = results / f"{taken_at:%Y-%m-%dT%H%M%SZ}.json"
    report.write(path, report.document(done, plan, about, f"{taken_at:%Y-%m-%dT%H:%M:%SZ}"))
    print(f"\nresults in {path}")


def _say(text: str) -> None:
    print(f"  {text}", flush=True)


if __name__ == "__main__":
    main()
