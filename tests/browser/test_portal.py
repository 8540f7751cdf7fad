"""The portal in a real browser, the short way: sign in, create, send, look, search, delete."""

from __future__ import annotations

import json
from typing import Final

import pytest
from playwright.sync_api import Browser

from tests.browser.api import Api, until
from tests.browser.portal import NARROW, WIDE, Portal, Theme, opened
from tests.support.server import Server

TIMES: Final = "\N{MULTIPLICATION SIGN}"


def test_the_development_key_signs_in_on_this_machine(portal: Portal) -> None:
    """R44, R48"""
    portal.page.goto(f"{portal.base}/")
    portal.settled()

    assert portal.page.url.startswith(f"{portal.base}/portal/")
    assert portal.page.get_by_role("heading", level=1).inner_text() == "localhost"
    portal.shows("Brokers")
    assert portal.findings() == []


def test_a_queue_is_created_with_partitioning_ticked_and_its_size_shown(
    portal: Portal, api: Api
) -> None:
    """R9, R31, R44"""
    portal.open("create", "queue")
    page = portal.page
    box = page.get_by_role("checkbox", name="Enable partitioning")

    assert box.is_checked()
    portal.shows(f"Maximum size 16 GB = 1 GB {TIMES} 16 fragments")
    page.get_by_label("Size").select_option("2048")
    portal.shows(f"Maximum size 32 GB = 2 GB {TIMES} 16 fragments")
    box.uncheck()
    portal.shows(f"Maximum size 2 GB = 2 GB {TIMES} 1 fragment")
    box.check()
    page.get_by_label("Name").fill("orders")
    portal.shows("shardbus queue create orders --size-gb 2")
    assert portal.findings() == []
    portal.button("Create the queue").click()
    portal.says("Created orders.")

    portal.settled()
    portal.shows(f"32 GB = 2 GB {TIMES} 16 fragments")
    portal.shows("No message yet")
    made = api.call("GET", "queues/orders")
    assert made["fragment_count"] == 16
    assert portal.findings() == []


def test_partitioning_can_be_switched_off(portal: Portal, api: Api) -> None:
    """R31"""
    portal.open("create", "queue")
    portal.page.get_by_role("checkbox", name="Enable partitioning").uncheck()
    portal.page.get_by_label("Name").fill("plain")
    portal.shows("--no-partitioning")
    portal.button("Create the queue").click()
    portal.says("Created plain.")

    assert api.call("GET", "queues/plain")["fragment_count"] == 1


@pytest.mark.parametrize(("width", "theme"), [(WIDE, "dark"), (NARROW, "light")])
def test_the_list_of_entities_fits_every_screen(
    browser: Browser, bus: Server, api: Api, width: int, theme: Theme
) -> None:
    """R48"""
    api.create(f"list-{width}")
    with opened(browser, bus, width, theme) as portal:
        portal.open("entities")
        portal.shows(f"list-{width}")

        assert portal.overflow_px() <= 0
        assert portal.findings() == []


def test_everything_can_be_found_with_the_keyboard_alone(portal: Portal, api: Api) -> None:
    """R48"""
    api.create("keyboard-only")
    # The page may ask for the queue while it is deleted.
    portal.forgive("status of 404")
    portal.open("overview")
    page = portal.page
    page.keyboard.press("/")
    page.keyboard.type("keyboard")
    page.get_by_role("option", name="keyboard-only").wait_for()
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="keyboard-only").wait_for()
    portal.settled()

    # Tab by tab to the settings, and there to the button that deletes.
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "Settings":
            break
    page.keyboard.press("Enter")
    portal.button("Delete the queue").wait_for()
    portal.button("Delete the queue").focus()
    page.keyboard.press("Enter")
    portal.dialog().wait_for()
    page.keyboard.press("Tab")
    page.get_by_label("Type keyboard-only to confirm").focus()
    page.keyboard.type("keyboard-only")
    page.keyboard.press("Enter")
    portal.says("Deleted keyboard-only.")

    until(lambda: api.ask("GET", "queues/keyboard-only")[0] == 404)


def test_nothing_secret_is_stored_or_written_into_the_address(portal: Portal) -> None:
    """R48"""
    portal.open("access")
    stored = portal.page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}])")

    assert "SAS_KEY_VALUE" not in stored
    assert json.loads(stored)[1] == {}
    assert portal.page.context.cookies() == []
    assert portal.page.evaluate("indexedDB.databases()") == []
    assert "SAS_KEY_VALUE" not in portal.page.url


def test_a_message_is_sent_found_and_read(portal: Portal, api: Api) -> None:
    """R46"""
    api.create("letters")
    portal.open("entity", "letters")
    page = portal.page
    portal.button("Send a message").click()
    dialog = portal.dialog()
    dialog.get_by_label("Body").fill('{"hello": "world"}')
    dialog.get_by_label("Subject (label)").fill("greeting")
    portal.button("Add a property").click()
    dialog.get_by_label("Name of property 1").fill("region")
    dialog.get_by_label("Value of property 1").fill("eu")
    assert portal.findings() == []
    dialog.get_by_role("button", name="Send", exact=True).click()
    portal.says("Sent 1 message to letters.")

    portal.open("entity", "letters", "messages")
    page.get_by_label("Condition").fill("region = 'eu'")
    portal.button("Search").click()
    portal.shows("1 message shown")
    page.locator("tbody th button").first.click()
    page.get_by_label("Body", exact=True).filter(has_text='"hello": "world"').wait_for()
    assert "where=" in page.url
    assert "message=" in page.url
    assert portal.findings() == []


def test_names_and_bodies_are_text_whatever_they_contain(portal: Portal, api: Api) -> None:
    """R48: more of them in the long tests."""
    evil = "<img src=x onerror=alert(1)><script>alert(2)</script>"
    api.create("evil")
    api.send("evil", [{"body": evil, "subject": evil, "properties": {evil: evil}}])
    portal.page.on("dialog", lambda dialog: portal.errors.append(f"alert: {dialog.message}"))
    portal.open("entity", "evil", "messages")
    portal.page.locator("tbody th button").first.click()
    portal.button("Text").click()
    portal.page.get_by_label("Body", exact=True).filter(has_text=evil).wait_for()

    assert portal.page.locator("img:not([src='/portal/icon.svg']), main script").count() == 0
