"""What the pages say about their numbers: of sessions, jobs, rates, tests of rules and brokers."""

from __future__ import annotations

import re
from typing import Final

import pytest
from azure.servicebus import ServiceBusClient
from playwright.sync_api import Browser, expect

from tests.browser.api import Api, path_of, until
from tests.browser.portal import NARROW, WIDE, Portal, Theme, opened
from tests.support.server import Server

pytestmark = pytest.mark.long

LETTERS: Final = 12


def test_sessions_show_their_messages_their_age_and_until_when_they_are_held(
    portal: Portal, api: Api
) -> None:
    """R46"""
    api.create("carts", requires_session=True)
    api.send("carts", [{"body": "x", "session_id": "full"} for _ in range(5)])
    api.send("carts", [{"body": "x", "session_id": "held"}])
    body = {"session_id": "held", "count": 1}
    api.call("POST", "entities/carts/messages/receive", body)
    portal.open("entity", "carts", "sessions")
    page = portal.page
    full = page.get_by_role("row", name=re.compile("^full"))
    held = page.get_by_role("row", name=re.compile("^held"))
    expect(full).to_contain_text(re.compile(r"full5\d+ B.*(now|ago)free"))
    expect(held).to_contain_text(re.compile(r"until \d\d:\d\d:\d\d \(in \d+ s\).1$"))
    assert portal.findings() == []
    portal.button("held").click()
    portal.shows("1 message locked")
    portal.shows("a client that is not connected to this gateway over AMQP")
    portal.shows("known when it is free")
    # The counts are asked for less often than the holders, and stay meanwhile.
    page.wait_for_timeout(2_500)
    expect(full).to_contain_text(re.compile(r"full5\d+ B"))


@pytest.mark.parametrize(("width", "theme"), [(WIDE, "dark"), (NARROW, "light")])
def test_a_session_shows_who_holds_it_and_the_size_of_its_state(
    browser: Browser, bus: Server, api: Api, width: int, theme: Theme
) -> None:
    """R46"""
    name = f"baskets-{width}"
    api.create(name, requires_session=True)
    api.send(name, [{"body": "x", "session_id": "mine"}])
    state = {"session_id": "mine", "state_text": "step 2"}
    api.call("POST", f"entities/{name}/sessions/state", state)
    with opened(browser, bus, width, theme) as portal:
        portal.open("entity", name, "sessions")
        portal.button("mine").click()
        portal.shows("6 B")
        with (
            ServiceBusClient.from_connection_string(bus.connection_string) as client,
            client.get_queue_receiver(name, session_id="mine"),
        ):
            listed = api.call("GET", f"entities/{name}/sessions")["sessions"]
            assert isinstance(listed, list) and listed[0]["holder"]
            portal.page.locator(".detail").get_by_text(listed[0]["holder"]).wait_for()
            assert portal.findings() == [] and portal.overflow_px() <= 0
        portal.shows("nobody")


def test_a_card_of_a_job_says_what_it_is_about_and_counts(portal: Portal, api: Api) -> None:
    """R46: also when it was begun with another client."""
    line = buried(api, "desk")
    portal.open("entity", "desk", "dead-letters")
    group = portal.page.locator(".group", has_text="NoStock")
    group.get_by_role("button", name="Export").click()
    portal.dialog().get_by_role("button", name="Export", exact=True).click()
    ended = portal.page.locator("details.group", has_text="NoStock \N{MIDDLE DOT} no item <n>")
    ended.get_by_text(re.compile(f"{LETTERS} messages done. Took")).wait_for()
    assert portal.findings() == []

    selection = {"reason": "NoStock", "text": "order"}
    slow = {"action": "resubmit", "selection": selection, "rate_max": 2}
    api.call("POST", f"entities/{line}/jobs", slow)
    working = portal.page.locator("div.group", has_text="text \N{LEFT DOUBLE QUOTATION MARK}order")
    working.get_by_text("reason \N{LEFT DOUBLE QUOTATION MARK}NoStock").wait_for()
    bar = working.get_by_role("progressbar")
    counted = re.compile(rf"looked at \d+ of {LETTERS} messages")
    expect(bar).to_have_attribute("aria-valuetext", counted)
    working.get_by_text(counted).wait_for()
    working.get_by_role("button", name="Stop").click()


def test_earlier_jobs_are_folded(portal: Portal, api: Api) -> None:
    """R46: on a phone they would fill the screen."""
    line = buried(api, "folded")
    for _ in range(3):
        api.call("POST", f"entities/{line}/jobs", {"action": "export"})
    until(lambda: {one["state"] for one in jobs_of(api, line)} == {"done"})
    portal.page.set_viewport_size({"width": NARROW, "height": 700})
    portal.open("entity", "folded", "dead-letters")
    fold = portal.page.locator("details.ended")
    fold.get_by_text("3 earlier jobs").wait_for()
    assert portal.page.get_by_role("button", name="Forget").count() == 0
    assert portal.overflow_px() <= 0
    fold.get_by_text("3 earlier jobs").click()
    fold.get_by_text("Exported").first.click()
    assert portal.findings() == []
    fold.get_by_role("button", name="Forget").click()

    until(lambda: len(jobs_of(api, line)) == 2)
    # What was opened stays open while the page refreshes.
    fold.get_by_text("Exported").first.wait_for()


def test_rates_say_over_what_time_they_are_taken(portal: Portal, api: Api) -> None:
    """R45"""
    api.create("rated")
    for segments in (("overview",), ("entity", "rated")):
        portal.open(*segments)
        portal.page.locator(".figure", has_text="In").get_by_text("the last 2 s").first.wait_for()
        portal.shows("means of 5 s")
    portal.button("Last day").click()
    portal.shows("means of 1 min")


def test_a_rule_says_of_how_many_messages_its_table_is(portal: Portal, api: Api) -> None:
    """R46"""
    api.call("PUT", "topics/wide", {})
    api.call("PUT", "topics/wide/subscriptions/all", {})
    api.send("wide", [{"body": "x", "properties": {"n": n}} for n in range(60)])
    portal.open("entity", "wide/Subscriptions/all", "rules")
    portal.button("Add a rule").click()
    dialog = portal.dialog()
    dialog.get_by_label("Condition").fill("n > 56")
    dialog.get_by_text("3 of 60 messages match").wait_for()
    dialog.get_by_text("The table shows 50 of the 60 messages").wait_for()

    expect(dialog.get_by_label("Results of the test").locator("tbody tr")).to_have_count(50)


def test_the_overview_shows_the_messages_of_each_broker(portal: Portal, api: Api) -> None:
    """R45"""
    api.create("loaded")
    api.send("loaded", [{"body": "x"} for _ in range(7)])
    portal.open("overview")
    brokers = portal.page.get_by_role("region", name="Brokers")
    expect(brokers.get_by_role("columnheader", name="Messages")).to_be_visible()

    def shown() -> int:
        cells = brokers.locator("tbody tr td:nth-child(3)").all_inner_texts()
        return sum(int(cell.split()[0]) for cell in cells)

    totals = api.call("GET", "overview")["totals"]
    assert isinstance(totals, dict)
    until(lambda: shown() == totals["active"])


def buried(api: Api, name: str) -> str:
    """Dead letters of one reason; the path of their line."""
    api.create(name)
    api.send(name, [{"body": f"order {n}"} for n in range(LETTERS)])
    api.bury(name, LETTERS, "NoStock", "no item")
    return path_of(f"{name}/$DeadLetterQueue")


def jobs_of(api: Api, line: str) -> list[dict[str, object]]:
    jobs = api.call("GET", f"entities/{line}/jobs")["jobs"]
    assert isinstance(jobs, list)
    return jobs
