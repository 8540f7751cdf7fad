"""What new users of the portal stumbled over, done again."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.api import Api, path_of, until
from tests.browser.portal import NARROW, WIDE, Portal, Theme, opened
from tests.support.server import Server

pytestmark = pytest.mark.long


def test_what_goes_wrong_in_a_long_dialog_is_in_sight(portal: Portal, api: Api) -> None:
    """R48"""
    api.create("tall")
    portal.open("entity", "tall")
    portal.button("Send a message").click()
    dialog = portal.dialog()
    dialog.get_by_label("Show all fields").check()
    dialog.get_by_role("button", name="Add a property").click()
    dialog.get_by_label("Name of property 1").fill("quantity")
    dialog.get_by_label("Type of property 1").select_option("long")
    dialog.get_by_label("Value of property 1").fill("12x")
    dialog.get_by_role("button", name="Send", exact=True).click()
    problem = dialog.get_by_text("is not a valid long")
    problem.wait_for()

    box, buttons = problem.bounding_box(), dialog.locator(".dialog-foot button").last.bounding_box()
    assert box is not None and buttons is not None
    assert box["y"] >= 0 and box["y"] + box["height"] <= buttons["y"]
    assert buttons["y"] + buttons["height"] <= 800
    portal.forgive("status of 400")


def test_the_buttons_above_a_filtered_list_are_about_what_fits(portal: Portal, api: Api) -> None:
    """R46"""
    api.create("fits")
    api.send("fits", [{"body": f"order {n}"} for n in range(9)])
    api.bury("fits", 4, "NoStock", "no item")
    api.bury("fits", 5, "unreadable", "not JSON at")
    portal.open("entity", "fits", "dead-letters")
    portal.button("Delete all").wait_for()
    portal.button("Show 4 messages").click()
    portal.button("Delete what fits").click()
    dialog = portal.dialog()
    dialog.get_by_text("Delete the dead letters that fit the filter of fits").wait_for()
    dialog.get_by_role("button", name="Delete", exact=True).click()

    until(lambda: api.count("fits", "dead_letter") == 5)
    portal.shows("4 messages done.")


def test_a_letter_that_is_resubmitted_is_counted_once_and_its_panel_closes(
    portal: Portal, api: Api
) -> None:
    """R46"""
    api.create("single")
    api.send("single", [{"body": f"order {n}"} for n in range(3)])
    api.bury("single", 3, "NoStock", "no item")
    portal.open("entity", "single", "dead-letters", query="?view=list")
    portal.page.locator("tbody th button").first.click()
    panel = portal.page.locator(".detail")
    panel.get_by_role("button", name="Resubmit", exact=True).click()
    portal.dialog().get_by_role("button", name="Resubmit", exact=True).click()

    portal.shows("1 of 1 done.")
    expect(panel).to_have_count(0)
    assert api.count("single", "dead_letter") == 2


def test_the_first_filter_of_a_subscription_takes_the_place_of_its_default_rule(
    portal: Portal, api: Api
) -> None:
    """R46: rules are alternatives, so beside `$Default` a filter would select nothing."""
    api.call("PUT", "topics/offers", {})
    portal.open("entity", "offers")
    portal.shows("No subscription yet")
    api.call("PUT", "topics/offers/subscriptions/cheap", {})
    name = "offers/Subscriptions/cheap"
    portal.open("entity", name, "rules")
    for rule, condition in (("under-ten", "price < 10"), ("free", "price = 0")):
        portal.button("Add a rule").click()
        dialog = portal.dialog()
        dialog.get_by_label("Name", exact=True).fill(rule)
        dialog.get_by_label("Condition").fill(condition)
        dialog.get_by_role("button", name="Add the rule").click()
        portal.says(f"Saved the rule {rule}.")

    def rules() -> list[str]:
        found = api.call("GET", f"entities/{path_of(name)}/rules")["rules"]
        assert isinstance(found, list)
        return sorted(str(rule["name"]) for rule in found)

    assert rules() == ["free", "under-ten"]
    api.call("PUT", f"entities/{path_of(name)}/rules/all", {"filter": {"kind": "true"}})
    portal.shows("all matches every message.")


def test_the_latency_of_a_queue_that_records_it_is_shown(portal: Portal, api: Api) -> None:
    """R45, P8"""
    api.create("timed", lifecycle=True)
    api.send("timed", [{"body": "x"} for _ in range(6)])
    for token in api.receive("timed", 6):
        api.settle("timed", token, "complete")

    def is_recorded() -> bool:
        times = api.call("GET", "entities/timed/latency")["time_to_settle_ms"]
        return isinstance(times, dict) and times["count"] == 6

    until(is_recorded)
    portal.open("entity", "timed")
    portal.shows("Time in queue, by minute")
    row = portal.page.get_by_role("row", name="Time to settle")

    expect(row.get_by_role("cell").last).to_have_text("6")
    assert portal.findings() == []


def test_what_is_sent_appears_in_an_empty_list(portal: Portal, api: Api) -> None:
    """R46: also when somebody else sends it."""
    for name in ("mine", "theirs"):
        api.create(name)
    portal.open("entity", "mine", "messages")
    portal.shows("Nothing waits here.")
    portal.button("Send a message").click()
    portal.dialog().get_by_label("Body").fill("two teapots")
    portal.dialog().get_by_role("button", name="Send", exact=True).click()
    portal.shows("1 message shown")
    portal.button("Send a message").click()
    portal.dialog().get_by_role("button", name="Send", exact=True).click()
    portal.shows("2 messages shown")

    portal.open("entity", "theirs", "messages")
    portal.shows("Nothing waits here.")
    api.send("theirs", [{"body": "x"}])
    portal.shows("1 message shown")


@pytest.mark.parametrize(("width", "theme"), [(WIDE, "light"), (NARROW, "dark")])
def test_a_message_is_scheduled_and_its_moment_listed(
    browser: Browser, bus: Server, api: Api, width: int, theme: Theme
) -> None:
    """R46"""
    name = f"tea-{width}"
    api.create(name)
    with opened(browser, bus, width, theme) as portal:
        portal.open("entity", name, "scheduled")
        portal.button("Schedule a message").click()
        dialog = portal.dialog()
        dialog.get_by_label("Body").fill("tea time")
        dialog.get_by_label("Deliver not before").fill("2037-01-02T03:04:05")
        assert portal.findings() == [] and portal.overflow_px() <= 0
        dialog.get_by_role("button", name="Send", exact=True).click()
        due = portal.page.get_by_role("row", name="tea time")
        expect(due).to_contain_text("2037-01-02 03:04:05 UTC")
        assert portal.findings() == [] and portal.overflow_px() <= 0


def test_a_session_is_asked_for_where_one_is_required(portal: Portal, api: Api) -> None:
    """R46"""
    api.create("plain")
    api.create("in-sessions", requires_session=True)
    for name, count in (("plain", 0), ("in-sessions", 1)):
        portal.open("entity", name, "messages")
        portal.button("Send a message").click()
        portal.dialog().get_by_label("Session id").wait_for()
        expect(portal.dialog().get_by_text("required")).to_have_count(count)
        portal.page.keyboard.press("Escape")


def test_the_time_of_a_pipeline_has_a_unit_and_must_be_right(portal: Portal, api: Api) -> None:
    """R47"""
    api.create("captured")
    portal.open("pipelines")
    portal.button("Create a pipeline").click()
    dialog = portal.dialog()
    dialog.get_by_label("Name", exact=True).fill("five-seconds")
    dialog.get_by_label("Entity", exact=True).fill("captured")
    expect(dialog.get_by_label("Interval")).to_have_value("10s")
    create = dialog.get_by_role("button", name="Create", exact=True)
    dialog.get_by_label("Interval").fill("5 parsecs")
    dialog.get_by_text("Write a time as 30s").wait_for()
    expect(create).to_be_disabled()
    dialog.get_by_label("Interval").fill("5s")
    dialog.get_by_label("Start it at once").uncheck()
    create.click()
    portal.page.get_by_role("heading", name="five-seconds").wait_for()

    assert api.call("GET", "pipelines/five-seconds")["interval_ms"] == 5_000


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_the_button_of_a_long_form_is_in_sight(browser: Browser, bus: Server, width: int) -> None:
    """R44, R48: and a link to the form begins with the name."""
    with opened(browser, bus, width, height=640) as portal:
        portal.open("entities")
        portal.page.get_by_role("link", name="Create a queue").first.click()
        expect(portal.page.get_by_label("Name", exact=True)).to_be_focused()
        portal.page.keyboard.type("typed")
        box = portal.button("Create the queue").bounding_box()
        below = portal.page.locator(".side").bounding_box() if width == NARROW else None
        assert box is not None
        assert box["y"] + box["height"] <= (640 if below is None else below["y"])
