"""Messages in the portal: sent, found, read; whatever they contain, they stay text."""

from __future__ import annotations

from tests.browser.api import Api
from tests.browser.portal import Portal


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
