"""Definitions of transforms: what the bus checks, and what their drivers get (P9)."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from shardbus.app.cli.entities.pipeline_options import (
    definition_options,
    file_keys,
    wanted_definition,
)
from shardbus.app.pipelines.definition import KINDS, Definition, definition_from, read_definition
from shardbus.app.pipelines.driver_inputs import access_to_lane, job
from shardbus.app.pipelines.entities import BusEntities
from shardbus.app.pipelines.task import Task
from shardbus.app.server.settings import load
from shardbus.core.errors import INVALID_ARGUMENT, NOT_ALLOWED, NOT_FOUND
from shardbus.gateway.http.api.places import EntityPlaces
from shardbus.gateway.http.document import KindReader
from shardbus.gateway.http.server.counts import HttpCounts
from tests.support.refusals import refusal_of
from tests.unit.gateway.http.web import Web

SETTINGS = load({}, {}, default_file=Path("no such file"))
SQL: dict[str, object] = {
    "kind": "sql",
    "entity": "q",
    "target": "r",
    "query": "SELECT body FROM messages",
}
PYTHON: dict[str, object] = {"kind": "python", "entity": "q", "path": "p", "file": "prices.py"}


def read(members: dict[str, object]) -> Definition:
    return read_definition("a", KindReader(KINDS).convert(members))


def task(members: dict[str, object]) -> Task:
    return read(members).task


@pytest.fixture
def web() -> Iterator[Web]:
    web = Web()
    web.create_topic("r")
    yield web
    web.close()


def places(web: Web) -> EntityPlaces:
    return EntityPlaces(web.bus, HttpCounts(), None)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"query": ""}, "query"),
        ({"query": " ; "}, "query"),
        ({"query": "x" * 20_000}, "query"),
        ({"target": ""}, "path"),
        ({"path": "p"}, "path"),
        ({"target": "Q"}, "target"),
        ({"path": "../up", "target": ""}, "path"),
        ({"bad_json": "skip"}, "bad_json"),
        ({"entity": "q/$DeadLetterQueue", "keep": True}, "keep"),
        ({"entities": "refunds"}, "entities"),
        ({"entities": "a=x, A=y"}, "entities"),
        ({"entities": "messages=x"}, "entities"),
        ({"entities": "a b=x"}, "entities"),
        ({"entities": "a=Q"}, "twice"),
        ({"entities": "a=x, b=X"}, "twice"),
        ({"entities": "a=r"}, "target"),
        ({"entities": "a=x/$DeadLetterQueue", "keep": True}, "keep"),
        ({"entities": ",".join(f"v{at}=e{at}" for at in range(9))}, "at most 8"),
        ({"file": "prices.py"}, "'file'"),
        ({"kind": "python", "query": ""}, "query"),
    ],
)
def test_a_member_that_cannot_be_used_is_named(change: dict[str, object], named: str) -> None:
    with refusal_of(INVALID_ARGUMENT, named):
        read({**SQL, **change})


@pytest.mark.parametrize("file", ["", "prices", "../prices.py", "/etc/a.py", "a/b.py", ".py"])
def test_a_file_of_code_is_one_name(file: str) -> None:
    with refusal_of(INVALID_ARGUMENT, "file"):
        read({**PYTHON, "file": file})


def test_a_definition_is_read_as_it_was_written() -> None:
    for members in (SQL, PYTHON):
        definition = read(members)
        assert definition_from(definition.to_document()) == definition


def test_a_query_is_text_for_spark_only_where_the_operator_allows_code(web: Web) -> None:
    assert task(SQL).compute(places(web), "") == {"filters": "", "dialect": ""}
    assert task(SQL).compute(places(web), "/code")["dialect"] == "spark"


def test_a_function_needs_the_operators_directory_and_a_file_in_it(
    web: Web, tmp_path: Path
) -> None:
    entities, definition = BusEntities(places(web), str(tmp_path)), read(PYTHON)

    with refusal_of(NOT_ALLOWED, "--pipeline-code"):
        BusEntities(places(web)).check(definition)
    with refusal_of(NOT_FOUND, "prices.py"):
        entities.check(definition)
    (tmp_path / "prices.py").write_text("", encoding="utf-8")
    entities.check(definition)
    code = definition.task.compute(places(web), str(tmp_path))["code"]
    assert code == str(tmp_path / "prices.py")


def test_further_entities_have_to_be_there_and_get_a_token_each(web: Web) -> None:
    """P11"""
    members = {**SQL, "entities": "refunds=/Absent/, dead=q2/$DeadLetterQueue"}
    definition = Definition("a", task(members), "i")
    access = replace(access_to_lane(SETTINGS, "root"), key="k")

    tokens = json.loads(access.environment(definition, {}, 0)["SHARDBUS_ENTITY_TOKENS"])

    assert definition.task.more_entities == ("Absent", "q2/$DeadLetterQueue")
    assert "%2FAbsent&" in tokens["Absent"] and "%2Fq2&" in tokens["q2/$DeadLetterQueue"]
    with refusal_of(NOT_FOUND, "Absent"):
        BusEntities(places(web)).check(definition)
    with refusal_of(NOT_ALLOWED, "topic"):
        BusEntities(places(web)).check(read({**SQL, "target": "", "path": "p", "entities": "a=r"}))


def test_both_entities_have_to_be_there(web: Web) -> None:
    entities = BusEntities(places(web))

    entities.check(read(SQL))
    for change in ({"target": "absent"}, {"entity": "absent"}):
        with refusal_of(NOT_FOUND, "absent"):
            entities.check(read({**SQL, **change}))


def test_the_driver_gets_a_token_for_each_entity_and_no_path_that_it_does_not_need() -> None:
    access = replace(access_to_lane(SETTINGS, "root"), key="k")
    definition = Definition("a", task(SQL), "i")

    given = access.environment(definition, {}, 0)

    assert "%2Fq&" in given["SHARDBUS_TOKEN"]
    assert "%2Fr&" in given["SHARDBUS_TARGET_TOKEN"]
    made = job(SETTINGS, definition, {"filters": "", "dialect": ""})
    assert (made["path"], str(made["work"]).endswith("_replays/a-i")) == ("", True)


def test_every_member_of_every_kind_has_an_option_of_its_own() -> None:
    """A replay has a member to, which is another thing."""
    options = [one.opts[0] for one in definition_options()]

    assert {"--to", "--until", "--query", "--file", "--json-schema"} <= set(options)
    assert len(options) == len(set(options))
    wanted = wanted_definition("a", {"kind": "sql", "entity": "q", "to": "r", "query": "x"})
    assert wanted == {"kind": "sql", "entity": "q", "target": "r", "query": "x"}
    assert (file_keys("sql")["to"], file_keys("replay")["until"]) == ("target", "to")
