"""The figures of a report, computed from the lifecycle records of an entity.

Rows are added page by page; only the numbers that percentiles and plots need are kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, final

from shardbus.core.lifecycle.latency import SETTLEMENTS, is_first_delivery, rank

Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]
Document = dict[str, Json]

STEPS: Final = 60
TOP: Final = 20
_STEPS_MS: Final = (
    *(1_000, 2_000, 5_000, 10_000, 30_000),
    *(60_000, 120_000, 300_000, 600_000, 1_800_000),
    *(3_600_000, 7_200_000, 14_400_000, 28_800_000),
)
_NEW: Final = frozenset({"enqueue", "publish"})
_DONE: Final = frozenset({"complete", "receive", "consume", "forward"})
_FAILED: Final = frozenset({"abandon", "lock_lost"})


@final
class Waits:
    """Times in milliseconds, for percentiles."""

    def __init__(self) -> None:
        self.values: list[int] = []

    def document(self) -> dict[str, int]:
        """Percentiles by nearest rank; all 0 if there is no time."""
        ordered = sorted(self.values)
        return {
            "count": len(ordered),
            "p50": rank(ordered, 50),
            "p90": rank(ordered, 90),
            "p99": rank(ordered, 99),
            "max": rank(ordered, 100),
        }


@final
class Party:
    """What happened in one fragment, or to one receiver."""

    def __init__(self) -> None:
        self.events: Counter[str] = Counter()
        self.waits = Waits()
        self.holds = Waits()

    def count(self, events: frozenset[str]) -> int:
        return sum(self.events[event] for event in events)


@final
class Figures:
    """Collects rows, and makes the report of them."""

    def __init__(self) -> None:
        self.rows = 0
        self._all = Party()
        self._fragments: dict[int, Party] = {}
        self._receivers: dict[str, Party] = {}
        self._keys: Counter[str] = Counter()
        self._redelivered: Counter[int] = Counter()
        # Of what is plotted: when it happened, what it was, and how long the message had waited.
        self._moments: list[tuple[int, str, int]] = []
        self._first_ms = self._last_ms = 0

    def add(self, columns: Mapping[str, Sequence[Json]]) -> None:
        """Add a page of the table."""
        names = ("fragment", "event", "at_ms", "age_ms", "held_ms", "delivery_count", "key",
                 "receiver")  # fmt: skip
        for row in zip(*(columns[name] for name in names), strict=True):
            self._add(*row)

    def _add(  # noqa: PLR0913 - a row of the table
        self,
        fragment: Json,
        event: Json,
        at_ms: Json,
        age_ms: Json,
        held_ms: Json,
        deliveries: Json,
        key: Json,
        receiver: Json,
    ) -> None:
        assert isinstance(fragment, int) and isinstance(event, str) and isinstance(at_ms, int)
        self.rows += 1
        # A fragment that got no message says so too, with the row of its loading.
        home = self._fragments.setdefault(fragment, Party())
        if event in ("load", "gap"):
            self._all.events[event] += 1
            return
        self._first_ms = min(self._first_ms or at_ms, at_ms)
        self._last_ms = max(self._last_ms, at_ms)
        parties = [self._all, home]
        if receiver:
            parties.append(self._receivers.setdefault(str(receiver), Party()))
        is_first = is_first_delivery(event, deliveries)
        for party in parties:
            party.events[event] += 1
            if is_first and isinstance(age_ms, int):
                party.waits.values.append(age_ms)
            if event in SETTLEMENTS and isinstance(held_ms, int):
                party.holds.values.append(held_ms)
        if event in _NEW and key:
            self._keys[str(key)] += 1
        if event == "lock" and isinstance(deliveries, int) and deliveries > 0:
            self._redelivered[deliveries] += 1
        if is_first or event in _NEW or event in _DONE or event in _FAILED:
            waited_ms = age_ms if is_first and isinstance(age_ms, int) else -1
            self._moments.append((at_ms, event, waited_ms))

    def document(self, entity: str, made_at: str, *, is_whole: bool, damaged: int) -> Document:
        """The report."""
        sent = self._all.count(_NEW)
        return {
            "version": 1,
            "entity": entity,
            "made_at": made_at,
            "rows": self.rows,
            "is_whole": is_whole,
            "damaged_blocks": damaged,
            "first_ms": self._first_ms,
            "last_ms": self._last_ms,
            "events": dict(sorted(self._all.events.items())),
            "time_in_queue_ms": self._all.waits.document(),
            "time_to_settle_ms": self._all.holds.document(),
            "redeliveries": {str(count): n for count, n in sorted(self._redelivered.items())},
            "lost_locks": self._all.events["lock_lost"],
            "duplicates": self._all.events["duplicate"],
            "over_time": self._over_time(),
            "skew": self._skew(),
            "fragments": [
                _party(str(number), party, sent)
                for number, party in sorted(self._fragments.items())
            ],
            "keys": [
                {"key": key, "enqueued": count, "share": round(count / sent, 4)}
                for key, count in self._keys.most_common(TOP)
            ],
            "key_count": len(self._keys),
            "receivers": [
                _party(name, party, sent)
                for name, party in sorted(
                    self._receivers.items(),
                    key=lambda item: -rank(sorted(item[1].holds.values), 99),
                )[:TOP]
            ],
            "receiver_count": len(self._receivers),
        }

    def _skew(self) -> float:
        """How many times its even share the fragment with the most messages got; 1 is even."""
        counts = [party.count(_NEW) for party in self._fragments.values()]
        total = sum(counts)
        return round(max(counts) * len(counts) / total, 2) if total else 1.0

    def _over_time(self) -> Document:
        step_ms = _step_of(self._last_ms - self._first_ms)
        start_ms = self._first_ms // step_ms * step_ms
        count = (self._last_ms - start_ms) // step_ms + 1 if self._moments else 0
        enqueued, settled, failed = [0] * count, [0] * count, [0] * count
        waits: list[list[int]] = [[] for _ in range(count)]
        for at_ms, event, waited_ms in self._moments:
            place = (at_ms - start_ms) // step_ms
            enqueued[place] += event in _NEW
            settled[place] += event in _DONE
            failed[place] += event in _FAILED
            if waited_ms >= 0:
                waits[place].append(waited_ms)
        for values in waits:
            values.sort()
        return {
            "step_ms": step_ms,
            "start_ms": [start_ms + place * step_ms for place in range(count)],
            "enqueued": enqueued,
            "settled": settled,
            "failed": failed,
            "delivered": [len(values) for values in waits],
            "queue_p50_ms": [rank(values, 50) for values in waits],
            "queue_p99_ms": [rank(values, 99) for values in waits],
        }


def _party(name: str, party: Party, sent: int) -> Document:
    enqueued = party.count(_NEW)
    return {
        "name": name,
        "enqueued": enqueued,
        "share": round(enqueued / sent, 4) if sent else 0.0,
        "locked": party.events["lock"],
        "settled": party.count(_DONE),
        "abandoned": party.events["abandon"],
        "lost_locks": party.events["lock_lost"],
        "dead_letters": party.events["dead_letter"],
        "time_in_queue_ms": party.waits.document(),
        "time_to_settle_ms": party.holds.document(),
    }


def _step_of(span_ms: int) -> int:
    for step_ms in _STEPS_MS:
        if span_ms <= step_ms * STEPS:
            return step_ms
    return _STEPS_MS[-1]
