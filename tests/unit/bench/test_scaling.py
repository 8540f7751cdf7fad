"""What the bench of brokers depends on: processes that are held, and a plot that can be read."""

import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from typing import Final

from bench.scaling.governor import SAVED_S, cpu_s, held
from bench.scaling.load import Rate
from bench.scaling.plot import svg

SHARE: Final = 0.1
LOOKED_S: Final = 1.5
# One turn of the scheduler before it is noticed that a process has used its share.
LATE_S: Final = 0.1
SPACE: Final = "{http://www.w3.org/2000/svg}"


def test_a_busy_process_gets_its_share_and_is_let_go_afterwards() -> None:
    """R2"""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        try:
            with held([busy.pid], SHARE):
                before_s, started_s = cpu_s(busy.pid), time.monotonic()
                time.sleep(LOOKED_S)
                used_s, took_s = cpu_s(busy.pid) - before_s, time.monotonic() - started_s
            assert 0 < used_s <= SHARE * took_s + SAVED_S + LATE_S

            before_s = cpu_s(busy.pid)
            deadline_s = time.monotonic() + 30
            while cpu_s(busy.pid) < before_s + 0.05:
                assert time.monotonic() < deadline_s, "it is still stopped"
                time.sleep(0.01)
        finally:
            busy.kill()


def test_a_plot_has_a_point_for_each_rate_and_a_straight_line_for_what_is_linear() -> None:
    """R2"""
    rates = {
        1: [Rate(1, 500.0, 0, [0.02]), Rate(2, 900.0, 0, [0.02, 0.02])],
        2: [Rate(1, 510.0, 0, [0.02]), Rate(2, 1000.0, 0, [0.02, 0.02])],
    }

    drawn = ElementTree.fromstring(svg(rates, 0.02))

    points = [(float(c.attrib["cx"]), float(c.attrib["cy"])) for c in drawn.iter(f"{SPACE}circle")]
    assert len(points) == 4
    assert points[1][1] < points[0][1], "more is higher"
    assert points[0][0] == points[2][0], "the same number of brokers is at the same place"
    texts = [text.text for text in drawn.iter(f"{SPACE}text")]
    assert {"1 store", "2 stores", "linear, 1 store", "brokers"} <= set(texts)
