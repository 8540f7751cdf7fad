"""Definitions of pipelines that keep lifecycle records: what the bus checks (P8)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from shardbus.app.cli.entities.pipeline_options import file_keys
from shardbus.app.pipelines.definition import KINDS, Definition, definition_from, read_definition
from shardbus.app.pipelines.driver_inputs import access_to_lane, job
from shardbus.app.pipelines.entities import BusEntities
from shardbus.app.server.settings import load
from shardbus.core.errors import INVALID_ARGUMENT, NOT_ALLOWED, NOT_FOUND
from shardbus.core.namespace.entity import EntitySpec
from shardbus.gateway.http.api.places import EntityPlaces
from shardbus.gateway.http.document import KindReader
from shardbus.gateway.http.server.counts import HttpCounts
from shardbus_spark.pipelines.definition import read_definition as read_by_driver
from tests.support.refusals import refusal_of
from tests.unit.gateway.http.web import Web

SETTINGS = load({}, {}, default_file=Path("no such file"))


def read(entity: str = "moved", **more: object) -> Definition:
    members = {"kind": "lifecycle", "entity": entity, **more}
    return read_definition("moves", KindReader(KINDS).convert(members))


@pytest.fixture
def entities() -> Iterator[BusEntities]:
    web = Web()
    spec = EntitySpec()
    spec.lifecycle = True
    web.create_topic("silent")
    web.subscribe("silent", "moved", spec=spec)
    yield BusEntities(EntityPlaces(web.bus, HttpCounts(), None))
    web.close()


def test_the_driver_gets_what_the_definition_says() -> None:
    """P8: and a bus that starts again reads the same."""
    definition = read(on_loss="continue", once=True)
    told = job(SETTINGS, definition, {})

    found = read_by_driver(told)

    assert (found.kind, found.entity, found.name) == ("lifecycle", "moved", "moves")
    assert (found.text("on_loss"), found.flag("once")) == ("continue", True)
    assert found.path.endswith("/captured/moves")
    assert definition_from(definition.to_document()) == definition


def test_the_driver_may_read_the_entity_and_send_nothing() -> None:
    access = access_to_lane(SETTINGS, "root")
    environment = access.environment(read(), {}, 0)

    assert "moved" in environment["SHARDBUS_TOKEN"]
    assert "SHARDBUS_TARGET_TOKEN" not in environment


def test_an_entity_must_record_its_lifecycle(entities: BusEntities) -> None:
    """P8"""
    entities.check(read("silent/Subscriptions/moved"))
    with refusal_of(NOT_ALLOWED) as refused:
        entities.check(read("silent"))
    assert "--lifecycle" in refused.value.message
    with refusal_of(NOT_FOUND):
        entities.check(read("nothing"))


def test_dead_letters_have_no_records_of_their_own(entities: BusEntities) -> None:
    with refusal_of(NOT_ALLOWED):
        entities.check(read("silent/Subscriptions/moved/$DeadLetterQueue"))


@pytest.mark.parametrize("more", [{"on_loss": "shrug"}, {"path": "../x"}, {"keep": True}])
def test_what_is_invalid_is_refused(more: dict[str, object]) -> None:
    with refusal_of(INVALID_ARGUMENT):
        read("moved", **more)


def test_set_up_files_and_the_command_line_know_its_members() -> None:
    """R43, P9."""
    assert file_keys("lifecycle")["on-loss"] == "on_loss"
