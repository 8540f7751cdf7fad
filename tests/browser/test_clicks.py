"""Controls that delete, reveal, fold and save, each clicked once and its effect seen on the bus."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import expect

from tests.browser.api import Api, until
from tests.browser.portal import Portal

pytestmark = pytest.mark.long

SESSIONS: Final = 130
"""More than a page of sessions has."""
REPORT_MS: Final = 1_000
"""The bus makes a report once in ten seconds, for all pages together."""


def test_a_subscription_and_its_topic_are_deleted(portal: Portal, api: Api) -> None:
    """R44"""
    api.call("PUT", "topics/news", {})
    for name in ("europe", "asia"):
        api.call("PUT", f"topics/news/subscriptions/{name}", {})
    portal.open("entity", "news/Subscriptions/europe", "settings")
    confirm(portal, "Delete the subscription", "news/Subscriptions/europe")
    assert api.ask("GET", "topics/news/subscriptions/europe")[0] == 404
    assert api.ask("GET", "topics/news/subscriptions/asia")[0] == 200

    portal.open("entity", "news", "settings")
    portal.button("Delete the topic").click()
    portal.dialog().get_by_text("It has 1 subscription, whose").wait_for()
    portal.dialog().get_by_role("button", name="Cancel").click()
    confirm(portal, "Delete the topic", "news")
    assert api.ask("GET", "topics/news")[0] == 404


def confirm(portal: Portal, button: str, name: str) -> None:
    portal.button(button).click()
    dialog = portal.dialog()
    dialog.get_by_label(f"Type {name} to confirm").fill(name)
    dialog.get_by_role("button", name=f"{button} for ever").click()
    portal.says(f"Deleted {name}.")
    # The page may have been asking for it meanwhile.
    portal.forgive("status of 404")


def test_an_access_rule_is_deleted_and_its_keys_leave_the_page(portal: Portal, api: Api) -> None:
    """R46, R48"""
    made = api.call("PUT", "access-rules/shop", {"rights": ["Send"]})
    portal.open("access")
    main = portal.page.locator("main")
    portal.button("Keys of shop").click()
    portal.button("Show: Secondary key").click()
    portal.shows(str(made["secondary_key"]))
    assert str(made["primary_key"]) not in main.inner_text()
    portal.button("Hide: Secondary key").click()
    portal.button("Show: Secondary key").wait_for()
    assert str(made["secondary_key"]) not in main.inner_text()
    portal.button("Delete shop").click()
    portal.dialog().get_by_label("Type shop to confirm").fill("shop")
    portal.dialog().get_by_role("button", name="Delete", exact=True).click()
    portal.says("Deleted the rule shop.")

    expect(main.get_by_text("Keys of shop")).to_have_count(0)
    assert api.ask("GET", "access-rules/shop")[0] == 404


def test_more_sessions_are_loaded(portal: Portal, api: Api) -> None:
    """R46"""
    api.create("carts", requires_session=True)
    api.send("carts", [{"body": "x", "session_id": f"s-{n:03}"} for n in range(SESSIONS)])
    portal.open("entity", "carts", "sessions")
    portal.shows("100 sessions or more")
    portal.button("Load more").click()
    portal.shows(f"{SESSIONS} sessions")

    expect(portal.button("Load more")).to_have_count(0)


def test_one_group_of_letters_gives_way_to_all(portal: Portal, api: Api) -> None:
    """R46"""
    api.create("desk")
    api.send("desk", [{"body": "x"} for _ in range(5)])
    api.bury("desk", 2, "NoStock", "none left of")
    api.bury("desk", 3, "Timeout", "no answer within")
    portal.open("entity", "desk", "dead-letters")
    portal.button("Show 2 messages").click()
    portal.shows("2 messages shown")
    portal.button("Show all groups").click()
    portal.shows("5 messages shown")

    assert "group=" not in portal.page.url


def test_the_link_to_a_message_opens_it(portal: Portal, api: Api) -> None:
    """R46, R48"""
    api.create("linked")
    api.send("linked", [{"body": f"teapot {n}"} for n in range(3)])
    portal.open("entity", "linked", "messages")
    page = portal.page
    page.locator("tbody th button").nth(1).click()
    detail = page.locator(".detail")
    body = detail.locator("pre").first
    expect(body).to_contain_text("teapot")
    opened = body.inner_text()
    portal.button("Copy link").click()
    portal.says("Copied.")
    link = page.evaluate("navigator.clipboard.readText()")
    page.goto("about:blank")
    page.goto(link)
    portal.settled()

    expect(body).to_have_text(opened)


def test_a_report_is_made_again_and_saved(portal: Portal, api: Api) -> None:
    """R47, P8"""
    api.create("timed", lifecycle=True)
    receive(api, 4)
    portal.open("entity", "timed", "report")
    row = portal.page.get_by_role("row", name="Time to settle")
    expect(row.get_by_role("cell").last).to_have_text("4")
    receive(api, 2)

    def has_all() -> bool:
        portal.button("Make it again").click()
        portal.page.wait_for_timeout(REPORT_MS)
        return row.get_by_role("cell").last.inner_text() == "6"

    until(has_all)
    with portal.page.expect_download() as saved:
        portal.button("Save as JSON").click()
    report = json.loads(Path(saved.value.path()).read_text("utf-8"))

    assert saved.value.suggested_filename == "report.json"
    assert (report["entity"], report["time_to_settle_ms"]["count"]) == ("timed", 6)


def receive(api: Api, count: int) -> None:
    api.send("timed", [{"body": "x"} for _ in range(count)])
    for token in api.receive("timed", count):
        api.settle("timed", token, "complete")


def test_changed_settings_are_undone_before_they_are_saved(portal: Portal, api: Api) -> None:
    """R44"""
    api.create("tuned")
    portal.open("entity", "tuned", "settings")
    lock = portal.page.get_by_label("Lock duration")
    before = lock.input_value()
    lock.fill("30s")
    portal.button("Save 1 change").wait_for()
    portal.button("Undo").click()
    expect(lock).to_have_value(before)

    expect(portal.button("Nothing changed")).to_be_disabled()
    expect(portal.button("Undo")).to_have_count(0)
