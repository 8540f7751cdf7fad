"""A bus and a browser for each file of tests; a fresh tab for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.browser.api import Api
from tests.browser.portal import CHROMIUM, JS, Portal, launched, opened
from tests.support.server import Server, running_server


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if not CHROMIUM or not (JS / "node_modules" / "axe-core").is_dir():
        pytest.skip("the portal is not tried in a browser: `make chromium` installs what it needs")
    with launched() as browser:
        yield browser


@pytest.fixture(scope="module")
def bus(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("portal") / "data") as server:
        yield server


@pytest.fixture
def api(bus: Server) -> Api:
    return Api(bus)


@pytest.fixture
def portal(bus: Server, browser: Browser) -> Iterator[Portal]:
    with opened(browser, bus) as portal:
        yield portal
