"""`python -m bench.features`: measure what else a queue does, and keep the results."""

import signal
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import click

from bench import machine, report
from bench.features import duplicates, lifecycle, scheduled, sessions, topics
from bench.features.shape import Shape
from bench.peers.process import ServerError
from bench.rounds import MeasurementError

_FEATURES = ("sessions-beside", "sessions", "duplicates", "scheduled", "topics", "lifecycle")
_SHAPES = [each.value for each in Shape]
_SESSIONS = 100_000
_REMEMBERED = 1_000_000
_SCHEDULED = 1_000_000
_RECORDED = 20_000


@click.command()
@click.option("--feature", "features", multiple=True, type=click.Choice(_FEATURES))
@click.option("--shape", "shapes", multiple=True, type=click.Choice(_SHAPES))
@click.option("--scale", default=1.0, type=click.FloatRange(0.001, 10), help="1: the full size.")
@click.option(
    "--rounds",
    default=10,
    type=click.IntRange(1, 1000),
    show_default=True,
    help="Of sends, and of starts.",
)
@click.option(
    "--results",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("bench/results/local"),
    show_default=True,
    help="Where the JSON goes.",
)
def main(
    features: tuple[str, ...],
    shapes: tuple[str, ...],
    scale: float,
    rounds: int,
    results: Path,
) -> None:
    """Measure sessions, duplicate detection, scheduling, topics and lifecycle records."""
    # Ended like this the servers are stopped too, as they are by Ctrl-C.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    Path("build").mkdir(exist_ok=True)
    taken_at = datetime.now(UTC)
    with tempfile.TemporaryDirectory(dir="build", prefix="bench-") as name:
        directory = Path(name).resolve()
        found: dict[str, object] = {
            "taken_at": f"{taken_at:%Y-%m-%dT%H:%M:%SZ}",
            "machine": machine.describe(directory),
        }
        chosen = [Shape(each) for each in shapes] or list(Shape)
        measures: dict[str, Callable[[Path], dict[str, object]]] = {
            "sessions": lambda place: sessions.measure(
                place, chosen, round(_SESSIONS * scale), _say
            ),
            "sessions-beside": lambda place: sessions.measure_beside(
                place, chosen, round(_SESSIONS * scale), rounds, _say
            ),
            "duplicates": lambda place: duplicates.measure(
                place, chosen, round(_REMEMBERED * scale), rounds, _say
            ),
            "scheduled": lambda place: scheduled.measure(
                place, chosen, round(_SCHEDULED * scale), max(1, rounds // 2), _say
            ),
            "topics": lambda place: topics.measure(place, chosen, rounds, _say),
            "lifecycle": lambda place: lifecycle.measure(
                place, chosen, max(1_000, round(_RECORDED * scale)), rounds, _say
            ),
        }
        try:
            for feature in features or _FEATURES:
                (directory / feature).mkdir()
                found[feature] = measures[feature](directory / feature)
        except (ServerError, MeasurementError) as error:
            print(f"bench: {error}", file=sys.stderr)
            sys.exit(1)
    path = results / f"features-{taken_at:%Y-%m-%dT%H%M%SZ}.json"
    report.write(path, found)
    print(f"results in {path}")


def _say(text: str) -> None:
    print(f"  {text}", flush=True)


if __name__ == "__main__":
    main()
