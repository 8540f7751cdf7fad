"""The pictures of the guide to the portal, made anew from a real bus (`make pictures`)."""

from __future__ import annotations

import math
import random
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser

from tests.browser.api import Api, path_of
from tests.browser.driver import environment_with_driver
from tests.browser.filled import EUROPE, fill, order
from tests.browser.portal import Portal, launched, opened
from tests.support.ports import free_port
from tests.support.server import Server

PICTURES: Final = Path(__file__).resolve().parents[2] / "docs" / "guides" / "portal"
# As long as plots need to have something to show.
TRAFFIC_S: Final = 100.0


@contextmanager
def traffic(api: Api) -> Iterator[None]:
    """Orders come and go in waves."""
    over, dice = threading.Event(), random.Random(7)

    def run() -> None:
        turn = 0
        while not over.wait(0.5):
            turn += 1
            wave = 1 + math.sin(turn / 9)
            api.send("orders", [order(dice, turn) for _ in range(4 + int(9 * wave))])
            tokens = api.receive("orders", 5 + int(4 * (1 + math.sin(turn / 9 - 1))))
            body = {"action": "complete", "lock_tokens": tokens}
            api.call("POST", "entities/orders/messages/settle", body)

    thread = threading.Thread(target=run, name="traffic")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


# A directory that is gone tomorrow says nothing to a reader.
_NAME_DIRECTORY: Final = """directory => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    walker.currentNode.nodeValue = walker.currentNode.nodeValue.replaceAll(directory, "/bus");
  }
}"""


def take(portal: Portal, name: str) -> None:
    portal.page.wait_for_timeout(2_500)
    portal.page.evaluate(_NAME_DIRECTORY, str(portal.server.data_dir.parent))
    portal.page.screenshot(path=PICTURES / f"{name}.png")


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as directory, launched() as browser:
        options = ("--flight-port", str(free_port()))
        environment = environment_with_driver(Path(directory))
        server = Server(Path(directory) / "data", *options, environment=environment)
        server.start()
        try:
            _take_all(browser, server)
        finally:
            server.close()


def _take_all(browser: Browser, server: Server) -> None:
    api = Api(server)
    fill(api)
    api.call("POST", "pipelines/archive/start")
    # Otherwise the plots would show little but how quickly all that was sent.
    server.restart()
    with traffic(api), opened(browser, server, 1280, height=800) as portal:
        portal.open("overview")
        portal.page.wait_for_timeout(1000 * TRAFFIC_S)
        take(portal, "overview")
        portal.open("create", "queue")
        portal.page.get_by_label("Name").fill("shipments")
        take(portal, "create")
        portal.open("entity", "orders", "messages")
        # Those above are deferred, and have fewer buttons.
        portal.page.locator("tbody th button").nth(6).click()
        take(portal, "messages")
        portal.open("entity", "orders", "dead-letters")
        take(portal, "dead-letters")
        portal.open("entity", EUROPE, "rules")
        portal.button("Edit the rule from-europe").click()
        take(portal, "rule")
        line = path_of("orders/$DeadLetterQueue")
        selection = {"reason": "NoStock"}
        api.call("POST", f"entities/{line}/jobs", {"action": "export", "selection": selection})
        job = {"action": "resubmit", "selection": {"reason": "Timeout"}, "rate_max": 1}
        api.call("POST", f"entities/{line}/jobs", job)
        portal.open("jobs")
        take(portal, "jobs")
        portal.open("brokers")
        take(portal, "brokers")
        portal.open("pipelines", "archive")
        take(portal, "pipeline")
    with traffic(api), opened(browser, server, 360, "dark", height=640) as portal:
        portal.open("entity", "orders", "dead-letters")
        take(portal, "phone")
    with traffic(api), opened(browser, server, 1280, "dark", height=800) as portal:
        portal.open("entity", "orders", "fragments")
        take(portal, "fragments")
        portal.open("entity", "orders")
        take(portal, "summary")


if __name__ == "__main__":
    main()
