"""The portal in a real browser: pages opened, looked at, and checked for what must never happen."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal
from urllib.parse import quote

from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Error,
    Locator,
    Page,
    expect,
    sync_playwright,
)

from tests.support.server import Server

JS: Final = Path(__file__).parent / "js"
CHROMIUM: Final = shutil.which("chromium") or ""
WAIT_MS: Final = 30_000
REST_MS: Final = 1_000
WIDE: Final = 1280
NARROW: Final = 360
Theme = Literal["light", "dark"]

# Reports what the policy of the page forbids, also where nothing is written to the console.
_WATCH: Final = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) =>
  window.violations.push(`${event.violatedDirective} ${event.blockedURI} ${event.sample}`));
"""
_AXE: Final = """
() => axe.run(document, {resultTypes: ["violations"]}).then((found) => found.violations.map(
  (one) => `${one.id}: ${one.help}: ` +
    one.nodes.slice(0, 5).map((node) => node.html.slice(0, 160)).join(" | ")))
"""


@contextmanager
def launched() -> Iterator[Browser]:
    """Debian's Chromium, driven by Playwright."""
    options = ["--disable-dev-shm-usage", "--disable-gpu"]
    if os.geteuid() == 0:
        # Chromium's sandbox refuses to run as root, as in a container.
        options.append("--no-sandbox")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=options)
        yield browser
        browser.close()


class Portal:
    """One tab. `check` fails when the page broke its policy, or logged an error."""

    def __init__(self, page: Page, server: Server) -> None:
        self.page = page
        self.server = server
        self.errors: list[str] = []
        self._forgiven: list[str] = []
        page.set_default_timeout(WAIT_MS)
        page.add_init_script(_WATCH)
        page.on("console", self._note)
        page.on("pageerror", self._fail)

    @property
    def base(self) -> str:
        return f"http://localhost:{self.server.http_port}"

    def _note(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(f"{message.type}: {message.text}")

    def _fail(self, error: Error) -> None:
        self.errors.append(f"uncaught: {error}")

    def open(self, *segments: str, query: str = "") -> None:
        """Open a page by its address, as a link would, and wait until it shows something."""
        path = "/".join(quote(segment, safe="") for segment in segments)
        self.page.goto(f"{self.base}/portal/#/{path}{query}")
        self.settled()

    def settled(self) -> None:
        """The frame is there and nothing is loading."""
        self.page.locator(".frame, .sign-in form").first.wait_for()
        if self.page.locator(".sign-in form").count():
            self.sign_in(self.server.connection_string)
        self.page.locator(".frame").wait_for()
        expect(self.page.locator(".loading")).to_have_count(0, timeout=WAIT_MS)

    def sign_in(self, connection_string: str) -> None:
        self.page.get_by_label("Connection string").fill(connection_string)
        self.button("Sign in").click()

    def button(self, name: str, *, exact: bool = True) -> Locator:
        return self.page.get_by_role("button", name=name, exact=exact)

    def dialog(self) -> Locator:
        return self.page.locator("dialog[open]")

    def says(self, text: str) -> None:
        """Wait until a notice tells it."""
        self.page.locator(".notice", has_text=text).first.wait_for()

    def shows(self, text: str) -> None:
        self.page.locator("main").get_by_text(text).first.wait_for()

    def findings(self) -> list[str]:
        """What axe-core finds wrong with the page, also when it has come to rest."""
        self.page.evaluate((JS / "node_modules/axe-core/axe.min.js").read_text("utf-8"))
        found: list[str] = self.page.evaluate(_AXE)
        if found:
            # Between two pages there is a moment without a heading.
            self.page.wait_for_timeout(REST_MS)
            found = self.page.evaluate(_AXE)
        return found

    def overflow_px(self) -> int:
        """By how much the page is wider than the screen."""
        wide: int = self.page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        return wide

    def check(self) -> None:
        violations: list[str] = self.page.evaluate("window.violations")
        assert violations == [], violations
        errors = [e for e in self.errors if not any(part in e for part in self._forgiven)]
        assert errors == [], errors

    def forgive(self, part: str) -> None:
        """An error that a test has provoked on purpose: a browser logs every refused request."""
        self._forgiven.append(part)


@contextmanager
def opened(
    browser: Browser, server: Server, width: int = WIDE, theme: Theme = "light", height: int = 800
) -> Iterator[Portal]:
    """A tab with nothing stored from before."""
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme=theme,
        permissions=["clipboard-read", "clipboard-write"],
        timezone_id="America/New_York",
    )
    try:
        portal = Portal(context.new_page(), server)
        yield portal
        portal.check()
    finally:
        context.close()
