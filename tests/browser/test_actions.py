"""What can be done in the portal, done there, and seen on the bus."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser.api import Api, path_of, until
from tests.browser.portal import Portal

pytestmark = pytest.mark.long


def test_a_topic_gets_a_subscription_and_a_rule_that_is_tried_first(
    portal: Portal, api: Api
) -> None:
    """R44, R46"""
    page = portal.page
    portal.open("create", "topic")
    page.get_by_label("Name").fill("news")
    portal.button("Create the topic").click()
    portal.says("Created news.")
    portal.open("create", "subscription", query="?topic=news")
    page.get_by_label("Name").fill("europe")
    portal.button("Create the subscription").click()
    portal.says("Created news/Subscriptions/europe.")
    api.send("news", [{"body": "x", "properties": {"region": r}} for r in ("eu", "us", "eu")])

    portal.open("entity", "news/Subscriptions/europe", "rules")
    portal.button("Add a rule").click()
    dialog = portal.dialog()
    dialog.get_by_label("Name", exact=True).fill("eu")
    dialog.get_by_label("Condition").fill("region = = 'eu'")
    dialog.get_by_text(re.compile("Line 1, column 1")).wait_for()
    expect(dialog.get_by_role("button", name="Add the rule")).to_be_disabled()
    dialog.get_by_label("Condition").fill("region = 'eu'")
    dialog.get_by_label("Action").fill("SET region = 'uk'")
    dialog.get_by_text("2 of 3 messages match").wait_for()
    dialog.get_by_text("eu → uk").first.wait_for()
    assert portal.findings() == []
    dialog.get_by_role("checkbox", name="Delete the rule $Default").uncheck()
    dialog.get_by_role("button", name="Add the rule").click()
    portal.says("Saved the rule eu.")
    portal.button("Delete the rule $Default").click()
    portal.dialog().get_by_role("button", name="Delete", exact=True).click()
    portal.says("Deleted the rule $Default.")

    rules = api.call("GET", f"entities/{path_of('news/Subscriptions/europe')}/rules")
    assert rules["count"] == 1
    # The browser logs the refused test of the half-typed condition, if it came to that.
    portal.forgive("status of 400")


def test_settings_are_changed_and_fixed_ones_are_not_offered(portal: Portal, api: Api) -> None:
    """R44"""
    api.create("tuned")
    portal.open("entity", "tuned", "settings")
    page = portal.page
    assert page.locator("input[name=is_partitioned]").is_disabled()
    page.get_by_label("Lock duration").fill("nonsense")
    portal.shows("Write a time such as")
    expect(portal.button("Save 1 change", exact=False)).to_have_count(0)
    page.get_by_label("Lock duration").fill("30s")
    page.get_by_label("Maximum deliveries").fill("3")
    portal.button("Save 2 changes").click()
    portal.says("Saved tuned.")

    described = api.call("GET", "queues/tuned")["description"]
    assert isinstance(described, dict)
    assert (described["lock_ms"], described["delivery_count_max"]) == (30_000, 3)


def test_a_queue_is_deleted_only_when_its_name_is_typed(portal: Portal, api: Api) -> None:
    """R44"""
    api.create("doomed")
    portal.open("entity", "doomed", "settings")
    portal.button("Delete the queue").click()
    dialog = portal.dialog()
    confirm = dialog.get_by_role("button", name="Delete the queue for ever")
    expect(confirm).to_be_disabled()
    dialog.get_by_label("Type doomed to confirm").fill("doome")
    expect(confirm).to_be_disabled()
    dialog.get_by_label("Type doomed to confirm").fill("doomed")
    confirm.click()
    portal.says("Deleted doomed.")

    assert api.ask("GET", "queues/doomed")[0] == 404


def test_a_key_is_made_shown_on_request_and_rotated(portal: Portal, api: Api) -> None:
    """R46, R48"""
    portal.open("access")
    page = portal.page
    portal.button("Add an access rule").click()
    dialog = portal.dialog()
    dialog.get_by_label("Name", exact=True).fill("shop")
    dialog.get_by_role("checkbox", name="Send").check()
    dialog.get_by_role("button", name="Add the rule").click()
    portal.says("Added the rule shop.")
    made = api.call("GET", "access-rules/shop")
    key, text = str(made["primary_key"]), str(made["primary_connection_string"])
    assert f":{portal.server.amqp_port}" in text
    assert key not in page.locator("main").inner_text()
    portal.button("Show: Primary connection string").click()
    portal.shows(text)
    portal.button("Replace the primary key").click()
    portal.dialog().get_by_role("button", name="Replace the primary key").click()
    portal.says("Replaced the primary key.")

    assert api.call("GET", "access-rules/shop")["primary_key"] != key
    assert api.call("GET", "access-rules/shop")["secondary_key"] == made["secondary_key"]


def test_a_user_with_a_key_of_one_queue_sees_that_queue(portal: Portal, api: Api) -> None:
    """R48"""
    api.create("mine")
    api.call("PUT", "entities/mine/access-rules/me", {"rights": ["Listen", "Send"]})
    made = api.call("GET", "entities/mine/access-rules/me")
    portal.open("about")
    portal.button("Sign out").first.click()
    portal.sign_in(str(made["primary_connection_string"]))
    portal.page.locator(".frame").wait_for()
    portal.page.goto(f"{portal.base}/portal/#/entity/mine")
    portal.page.get_by_role("heading", name="mine").wait_for()
    portal.button("Send a message").click()
    portal.dialog().get_by_label("Body").fill("hello")
    portal.dialog().get_by_role("button", name="Send", exact=True).click()
    portal.says("Sent 1 message to mine.")
    portal.forgive("status of 401")


def test_a_wrong_key_is_refused_with_what_to_do(portal: Portal) -> None:
    """R48"""
    portal.open("about")
    portal.button("Sign out").first.click()
    portal.sign_in(
        "Endpoint=sb://x;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=no"
    )
    # The hint of the form names the command, too.
    portal.page.get_by_text("Copy the connection string again").wait_for()
    expect(portal.page.locator(".frame")).to_have_count(0)
    assert portal.findings() == []
    portal.forgive("status of 401")


def test_the_state_of_a_session_is_read_and_changed(portal: Portal, api: Api) -> None:
    """R46"""
    api.create("carts", requires_session=True)
    api.send("carts", [{"body": "x", "session_id": "cart-7"}])
    portal.open("entity", "carts", "sessions")
    portal.button("cart-7").click()
    portal.button("Change the state").click()
    portal.dialog().get_by_label("State", exact=True).fill('{"step": 3}')
    portal.dialog().get_by_role("button", name="Save").click()
    portal.says("Saved the state.")

    shown = api.call("POST", "entities/carts/sessions/show", {"session_id": "cart-7"})
    assert shown["state_text"] == '{"step": 3}'


def test_a_scheduled_message_is_cancelled(portal: Portal, api: Api) -> None:
    """R46"""
    api.create("later")
    api.send("later", [{"body": "tea", "scheduled_at": "2037-01-02T03:04:05Z"}])
    portal.open("entity", "later", "scheduled")
    portal.page.get_by_label(re.compile("^Choose [0-9]")).check()
    portal.button("Cancel them").first.click()
    expect(portal.dialog().get_by_role("button", name="Keep it")).to_be_visible()
    portal.dialog().get_by_role("button", name="Cancel it").click()
    portal.says("Cancelled 1 message.")

    until(lambda: api.count("later", "scheduled") == 0)


def test_a_key_is_placed_and_its_fragment_marked(portal: Portal, api: Api) -> None:
    """R45"""
    api.create("spread")
    portal.open("entity", "spread", "fragments")
    portal.page.get_by_label("Key", exact=True).fill("customer-7")
    portal.button("Show").click()
    portal.page.locator(".cell.target").wait_for()
    placed = api.call("POST", "entities/spread/placement", {"partition_key": "customer-7"})

    assert str(placed["fragment"]) in portal.page.locator(".cell.target").inner_text()


def test_a_message_is_sent_again_as_an_edited_copy(portal: Portal, api: Api) -> None:
    """R46"""
    api.create("copies")
    api.send("copies", [{"body": "first", "subject": "s", "properties": {"n": 1}}])
    portal.open("entity", "copies", "messages")
    portal.page.locator("tbody th button").first.click()
    portal.button("Send an edited copy").click()
    portal.dialog().get_by_label("Body").fill("second")
    portal.dialog().get_by_role("button", name="Send", exact=True).click()
    portal.says("Sent 1 message to copies.")

    messages = api.call("GET", "entities/copies/messages?top=10")["messages"]
    assert isinstance(messages, list)
    found = {message["body"]: message for message in messages}
    assert found["second"]["properties"] == {"n": 1}
    assert found["second"]["subject"] == "s"


def test_dead_letters_are_grouped_and_resubmitted(portal: Portal, api: Api) -> None:
    """R46"""
    api.create("desk")
    api.send("desk", [{"body": f"order {n}"} for n in range(12)])
    api.bury("desk", 8, "unreadable", "not JSON at")
    api.bury("desk", 4, "NoStock", "no item")
    portal.open("entity", "desk", "dead-letters")
    portal.shows("not JSON at <n>")
    assert portal.page.locator(".group .n").all_inner_texts() == ["8", "4"]
    portal.button("Resubmit all").click()
    portal.dialog().get_by_role("button", name="Resubmit", exact=True).click()
    until(lambda: api.count("desk", "dead_letter") == 0)

    until(lambda: api.count("desk", "active") == 12)
    portal.shows("No dead letters")


def test_a_pipeline_is_created_and_shown(portal: Portal, api: Api) -> None:
    """R47"""
    api.create("source")
    portal.open("pipelines")
    portal.button("Create a pipeline").click()
    dialog = portal.dialog()
    dialog.get_by_label("Name", exact=True).fill("archive")
    dialog.get_by_label("Entity").fill("source")
    dialog.get_by_role("checkbox", name="Keep").check()
    dialog.get_by_role("checkbox", name="Start it at once").uncheck()
    assert portal.findings() == []
    dialog.get_by_role("button", name="Create", exact=True).click()
    portal.says("Created the pipeline archive.")
    portal.page.get_by_role("heading", name="archive").wait_for()

    made = api.call("GET", "pipelines/archive")
    assert (made["entity"], made["keep"], made["state"]) == ("source", True, "stopped")


def test_every_kind_of_pipelines_can_be_created(portal: Portal, api: Api) -> None:
    """P9, R47: also members that are no text, such as the columns of a replay."""
    api.create("moved", lifecycle=True)
    fields = {
        "capture": {"Entity": "moved"},
        "replay": {"Entity": "moved", "Path": "table", "Columns": "body=a, message_id="},
        "lifecycle": {"Entity": "moved"},
        "triage": {"Entity": "moved", "Rule": "total > 100", "Interval": "24h"},
        "sql": {"Entity": "moved", "Target": "source", "Query": "SELECT body FROM messages"},
    }
    for kind, texts in fields.items():
        portal.open("pipelines")
        portal.button("Create a pipeline").click()
        dialog = portal.dialog()
        dialog.get_by_role("button", name=kind, exact=True).click()
        dialog.get_by_label("Name", exact=True).fill(f"one-{kind}")
        for label, text in texts.items():
            dialog.get_by_label(label, exact=True).fill(text)
        dialog.get_by_role("checkbox", name="Start it at once").uncheck()
        dialog.get_by_role("button", name="Create", exact=True).click()
        portal.page.get_by_role("heading", name=f"one-{kind}").wait_for()

    kinds = [api.call("GET", f"pipelines/one-{kind}")["kind"] for kind in fields]
    assert kinds == list(fields)
    columns = api.call("GET", "pipelines/one-replay")["columns"]
    assert columns == {"body": "a", "message_id": ""}


def test_a_bus_that_does_not_answer_is_said_to_and_the_page_recovers(
    portal: Portal, api: Api
) -> None:
    """R48"""
    portal.open("overview")
    portal.page.context.set_offline(True)
    portal.shows("The bus does not answer.")
    portal.page.context.set_offline(False)
    expect(portal.page.get_by_text("The bus does not answer.")).to_have_count(0, timeout=30_000)
    portal.forgive("ERR_INTERNET_DISCONNECTED")
