"""Steps for pipelines, which come after the entities that they need."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final

from shardbus.app.cli.api_client import Document
from shardbus.app.cli.console import Json
from shardbus.app.cli.entities.pipeline import wait_until_over
from shardbus.app.setup.current import Current
from shardbus.app.setup.model import DeclaredPipeline
from shardbus.app.setup.step import BLOCKED, CHANGE, CREATE, DELETE, SAME, Act, Change, Step

KIND: Final = "pipeline"
_RUNNING: Final = "running"
_STOPPED: Final = "stopped"
_FINISHED: Final = "finished"
_AT_REST: Final = (_STOPPED, "stopping", _FINISHED)


def pipeline_steps(current: Current, said: Sequence[DeclaredPipeline]) -> list[Step]:
    """The steps for the pipelines of a file; those that name another one come last."""
    if not said:
        return []
    there = {str(shown.get("name")): shown for shown in current.pipelines()}
    order = sorted(said, key=lambda each: bool(each.members.get("from_pipeline")))
    return [_step(current, each, there.get(each.name)) for each in order]


def missing_pipelines(current: Current, said: Sequence[DeclaredPipeline]) -> list[Step]:
    """The deletion of pipelines that no file names."""
    names = {each.name for each in said}
    found = (str(shown.get("name")) for shown in current.pipelines())
    return [_deletion(current, name) for name in found if name not in names]


def _step(current: Current, said: DeclaredPipeline, shown: Document | None) -> Step:
    if shown is None:
        act = _creation(current, said)
        return Step(CREATE, KIND, said.name, place=said.place, act=act)
    different = [
        f"{member} is {_text(shown.get(member))}, not {_text(value)}"
        for member, value in said.members.items()
        if shown.get(member) != value
    ]
    if different:
        reason = (
            f"a pipeline cannot be changed ({', '.join(different)}): delete it "
            f"(`shardbus pipeline delete {said.name}`) and apply again"
        )
        return Step(BLOCKED, KIND, said.name, reason=reason, place=said.place)
    return _state_step(current, said, str(shown.get("state")))


def _state_step(current: Current, said: DeclaredPipeline, state: str) -> Step:
    """Whether it runs; a pipeline that has finished is neither started nor stopped."""
    is_resting = state in _AT_REST
    if said.is_started is None or said.is_started is not is_resting or state == _FINISHED:
        return Step(SAME, KIND, said.name, place=said.place)
    word, wanted = ("start", _RUNNING) if said.is_started else ("stop", _STOPPED)
    change = Change("state", state, wanted)

    def act() -> None:
        current.api.post(f"pipelines/{said.name}/{word}", {})

    return Step(CHANGE, KIND, said.name, (change,), place=said.place, act=act)


def _creation(current: Current, said: DeclaredPipeline) -> Act:
    def act() -> None:
        current.api.put(f"pipelines/{said.name}", _document(said.members))
        if said.is_started:
            current.api.post(f"pipelines/{said.name}/start", {})

    return act


def _deletion(current: Current, name: str) -> Step:
    path = f"pipelines/{name}"

    def act() -> None:
        current.api.post(f"{path}/stop", {}, finish=1)
        wait_until_over(lambda: current.api.get(path), time.sleep)
        current.api.delete(path)

    reason = "its table and the messages that it sent stay"
    return Step(DELETE, KIND, name, reason=reason, act=act)


def _document(members: Mapping[str, object]) -> Document:
    return {name: _json(value) for name, value in members.items()}


def _json(value: object) -> Json:
    if isinstance(value, dict):
        return {str(name): _json(each) for name, each in value.items()}
    assert value is None or isinstance(value, bool | int | str), "a value of a definition"
    return value


def _text(value: object) -> str:
    return repr(value) if isinstance(value, str) else str(value)
