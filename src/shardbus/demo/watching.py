"""What the demo asks the bus about itself, regularly."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from shardbus.app.cli.api_client import ApiClient, Document
from shardbus.app.cli.messages.entity_path import documents
from shardbus.demo.picture import Capturing, FragmentBar, Subscribed
from shardbus.demo.scene import ORDERS, RULES, Scene
from shardbus.demo.tally import Rate

PIPELINE: Final = "demo-archive"
FILES_MAX: Final = 200_000
# Counting many files takes time: at most this share of the demo's.
SCAN_SHARE: Final = 0.02
SCAN_EVERY_S: Final = 2.0


@final
@dataclass(frozen=True, slots=True)
class Seen:
    """One look at the bus; no pipeline when there is none yet."""

    fragments: tuple[FragmentBar, ...] = ()
    scheduled: int = 0
    dead_letters: int = 0
    subscriptions: tuple[Subscribed, ...] = ()
    pipeline: Capturing | None = None


@final
class Watcher:
    """Looks at the bus; each look blocks for a few requests."""

    def __init__(self, api: ApiClient, scene: Scene) -> None:
        self._api = api
        self._scene = scene
        self._rates: dict[int, Rate] = {}
        self._captured = Captured()

    def step(self, now_s: float) -> Seen:
        parts = documents(self._api.get(f"entities/{ORDERS}/fragments"), "fragments")
        return Seen(
            fragments=tuple(self._fragment(part, now_s) for part in parts),
            scheduled=sum(_count(part, "scheduled") for part in parts),
            dead_letters=sum(_count(part, "dead_letter") for part in parts),
            subscriptions=tuple(map(self._subscribed, self._scene.subscriptions)),
            pipeline=pipeline_seen(self._api, self._captured),
        )

    def _fragment(self, part: Document, now_s: float) -> FragmentBar:
        number = _count(part, "number")
        is_available = part.get("state") == "available"
        rate = self._rates.setdefault(number, Rate())
        per_s = rate.add(now_s, _count(part, "sent_total")) if is_available else 0.0
        return FragmentBar(number, _count(part, "active"), per_s, is_available)

    def _subscribed(self, path: str) -> Subscribed:
        runtime = _below(self._api.get(f"entities/{path}"), "runtime")
        return Subscribed(path.rpartition("/")[2], RULES[path], _count(runtime, "active"))


@final
class Captured:
    """The number and total size of the files in a directory of captured data."""

    def __init__(self) -> None:
        self.files = 0
        self.size_bytes = 0
        self._next_s = 0.0

    def look(self, location: str) -> None:
        """Count again when it is time to."""
        began_s = time.monotonic()
        if "://" in location:
            self.files = -1
        elif began_s >= self._next_s:
            sizes = list(_sizes(Path(location)))
            self.files, self.size_bytes = len(sizes), sum(sizes)
            now_s = time.monotonic()
            self._next_s = now_s + max(SCAN_EVERY_S, (now_s - began_s) / SCAN_SHARE)


def pipeline_seen(api: ApiClient, captured: Captured | None = None) -> Capturing | None:
    """The pipeline and its files; None when there is no pipeline."""
    # From the list of all: asking by name for a missing one would be a line in the log of the bus.
    pipelines = documents(api.get("pipelines"), "pipelines")
    found = next((each for each in pipelines if each.get("name") == PIPELINE), None)
    if found is None:
        return None
    files = Captured() if captured is None else captured
    location, progress = str(found.get("location", "")), _below(found, "progress")
    files.look(location)
    return Capturing(
        PIPELINE,
        str(found.get("state", "")),
        str(found.get("last_error", "")),
        rows=_count(progress, "rows_total"),
        backlog=_count(progress, "backlog"),
        batch=_count(progress, "batch"),
        batch_rows=_count(progress, "rows"),
        batch_ms=_count(progress, "batch_ms"),
        files=files.files,
        size_bytes=files.size_bytes,
        location=location,
    )


def _sizes(root: Path) -> Iterator[int]:
    """The size of each Parquet file, without Spark's own in directories that begin with _."""
    left = FILES_MAX
    for directory, below, names in os.walk(root):
        below[:] = [name for name in below if not name.startswith(("_", "."))]
        for name in names:
            if not name.endswith(".parquet") or name.startswith((".", "_")):
                continue
            if not left:
                return
            left -= 1
            try:
                yield (Path(directory) / name).stat().st_size
            except FileNotFoundError:
                # Compaction removes files while this counts them.
                continue


def _below(document: Document, name: str) -> Document:
    found = document.get(name)
    return dict(found) if isinstance(found, dict) else {}


def _count(document: Document, name: str) -> int:
    value = document.get(name, 0)
    return value if isinstance(value, int) else 0
