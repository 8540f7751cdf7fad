"""Backfills: which subscription can be filled from which capture (P5)."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardbus.app.pipelines.backfill import Backfill
from shardbus.app.pipelines.capture import Capture
from shardbus.app.pipelines.definition import Definition, definition_from
from shardbus.app.pipelines.driver_keeper import Launch
from shardbus.app.pipelines.pipelines import KeptPipelines
from shardbus.app.pipelines.shelf import Intent, Shelf
from shardbus.app.pipelines.task import Task
from shardbus.core.errors import INVALID_ARGUMENT, NOT_ALLOWED, NOT_FOUND, ErrorKind
from shardbus.core.namespace.entity import EntitySpec
from shardbus.gateway.http.api.places import EntityPlaces
from shardbus.gateway.http.server.counts import HttpCounts
from tests.support.refusals import refusal_of
from tests.unit.app.pipelines.test_pipelines import GOES_ON, LONG_MS, WAIT_S, _until
from tests.unit.broker.news import sql_rule
from tests.unit.gateway.http.web import Web

LATE = "news/Subscriptions/late"


@pytest.fixture
def web() -> Iterator[Web]:
    web = Web()
    web.create_topic("news")
    web.create_topic("other")
    web.subscribe("news", "all")
    web.subscribe("news", "acting", [sql_rule("a", "1=1", "SET a = 1")])
    web.subscribe("other", "all")
    held = EntitySpec()
    held.status = "ReceiveDisabled"
    web.subscribe("news", "late", spec=held)
    web.subscribe("news", "open")
    yield web
    web.close()


def places(web: Web) -> EntityPlaces:
    return EntityPlaces(web.bus, HttpCounts(), None)


def captures(name: str) -> Task | None:
    entities = {"archive": "news/Subscriptions/all", "acting": "news/Subscriptions/acting"}
    entities |= {"far": "other/Subscriptions/all", "queue": "q"}
    return Capture(entity=entities[name], path=f"p-{name}") if name in entities else None


def backfill(
    entity: str = LATE, source: str = "archive", *, while_receiving: bool = False
) -> Backfill:
    made = Backfill(
        kind="backfill", entity=entity, from_pipeline=source, while_receiving=while_receiving
    )
    return made.checked("fill").sourced(None, captures)


def test_a_bus_that_starts_again_reads_the_backfill_that_it_stored(tmp_path: Path) -> None:
    """R43: with what its capture determined."""
    shelf = Shelf(tmp_path)
    shelf.put(Definition("fill", backfill(), "first"), Intent.RUN)

    definition, intent = shelf.load()["fill"]

    assert definition.task == backfill() and definition.task.path == "p-archive"
    assert intent is Intent.RUN


def test_a_stored_definition_names_no_other_directory() -> None:
    """A file of the data directory may have been edited, or be of another server."""
    document = Definition("refill", backfill(), "i").to_document()

    for change in ({"path": "../../etc"}, {"path": "/etc"}, {"incarnation": "i/../../../etc"}):
        with refusal_of(INVALID_ARGUMENT, next(iter(change))):
            definition_from({**document, **change})


@pytest.mark.parametrize("wrong", ["path", "format", "archive"])
def test_its_capture_alone_says_where_the_history_is(wrong: str) -> None:
    given = {"kind": "backfill", "entity": LATE, "from_pipeline": "archive", wrong: "delta"}
    made = definition_from({"name": "fill", **given}).task
    with refusal_of(INVALID_ARGUMENT, "leave these out"):
        made.sourced(None, captures)


def test_a_backfill_gets_its_source_and_when_its_topic_began(web: Web) -> None:
    made = backfill()

    made.check_entity(places(web))

    assert (made.path, made.format, made.archive) == (
        "p-archive", "parquet", "news/Subscriptions/all",
    )  # fmt: skip
    assert made.opened_entity == "news"
    assert made.compute(places(web))["topic_created"].endswith("+00:00")
    assert made.sourced(made, lambda name: None) == made
    known = {"name": "fill", "kind": "backfill", "entity": LATE, "from_pipeline": "x"}
    assert definition_from(known).task.kind == "backfill"


def test_a_span_has_its_times_in_utc_as_that_of_a_replay() -> None:
    """P5: in files and requests it is from and to, which become since and until."""
    given = {"kind": "backfill", "entity": LATE, "from_pipeline": "archive"}
    span = {"from": "2026-01-01", "to": "2026-01-02T10:00:00+01:00"}

    made = definition_from({"name": "fill", **given, **span})

    assert isinstance(made.task, Backfill)
    assert made.task.since == "2026-01-01T00:00:00.000000Z"
    assert made.task.until == "2026-01-02T09:00:00.000000Z"
    assert definition_from(made.to_document()) == made


@pytest.mark.parametrize(
    ("span", "named"),
    [
        ({"from": "yesterday"}, "'yesterday'"),
        ({"to": "2026-13-01"}, "'2026-13-01'"),
        ({"from": "2026-01-02", "to": "2026-01-02"}, "before to"),
        ({"since": "2026-01-02"}, "since"),
        ({"time_column": "at"}, "time_column"),
    ],
)
def test_a_span_that_cannot_be_used_is_named(span: dict[str, object], named: str) -> None:
    given = {"name": "fill", "kind": "backfill", "entity": LATE, "from_pipeline": "archive"}
    with refusal_of(INVALID_ARGUMENT, named):
        definition_from({**given, **span})


def test_receivers_wait_or_the_order_is_given_up(web: Web) -> None:
    open_one = "news/Subscriptions/open"

    with refusal_of(NOT_ALLOWED, "ReceiveDisabled"):
        backfill(open_one).check_entity(places(web))

    backfill(open_one, while_receiving=True).check_entity(places(web))


@pytest.mark.parametrize(
    ("entity", "source", "kind"),
    [
        ("q", "archive", INVALID_ARGUMENT),
        ("news", "archive", INVALID_ARGUMENT),
        ("news/Subscriptions/gone", "archive", NOT_FOUND),
        (LATE, "gone", NOT_FOUND),
        (LATE, "", INVALID_ARGUMENT),
        (LATE, "far", NOT_ALLOWED),
        (LATE, "queue", NOT_ALLOWED),
        (LATE, "acting", NOT_ALLOWED),
    ],
)
def test_what_cannot_be_filled_is_refused(
    web: Web, entity: str, source: str, kind: ErrorKind
) -> None:
    with refusal_of(kind):
        backfill(entity, source).check_entity(places(web))


def test_a_rule_selects_what_is_filled_in(web: Web) -> None:
    """P5: as for every kind, besides the rules of the subscription."""
    given = {"name": "fill", "kind": "backfill", "entity": LATE, "from_pipeline": "archive"}
    made = definition_from({**given, "rule": " amount > 1 ", "where": "subject = 'a'"}).task
    sourced = made.sourced(None, captures)

    sourced.check_entity(places(web))

    assert '"amount"' in sourced.compute(places(web))["filters"]
    assert sourced.has_texts and not backfill().has_texts
    with refusal_of(INVALID_ARGUMENT, "column 9"):
        wrong = definition_from({**given, "rule": "amount >"}).task
        wrong.sourced(None, captures).check_entity(places(web))


class Anything:
    """Every entity is there, and nothing is claimed."""

    def check(self, definition: Definition) -> None:
        pass

    async def hold_claims(self, definition: Definition) -> int:
        return 0

    async def drop_reader(self, definition: Definition) -> None:
        pass


def kept_in(directory: Path) -> KeptPipelines:
    return KeptPipelines(
        Anything(), Shelf(directory), locate=str, forget=lambda definition: None, restart_ms=1
    )


async def fill_twice(pipelines: KeptPipelines) -> None:
    """Two pipelines for one subscription, the second in other letters, and one for another."""
    await pipelines.create("archive", Capture(entity="news/Subscriptions/all", path="p"))
    for name, entity in (("one", LATE), ("two", LATE.upper()), ("else", "news/Subscriptions/x")):
        await pipelines.create(
            name, Backfill(kind="backfill", entity=entity, from_pipeline="archive")
        )
    await pipelines.start("one")
    await pipelines.start("else")
    with refusal_of(NOT_ALLOWED, "one", LATE.upper()):
        await pipelines.start("two")
    assert pipelines.show("two")["state"] == "stopped"


def test_two_backfills_do_not_fill_one_subscription_at_once(tmp_path: Path) -> None:
    """P5: the bus would drop what one brings after later messages of the other."""

    def launch(definition: Definition) -> Launch:
        return Launch([sys.executable, "-c", GOES_ON], {}, LONG_MS)

    async def story() -> None:
        pipelines = kept_in(tmp_path)
        running = asyncio.ensure_future(pipelines.run(launch))
        try:
            await asyncio.sleep(0)
            await fill_twice(pipelines)
            await pipelines.stop("one")
            async with asyncio.timeout(WAIT_S):
                await _until(pipelines, lambda shown: shown["state"] == "stopped", "one")
            await pipelines.start("two")
            with refusal_of(NOT_ALLOWED, "two"):
                await pipelines.start("one")
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    asyncio.run(story())


def test_nor_do_those_that_a_file_starts_before_the_bus_serves(tmp_path: Path) -> None:
    asyncio.run(fill_twice(kept_in(tmp_path)))
