"""What dead letters have in common: masked texts, shapes of bodies; and a page of them."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardbus_spark.triage.masking import MASKED_CHARACTERS_MAX, masked
from shardbus_spark.triage.page import page_of
from shardbus_spark.triage.plot import Series, ceiling, plot
from shardbus_spark.triage.report import BUCKETS_MAX, Group, Report, step_of
from shardbus_spark.triage.shapes import (
    EXCERPT_CHARACTERS_MAX,
    PATHS_MAX,
    SHAPE_CHARACTERS_MAX,
    excerpt_of,
    shape_of,
    visible,
)

HOSTILE = "<script>alert(1)</script>\"'&\x1b[31m\u202e"
IDS = {
    "<n>": st.integers(0, 10**12).map(str) | st.decimals(0, 10**6, places=2).map(str),
    "<uuid>": st.uuids().map(str),
    "<hex>": st.integers(0, 2**63).map(hex),
    "<time>": st.datetimes().map(lambda each: each.isoformat(timespec="milliseconds") + "Z"),
    "<text>": st.text("abc xyz019", max_size=40).map(lambda text: f"'{text}'"),
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Order 4711 of customer 12 failed", "Order <n> of customer <n> failed"),
        ("total 1,234.50 > 99.9", "total <n> > <n>"),
        ("id 6F9619FF-8B86-D011-B42D-00C04FC964FF gone", "id <uuid> gone"),
        ("at 2026-01-02T03:04:05.678Z and 2026-01-02", "at <time> and <time>"),
        ("at 2026-01-02 03:04:05 +01:00, 03:04:05", "at <time>, <time>"),
        ("null at 0xdeadBEEF", "null at <hex>"),
        ("commit 3f2a9c1d7e missing", "commit <hex> missing"),
        ("no file 'a b.txt' or \"c\"", "no file <text> or <text>"),
        ("it isn't there, nor won't it be", "it isn't there, nor won't it be"),
        ("token A1Z2C3D4E5 expired", "token <id> expired"),
        ("timeout30000ms", "timeout<n>ms"),
        ("HTTP 503 facade", "HTTP <n> facade"),
        ("", ""),
    ],
)
def test_what_varies_is_masked(text: str, expected: str) -> None:
    """P7"""
    assert masked(text) == expected


@given(st.sampled_from(sorted(IDS)).flatmap(lambda mark: st.tuples(st.just(mark), IDS[mark])))
def test_letters_that_differ_by_an_id_have_one_text(drawn: tuple[str, str]) -> None:
    """P7"""
    mark, told = drawn

    assert masked(f"handler failed for {told} again") == f"handler failed for {mark} again"


@given(st.text(max_size=2_000))
def test_a_masked_text_is_short_and_has_no_digits(text: str) -> None:
    """P7"""
    found = masked(text)

    assert len(found) <= MASKED_CHARACTERS_MAX
    assert not re.search("[0-9]", found)


@pytest.mark.parametrize(
    "text", ["'" * 5_000, "a1" * 5_000, "0x" * 5_000, "1," * 5_000, "-" * 5_000]
)
def test_no_text_takes_long_to_mask(text: str) -> None:
    assert len(masked(text)) <= MASKED_CHARACTERS_MAX


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"b": 1, "a": {"c": "x"}}', "json $.a.c:string $.b:number"),
        (b' [{"a": 1}, {"a": null}]', "json $[].a:null $[].a:number"),
        (b'{"a": true, "e": {}, "l": []}', "json $.a:boolean $.e:object $.l:array"),
        (b'{"by": {"17": 1, "18": 2}}', "json $.by.<n>:number"),
        (b'{"a b": 1}', "json $.a\\x20b:number"),
        (b"[]", "json $:array"),
        (b"{not json 17}", "text {not json <n>}"),
        (b"paid 17 EUR\nby card", "text paid <n> EUR\\nby card"),
        (b"\xff\xfe\x00", "binary"),
        (b"", "empty"),
        (None, "empty"),
        (b"[" * 100_000, "json, too deep to be parsed"),
        (b"[" + b" " * (1024 * 1024), "json, too long to be parsed"),
        (b'{"a": NaN}', "json $.a:number"),
    ],
)
def test_a_body_has_a_shape(body: bytes | None, expected: str) -> None:
    """P7"""
    assert shape_of(body) == expected


def test_a_body_that_is_no_data_is_another_shape() -> None:
    assert shape_of(b"hello", "value") == "value text hello"


def _documents() -> st.SearchStrategy[object]:
    leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
        max_leaves=20,
    )


@given(st.dictionaries(st.text("abcdef", min_size=1), _documents(), min_size=1, max_size=9))
def test_the_order_of_keys_and_the_values_do_not_change_a_shape(
    document: dict[str, object],
) -> None:
    """P7"""
    turned = dict(reversed(document.items()))
    other = {key: not value if isinstance(value, bool) else value for key, value in turned.items()}

    assert shape_of(json.dumps(document).encode()) == shape_of(json.dumps(other, indent=1).encode())


def _bodies() -> st.SearchStrategy[bytes]:
    written = _documents().map(lambda each: json.dumps(each).encode())
    return st.binary(max_size=300) | st.text().map(str.encode) | written


@given(_bodies())
def test_every_body_has_a_short_shape_and_excerpt_of_visible_characters(body: bytes) -> None:
    """P7"""
    shape, excerpt = shape_of(body), excerpt_of(body)

    assert shape == shape_of(body)
    assert len(shape) <= max(SHAPE_CHARACTERS_MAX, 10 * MASKED_CHARACTERS_MAX + 20)
    assert len(excerpt) <= EXCERPT_CHARACTERS_MAX
    assert visible(shape) == shape
    assert visible(excerpt) == excerpt


def test_a_body_with_very_many_keys_has_a_bounded_shape() -> None:
    body = json.dumps({f"k{'abcdefghij'[at % 10] * (at // 10 + 1)}": at for at in range(2_000)})

    shape = shape_of(body.encode())

    assert shape.count(" ") <= PATHS_MAX + 1
    assert len(shape) <= SHAPE_CHARACTERS_MAX


@given(st.integers(0, 2 * 10**9), st.integers(0, 2 * 10**9))
def test_a_plot_has_a_bounded_number_of_steps(first_s: int, length_s: int) -> None:
    step_s = step_of(first_s, first_s + length_s)

    assert (first_s + length_s) // step_s - first_s // step_s < BUCKETS_MAX + 1


@given(st.integers(0, 10**12))
def test_the_scale_of_a_plot_is_round_and_not_far_above(count: int) -> None:
    top = ceiling(count)

    assert count <= top <= max(4, 2 * count + 4)
    assert top % 4 == 0


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)

    def handle_data(self, data: str) -> None:
        self.text += data


def _report(text: str) -> Report:
    group: Group = {
        "entity": text,
        "id": "0123456789ab",
        "reason": text,
        "source": text,
        "subject": text,
        "description": text,
        "shape": text,
        "count": 3,
        "first_at": "2026-01-02T03:04:05Z",
        "last_at": "2026-01-02T03:04:06Z",
        "samples": [
            {
                "sequence_number": 1,
                "enqueued_at": "2026-01-02T03:04:05Z",
                "delivery_count": 10,
                "message_id": text,
                "excerpt": text,
            }
        ],
        "over_time": [1, 2],
    }
    return {
        "version": 1,
        "selection": "",
        "entities": [text],
        "made_at": "2026-01-02T04:00:00Z",
        "letters": 4,
        "group_count": 2,
        "first_at": "2026-01-02T03:04:05Z",
        "last_at": "2026-01-02T03:04:06Z",
        "step_s": 1,
        "steps": ["2026-01-02T03:04:05Z", "2026-01-02T03:04:06Z"],
        "over_time": [2, 2],
        "groups": [group],
    }


def test_nothing_of_a_letter_is_markup() -> None:
    """P7: dead letters are hostile input."""
    plain, attacked = _Tags(), _Tags()
    plain.feed(page_of(_report("plain")))

    text = page_of(_report(HOSTILE))
    attacked.feed(text)

    assert attacked.tags == plain.tags
    assert attacked.attributes == plain.attributes
    assert "<script" not in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "<script>alert(1)</script>" in attacked.text


def test_a_page_loads_nothing_and_has_the_numbers_of_its_plot() -> None:
    """P7"""
    text = page_of(_report("plain"))

    assert "default-src &#x27;none&#x27;" in text
    assert "http://" not in text
    assert "https://" not in text
    assert "src=" not in text
    assert text.count('<rect class="s0"') == 3
    assert '<td class="n">2</td>' in text
    assert "prefers-color-scheme: dark" in text


def test_a_page_without_letters_says_so() -> None:
    report: Report = {**_report("plain"), "letters": 0, "groups": [], "steps": [], "over_time": []}

    assert "There are none" in page_of(report)


def test_an_axis_of_millions_has_short_labels_that_are_exact() -> None:
    """P7: seven digits were cut off beside the plot."""
    drawn = plot(["2026-01-01T00:00:00Z"], [Series("g", [1_900_000], "s0")])

    labels = re.findall(r">([^<>]+)</text>", drawn)
    assert labels == ["0", "500,000", "1 M", "1.5 M", "2 M", "2026-01-01 00:00"]


def test_the_moments_of_bars_are_below_their_middle() -> None:
    """P7"""
    steps = [f"2026-01-01T00:0{minute}:00Z" for minute in range(3)]

    drawn = plot(steps, [Series("g", [1, 2, 3], "s0")])

    bars = re.findall(r'<rect class="s0" x="([0-9.]+)" y="[0-9.]+" width="([0-9.]+)"', drawn)
    labels = re.findall(r'<text x="([0-9.]+)" y="[0-9.]+" text-anchor="middle"', drawn)
    middles = [float(x) + float(wide) / 2 for x, wide in bars]
    assert [float(x) for x in labels] == pytest.approx(middles, abs=0.2)
