"""A kind of pipelines is three files, as CONTRIBUTING.md says: nothing else has to know of it."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, Self

import pytest
from msgspec import Meta

from shardbus.app.cli.entities.pipeline_options import definition_options, wanted_definition
from shardbus.app.cli.entities.pipeline_view import shown
from shardbus.app.pipelines.definition import (
    KINDS,
    definition_from,
    driver_schemas,
    read_definition,
)
from shardbus.app.pipelines.task import Task, option
from shardbus.gateway.http.api.groups import api_groups
from shardbus.gateway.http.api.places import EntityPlaces
from shardbus.gateway.http.document import KindReader
from tests.unit.gateway.http.kept_pipelines import Kept
from tests.unit.gateway.http.web import Web

ROOT = Path(__file__).resolve().parents[4]
RECIPE = re.compile(r"\*\*A kind of pipelines\*\*.*?\n\n(?=[A-Z])", re.DOTALL)


class Sweep(Task, kw_only=True, frozen=True):
    """Messages to nowhere."""

    kind: Literal["sweep"]
    depth: Annotated[int, Meta(ge=1, le=9), option("How deep it goes.", metavar="N")] = 3

    def checked(self, name: str) -> Self:
        return self

    def check_entity(self, places: EntityPlaces) -> None:
        places.place(self.entity)


@pytest.fixture(autouse=True)
def added(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a module and a row do."""
    monkeypatch.setitem(KINDS, "sweep", Sweep)


@pytest.fixture
def web() -> Iterator[Web]:
    web = Web()
    yield web
    web.close()


def test_the_recipe_has_three_files_and_every_kind_has_them() -> None:
    [recipe] = RECIPE.findall((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    files = re.findall(r"`((?:src|spark)/[\w/]+\.py)`", recipe)

    assert len(files) == 3
    for kind in ("capture", "replay", "sql", "python"):
        assert [file for file in files if not (ROOT / file.replace("KIND", kind)).is_file()] == []


def test_the_api_takes_and_describes_a_new_kind(web: Web) -> None:
    web.with_groups(api_groups(web.bus, web.counts, pipelines=Kept()))

    def put(**members: object) -> int:
        body = json.dumps({"kind": "sweep", "entity": "q", **members}).encode()
        return web.fetch("PUT", "/api/v1/pipelines/archive", body).status

    assert (put(depth=9), put(depth=10), put(interval_ms=1)) == (200, 400, 400)
    description = json.loads(web.fetch("GET", "/api/v1/openapi.json").body)
    assert description["components"]["schemas"]["Sweep"]["properties"]["depth"]["maximum"] == 9


def test_the_command_line_has_its_options_and_shows_its_members() -> None:
    options = {name: one for one in definition_options() for name in one.opts}

    assert options["--depth"].help == "How deep it goes."
    assert "sweep: messages to nowhere." in str(options["--kind"].help)
    wanted = wanted_definition("a", {"kind": "sweep", "entity": "q", "depth": 2, "keep": False})
    assert wanted == {"kind": "sweep", "entity": "q", "depth": 2}
    assert "depth" in shown({"name": "a", "kind": "sweep", "depth": 2, "progress": {}})


def test_its_definition_is_kept_and_the_driver_is_told_its_members() -> None:
    task = KindReader(KINDS).read(b'{"kind": "sweep", "entity": "q", "depth": 2}')
    definition = read_definition("a", task)

    assert definition_from(definition.to_document()) == definition
    schema = driver_schemas()["sweep"]
    assert schema["required"] == ["entity", "path", "name"]
    properties = schema["properties"]
    assert isinstance(properties, dict)
    assert set(definition.to_document()) | {"spark_master"} == set(properties)
