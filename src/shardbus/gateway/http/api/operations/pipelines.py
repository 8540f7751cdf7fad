"""Pipelines in the JSON API: Spark jobs that the bus stores and runs (P9)."""

from __future__ import annotations

from collections.abc import Mapping
from types import GenericAlias
from typing import Annotated, Final, Generic, Protocol, TypeVar, final

import msgspec
from msgspec import UNSET, Meta, Struct

from shardbus.core.namespace.access import MANAGE
from shardbus.gateway.http.api.call import Call, Nothing, Row, shows, takes_kinds
from shardbus.gateway.http.api.documents import PipelineHours
from shardbus.gateway.http.api.letter_report import GROUPS_MAX, PipelineReport
from shardbus.gateway.http.api.route import PIPELINE, Parameter, Route
from shardbus.gateway.http.document import (
    Count,
    Maybe,
    Moment,
    Shape,
    any_of,
    one_of,
    reference,
    told,
)

STATES: Final = ("stopped", "starting", "running", "failing", "stopping", "finished")
LOG_LINES_MAX: Final = 500

_PIPELINES: Final = "/api/v1/pipelines"
_ONE: Final = f"{_PIPELINES}/{{pipeline}}"

T = TypeVar("T", bound=Struct)
_TOP: Final = Parameter(
    "top", "query", "The maximum number of lines.", least=1, most=LOG_LINES_MAX, example=100
)

_GROUPS: Final = Parameter(
    "top", "query", "The maximum number of groups.", least=1, most=GROUPS_MAX, example=20
)
_PAGE: Final = Parameter(
    "page", "query", "1: also the report as a page of HTML.", least=0, most=1, example=0
)
_FINISH: Final = Parameter(
    "finish",
    "query",
    "1: first write the present batch and complete all claimed messages, which may take minutes.",
    least=0,
    most=1,
    example=0,
)
_ABANDON: Final = Parameter(
    "abandon",
    "query",
    "1: also while it has claimed messages. They go back to receivers, even if they were written.",
    least=0,
    most=1,
    example=0,
)


class PipelineProgress(Struct, kw_only=True):
    at: Annotated[Moment | None, told("When the last batch ended, as reported by the driver.")]
    batch: Count
    rows: Annotated[Count, told("The rows of the last batch.")]
    rows_total: Annotated[
        Count,
        told("All rows read since the bus was started; for a replay, all rows sent."),
    ]
    rows_planned: Annotated[
        Count, told("For a replay, all rows to send; 0 until they are counted.")
    ]
    rows_per_s: float
    backlog: Annotated[
        Count, told("Messages, or rows of a replay, that waited when the last batch ended.")
    ]
    batch_ms: Annotated[Count, told("The duration of the last batch.")]


class PipelineState(Struct, kw_only=True):
    name: str
    location: Annotated[
        str, told("The table that is written, or that a replay reads; empty without one.")
    ]
    state: Annotated[str, one_of(*STATES)]
    starts: Annotated[Count, told("Restarts of its driver since the bus was started.")]
    last_error: Annotated[str, told("Empty while there is no problem.")]
    progress: PipelineProgress
    incarnation: Annotated[
        Maybe[str], told("For a replay or transform: changes when the pipeline is created again.")
    ] = UNSET


class PipelineDeleted(Struct, kw_only=True):
    name: str
    is_deleted: bool


class PipelineLog(Struct, kw_only=True):
    name: str
    lines: Annotated[list[str], told("The latest lines, oldest first.")]


class Pipelines(Protocol[T]):
    """Keeps pipelines; Refused is raised for invalid requests. The document of a pipeline has the
    members of its kind and of a PipelineState.
    """

    kinds: Mapping[str, type[T]]
    """The definition of each kind of pipeline; the first kind is the default."""

    def all(self) -> list[dict[str, object]]: ...

    def show(self, name: str) -> dict[str, object]: ...

    async def create(self, name: str, wanted: T) -> dict[str, object]: ...

    async def start(self, name: str) -> dict[str, object]: ...

    async def stop(self, name: str, *, is_finishing: bool = False) -> dict[str, object]:
        """Returns immediately. The driver ends within three seconds, if necessary within its batch;
        with `is_finishing`, after its batch is written and completed.
        """
        ...

    async def delete(self, name: str, *, is_abandoned: bool = False) -> None:
        """Refused while the pipeline has claimed messages, unless `is_abandoned`: then the messages
        go back to receivers.
        """
        ...

    async def hours(self, name: str) -> PipelineHours:
        """The figures of hours that a lifecycle pipeline keeps; Refused for other kinds."""
        ...

    async def report(self, name: str, *, has_page: bool = False) -> PipelineReport:
        """The newest report of a triage, with its page if `has_page`; Refused for other kinds."""
        ...

    def log(self, name: str) -> list[str]: ...


@final
class PipelinePages(Generic[T]):
    """A Group of the API."""

    def __init__(self, pipelines: Pipelines[T]) -> None:
        self._pipelines = pipelines
        self._shapes = {kind: _shown(shape) for kind, shape in pipelines.kinds.items()}
        self._one = any_of(self._shapes.values())
        one = Annotated[object, Meta(extra_json_schema=reference(self._one))]
        self._all = msgspec.defstruct("Pipelines", [("pipelines", GenericAlias(list, (one,)))])

    def rows(self) -> list[Row]:
        one, named = self._one, "showPipeline"
        return [
            shows(Route(_PIPELINES, "All pipelines.", self._all, right=MANAGE), self._list),
            shows(
                _route("", "The definition and the state of a pipeline.", one, named), self._show
            ),
            takes_kinds(
                _route(
                    "",
                    "Define a pipeline without starting it. The same definition may be put again.",
                    one,
                    "putPipeline",
                    method="PUT",
                ),
                self._pipelines.kinds,
                self._create,
            ),
            shows(
                _route(
                    "",
                    "Delete a stopped pipeline and its reader; what it captured or sent stays.",
                    PipelineDeleted,
                    method="DELETE",
                    more=(_ABANDON,),
                ),
                self._delete,
            ),
            shows(
                _route("/start", "Run a pipeline.", one, "startPipeline", method="POST"),
                self._start,
            ),
            shows(
                _route(
                    "/stop",
                    "Stop a pipeline within three seconds; the next start runs a batch that was "
                    "cut off again.",
                    one,
                    "stopPipeline",
                    method="POST",
                    more=(_FINISH,),
                ),
                self._stop,
            ),
            *self._rows_of_work(),
        ]

    def _rows_of_work(self) -> list[Row]:
        """What a pipeline has done."""
        return [
            shows(
                _route("/progress", "The progress of a pipeline.", PipelineProgress), self._progress
            ),
            shows(
                _route("/logs", "The latest output of its driver.", PipelineLog, more=(_TOP,)),
                self._log,
            ),
            shows(
                _route(
                    "/hours",
                    "The figures of each hour that a lifecycle pipeline has kept, at most of the "
                    "newest week.",
                    PipelineHours,
                ),
                self._hours,
            ),
            shows(
                _route(
                    "/report",
                    "The newest report of a triage.",
                    PipelineReport,
                    more=(_GROUPS, _PAGE),
                ),
                self._report,
            ),
        ]

    async def _list(self, call: Call[Nothing]) -> Struct:
        found = [self._document(one) for one in self._pipelines.all()]
        return msgspec.convert({"pipelines": found}, self._all)

    async def _show(self, call: Call[Nothing]) -> Struct:
        return self._document(self._pipelines.show(call.pipeline))

    async def _create(self, call: Call[T]) -> Struct:
        return self._document(await self._pipelines.create(call.pipeline, call.body))

    async def _delete(self, call: Call[Nothing]) -> PipelineDeleted:
        is_abandoned = call.query.integer("abandon", 0, 1) == 1
        await self._pipelines.delete(call.pipeline, is_abandoned=is_abandoned)
        return PipelineDeleted(name=call.pipeline, is_deleted=True)

    async def _start(self, call: Call[Nothing]) -> Struct:
        return self._document(await self._pipelines.start(call.pipeline))

    async def _stop(self, call: Call[Nothing]) -> Struct:
        is_finishing = call.query.integer("finish", 0, 1) == 1
        stopped = await self._pipelines.stop(call.pipeline, is_finishing=is_finishing)
        return self._document(stopped)

    async def _progress(self, call: Call[Nothing]) -> PipelineProgress:
        return msgspec.convert(self._pipelines.show(call.pipeline)["progress"], PipelineProgress)

    async def _log(self, call: Call[Nothing]) -> PipelineLog:
        lines = self._pipelines.log(call.pipeline)
        top = call.query.integer("top", LOG_LINES_MAX, LOG_LINES_MAX, least=1)
        return PipelineLog(name=call.pipeline, lines=lines[-top:])

    async def _hours(self, call: Call[Nothing]) -> PipelineHours:
        return await self._pipelines.hours(call.pipeline)

    async def _report(self, call: Call[Nothing]) -> PipelineReport:
        top = call.query.integer("top", GROUPS_MAX, GROUPS_MAX, least=1)
        has_page = call.query.integer("page", 0, 1) == 1
        found = await self._pipelines.report(call.pipeline, has_page=has_page)
        return msgspec.structs.replace(found, groups=found.groups[:top])

    def _document(self, found: Mapping[str, object]) -> Struct:
        return msgspec.convert(found, self._shapes[str(found["kind"])])


def _shown(kind: type[Struct]) -> type[Struct]:
    """A pipeline of this kind: its complete definition and its state."""
    members = [
        (field.name, field.type, msgspec.field(name=field.encode_name))
        for field in msgspec.structs.fields(kind)
    ]
    name = f"{kind.__name__}Pipeline"
    return msgspec.defstruct(name, members, bases=(PipelineState,), kw_only=True)


def _route(
    path: str,
    summary: str,
    shape: Shape,
    identifier: str = "",
    *,
    method: str = "GET",
    more: tuple[Parameter, ...] = (),
) -> Route:
    return Route(
        f"{_ONE}{path}",
        summary,
        shape,
        method=method,
        right=MANAGE,
        parameters=(PIPELINE, *more),
        identifier=identifier,
    )
