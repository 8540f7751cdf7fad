"""Work on many dead letters, done by the bus: edited, moved, deleted, exported, stopped."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.browser.api import Api, path_of, until
from tests.browser.portal import Portal

pytestmark = pytest.mark.long


def desk(portal: Portal, api: Api, name: str) -> None:
    """Twelve dead letters in two groups, and their desk."""
    api.create(name)
    api.send(name, [{"body": f'{{"order": {n}}}', "properties": {"n": n}} for n in range(12)])
    api.bury(name, 8, "unreadable", "not JSON at")
    api.bury(name, 4, "NoStock", "no item")
    portal.open("entity", name, "dead-letters")
    portal.shows("not JSON at <n>")


def test_a_group_is_edited_and_resubmitted(portal: Portal, api: Api) -> None:
    """R46"""
    desk(portal, api, "edited")
    group = portal.page.locator(".group", has_text="NoStock")
    group.get_by_role("button", name="Edit and resubmit").click()
    dialog = portal.dialog()
    dialog.get_by_role("button", name="Replace body or fields").click()
    dialog.get_by_label("Body").fill('{"order": "repaired"}')
    dialog.locator(".diff .add").get_by_text("repaired").wait_for()
    assert portal.findings() == []
    dialog.get_by_role("button", name="Resubmit", exact=True).click()
    until(lambda: api.count("edited", "dead_letter") == 8)

    until(lambda: api.count("edited", "active") == 4)
    messages = api.call("GET", "entities/edited/messages?top=10")["messages"]
    assert isinstance(messages, list)
    assert {message["body"] for message in messages} == {'{"order": "repaired"}'}
    portal.shows("Resubmitted")
    assert portal.findings() == []


def test_dead_letters_are_moved_to_another_queue(portal: Portal, api: Api) -> None:
    """R46"""
    api.create("elsewhere")
    desk(portal, api, "moved")
    portal.button("Move all").click()
    portal.dialog().get_by_label("Move to").fill("elsewhere")
    portal.dialog().get_by_role("button", name="Move", exact=True).click()
    until(lambda: api.count("moved", "dead_letter") == 0)

    until(lambda: api.count("elsewhere", "active") == 12)


def test_dead_letters_are_deleted_with_a_copy_that_can_be_downloaded(
    portal: Portal, api: Api, tmp_path: Path
) -> None:
    """R46"""
    desk(portal, api, "deleted")
    portal.button("Delete all").click()
    assert portal.dialog().get_by_role("checkbox", name="Keep a copy").is_checked()
    portal.dialog().get_by_role("button", name="Delete", exact=True).click()
    until(lambda: api.count("deleted", "dead_letter") == 0)
    with portal.page.expect_download() as saved:
        portal.button("Download", exact=False).first.click()
    path = tmp_path / "copy.jsonl"
    saved.value.save_as(path)

    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert sorted(line["properties"]["n"] for line in lines) == list(range(12))


def test_one_message_is_deleted_by_its_number(portal: Portal, api: Api) -> None:
    """R46"""
    api.create("picked")
    api.send("picked", [{"body": f"order {n}"} for n in range(3)])
    portal.open("entity", "picked", "messages")
    portal.page.locator("tbody th button").first.click()
    portal.button("Delete").first.click()
    portal.dialog().get_by_role("button", name="Delete", exact=True).click()

    until(lambda: api.count("picked", "active") == 2)


def test_the_page_of_jobs_lists_them_and_forgets_ended_ones(portal: Portal, api: Api) -> None:
    """R46"""
    desk(portal, api, "listed")
    line = path_of("listed/$DeadLetterQueue")
    api.call("POST", f"entities/{line}/jobs", {"action": "export", "selection": {}})
    until(lambda: "running" not in str(api.call("GET", f"entities/{line}/jobs")["jobs"]))
    portal.open("jobs")
    card = portal.page.locator(".group", has_text="listed/$DeadLetterQueue")
    card.get_by_text("done", exact=True).click()
    assert portal.findings() == []
    card.get_by_role("button", name="Forget").click()

    until(lambda: api.call("GET", f"entities/{line}/jobs")["jobs"] == [])
