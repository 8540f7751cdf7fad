"""Names, bodies, properties and rules of strangers stay text, in a browser that would run them."""

from __future__ import annotations

from typing import Final

import pytest
from playwright.sync_api import Browser

from tests.browser.api import Api, path_of
from tests.browser.portal import Portal, opened
from tests.support.server import Server

pytestmark = pytest.mark.long

CORPUS: Final = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "'-alert(1)-'",
    "javascript:alert(1)",
    "{{constructor.constructor('alert(1)')()}}",
    "${alert(1)}",
    "</textarea><script>alert(1)</script>",
    "<iframe srcdoc='<script>alert(1)</script>'>",
    "<!--<img src=x onerror=alert(1)>-->",
    "<?xml version='1.0'?><!DOCTYPE a [<!ENTITY b SYSTEM 'file:///etc/passwd'>]><a>&b;</a>",
    "\N{RIGHT-TO-LEFT OVERRIDE}txet desrever",
    "\x00\x01\x1b[31mred",
    "__proto__",
    '{"__proto__": {"polluted": true}}',
    "a" * 20_000,
    "%00%2e%2e%2f#?&=+",
)
# What the bus takes as a name; a name goes into addresses, attributes and commands.
NAMES: Final = ("__proto__", "constructor", "portal", "a.b-c_d", "x/y/z", "messages/rules")


def armed(portal: Portal) -> None:
    """Whatever a script of the corpus would do is an error."""
    portal.page.on("dialog", lambda dialog: portal.errors.append(f"alert: {dialog.message}"))


def foreign(portal: Portal) -> int:
    """Elements that only a text turned markup could have made."""
    made = portal.page.locator("main script, main iframe, main svg[onload], main img")
    return made.count()


def test_messages_of_strangers_are_text_in_lists_and_details(portal: Portal, api: Api) -> None:
    """R48"""
    api.create("strangers")
    api.send(
        "strangers",
        [
            {"body": text, "subject": text[:100], "properties": {text[:100]: text[:1000]}}
            for text in CORPUS
        ],
    )
    armed(portal)
    portal.open("entity", "strangers", "messages")
    rows = portal.page.locator("tbody th button")
    assert rows.count() == len(CORPUS)
    for index in range(len(CORPUS)):
        rows.nth(index).click()
        portal.page.get_by_label("Body", exact=True).wait_for()
        for view in (
            portal.page.get_by_role("group", name="Show the body as").locator("button").all()
        ):
            view.click()
        # Otherwise the next body to be there would be this one.
        detail = portal.page.locator(".detail")
        detail.get_by_role("button", name="Close", exact=True).click()
        detail.wait_for(state="detached")

    assert foreign(portal) == 0
    assert portal.page.evaluate("({}).polluted === undefined") is True


def body_of(portal: Portal, queue: str, index: int, view: str) -> str:
    """The text that is shown of a message's body."""
    portal.open("entity", queue, "messages")
    portal.page.locator("tbody th button").nth(index).click()
    shown = portal.page.get_by_label("Body", exact=True)
    shown.wait_for()
    views = portal.page.get_by_role("group", name="Show the body as")
    views.get_by_role("button", name=view, exact=True).click()
    return shown.inner_text()


def test_json_is_shown_as_it_was_sent(portal: Portal, api: Api) -> None:
    """R48: a number that JavaScript cannot hold, a member that is there twice, and their order."""
    sent = '{"b": 1e400, "10": 1.0, "2": -0, "b": "a,[\\"]", "c": [], "big": 9007199254740993}'
    api.create("numbers")
    api.send("numbers", [{"body": sent}])

    shown = body_of(portal, "numbers", 0, "JSON")

    assert [line.strip().rstrip(",") for line in shown.splitlines()] == [
        "{", '"b": 1e400', '"10": 1.0', '"2": -0', '"b": "a,[\\"]"', '"c": []',
        '"big": 9007199254740993', "}",
    ]  # fmt: skip


def test_a_few_kilobytes_of_brackets_stay_small(portal: Portal, api: Api) -> None:
    """R48: laid out line by line they would be a hundred megabytes of blanks."""
    api.create("deep")
    api.send("deep", [{"body": "[" * 5_000 + "]" * 5_000}])

    shown = body_of(portal, "deep", 0, "JSON")

    assert 10_000 <= len(shown) < 1_000_000


def test_a_text_that_turns_the_direction_of_writing_turns_no_other(
    portal: Portal, api: Api
) -> None:
    """R48"""
    api.create("turned")
    api.send("turned", [{"body": "x", "subject": "\N{RIGHT-TO-LEFT OVERRIDE}abc"}])
    portal.open("entity", "turned", "messages")
    portal.page.locator("tbody tr").first.wait_for()

    apart = "all => all.filter(one => getComputedStyle(one).unicodeBidi !== 'isolate').length"
    assert portal.page.locator("main *").evaluate_all(apart) == 0


def test_reasons_of_dead_letters_are_text(portal: Portal, api: Api) -> None:
    """R48"""
    api.create("graves")
    texts = [text[:1000] for text in CORPUS if "\x00" not in text]
    api.send("graves", [{"body": "x"} for _ in texts])
    for text, token in zip(texts, api.receive("graves", len(texts)), strict=True):
        api.settle("graves", token, "dead_letter", reason=text, description=text)
    armed(portal)
    portal.open("entity", "graves", "dead-letters")
    portal.shows("javascript:alert(1)")

    assert foreign(portal) == 0


def test_hostile_rules_and_metadata_are_text(portal: Portal, api: Api) -> None:
    """R48"""
    evil = "<img src=x onerror=alert(1)>"
    api.call("PUT", "topics/rules-topic", {"user_metadata": evil})
    api.call("PUT", "topics/rules-topic/subscriptions/s", {"user_metadata": evil})
    line = path_of("rules-topic/Subscriptions/s")
    sql = {"kind": "sql", "expression": f"colour = '{evil}'"}
    api.call("PUT", f"entities/{line}/rules/{path_of('r')}", {"filter": sql})
    armed(portal)
    portal.open("entity", "rules-topic/Subscriptions/s", "rules")
    portal.shows(evil)
    portal.open("entity", "rules-topic")
    portal.shows(evil)

    assert foreign(portal) == 0


@pytest.mark.parametrize("name", NAMES)
def test_a_queue_of_any_name_has_all_its_pages(portal: Portal, api: Api, name: str) -> None:
    """R48"""
    api.create(name)
    api.send(name, [{"body": "hello"}])
    for tab in ("summary", "fragments", "messages", "settings"):
        portal.open("entity", name, tab)
        portal.page.get_by_role("heading", name=name, exact=True).wait_for()
    portal.open("entities")
    portal.page.get_by_role("link", name=name, exact=True).wait_for()


@pytest.mark.parametrize(
    "address",
    [
        "#/entity/%E0%A4%A",
        "#/entity/../..",
        "#//",
        "#/entity/a?where=%",
        "#/<script>alert(1)</script>",
    ],
)
def test_a_broken_address_shows_a_page_and_no_error(
    browser: Browser, bus: Server, address: str
) -> None:
    """R48"""
    with opened(browser, bus) as portal:
        armed(portal)
        portal.page.goto(f"{portal.base}/portal/{address}")
        portal.page.locator("main").wait_for()
        portal.page.wait_for_timeout(500)
        # The bus answers 404 for entities that do not exist, and the browser logs that.
        portal.forgive("status of 40")


def test_another_page_can_neither_frame_the_portal_nor_use_the_bus(
    browser: Browser, bus: Server
) -> None:
    """R48"""
    context = browser.new_context()
    try:
        page = context.new_page()
        base = f"http://localhost:{bus.http_port}"
        # The same machine under another name is another origin.
        page.goto(f"http://127.0.0.1:{bus.http_port}/api/v1/openapi.json")
        refused = page.evaluate(
            """(base) => fetch(`${base}/api/v1/overview`, {headers: {Authorization: "x"}})
                 .then(() => "answered", () => "refused")""",
            base,
        )
        told = page.evaluate(
            """(base) => fetch(`${base}/api/v1/sign-in`).then(() => "answered", () => "refused")""",
            base,
        )
        framed = page.evaluate(
            """(base) => new Promise((resolve) => {
                 const frame = document.createElement("iframe");
                 frame.src = `${base}/portal/`;
                 frame.onload = () => resolve(frame.contentDocument === null);
                 document.body.append(frame);
               })""",
            base,
        )
        assert (refused, told, framed) == ("refused", "refused", True)
        assert page.frames[-1].locator("#app").count() == 0
    finally:
        context.close()
