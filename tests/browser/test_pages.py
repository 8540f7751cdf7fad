"""Every page in both themes, wide and narrow: accessible, within the screen, within its policy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Browser

from tests.browser.api import Api
from tests.browser.filled import EUROPE, fill
from tests.browser.portal import NARROW, WIDE, Portal, Theme, opened
from tests.support.server import Server

pytestmark = pytest.mark.long

PAGES: Final = (
    ("overview",),
    ("entities",),
    ("create", "queue"),
    ("create", "topic"),
    ("create", "subscription"),
    ("entity", "orders"),
    ("entity", "orders", "fragments"),
    ("entity", "orders", "messages"),
    ("entity", "orders", "dead-letters"),
    ("entity", "orders", "scheduled"),
    ("entity", "orders", "deferred"),
    ("entity", "orders", "access"),
    ("entity", "orders", "settings"),
    ("entity", "carts", "sessions"),
    ("entity", "payments", "report"),
    ("entity", "news"),
    ("entity", "news", "subscriptions"),
    ("entity", EUROPE, "rules"),
    ("entity", EUROPE, "messages"),
    ("entity", "invoices", "dead-letters"),
    ("pipelines",),
    ("pipelines", "archive"),
    ("jobs",),
    ("brokers",),
    ("access",),
    ("about",),
    ("nowhere",),
)


@pytest.fixture(scope="module")
def town(bus: Server) -> Server:
    fill(Api(bus))
    return bus


def looked_at(portal: Portal) -> Iterator[str]:
    for place in PAGES:
        portal.open(*place)
        name = "-".join(place).replace("/", "-")
        for finding in portal.findings():
            yield f"{name}: {finding}"
        if portal.overflow_px() > 0:
            yield f"{name}: wider than the screen by {portal.overflow_px()} px"
        for alert in portal.page.locator("main [role=alert]").all_inner_texts():
            yield f"{name}: {alert}"


@pytest.mark.parametrize(
    ("width", "theme"),
    [
        (WIDE, "light"),
        (NARROW, "dark"),
        pytest.param(WIDE, "dark", marks=pytest.mark.release),
        pytest.param(NARROW, "light", marks=pytest.mark.release),
    ],
)
def test_every_page_is_accessible_and_fits(
    browser: Browser, town: Server, width: int, theme: Theme
) -> None:
    """R44, R45, R46, R47, R48"""
    with opened(browser, town, width, theme) as portal:
        assert list(looked_at(portal)) == []


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_opened_messages_and_dialogs_are_accessible(
    browser: Browser, town: Server, width: int, tmp_path: Path
) -> None:
    """R46, R48"""
    with opened(browser, town, width, "dark") as portal:
        page = portal.page
        portal.open("entity", "orders", "messages")
        page.locator("tbody th button").first.click()
        page.locator(".detail pre").first.wait_for()
        assert portal.findings() == []
        portal.button("Send an edited copy").click()
        portal.dialog().wait_for()
        assert portal.findings() == []
        portal.open("entity", EUROPE, "rules")
        portal.button("Add a rule").click()
        portal.dialog().wait_for()
        assert portal.findings() == []
        page.keyboard.press("Escape")
        # Until it is closed, keys are for its fields.
        portal.dialog().wait_for(state="hidden")
        page.keyboard.press("/")
        page.locator("dialog.palette").wait_for()
        assert portal.findings() == []


def test_on_a_very_wide_screen_nothing_is_lost(browser: Browser, town: Server) -> None:
    """R48: 4K."""
    with opened(browser, town, 3840, height=2160) as portal:
        portal.open("entities")
        portal.shows("payments")

        assert portal.overflow_px() <= 0
