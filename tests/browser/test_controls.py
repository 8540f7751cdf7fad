"""The small controls of the portal, each used once: one browser, and one bus with a driver of
pipelines that is made up.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pyarrow
import pyarrow.parquet as parquet
import pytest
from playwright.sync_api import Browser, Route, expect

from tests.browser.api import Api, path_of, until
from tests.browser.driver import environment_with_driver
from tests.browser.portal import Portal, opened
from tests.support.issuer import OWNER, LocalIssuer, running_issuer
from tests.support.ports import free_port
from tests.support.server import Server

pytestmark = pytest.mark.long

CLUSTER: Final[dict[str, object]] = {
    "is_clustered": True,
    "cluster_id": "4f1c9a",
    "nodes": [
        {"name": "node-a", "roles": ["broker", "gateway"], "address": "10.0.0.1:5700",
         "version": "1.0", "state": "serving", "beat_age_ms": 210,
         "started_at": "2026-01-02T03:04:05Z", "slots": 1},
        {"name": "node-b", "roles": ["broker"], "address": "10.0.0.2:5700", "version": "1.0",
         "state": "silent", "beat_age_ms": 4_200, "started_at": None, "slots": 0},
    ],
    "stores": [
        {"index": 0, "address": "db-0:5432/bus", "problem": "", "timeline": 3, "slots": 2,
         "free_slots": 1, "size_bytes": 5_242_880, "oldest_snapshot_ms": 61_000},
        {"index": 1, "address": "db-1:5432/bus", "problem": "connection refused", "timeline": 0,
         "slots": 0, "free_slots": 0, "size_bytes": 0, "oldest_snapshot_ms": 0},
    ],
    "slots": [
        {"slot": 0, "store": 0, "state": "served", "owner": "node-a", "epoch": 4,
         "commits": 1_200, "taken_at": "2026-01-02T03:04:05Z", "taken_from": "node-b"},
        {"slot": 1, "store": 0, "state": "free", "owner": "node-b", "epoch": 2, "commits": 10,
         "taken_at": None, "taken_from": ""},
    ],
    "takeovers": [
        {"slot": 0, "at": "2026-01-02T03:04:05Z", "giver": "node-b", "taker": "node-a"},
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def issuer() -> Iterator[LocalIssuer]:
    with running_issuer() as issuer:
        yield issuer


@pytest.fixture(scope="module")
def bus(
    tmp_path_factory: pytest.TempPathFactory, browser: Browser, issuer: LocalIssuer
) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("controls")
    server = Server(
        directory / "data",
        *("--oidc-issuer", issuer.url, "--flight-port", str(free_port())),
        environment=environment_with_driver(directory),
    )
    server.start()
    try:
        yield server
    finally:
        server.close()


def test_a_pipeline_is_started_stopped_and_deleted(portal: Portal, api: Api) -> None:
    """R47: and its states are drawn over time."""
    api.create("captured", lifecycle=True)
    api.call("PUT", "pipelines/archive", {"entity": "captured"})
    page = portal.page
    portal.open("pipelines", "archive")
    portal.button("Start").click()
    portal.says("Starting archive.")
    page.locator(".page-head .badge", has_text="running").wait_for()
    portal.shows("three teapots were captured")
    # The page looks every two seconds, and may pass over any one of the batches.
    page.locator("main").get_by_text(re.compile(r"number ([3-9]|\d\d)")).first.wait_for()
    expect(portal.button("Delete")).to_be_disabled()
    page.locator(".span.good").first.wait_for()
    page.get_by_role("group", name="States").get_by_text("As a table").click()
    page.get_by_role("row", name=re.compile("running")).first.wait_for()
    portal.button("Stop").click()
    portal.says("Stopping archive; the next start continues its batch.")
    page.locator(".page-head .badge", has_text="stopped").wait_for()
    portal.button("Finish").click()
    portal.says("Finishing archive: what its last batch claimed is completed.")
    page.locator(".page-head .badge", has_text="stopped").wait_for()
    assert portal.findings() == []
    page.get_by_role("link", name="Report on captured").click()
    portal.shows("records from")
    assert portal.findings() == []
    portal.open("pipelines", "archive")
    portal.button("Delete").click()
    portal.dialog().get_by_label("Type archive to confirm").fill("archive")
    portal.dialog().get_by_role("button", name="Delete").click()
    portal.says("Deleted archive.")

    assert api.ask("GET", "pipelines/archive")[0] == 404


def test_a_report_says_how_long_messages_waited(portal: Portal, api: Api) -> None:
    """R47, P8"""
    api.create("timed", lifecycle=True)
    api.send("timed", [{"body": "x", "partition_key": "teapots"} for _ in range(6)])
    for token in api.receive("timed", 6):
        api.settle("timed", token, "complete")
    portal.open("entity", "timed", "report")
    portal.shows("Percentiles")
    row = portal.page.get_by_role("row", name="Time to settle")
    expect(row.get_by_role("cell").last).to_have_text("6")
    portal.page.get_by_role("row", name=re.compile("teapots 6 100 %")).wait_for()

    assert portal.findings() == []
    portal.open("entity", "timed", "settings")
    api.create("untimed")
    portal.open("entity", "untimed", "report")
    portal.shows("No lifecycle is recorded")


def test_the_hours_that_a_lifecycle_pipeline_keeps_are_plotted(
    portal: Portal, api: Api, bus: Server
) -> None:
    """P8: two days of them, on an axis that names the days."""
    api.create("moved", lifecycle=True)
    api.call("PUT", "pipelines/moves", {"kind": "lifecycle", "entity": "moved"})
    portal.open("pipelines", "moves")
    portal.shows("No hour has been computed yet")
    keep_hours(bus.data_dir / "captured" / "moves", 48)
    portal.open("pipelines")
    portal.open("pipelines", "moves")
    page = portal.page
    page.get_by_role("heading", name="The newest 48 hours").wait_for()
    queue = page.get_by_role("group", name="Time in queue")
    queue.get_by_text("11-18 00:00").wait_for()
    queue.get_by_text("As a table").click()
    queue.get_by_role("row", name="11-19 23:00 47 ms 470 ms").wait_for()
    page.get_by_role("row", name="teapots 470 40 %").wait_for()

    assert portal.findings() == []


def test_the_report_of_a_triage_is_shown_and_saved(portal: Portal, api: Api, bus: Server) -> None:
    """P7, R47: with texts of senders, which are texts."""
    api.create("failed")
    api.call("PUT", "pipelines/causes", {"kind": "triage", "entity": "failed"})
    portal.open("pipelines", "causes")
    portal.shows("No report yet")
    keep_letters(bus.data_dir / "captured" / "causes")
    page = portal.page
    page.get_by_role("heading", name="The newest report").wait_for()
    portal.shows("9 dead letters in 2 groups")
    page.get_by_role("group", name="Dead letters by the time").get_by_text("As a table").click()
    page.get_by_role("row", name="aaaaaaaaaaaa 7").wait_for()
    page.get_by_role("row", name=re.compile("<b>Invalid<.b>")).first.wait_for()
    portal.shows("--group aaaaaaaaaaaa")
    with page.expect_download() as saved:
        portal.button("Save as a page").click()

    assert saved.value.suggested_filename == "causes.html"
    assert saved.value.path().read_text("utf-8") == "<!DOCTYPE html>"
    assert portal.findings() == []


def keep_letters(root: Path) -> None:
    """What a driver keeps, written last what makes it a report."""
    times = [f"2026-11-18T0{hour}:00:00Z" for hour in range(3)]
    common = {"entity": "failed", "source": "", "subject": "", "samples": []}
    moments = {"first_at": times[0], "last_at": times[-1]}
    shapes = {"a": "json $.customer:null", "b": "text order <n>"}
    groups = [
        {
            **common,
            **moments,
            "id": letter * 12,
            "reason": "<b>Invalid</b>",
            "description": "order <n> is wrong",
            "shape": shapes[letter],
            "count": sum(over_time),
            "over_time": over_time,
        }
        for letter, over_time in (("a", [1, 2, 4]), ("b", [1, 1, 0]))
    ]
    report = {
        "version": 1,
        "entities": ["failed"],
        "made_at": "2026-11-18T04:00:00Z",
        "letters": 9,
        "group_count": 2,
        **moments,
        "step_s": 3600,
        "steps": times,
        "over_time": [2, 3, 4],
        "groups": groups,
    }
    place = root / "20261118T040000000Z"
    place.mkdir(parents=True)
    (place / "report.html").write_text("<!DOCTYPE html>")
    (place / "report.json").write_text(json.dumps(report))


def keep_hours(root: Path, count: int) -> None:
    """What a driver keeps; the names of its columns are compared in test_hourly."""
    first = datetime(2026, 11, 18, tzinfo=UTC)
    for number in range(count):
        at = first + timedelta(hours=number)
        hour = {
            "fragment": None,
            **dict.fromkeys(("enqueued", "settled"), number * 10),
            **dict.fromkeys(("expired", "redelivered", "lost_locks"), number % 5),
            "dead_lettered": number % 3,
            **{f"{name}_ms_p50": number for name in ("queue", "settle")},
            **{f"{name}_ms_p99": number * 10 for name in ("queue", "settle")},
        }
        key = {"key": "teapots", "enqueued": number * 10, "share": 0.4}
        for table, row in (("hours", hour), ("keys", key)):
            (root / table).mkdir(parents=True, exist_ok=True)
            rows = pyarrow.Table.from_pylist([row])
            parquet.write_table(rows, root / table / f"{at:%Y-%m-%dT%H}.parquet")


def test_the_cluster_is_shown_in_tables(portal: Portal) -> None:
    """R45: as a bus of a cluster would answer."""
    portal.page.route("**/api/v1/cluster", lambda route: route.fulfill(json=CLUSTER))
    portal.open("brokers")
    page = portal.page
    page.get_by_role("row", name=re.compile("node-b silent broker 0 4 s ago")).wait_for()
    page.get_by_role(
        "row", name=re.compile("db-0.* reached 2 .1 free. 5 MB 2 1 min 1 s")
    ).wait_for()
    page.get_by_role("row", name=re.compile("db-1.* not reached .* connection refused")).wait_for()
    page.get_by_role("row", name=re.compile("2026-01-02 03:04 0 node-b node-a")).wait_for()
    page.get_by_role("row", name=re.compile("1 free last node-b")).wait_for()

    assert page.locator("main").get_by_text("beat_age").count() == 0
    assert portal.findings() == []


def test_a_token_of_an_issuer_signs_in_and_its_end_leads_back(
    browser: Browser, bus: Server, api: Api, issuer: LocalIssuer
) -> None:
    """R48: and the page that was open is shown again."""
    api.create("guarded")
    with opened(browser, bus) as portal:
        page = portal.page
        page.route("**/api/v1/sign-in", without_key)
        page.goto(f"{portal.base}/portal/#/entity/guarded/fragments")
        portal.button("OpenID token").click()
        page.get_by_text(f"A token of {issuer.url}").wait_for()
        assert portal.findings() == []
        page.get_by_label("Token").fill(issuer.token(OWNER))
        portal.button("Sign in").click()
        portal.shows("Fragments by broker")
        stored = page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}])")
        assert "eyJ" not in stored

        refused = {"error": {"code": "unauthorized", "message": "The token has expired."}}
        page.route(
            re.compile("/api/v1/(token|entities|overview)"),
            lambda route: route.fulfill(status=401, json=refused),
        )
        page.get_by_text("The bus no longer accepts your key or token").wait_for()
        assert portal.findings() == []
        page.unroute(re.compile("/api/v1/(token|entities|overview)"))
        portal.button("Connection string").click()
        portal.sign_in(bus.connection_string)
        portal.shows("Fragments by broker")
        portal.forgive("status of 401")


def without_key(route: Route) -> None:
    """As a bus answers that has no development key."""
    response = route.fetch()
    route.fulfill(response=response, json={**response.json(), "development": None})


def test_messages_are_exported_and_a_job_is_stopped(portal: Portal, api: Api) -> None:
    """R46"""
    api.create("many")
    api.send("many", [{"body": f"order {n}"} for n in range(300)])
    portal.open("entity", "many", "messages")
    portal.button("Export all").click()
    portal.dialog().get_by_role("button", name="Export", exact=True).click()
    portal.shows("300 of 300 done.")
    with portal.page.expect_download() as download:
        portal.button("Download", exact=False).click()
    file = Path(download.value.path())
    assert len(file.read_text("utf-8").splitlines()) == 300

    body = {"action": "delete", "rate_max": 20}
    api.call("POST", "entities/many/jobs", body)
    portal.page.locator(".group").get_by_role("button", name="Stop").click()
    portal.page.locator(".group", has_text="stopped").wait_for()
    left = api.count("many", "active")
    assert 0 < left < 300


def test_a_search_is_stopped_and_its_condition_saved(portal: Portal, api: Api) -> None:
    """R46"""
    api.create("searched")
    api.send("searched", [{"body": "x", "properties": {"n": n}} for n in range(20)])
    page = portal.page
    held: list[Route] = []
    portal.open("entity", "searched", "messages")
    portal.shows("20 messages shown")
    page.get_by_label("Condition").fill("n > 17")
    portal.button("Save the condition").click()
    page.route("**/messages/search", lambda route: held.append(route))
    portal.button("Search").click()
    portal.button("Stop").click()
    expect(portal.button("Stop")).to_have_count(0)
    # The page itself has given up the request that is held here.
    assert len(held) == 1
    page.unroute("**/messages/search")
    portal.button("Search").click()
    portal.shows("2 messages shown")
    page.reload()
    portal.settled()
    options = page.locator("#saved-filters option").evaluate_all("all => all.map(o => o.value)")

    assert options == ["n > 17"]
    portal.forgive("Failed to load resource")


def test_deferred_messages_are_deleted_and_messages_scheduled(portal: Portal, api: Api) -> None:
    """R46"""
    api.create("later")
    api.send("later", [{"body": "x"} for _ in range(2)])
    for token in api.receive("later", 2):
        api.settle("later", token, "defer")
    portal.open("entity", "later", "deferred")
    portal.page.get_by_label("Choose all that are listed").check()
    portal.button("Delete").click()
    portal.dialog().get_by_role("button", name="Delete", exact=True).click()
    portal.says("Deleted 2 messages.")
    portal.open("entity", "later", "scheduled")
    portal.button("Schedule a message").click()
    dialog = portal.dialog()
    dialog.get_by_label("Body").fill("tea time")
    dialog.get_by_label("Show all fields").check()
    dialog.get_by_label("Deliver not before").fill("2037-01-02T03:04:05")
    dialog.get_by_role("button", name="Send", exact=True).click()
    portal.says("Sent 1 message to later.")

    until(lambda: api.count("later", "scheduled") == 1)
    assert api.count("later", "deferred") == 0
    found = api.call("POST", "entities/later/messages/search", {})["messages"]
    assert isinstance(found, list)
    assert [one["scheduled_at"] for one in found] == ["2037-01-02T03:04:05.000Z"]


def test_a_correlation_rule_is_written(portal: Portal, api: Api) -> None:
    """R46"""
    api.call("PUT", "topics/offers", {})
    api.call("PUT", "topics/offers/subscriptions/tea", {})
    name = "offers/Subscriptions/tea"
    portal.open("entity", name, "rules")
    portal.button("Add a rule").click()
    dialog = portal.dialog()
    dialog.get_by_label("Name", exact=True).fill("labelled")
    dialog.get_by_role("button", name="Correlation").click()
    dialog.get_by_role("button", name="Add a field").click()
    dialog.get_by_label("Field 1", exact=True).select_option(index=1)
    dialog.get_by_label("Value of field 1").fill("tea")
    dialog.get_by_role("button", name="Add to properties").click()
    dialog.get_by_label("Properties: name 1").fill("region")
    dialog.get_by_label("Properties: value 1").fill("eu")
    dialog.get_by_role("button", name="Add the rule").click()
    portal.says("Saved the rule labelled.")

    found = api.call("GET", f"entities/{path_of(name)}/rules/labelled")["filter"]
    assert isinstance(found, dict)
    assert found["kind"] == "correlation"
    assert list(found["fields"].values()) == ["tea"]
    assert [(one["name"], one["value"]) for one in found["properties"]] == [("region", "eu")]


def test_letters_that_could_not_be_forwarded_have_a_line_of_their_own(
    portal: Portal, api: Api
) -> None:
    """R46"""
    api.create("gone")
    api.create("sender", forward_to="gone")
    api.call("DELETE", "queues/gone")
    api.send("sender", [{"body": "x"}])
    until(lambda: api.count("sender", "transfer_dead_letter") == 1)
    portal.open("entity", "sender", "dead-letters")
    portal.button("Not forwarded").click()
    portal.button("Show 1 message").click()
    portal.shows("1 message shown")

    assert "line=%24Transfer" in portal.page.url
    portal.page.reload()
    portal.settled()
    portal.shows("1 message shown")


def test_preferences_last_and_hold_no_secret(portal: Portal, api: Api) -> None:
    """R48: favourites, theme, time zone."""
    api.create("liked")
    api.create("other")
    page = portal.page
    portal.open("entities")
    page.get_by_label("Favourite: liked").click()
    portal.button("Favourites").click()
    portal.shows("1 of")
    root = page.locator("html")
    portal.button("As system: change the theme").click()
    expect(root).to_have_attribute("data-theme", "light")
    portal.button("Light: change the theme").click()
    expect(root).to_have_attribute("data-theme", "dark")
    portal.button("UTC: show local times").click()
    page.reload()
    portal.settled()

    expect(root).to_have_attribute("data-theme", "dark")
    portal.shows("liked")
    assert page.locator("main").get_by_role("link", name="other").count() == 0
    portal.open("entity", "liked")
    created = str(api.call("GET", "queues/liked")["created_at"])
    shown = page.locator("time").first
    # The browser of the tests is in New York.
    assert not shown.inner_text().endswith("UTC")
    assert shown.get_attribute("datetime") == created
    portal.button("Local: show times in UTC").click()
    expect(shown).to_contain_text("UTC")


def test_texts_can_be_copied_as_code(portal: Portal, api: Api) -> None:
    """R44, R46"""
    page = portal.page
    api.create("copied")
    api.send("copied", [{"body": "two teapots", "subject": "tea"}])
    portal.open("entity", "copied", "messages")
    page.locator("tbody th button").first.click()
    page.get_by_text("Copy as code").click()
    code = page.get_by_label("Code that sends this message")
    for language in ("JavaScript", "C#", "curl", "JSON line", "Python"):
        portal.button(language).click()
        expect(code).to_contain_text("two teapots")
    code.locator("xpath=..").get_by_role("button", name="Copy").click()
    portal.says("Copied.")
    assert "two teapots" in page.evaluate("navigator.clipboard.readText()")

    portal.open("create", "queue")
    page.get_by_label("Name").fill("written")
    expect(page.get_by_label("Duplicate window")).to_be_disabled()
    page.get_by_role("checkbox", name="Duplicate detection").check()
    expect(page.get_by_label("Duplicate window")).to_be_enabled()
    same = page.get_by_label("The same as text")
    portal.button("TOML").click()
    expect(same).to_contain_text("[[queue]]")
    portal.button("curl").click()
    expect(same).to_contain_text("curl -X PUT")
    expect(same).to_contain_text("/api/v1/queues/written")


def test_lists_show_the_maximum_size(portal: Portal, api: Api) -> None:
    """R9"""
    api.create("sized", size_mb=2048)
    api.send("sized", [{"body": "x"}])
    times = "\N{MULTIPLICATION SIGN}"
    portal.open("entities")
    portal.shows(f"32 GB = 2 GB {times} 16")
    portal.open("overview")
    portal.shows(f"32 GB = 2 GB {times} 16")
