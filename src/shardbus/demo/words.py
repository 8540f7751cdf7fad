"""The texts of the demo: a line now and then where there is no screen, and the summary."""

from __future__ import annotations

from typing import Final

from shardbus.demo.picture import Capturing, Picture, duration_text, printable, size_text

OFTEN_S: Final = 10.0
SELDOM_S: Final = 60.0
OFTEN_UNTIL_S: Final = 60.0


def line_due_s(elapsed_s: float) -> float:
    """How long to wait for the next line: the lines of a night must not be a large file."""
    return OFTEN_S if elapsed_s < OFTEN_UNTIL_S else SELDOM_S


def line(picture: Picture) -> str:
    """Everything in one line."""
    counts = picture.counts
    words = [
        f"demo {duration_text(picture.elapsed_s)}:",
        f"{counts.sent:,} sent ({picture.sent_per_s:.1f}/s),",
        f"{counts.received:,} received,",
        f"{counts.completed:,} completed,",
        f"{picture.waiting:,} waiting,",
        f"{picture.dead_letters:,} dead letters",
    ]
    if picture.capturing is not None:
        words.append(f"| {_pipeline(picture.capturing)}")
    if picture.problem:
        words.append(f"| {picture.problem}")
    return printable(" ".join(words))


def summary(picture: Picture) -> list[str]:
    """What was done, where the data is, and how to read it."""
    counts = picture.counts
    told = [
        f"The demo ran for {duration_text(picture.elapsed_s)}.",
        f"  sent       {counts.sent:,} orders to {picture.queue}, {counts.scheduled:,} of them "
        "for later",
        f"  received   {counts.received:,}: {counts.completed:,} completed, "
        f"{counts.dead_lettered:,} dead-lettered",
    ]
    if picture.topic:
        told.append(f"  published  {counts.published:,} events to {picture.topic}")
    capturing = picture.capturing
    if capturing is None or not capturing.rows:
        return [*told, "  captured   nothing", *_next(picture)]
    files = (
        f" in {capturing.files:,} files, {size_text(capturing.size_bytes)}"
        if capturing.files >= 0
        else ""
    )
    return [
        *told,
        f"  captured   {capturing.rows:,} rows{files}: {capturing.location}",
        "Read them:",
        f'  {picture.place.python} -c "{_reading(capturing.location)}"',
        *_next(picture),
    ]


def _reading(location: str) -> str:
    return (
        "from shardbus_spark import session; from shardbus_spark.tables import read_captured; "
        f"read_captured(session('look'), '{location}').groupBy('properties.region').count().show()"
    )


def _next(picture: Picture) -> list[str]:
    place = picture.place
    if place.serving:
        return [f"Serve this bus without the demo: {place.command} serve{place.serving}"]
    return [f"Serve this bus without the demo: {place.command} serve (make run ARGS=--no-demo)"]


def _pipeline(capturing: Capturing) -> str:
    if not capturing.batch_ms:
        note = f": {capturing.note}" if capturing.note else ""
        return f"pipeline {capturing.state}{note}"
    return (
        f"pipeline {capturing.state}: {capturing.rows:,} rows captured, "
        f"{capturing.backlog:,} waiting"
    )
