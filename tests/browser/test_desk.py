"""The dead-letter desk, purging and the test of rules: what they select, and what they never do."""

from __future__ import annotations

import json
import re
from typing import Final

import pytest
from playwright.sync_api import Browser, Page, Request, expect

from tests.browser.api import Api, path_of, until
from tests.browser.portal import NARROW, WIDE, Portal, Theme, opened
from tests.support.server import Server

pytestmark = pytest.mark.long

SISTERS: Final = 12


def asked(page: Page, part: str) -> list[Request]:
    """The requests from now on whose address has this part."""
    found: list[Request] = []
    page.on("request", lambda request: found.append(request) if part in request.url else None)
    return found


def test_what_fits_a_group_is_not_what_has_its_reason(portal: Portal, api: Api) -> None:
    """R46: two groups may have one reason."""
    api.create("twins")
    api.send("twins", [{"body": f"order {n}"} for n in range(7)])
    api.bury("twins", 3, "NoStock", "the teapots are out:")
    api.bury("twins", 4, "NoStock", "the warehouse is closed:")
    portal.open("entity", "twins", "dead-letters")
    portal.button("Show 3 messages").click()
    portal.shows("3 messages shown")
    portal.shows("the teapots are out:")
    assert "group=" in portal.page.url and "view=list" in portal.page.url
    assert portal.findings() == []
    portal.button("Delete what fits").click()
    portal.dialog().get_by_role("button", name="Delete", exact=True).click()
    portal.dialog().get_by_text("Deletion begins in").wait_for()
    portal.dialog().wait_for(state="hidden")

    portal.shows("3 messages done.")
    assert api.count("twins", "dead_letter") == 4
    portal.page.reload()
    portal.settled()
    portal.shows("No message fits")


def test_a_deletion_that_is_cancelled_in_time_deletes_nothing(portal: Portal, api: Api) -> None:
    """R46"""
    api.create("spared")
    api.send("spared", [{"body": "x"} for _ in range(5)])
    api.bury("spared", 5, "NoStock", "none left")
    portal.open("entity", "spared", "dead-letters")
    begun = asked(portal.page, "/jobs")
    portal.button("Delete all").click()
    dialog = portal.dialog()
    dialog.get_by_role("button", name="Delete", exact=True).click()
    dialog.get_by_role("button", name="Delete in 3 s").wait_for()
    assert portal.findings() == []
    dialog.get_by_role("button", name="Cancel").click()
    dialog.wait_for(state="hidden")
    # Longer than the rest of the countdown.
    portal.page.wait_for_timeout(4_000)

    assert [one.method for one in begun if one.method == "POST"] == []
    assert api.count("spared", "dead_letter") == 5


def test_letters_are_mended_one_by_one_and_sent_to_their_subscription_only(
    portal: Portal, api: Api
) -> None:
    """R46"""
    api.call("PUT", "topics/bills", {})
    for name in ("europe", "asia"):
        api.call("PUT", f"topics/bills/subscriptions/{name}", {})
    bodies = [{"customer": {"id": n}, "total": 10 * n} for n in range(3)]
    api.send("bills", [{"body": json.dumps(one), "properties": {"n": n}} for n, one in
                       enumerate(bodies)])  # fmt: skip
    europe, asia = "bills/Subscriptions/europe", "bills/Subscriptions/asia"
    api.bury(europe, 3, "BadTotal", "the total is wrong in")
    portal.open("entity", europe, "dead-letters")
    portal.button("Edit and resubmit").click()
    dialog = portal.dialog()
    dialog.get_by_label("Properties", exact=True).fill("SET mended = 'yes'; REMOVE n")
    dialog.get_by_role("button", name="Add a path").click()
    dialog.get_by_label("Path 1", exact=True).fill("$.customer.country")
    dialog.get_by_label("New value 1").fill("FR")
    dialog.get_by_text('"country": "FR"').first.wait_for()
    expect(dialog.get_by_role("row", name=re.compile("mended nothing yes"))).to_have_count(3)
    dialog.get_by_text("Other subscriptions get them too.").wait_for()
    dialog.get_by_role("button", name="This subscription only").click()
    expect(dialog.get_by_text("Other subscriptions get them too.")).to_have_count(0)
    assert portal.findings() == []
    dialog.get_by_role("button", name="Resubmit", exact=True).click()
    portal.says("Resubmit: begun on the bus.")

    until(lambda: api.count(europe, "active") == 3)
    assert api.count(asia, "active") == 3
    page = api.call(
        "POST", f"entities/{path_of(europe)}/messages/search", {"where": "mended='yes'"}
    )
    found = page["messages"]
    assert isinstance(found, list)
    got = [json.loads(one["body"]) for one in found]
    assert sorted(one["customer"]["id"] for one in got) == [0, 1, 2]
    assert {one["customer"]["country"] for one in got} == {"FR"}


def test_groups_are_not_counted_again_and_again_while_a_job_works(portal: Portal, api: Api) -> None:
    """R46: counting reads every letter."""
    api.create("busy")
    api.send("busy", [{"body": "x"} for _ in range(200)])
    api.bury("busy", 200, "NoStock", "none left of")
    counts = asked(portal.page, "/dead-letters/groups")
    portal.open("entity", "busy", "dead-letters")
    portal.button("Show 200 messages").wait_for()
    line = path_of("busy/$DeadLetterQueue")
    api.call("POST", f"entities/{line}/jobs", {"action": "delete", "rate_max": 25})
    portal.page.get_by_text(re.compile("of 200 done")).first.wait_for()
    begun = len(counts)
    until(lambda: api.count("busy", "dead_letter") < 60)
    portal.page.wait_for_timeout(2_500)

    assert len(counts) == begun
    portal.shows("200 of 200 done.")
    portal.shows("No dead letters")


def test_messages_of_sessions_offer_only_what_is_possible(portal: Portal, api: Api) -> None:
    """R46"""
    api.create("carts", requires_session=True)
    api.send("carts", [{"body": "x", "session_id": f"s{n}"} for n in range(3)])
    portal.open("entity", "carts", "messages")
    portal.shows("Messages of a session belong to whoever holds it")
    portal.page.get_by_label("Choose all that are listed").check()
    portal.shows("3 chosen")
    portal.button("Export", exact=True).wait_for()
    assert portal.button("Move").count() == portal.button("Delete").count() == 0
    portal.page.locator("tbody th button").first.click()
    portal.button("Send an edited copy").wait_for()
    assert portal.button("Delete").count() == portal.button("Dead-letter").count() == 0
    portal.button("Purge").click()
    portal.dialog().get_by_label("Type carts to confirm").fill("carts")
    portal.dialog().get_by_role("button", name="Remove all of them").click()

    until(lambda: api.count("carts", "active") == 0)


@pytest.mark.parametrize(("width", "theme"), [(WIDE, "light"), (NARROW, "dark")])
def test_active_messages_are_made_dead_letters_with_a_reason(
    browser: Browser, bus: Server, api: Api, width: int, theme: Theme
) -> None:
    """R46: without a receiver."""
    name = f"doubtful-{width}"
    api.create(name)
    api.send(name, [{"body": f"order {n}"} for n in range(4)])
    with opened(browser, bus, width, theme) as portal:
        portal.open("entity", name, "messages")
        page = portal.page
        page.locator("tbody th button").first.click()
        page.locator(".detail").get_by_role("button", name="Dead-letter", exact=True).click()
        dialog = portal.dialog()
        dialog.get_by_label("Reason").fill("NoStock")
        dialog.get_by_label("Description").fill("no teapot until May")
        assert portal.findings() == [] and portal.overflow_px() <= 0
        dialog.get_by_role("button", name="Dead-letter", exact=True).click()
        portal.shows("1 of 1 done.")
        portal.shows("3 messages shown")
        page.get_by_label("Choose all that are listed").check()
        portal.shows("3 chosen")
        page.locator("main .row").get_by_role("button", name="Dead-letter", exact=True).click()
        portal.dialog().get_by_role("button", name="Dead-letter", exact=True).click()
        portal.shows("No messages")
        portal.open("entity", name, "dead-letters")
        group = page.locator("div.group", has_text="NoStock")
        group.get_by_text("no teapot until May").wait_for()
        page.locator("div.group", has_text="No reason given").get_by_text(
            "3", exact=True
        ).wait_for()
        assert portal.findings() == [] and portal.overflow_px() <= 0

    assert (api.count(name, "active"), api.count(name, "dead_letter")) == (0, 4)


def test_a_purge_goes_on_when_the_page_is_closed(portal: Portal, api: Api) -> None:
    """R46"""
    api.create("full")
    api.send("full", [{"body": "x"} for _ in range(300)])
    later = {"body": "later", "scheduled_at": "2037-01-02T03:04:05Z"}
    api.send("full", [later])
    portal.open("entity", "full", "messages")
    begun = asked(portal.page, "/jobs")
    portal.button("Purge").click()
    dialog = portal.dialog()
    expect(dialog.get_by_role("button", name="Delete", exact=True)).to_be_disabled()
    dialog.get_by_label("Type full to confirm").fill("full")
    dialog.get_by_role("button", name="Delete", exact=True).click()
    until_begun = [one for one in begun if one.method == "POST"]
    while not until_begun:
        portal.page.wait_for_timeout(100)
        until_begun = [one for one in begun if one.method == "POST"]
    portal.page.goto("about:blank")

    until(lambda: api.count("full", "active") == 0)
    assert api.count("full", "scheduled") == 1
    until(lambda: "running" not in str(api.call("GET", "entities/full/jobs")["jobs"]))
    portal.open("entity", "full", "messages")
    portal.page.get_by_text("1 earlier job").click()
    portal.shows("300 messages done.")


def test_a_rule_is_tried_in_a_topic_with_many_subscriptions(portal: Portal, api: Api) -> None:
    """R46: each message once, and without the name of a rule that there is not."""
    api.call("PUT", "topics/wide", {})
    for number in range(SISTERS):
        api.call("PUT", f"topics/wide/subscriptions/s{number:02}", {})
    api.send("wide", [{"body": "x", "properties": {"n": n}} for n in range(4)])
    last = f"wide/Subscriptions/s{SISTERS - 1:02}"
    trials = asked(portal.page, "/rule-test")
    portal.open("entity", last, "rules")
    portal.button("Add a rule").click()
    dialog = portal.dialog()
    dialog.get_by_label("Name", exact=True).fill("few")
    dialog.get_by_label("Condition").fill("n > 2")
    dialog.get_by_label("Action").fill("SET n = 9")
    dialog.get_by_text("1 of 4 messages match").wait_for()

    dialog.get_by_text("n: 3 → 9").wait_for()
    assert dialog.get_by_text("RuleName").count() == 0
    assert json.loads(trials[-1].post_data or "")["sources"][0] == last
