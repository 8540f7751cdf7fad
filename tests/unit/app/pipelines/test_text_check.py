"""Mistakes in the texts of a definition are told when it is created, before Spark starts (P9)."""

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from shardbus.app.pipelines.capture import Capture
from shardbus.app.pipelines.definition import KINDS, Definition
from shardbus.app.pipelines.driver_inputs import CHECK, job
from shardbus.app.pipelines.pipelines import KeptPipelines
from shardbus.app.pipelines.shelf import Shelf
from shardbus.app.pipelines.task import Task
from shardbus.app.pipelines.text_check import TextCheck
from shardbus.app.server.settings import load
from shardbus.core.errors import INVALID_ARGUMENT, NOT_FOUND
from shardbus.gateway.http.document import KindReader
from tests.support.refusals import refusal_of
from tests.unit.app.pipelines.test_pipelines import Entities

SETTINGS: Final = load({}, {}, default_file=Path("no such file"))
REFUSES: Final = """
import json, sys
assert json.load(sys.stdin)["where"]
print("a line of Java")
print(json.dumps({"event": "failed", "error": "where has 'colour' at character 1"}))
raise SystemExit(2)
"""
NEVER_ENDS: Final = "import sys, threading; threading.Event().wait()"


def task(kind: str, **members: object) -> Task:
    return KindReader(KINDS).convert({"kind": kind, "entity": "orders", "path": "p", **members})


def documents(definition: Definition) -> Mapping[str, object]:
    return job(SETTINGS, definition, {})


def check(script: str, made: Task, wait_s: float = 60.0) -> None:
    command = [sys.executable, "-c", script]
    text_check = TextCheck(command, lambda: os.environ, documents, wait_s=wait_s)
    asyncio.run(text_check(Definition("archive", made)))


def test_what_the_driver_refuses_is_refused_with_its_words() -> None:
    with refusal_of(INVALID_ARGUMENT, "archive", "'colour'", "character 1"):
        check(REFUSES, Capture(entity="orders", path="p", keep=True, where="colour = 1"))


@pytest.mark.parametrize(
    "script",
    [
        "",
        "raise SystemExit(1)",
        # A connector of before does not know the option.
        "import sys; sys.stderr.write('usage'); raise SystemExit(2)",
        "print('[1]'); raise SystemExit(2)",
    ],
)
def test_what_the_driver_cannot_say_is_left_to_its_start(script: str) -> None:
    check(script, Capture(entity="orders", path="p", keep=True, where="colour = 1"))


def test_a_driver_that_does_not_answer_is_ended(caplog: pytest.LogCaptureFixture) -> None:
    check(NEVER_ENDS, Capture(entity="orders", path="p", keep=True, where="a = 1"), wait_s=0.2)

    assert "archive could not be checked" in caplog.text


def test_without_texts_nothing_is_started() -> None:
    check(REFUSES, Capture(entity="orders", path="p"))
    check(REFUSES, task("lifecycle"))
    with refusal_of(INVALID_ARGUMENT):
        check(REFUSES, task("triage", where="a = 1"))


WRONG: Final[list[tuple[str, dict[str, object], str]]] = [
    ("capture", {"keep": True, "where": "colour = 1"}, "'colour' at character 1"),
    ("replay", {"from_pipeline": "a", "where": "colour = 1"}, "'colour' at character 1"),
    ("sql", {"path": "", "target": "out", "query": "SELECT colour FROM messages"}, "'colour'"),
    ("triage", {"where": "body LIKE"}, "where ends too early"),
]


@pytest.mark.parametrize(("kind", "members", "told"), WRONG)
def test_the_connector_reads_every_kind_and_does_not_start_spark(
    kind: str, members: dict[str, object], told: str
) -> None:
    """P5, P9"""
    made = task(kind, **members)
    computed = {"origin": "captured"} if "from_pipeline" in members else {}

    def document(definition: Definition) -> dict[str, object]:
        return job(SETTINGS, definition, computed)

    text_check = TextCheck(CHECK, lambda: os.environ, document, wait_s=300.0)
    with refusal_of(INVALID_ARGUMENT, told):
        asyncio.run(text_check(Definition("one", made, "i" if made.keeps_work else "")))


def test_what_is_refused_is_not_stored(tmp_path: Path) -> None:
    """P9: and under its name another one can be created."""

    async def story() -> None:
        text_check = TextCheck([sys.executable, "-c", REFUSES], lambda: os.environ, documents)
        pipelines = KeptPipelines(
            Entities(),
            Shelf(tmp_path),
            locate=str,
            forget=lambda definition: None,
            check_texts=text_check,
        )
        wrong = Capture(entity="orders", path="p", keep=True, where="colour = 1")
        with refusal_of(INVALID_ARGUMENT, "'colour'"):
            await pipelines.create("archive", wrong)
        with refusal_of(NOT_FOUND):
            pipelines.show("archive")
        made = await pipelines.create("archive", Capture(entity="orders", path="p"))
        assert made["state"] == "stopped"

    asyncio.run(story())
