"""The screen of the demo: a picture in, text out."""

import re
from dataclasses import replace

import pytest

from shardbus.demo.picture import Capturing, FragmentBar, Picture
from shardbus.demo.screen import Look, bar, draw
from tests.unit.app.demo.pictures import PICTURE, PLACE, RUNNING

PLAIN = Look(80, 24, has_colour=False)
_CODE = re.compile(r"\x1b\[\d*m")


def test_one_screen_shows_fragments_rates_the_topic_and_the_pipeline() -> None:
    assert draw(PICTURE, PLAIN) == [
        "Shardbus demo  up 3 min 12 s  http://localhost:5300               Ctrl-C ends it",
        "",
        "demo-orders  queue of 16 fragments     120 waiting  4 scheduled  12 dead letters",
        "  0              0  1.2/s   6 ███▋         6  1.2/s  12 ███████▎    12  1.2/s",
        "  1 ▋            1  1.2/s   7 ████▎        7  1.2/s  13 ███████▊    13  1.2/s",
        "  2 █▎           2  1.2/s   8 ████▊        8  1.2/s  14 ████████▍   14  1.2/s",
        "  3 █▊           3  1.2/s   9 █████▍       9  1.2/s  15 █████████   15  1.2/s",
        "  4 ██▍          4  1.2/s  10 ██████      10  1.2/s",
        "  5 ███          5  1.2/s  11 ██████▋     11  1.2/s",
        " 20.1/s sent 4,021   19.8/s received 3,990   19.6/s completed 3,910",
        "",
        "demo-events  topic                                            19.6/s sent  3,910",
        " large    takes total >= 200                                           3 waiting",
        " archive  takes kind <> 'test'                                       212 waiting",
        "",
        "demo-archive  Spark pipeline running              batch 12: 240 rows in 1,830 ms",
        " ███████████████████████▍ 4,100 rows captured  120 waiting      32 files, 1.2 MB",
        " /data/captured/demo-archive",
        "",
        "In another terminal:",
        " .venv/bin/shardbus fragments demo-orders --watch",
        " .venv/bin/shardbus deadletter list demo-orders",
        " .venv/bin/shardbus pipeline status demo-archive --watch",
    ]


@pytest.mark.parametrize("width", [1, 5, 19, 20, 40, 79, 80, 132, 400])
@pytest.mark.parametrize("height", [1, 2, 5, 12, 23, 60])
def test_no_terminal_is_too_small(width: int, height: int) -> None:
    picture = replace(PICTURE, problem="something went wrong " * 20)

    lines = draw(picture, Look(width, height))

    assert 1 <= len(lines) <= height
    assert all(len(_CODE.sub("", line)) <= width for line in lines)


def test_where_room_is_short_what_matters_least_goes_first() -> None:
    lines = draw(PICTURE, Look(80, 7, has_colour=False))

    assert [line.split()[0] for line in lines] == [
        "Shardbus", "demo-orders", "20.1/s", "demo-events", "large", "demo-archive",
        "███████████████████████▍",
    ]  # fmt: skip


def test_colours_are_only_there_where_they_are_wanted() -> None:
    assert any("\x1b[" in line for line in draw(PICTURE, Look(80, 24)))
    assert not any("\x1b" in line for line in draw(PICTURE, PLAIN))
    painted = [_CODE.sub("", line).rstrip() for line in draw(PICTURE, Look(80, 24))]
    assert painted == draw(PICTURE, PLAIN)


def test_a_terminal_that_knows_only_ascii_gets_no_other_letter() -> None:
    lines = draw(PICTURE, Look(80, 24, has_colour=False, has_blocks=False))

    assert all(line.isascii() for line in lines)
    assert " 15 #########   15  1.2/s" in lines[6]


def test_what_a_bus_says_cannot_talk_to_the_terminal() -> None:
    lines = draw(replace(PICTURE, problem="bad\x1b[2J\x07news\n"), PLAIN)

    assert lines[1] == "! bad?[2J?news?"


def test_a_fragment_out_of_reach_is_said_to_be() -> None:
    picture = replace(PICTURE, fragments=(FragmentBar(0, 0, 0.0, is_available=False),))

    assert draw(picture, PLAIN)[3] == "  0 unreachable"


def test_a_pipeline_that_does_not_run_says_why() -> None:
    waiting = Capturing("demo-archive", "waiting", "Spark is being installed, for 12 s now")

    lines = draw(replace(PICTURE, capturing=waiting), PLAIN)

    assert "demo-archive  Spark pipeline waiting" in lines
    assert " Spark is being installed, for 12 s now" in lines


def test_files_that_nobody_can_look_at_are_not_counted() -> None:
    lines = draw(replace(PICTURE, capturing=replace(RUNNING, files=-1)), PLAIN)

    assert not any("files" in line for line in lines)


def test_before_anything_is_known_there_is_a_head() -> None:
    assert draw(Picture(PLACE), PLAIN)[0].startswith("Shardbus demo  up 0 s")


@pytest.mark.parametrize(
    ("share", "blocks", "ascii_bar"),
    [
        (-1.0, "    ", "...."),
        (0.0, "    ", "...."),
        (0.001, "▏   ", "#..."),
        (0.5, "██  ", "##.."),
        (1.0, "████", "####"),
        (9.0, "████", "####"),
    ],
)
def test_a_bar_is_as_wide_as_it_should_be(share: float, blocks: str, ascii_bar: str) -> None:
    assert bar(share, 4, has_blocks=True) == blocks
    assert bar(share, 4, has_blocks=False) == ascii_bar
