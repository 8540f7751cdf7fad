"""What the demo says in lines."""

from dataclasses import replace

import pytest

from shardbus.demo.demo import serving_text
from shardbus.demo.picture import Capturing, duration_text, size_text
from shardbus.demo.words import line, line_due_s, summary
from tests.unit.app.demo.pictures import PICTURE, RUNNING


def test_a_line_has_everything_and_no_control_code() -> None:
    text = line(replace(PICTURE, problem="bad\x1bnews"))

    assert text == (
        "demo 3 min 12 s: 4,021 sent (20.1/s), 3,990 received, 3,910 completed, 120 waiting, "
        "12 dead letters | pipeline running: 4,100 rows captured, 120 waiting | bad?news"
    )


def test_a_line_says_why_the_pipeline_does_not_run() -> None:
    waiting = Capturing("demo-archive", "unavailable", "there is no Java")

    assert line(replace(PICTURE, capturing=waiting)).endswith(
        "| pipeline unavailable: there is no Java"
    )


def test_lines_become_rare_so_that_a_night_of_them_is_no_large_file() -> None:
    assert (line_due_s(5.0), line_due_s(3_600.0)) == (10.0, 60.0)


def test_the_summary_says_what_was_done_where_it_is_and_how_to_read_it() -> None:
    assert summary(PICTURE) == [
        "The demo ran for 3 min 12 s.",
        "  sent       4,021 orders to demo-orders, 160 of them for later",
        "  received   3,990: 3,910 completed, 80 dead-lettered",
        "  published  3,910 events to demo-events",
        "  captured   4,100 rows in 32 files, 1.2 MB: /data/captured/demo-archive",
        "Read them:",
        '  .venv/bin/python -c "from shardbus_spark import session; '
        "from shardbus_spark.tables import read_captured; "
        "read_captured(session('look'), '/data/captured/demo-archive')"
        ".groupBy('properties.region').count().show()\"",
        "Serve this bus without the demo: .venv/bin/shardbus serve (make run ARGS=--no-demo)",
    ]


def test_a_summary_without_rows_has_nothing_to_read() -> None:
    told = summary(replace(PICTURE, topic="", capturing=replace(RUNNING, rows=0)))

    assert "  captured   nothing" in told
    assert not any("published" in text or "Read" in text for text in told)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.9, "0 s"), (59.9, "59 s"), (60.0, "1 min 0 s"), (3_599.0, "59 min 59 s"),
     (7_500.0, "2 h 5 min")],
)  # fmt: skip
def test_durations_are_said_as_people_say_them(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0 bytes"), (999, "999 bytes"), (1_500, "1.5 KB"), (2_000_000, "2.0 MB"),
     (3_200_000_000, "3.2 GB")],
)  # fmt: skip
def test_sizes_are_said_in_the_unit_that_fits(size_bytes: int, text: str) -> None:
    assert size_text(size_bytes) == text


def test_the_farewell_names_the_same_bus_and_no_key() -> None:
    words_given = ["--data-dir", "my data", "--sas-key", "secret", "--http-port", "1"]

    assert serving_text(words_given) == " --data-dir 'my data' --sas-key ... --http-port 1"
