"""The portal without a mouse: every control is reached by Tab, seen to be, and worked by keys."""

from __future__ import annotations

from typing import Final

import pytest
from playwright.sync_api import Page

from tests.browser.api import Api, until
from tests.browser.filled import EUROPE, fill
from tests.browser.portal import Portal

pytestmark = pytest.mark.long

STEPS_MAX: Final = 150
PAGES: Final[list[tuple[str, ...]]] = [
    ("overview",),
    ("entities",),
    ("create", "queue"),
    ("entity", "orders"),
    ("entity", "orders", "fragments"),
    ("entity", "orders", "dead-letters"),
    ("entity", "invoices", "messages"),
    ("entity", "orders", "settings"),
    ("entity", EUROPE, "rules"),
    ("pipelines",),
    ("jobs",),
    ("brokers",),
    ("access",),
    ("about",),
]
# What a user may want to work: each has to have the focus once. Links to fragments and rows of long
# tables are many and alike, and are left out after the first ones.
_CONTROLS: Final = """
() => {
  const shown = (one) => one.checkVisibility() && !one.disabled && one.tabIndex >= 0;
  const all = [...document.querySelectorAll("a[href], button, input, select, textarea, summary")];
  const found = all.filter(shown).filter((one) => !one.closest("tbody, .cells"));
  found.forEach((one, index) => { one.dataset.walk = String(index); });
  return found.map((one) => `${one.dataset.walk} ${one.tagName} ${one.textContent.trim()}`);
}
"""
_FOCUSED: Final = """
() => {
  const one = document.activeElement;
  if (!one || one === document.body) return null;
  const style = getComputedStyle(one);
  const ring = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1;
  const box = one.getBoundingClientRect();
  return {walk: one.dataset.walk ?? "", isSeen: ring || style.boxShadow !== "none",
    isInside: box.bottom > 0 && box.top < innerHeight, what: one.outerHTML.slice(0, 120)};
}
"""


def walked(page: Page) -> tuple[set[str], list[str]]:
    """What Tab reaches, and what is wrong with the focus on the way."""
    seen: set[str] = set()
    wrong: list[str] = []
    for _ in range(STEPS_MAX):
        page.keyboard.press("Tab")
        focused = page.evaluate(_FOCUSED)
        if focused is None:
            # After the last control comes the browser, then the first one: a page may begin with
            # the focus in the middle.
            continue
        if focused["walk"] and focused["walk"] in seen:
            break
        if focused["walk"]:
            seen.add(focused["walk"])
        if not focused["isSeen"] or not focused["isInside"]:
            wrong.append(focused["what"])
    return seen, wrong


def test_every_control_of_every_page_is_reached_by_tab_and_seen_to_be(
    portal: Portal, api: Api
) -> None:
    """R48"""
    fill(api)
    for segments in PAGES:
        portal.open(*segments)
        portal.page.evaluate("document.activeElement.blur()")
        portal.page.keyboard.press("p")
        controls: list[str] = portal.page.evaluate(_CONTROLS)
        assert len(controls) > 10

        seen, wrong = walked(portal.page)

        missed = [each for each in controls if each.split()[0] not in seen]
        assert (segments, missed, wrong) == (segments, [], [])
        portal.page.reload()


def test_a_dialog_keeps_the_focus_and_gives_it_back(portal: Portal, api: Api) -> None:
    """R48: and a message is sent and found with keys alone."""
    page = portal.page
    api.create("typed")
    portal.open("entity", "typed")
    button = portal.button("Send a message")
    button.focus()
    page.keyboard.press("Enter")
    portal.dialog().wait_for()
    until(lambda: page.evaluate("document.activeElement.id === 'send-body'"))
    for _ in range(30):
        page.keyboard.press("Tab")
        where = page.evaluate(
            "document.activeElement === document.body || "
            "Boolean(document.activeElement.closest('dialog'))"
        )
        assert where, page.evaluate("document.activeElement.outerHTML")
    page.keyboard.press("Escape")
    until(lambda: page.evaluate("!document.querySelector('dialog')"))
    until(lambda: page.evaluate("document.activeElement.textContent === 'Send a message'"))

    page.keyboard.press("Enter")
    until(lambda: page.evaluate("document.activeElement.id === 'send-body'"))
    page.keyboard.type("by keys")
    send = portal.dialog().get_by_role("button", name="Send", exact=True)
    for _ in range(30):
        if send.evaluate("one => one === document.activeElement"):
            break
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    portal.says("Sent 1 message to typed.")

    until(lambda: api.count("typed", "active") == 1)
    page.keyboard.press("/")
    until(lambda: page.evaluate("Boolean(document.activeElement.closest('dialog input'))"))
    page.keyboard.type("typed")
    until(lambda: page.evaluate("document.activeElement.value === 'typed'"))
