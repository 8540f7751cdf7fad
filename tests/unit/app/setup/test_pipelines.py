"""Pipelines in set-up files: read, planned, created, exported (P9, R31)."""

import asyncio
from pathlib import Path

import pytest

from shardbus.app.pipelines.definition import KINDS, Definition
from shardbus.app.pipelines.pipelines import KeptPipelines
from shardbus.app.pipelines.shelf import Shelf
from shardbus.app.setup.application import Blocked
from shardbus.app.setup.arm.writer import write_template
from shardbus.app.setup.emulator import write_emulator
from shardbus.app.setup.model import SetupError, combined
from shardbus.app.setup.toml_writer import write_toml
from shardbus.core.errors import NOT_FOUND, Refused
from shardbus.gateway.http.api.operations.pipelines import PipelinePages
from tests.unit.app.setup.reading import from_toml
from tests.unit.app.setup.site import Town, signs

ENTITIES = '[[queue]]\nname = "orders"\n'
ARCHIVE = """
[[pipeline]]
name = "archive"
entity = "orders"
format = "delta"
interval-ms = 500
keep = true
compact = false
start = true
"""
AGAIN = """
[[pipeline]]
name = "again"
kind = "replay"
from-pipeline = "archive"
entity = "orders"
since = 2026-01-31T08:00:00Z
until = "2026-01-31 09:00"
rate = 500
column = { message_id = "", subject = "type" }
"""


class Entities:
    """One queue, or all entities."""

    has_all = False

    def check(self, definition: Definition) -> None:
        if definition.task.entity != "orders" and not self.has_all:
            raise Refused(NOT_FOUND, "The messaging entity 'x' could not be found.")

    async def hold_claims(self, definition: Definition) -> int:
        return 0

    async def drop_reader(self, definition: Definition) -> None:
        """There is none."""


def pipelines_in(directory: Path) -> KeptPipelines:
    return KeptPipelines(Entities(), Shelf(directory), locate=str, forget=lambda definition: None)


@pytest.fixture
def kept(tmp_path: Path) -> KeptPipelines:
    """Pipelines of a bus that is being set up: none runs yet."""
    return pipelines_in(tmp_path)


@pytest.fixture
def town(kept: KeptPipelines) -> Town:
    return Town(others=[PipelinePages(kept)])


def test_a_pipeline_has_the_names_of_the_options_and_only_what_was_said() -> None:
    archive, again = from_toml(ARCHIVE + AGAIN).pipelines

    assert archive.members == {
        "kind": "capture",
        "entity": "orders",
        "format": "delta",
        "interval_ms": 500,
        "keep": True,
        "compact": False,
    }
    assert (archive.is_started, again.is_started) == (True, None)
    assert again.members["from"] == "2026-01-31T08:00:00.000000Z"
    assert again.members["to"] == "2026-01-31T09:00:00.000000Z"
    assert again.members["columns"] == {"message_id": "", "subject": "type"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("entity = 'orders'", r"line 1: pipeline\[0\]: name is missing"),
        ("name = 'a'\nentity = 'q'\ninterval = 5", "line 4: .*interval; did you mean interval-ms"),
        ("name = 'a'\nentity = 'q'\nkind = 'copy'", "line 4: .*must be capture or replay"),
        ("name = 'a'\nentity = 'q'\nrate = 5", "line 4: .*there is no rate"),
        ("name = 'a'\nentity = 'q'\nkeep = 'yes'", "line 1: .*keep"),
        ("name = 'a b'\nentity = 'q'", "cannot be named 'a b'"),
        ("name = 'a'\nentity = 'q'\npath = '/etc'", "path is '/etc'"),
        ("name = 'a'", "entity"),
        ("name = 'a'\nentity = 'q'\nstart = 1", "line 4: .*true or false"),
    ],
)
def test_a_mistake_is_told_with_its_place(text: str, told: str) -> None:
    with pytest.raises(SetupError, match=told):
        from_toml(f"[[pipeline]]\n{text}\n")


def test_two_pipelines_of_one_name_are_refused() -> None:
    with pytest.raises(SetupError, match="'archive'"):
        combined([from_toml(ARCHIVE), from_toml(ARCHIVE)])


def test_pipelines_come_after_entities_and_captures_before_their_replays(
    town: Town, kept: KeptPipelines
) -> None:
    said = from_toml(AGAIN + ARCHIVE + ENTITIES)

    assert signs(town.planned(said)) == [
        "+ queue orders",
        "+ pipeline archive",
        "+ pipeline again",
    ]
    town.made(said)
    assert [step.sign for step in town.planned(said).steps] == ["="] * 3
    assert kept.show("archive")["state"] == "starting"
    assert kept.show("again")["state"] == "stopped"
    assert kept.show("again")["path"] == "archive"


def test_another_definition_is_blocked_and_says_what_differs(town: Town) -> None:
    town.made(from_toml(ENTITIES + ARCHIVE))
    said = from_toml(ARCHIVE.replace("500", "600") + '[[queue]]\nname = "new"\n')

    with pytest.raises(Blocked, match="interval_ms"):
        town.applied(said)

    assert [entity.path for entity in town.everything().entities] == ["orders"]


def test_a_file_starts_and_stops_what_it_says_and_leaves_the_others(
    town: Town, kept: KeptPipelines
) -> None:
    town.made(from_toml(ENTITIES + ARCHIVE))
    silent = from_toml(ARCHIVE.replace("start = true", ""))
    stopped = from_toml(ARCHIVE.replace("start = true", "start = false"))

    assert [step.sign for step in town.planned(silent).steps] == ["="]
    [step] = town.planned(stopped).steps
    assert step.lines() == "~ pipeline archive\n    state: starting -> stopped"
    town.made(stopped)
    assert kept.show("archive")["state"] == "stopped"


def test_what_no_file_names_is_deleted_only_if_asked_for_and_before_its_entity(town: Town) -> None:
    town.made(from_toml(ENTITIES + ARCHIVE))
    other = from_toml('[[queue]]\nname = "other"\n')

    assert signs(town.planned(other)) == ["+ queue other"]
    assert signs(town.planned(other, deletes_missing=True)) == [
        "+ queue other",
        "- pipeline archive",
        "- queue orders",
    ]
    assert town.applied(other, deletes_missing=True).failure is None
    assert town.everything().pipelines == []


def test_an_export_applies_to_another_namespace_and_is_the_same_there(
    town: Town, tmp_path: Path
) -> None:
    town.made(from_toml(ENTITIES + ARCHIVE + AGAIN))
    text = write_toml(town.everything(), with_keys=False)
    other = Town(others=[PipelinePages(pipelines_in(tmp_path / "other"))])

    other.made(from_toml(text))

    assert write_toml(other.everything(), with_keys=False) == text
    assert 'column = { message_id = "", subject = "type" }' in text


OTHERS = """
[[pipeline]]
name = "all"
entity = "orders/Subscriptions/all"
keep = true
rule = "total > 100"
[[pipeline]]
name = "fill"
kind = "backfill"
entity = "orders/Subscriptions/late"
from-pipeline = "all"
rule = "region = 'north'"
until = 2026-01-31T08:00:00Z
while-receiving = true
[[pipeline]]
name = "invoices"
kind = "sql"
entity = "orders"
entities = "refunds=refunds"
to = "invoices"
query = "SELECT message_id, body FROM messages WHERE subject = 'it''s \\\\ \\"new\\"'"
json-schema = "id bigint"
bad-json = "null"
[[pipeline]]
name = "upper"
kind = "python"
entity = "orders"
path = "upper"
file = "up.py"
[[pipeline]]
name = "moves"
kind = "lifecycle"
entity = "orders"
on-loss = "continue"
[[pipeline]]
name = "causes"
kind = "triage"
entity = "orders"
where = "delivery_count > 1"
rule = "total > 100"
interval-ms = 86400000
reports-max = 3
"""


def test_every_kind_is_exported_as_it_was_applied(tmp_path: Path) -> None:
    """P9"""
    said = from_toml(AGAIN + ARCHIVE + OTHERS)
    town = Town(others=[PipelinePages(lenient_in(tmp_path / "one"))])
    town.made(said)
    text = write_toml(town.everything(), with_keys=False)
    other = Town(others=[PipelinePages(lenient_in(tmp_path / "other"))])

    other.made(from_toml(text))

    assert {str(one.members["kind"]) for one in said.pipelines} == set(KINDS)
    assert write_toml(other.everything(), with_keys=False) == text
    assert signs(other.planned(said)) == []


def lenient_in(directory: Path) -> KeptPipelines:
    """Pipelines of a bus that has every entity."""
    entities = Entities()
    entities.has_all = True
    return KeptPipelines(entities, Shelf(directory), locate=str, forget=lambda definition: None)


def test_the_other_forms_cannot_express_them_and_say_so(town: Town) -> None:
    town.made(from_toml(ENTITIES + ARCHIVE))
    whole = town.everything()

    for _, losses in (write_emulator(whole), write_template(whole, with_keys=False)):
        assert "the pipeline archive" in losses


def test_a_refusal_of_the_bus_names_the_pipeline_and_what_was_done(town: Town) -> None:
    said = from_toml(ENTITIES + ARCHIVE.replace('"orders"', '"x"'))

    failure = town.applied(said).failure

    assert failure is not None
    assert "pipeline archive: " in str(failure)
    assert "(1 of 2 changes were made before this one)" in str(failure)


def test_what_was_set_up_before_the_bus_serves_runs_when_it_does(tmp_path: Path) -> None:
    """The shelf is read before the set-up, which so does not stop what ran."""
    first = pipelines_in(tmp_path)
    Town(others=[PipelinePages(first)]).made(from_toml(ENTITIES + ARCHIVE))
    second = pipelines_in(tmp_path)
    town = Town(others=[PipelinePages(second)])
    asyncio.run(second.load())
    town.made(from_toml(ENTITIES))

    assert [step.sign for step in town.planned(from_toml(ENTITIES + ARCHIVE)).steps] == ["="] * 2
    assert second.show("archive")["state"] == "starting"
