"""A broker dies while somebody looks: its fragments are hatched, counts are marked as partial."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.browser.api import Api
from tests.browser.portal import opened
from tests.chaos.processes import BROKERS, ProcessServer, process_server

pytestmark = pytest.mark.long

log = logging.getLogger(__name__)
SEEN_S_MAX = 10.0
"""Of a busy machine; how long it took is logged, and is less than two seconds on an idle one."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[ProcessServer]:
    with process_server(tmp_path_factory.mktemp("outage") / "data", restart_ms=30_000) as server:
        yield server


def test_the_fragments_of_a_killed_broker_are_hatched(
    browser: Browser, cluster: ProcessServer
) -> None:
    """R45"""
    api = Api(cluster)
    api.create("orders")
    api.send("orders", [{"body": "x", "partition_key": f"k{n}"} for n in range(100)])
    with opened(browser, cluster) as portal:
        portal.open("entity", "orders", "fragments")
        page = portal.page
        assert page.locator(".cell").count() == 16
        assert page.locator(".cell.gone").count() == 0

        cluster.kill_broker(2)
        killed_s = time.monotonic()
        page.locator(".cell.gone").first.wait_for()
        seen_s = time.monotonic() - killed_s
        log.warning("the outage was seen after %.2f s", seen_s)

        assert seen_s < SEEN_S_MAX
        assert page.locator(".cell.gone").count() == 16 // BROKERS
        assert "broker-2" in str(page.locator(".cell.gone").first.get_attribute("title"))
        portal.shows("Some fragments do not serve.")
        assert portal.findings() == []
        portal.open("entities")
        portal.shows("4 of 16 fragments out")
        page.get_by_text("≥ ").first.wait_for()
        portal.open("brokers")
        portal.shows("The bus is degraded.")
        assert portal.findings() == []
