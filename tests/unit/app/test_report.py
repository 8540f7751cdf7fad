"""`shardbus report`: figures from lifecycle records, and the page that shows them (P8)."""

import json
import re
from collections.abc import Mapping
from html.parser import HTMLParser

import pytest

from shardbus.app.cli.api_client import ApiClient, Document
from shardbus.app.cli.client import Answer
from shardbus.app.cli.console import Json
from shardbus.app.cli.failures import CommandError
from shardbus.app.cli.report.command import read_report, shown
from shardbus.app.cli.report.page import axis_count, count_top, duration, page_of, time_top
from shardbus.app.cli.sas import Credential
from shardbus.gateway.http.observing.figures import Figures

START_MS = 1_700_000_000_000
HOSTILE = "<script>alert(1)</script>\u202e\x00"
NAMES = ("fragment", "event", "at_ms", "age_ms", "held_ms", "delivery_count", "key", "receiver")

Line = tuple[int, str, int, int | None, int | None, int | None, str, str]


def columns(rows: list[Line]) -> dict[str, list[Json]]:
    return {name: [row[place] for row in rows] for place, name in enumerate(NAMES)}


def a_day() -> list[Line]:
    """A hundred messages, 70 of them with one key; the receiver `slow` needs a second for each."""
    rows: list[Line] = [(0, "load", START_MS, None, None, None, "", "")]
    for each in range(100):
        at_ms, fragment = START_MS + each * 1_000, 0 if each < 70 else each % 4
        key, receiver = ("hot", "slow") if each < 70 else (f"key-{each}", HOSTILE)
        held_ms = 1_000 if receiver == "slow" else 5
        rows.append((fragment, "enqueue", at_ms, 0, None, 0, key, ""))
        rows.append((fragment, "lock", at_ms + 50, 50 + each, None, 0, "", receiver))
        event = "abandon" if each == 0 else "lock_lost" if each == 1 else "complete"
        rows.append((fragment, event, at_ms + 60, 60, held_ms, 0, "", receiver))
    rows.append((0, "lock", START_MS + 9_000, 9_000, None, 1, "", "slow"))
    return rows


def made() -> Document:
    figures = Figures()
    figures.add(columns(a_day()))
    return figures.document("orders", "2026-01-01T00:00:00Z", is_whole=True, damaged=0)


def test_percentiles_are_by_nearest_rank() -> None:
    """P8"""
    found = made()

    assert found["time_in_queue_ms"] == {
        "count": 100,
        "p50": 99,
        "p90": 139,
        "p99": 148,
        "max": 149,
    }
    assert found["redeliveries"] == {"1": 1} and found["lost_locks"] == 1


def test_hot_keys_hot_fragments_and_slow_receivers_come_first() -> None:
    """P8"""
    found = made()
    keys, receivers, fragments = found["keys"], found["receivers"], found["fragments"]
    assert isinstance(keys, list) and isinstance(receivers, list) and isinstance(fragments, list)

    assert keys[0] == {"key": "hot", "enqueued": 70, "share": 0.7}
    assert [each["name"] for each in receivers] == ["slow", HOSTILE]
    assert receivers[0]["time_to_settle_ms"]["p99"] == 1_000
    assert receivers[0]["abandoned"] == receivers[0]["lost_locks"] == 1
    assert (
        len(fragments) == 4
        and fragments[0]["enqueued"] > 70
        and found["skew"] == pytest.approx(3.08, abs=0.1)
    )


def test_every_event_is_in_one_step_of_time() -> None:
    over = made()["over_time"]
    assert isinstance(over, dict)
    enqueued, settled, failed = over["enqueued"], over["settled"], over["failed"]
    assert isinstance(enqueued, list) and isinstance(settled, list) and isinstance(failed, list)

    assert over["step_ms"] == 2_000 and len(enqueued) == len(settled) <= 60
    assert sum(enqueued) == 100 and sum(settled) == 98 and sum(failed) == 2


class Pages(HTMLParser):
    """Checks that every tag is closed in its order, and collects the tags."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_stands_alone_and_nothing_of_a_client_is_markup() -> None:
    page = page_of(made())

    reader = Pages()
    reader.feed(page)
    assert reader.open == [] and "script" not in reader.tags
    assert "&lt;script&gt;" in page and "\u202e" not in page and "\x00" not in page
    assert not re.search(r"(?:src|href)=|url\(|@import", page)
    assert "default-src 'none'" in page.replace("&#x27;", "'")
    for heading in ("Throughput", "Time in queue", "Fragments", "Hot keys", "Receivers"):
        assert f"<h2>{heading}</h2>" in page
    assert page.count("The numbers of the plot") == 2


def test_a_step_in_which_nothing_was_delivered_is_a_gap_and_not_a_time_of_zero() -> None:
    """P8"""
    rows: list[Line] = [
        (0, "enqueue", START_MS, 0, None, 0, "", ""),
        (0, "lock", START_MS + 50, 50, None, 0, "", "r"),
        (0, "lock", START_MS + 9_000, 9_000, None, 1, "", "r"),
        (0, "enqueue", START_MS + 10_000, 0, None, 0, "", ""),
        (0, "lock", START_MS + 10_000, 0, None, 0, "", "r"),
        (1, "load", START_MS, None, None, None, "", ""),
    ]
    figures = Figures()
    figures.add(columns(rows))
    found = figures.document("orders", "2026-01-01T00:00:00Z", is_whole=True, damaged=0)
    over = found["over_time"]
    assert isinstance(over, dict)
    page = page_of(found)
    waits = page.partition("<h2>Time in queue</h2>")[2].partition("</svg>")[0]

    assert over["delivered"] == [1, *[0] * 9, 1]
    assert [len(points.split()) for points in re.findall(r'points="([^"]*)"', waits)] == [2] * 4
    fragments = page.partition("<h2>Fragments</h2>")[2].partition("</table>")[0]
    empty = fragments.partition("<td>1</td>")[2]
    assert empty.count(">\N{EN DASH}<") == 4 and "0 ms" not in empty


@pytest.mark.parametrize(
    ("most", "count", "time_ms"),
    [
        (0, 2, 2),
        (1, 2, 2),
        (3, 4, 4),
        (105, 120, 200),
        (7_790, 8_000, 10_000),
        (90_000_000, 100_000_000, 172_800_000),
    ],
)
def test_axes_end_at_round_numbers_with_a_whole_half(most: int, count: int, time_ms: int) -> None:
    """P8: half of 1 message would be 0 or 1."""
    assert (count_top(most), time_top(most)) == (count, time_ms)


@pytest.mark.parametrize(
    ("count", "text"), [(900_000, "900,000"), (1_200_000, "1.2 M"), (18_000_000, "18 M")]
)
def test_large_counts_of_an_axis_fit_beside_it(count: int, text: str) -> None:
    """P8"""
    assert axis_count(count) == text


def test_a_single_step_has_one_label() -> None:
    """P8"""
    figures = Figures()
    figures.add(columns([(0, "enqueue", START_MS, 0, None, 0, "", "")]))
    page = page_of(figures.document("q", "2026-01-01T00:00:00Z", is_whole=True, damaged=0))
    flows = page.partition("<h2>Throughput</h2>")[2].partition("</svg>")[0]

    assert flows.count("<text") == 3 + 1
    assert 'points=""' not in page


def test_no_records_are_a_page_too() -> None:
    found = Figures().document("orders", "2026-01-01T00:00:00Z", is_whole=True, damaged=0)

    assert "There are no records" in page_of(found)
    assert "orders: 0 records" in shown(found)


@pytest.mark.parametrize(
    ("ms", "text"), [(0, "0 ms"), (999, "999 ms"), (1_500, "1.5 s"), (90_000, "1.5 min")]
)
def test_durations_have_their_unit(ms: int, text: str) -> None:
    assert duration(ms) == text


class Bus:
    """Has some pages of records."""

    def __init__(self, pages: int, *, is_on: bool) -> None:
        self._pages = pages
        self._is_on = is_on
        self.asked: list[str] = []

    def ask(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None
    ) -> Answer:
        self.asked.append(target)
        page = len(self.asked)
        rows = a_day() if self._pages else []
        answer = {
            "columns": columns(rows),
            "is_on": self._is_on,
            "damaged": 0,
            "next": f"0.{page}",
            "is_end": page >= self._pages,
        }
        return Answer(200, json.dumps(answer).encode())


def client(bus: Bus) -> ApiClient:
    return ApiClient(bus, "http://bus", Credential("name", "key"), clock=lambda: 0.0)


def test_pages_are_read_one_after_the_other_until_there_are_enough() -> None:
    bus = Bus(3, is_on=True)
    whole = read_report(client(bus), "orders", 10_000, "now")
    assert whole["rows"] == 3 * len(a_day()) and whole["is_whole"] is True
    assert [target.partition("after=")[2][:3] for target in bus.asked] == ["0.0", "0.1", "0.2"]

    some = read_report(client(Bus(3, is_on=True)), "orders", 1, "now")
    assert some["rows"] == len(a_day()) and some["is_whole"] is False
    assert "There are more" in page_of(some)


def test_an_entity_that_records_nothing_is_told_what_to_do() -> None:
    with pytest.raises(CommandError, match="--lifecycle"):
        read_report(client(Bus(0, is_on=False)), "orders", 1, "now")
