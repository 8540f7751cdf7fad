"""`python -m bench.scaling [--share S] [--seconds S] [--rounds N] [--svg FILE] [--json]`

Clusters in PostgreSQL have one broker to eight, on one, two and four databases. Each broker has the
same number of slots and of messages under way, and may use a small share of a processor, so that
eight of them have room on a small machine; the database, the gateway and the senders are not held.
The report has the rate of accepted messages of 1 KB, its ratio to that of one broker times their
number, and what brokers really used: if that is less than the share, something else was the bound.
A rate is the best of the rounds.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from statistics import mean
from typing import Final

from bench.scaling.cluster import running_cluster
from bench.scaling.load import Rate, measured
from bench.scaling.plot import svg
from shardbus.stores.chunked import chunk

STORES: Final = (1, 2, 4)
BROKERS: Final = (1, 2, 4, 8)
SHARE: Final = 0.03
SECONDS: Final = 10.0
TARGET: Final = 0.8


def rates_of(stores: int, share: float, seconds: float, rounds: int) -> list[Rate]:
    """The rates of clusters with more and more brokers."""
    rates: list[Rate] = []
    for brokers in BROKERS:
        with (
            tempfile.TemporaryDirectory(prefix="scaling-") as directory,
            running_cluster(Path(directory), stores, brokers) as cluster,
        ):
            found = [measured(cluster, share, seconds) for _ in range(rounds)]
        rates.append(max(found, key=lambda rate: rate.messages_s))
        sys.stderr.write(f"{stores} stores: {_shown(rates)[-1]}\n")
    return rates


def _shown(rates: list[Rate]) -> list[str]:
    one = max(rates[0].messages_s, 1.0)
    return [
        f"{rate.brokers} brokers {rate.messages_s:8,.0f} messages/s, "
        f"{rate.messages_s / one / rate.brokers:.2f} of linear (at least {TARGET}), "
        f"used {mean(rate.shares):.3f} ({min(rate.shares):.3f} to {max(rate.shares):.3f}), "
        f"{rate.failed} failed"
        for rate in rates
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.scaling")
    parser.add_argument("--share", type=float, default=SHARE)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--svg", type=Path, help="where to write the plot")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = {each: rates_of(each, given.share, given.seconds, given.rounds) for each in STORES}
    if given.svg is not None:
        given.svg.write_text(svg(found, given.share), encoding="utf-8")
    if given.json:
        documents = {str(each): [rate._asdict() for rate in line] for each, line in found.items()}
        sys.stdout.write(json.dumps(documents, indent=2) + "\n")
        return
    is_compiled = not str(chunk.__file__).endswith(".py")
    lines = [f"compiled: {is_compiled}; each broker has {given.share:.0%} of a processor"]
    for each, rates in found.items():
        lines += [f"{each} stores, {line}" for line in _shown(rates)]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
