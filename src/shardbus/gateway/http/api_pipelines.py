"""Pipelines in the JSON API: Spark jobs that the bus keeps the definitions of, and runs (P9)."""

from __future__ import annotations

from typing import Final, Protocol, final

from shardbus.core.access import MANAGE
from shardbus.gateway.http.api_call import Answer, Call, Members
from shardbus.gateway.http.api_route import PIPELINE, Parameter, Route
from shardbus.gateway.http.documents_schema import (
    COUNT,
    FLAG,
    MOMENT_OR_NEVER,
    NUMBER,
    TEXT,
    Document,
    Schema,
    body_of,
    described,
    list_of,
    object_of,
    one_of,
    reference,
)

KINDS: Final = ("capture",)
STATES: Final = ("stopped", "starting", "running", "failing", "stopping", "finished")
LOG_LINES_MAX: Final = 500

_PIPELINES: Final = "/api/v1/pipelines"
_ONE: Final = f"{_PIPELINES}/{{pipeline}}"
_PROGRESS: Final[dict[str, Schema]] = {
    "at": described(MOMENT_OR_NEVER, "When the last batch was said to have ended."),
    "batch": COUNT,
    "rows": described(COUNT, "Of the last batch."),
    "rows_total": described(COUNT, "Of all batches since the bus was started."),
    "rows_per_s": NUMBER,
    "backlog": described(COUNT, "Messages that waited when the last batch ended."),
    "batch_ms": COUNT,
}
_DEFINITION: Final[dict[str, Schema]] = {
    "kind": one_of(*KINDS),
    "entity": TEXT,
    "path": described(TEXT, "Below the directory of captured data of the bus."),
    "keep": described(FLAG, "Messages stay on the bus."),
    "once": described(FLAG, "Take what waits, then end."),
    "interval_ms": COUNT,
    "rows_max": described(COUNT, "Most rows of a batch; 0: no other bound than the source's."),
}
SCHEMAS: Final[dict[str, Schema]] = {
    "NewPipeline": body_of(_DEFINITION, ("entity", "path")),
    "PipelineProgress": object_of(_PROGRESS),
    "Pipeline": object_of(
        {
            "name": TEXT,
            **_DEFINITION,
            "location": described(TEXT, "Where the driver writes."),
            "state": one_of(*STATES),
            "starts": described(COUNT, "Of its driver, since the bus was started."),
            "last_error": described(TEXT, "Empty while all is well."),
            "progress": reference("PipelineProgress"),
        }
    ),
    "Pipelines": object_of({"pipelines": list_of(reference("Pipeline"))}),
    "PipelineDeleted": object_of({"name": TEXT, "is_deleted": FLAG}),
    "PipelineLog": object_of(
        {"name": TEXT, "lines": described(list_of(TEXT), "The last ones; oldest first.")}
    ),
}


class Pipelines(Protocol):
    """Whoever keeps pipelines; Refused is raised for what cannot be. A document is a Pipeline."""

    def all(self) -> list[Document]: ...

    def show(self, name: str) -> Document: ...

    async def create(self, name: str, wanted: Members) -> Document: ...

    async def start(self, name: str) -> Document: ...

    async def stop(self, name: str) -> Document:
        """At once; the driver ends its batch meanwhile."""
        ...

    async def delete(self, name: str) -> None: ...

    def log(self, name: str) -> list[str]: ...


@final
class PipelinePages:
    """A Group of the API."""

    def __init__(self, pipelines: Pipelines) -> None:
        self._pipelines = pipelines

    def schemas(self) -> dict[str, Schema]:
        return SCHEMAS

    def routes(self) -> list[tuple[Route, Answer]]:
        return [
            (
                Route(_PIPELINES, "All pipelines.", "Pipelines", right=MANAGE),
                self._list,
            ),
            (_route("", "How a pipeline is defined, and goes.", "Pipeline"), self._show),
            (
                _route(
                    "",
                    "Define a pipeline; it is not started. The same definition may be put again.",
                    "Pipeline",
                    method="PUT",
                    body="NewPipeline",
                ),
                self._create,
            ),
            (
                _route(
                    "",
                    "Delete a stopped pipeline and its reader; what it captured stays.",
                    "PipelineDeleted",
                    method="DELETE",
                ),
                self._delete,
            ),
            (_route("/start", "Run a pipeline.", "Pipeline", method="POST"), self._start),
            (
                _route("/stop", "End a pipeline when its batch has.", "Pipeline", method="POST"),
                self._stop,
            ),
            (_route("/progress", "How far it has come.", "PipelineProgress"), self._progress),
            (
                _route(
                    "/logs",
                    "What its driver wrote last.",
                    "PipelineLog",
                    more=(
                        Parameter(
                            "top",
                            "query",
                            "At most so many lines.",
                            least=1,
                            most=LOG_LINES_MAX,
                            example=100,
                        ),
                    ),
                ),
                self._log,
            ),
        ]

    async def _list(self, call: Call) -> Document:
        return {"pipelines": self._pipelines.all()}

    async def _show(self, call: Call) -> Document:
        return self._pipelines.show(call.pipeline)

    async def _create(self, call: Call) -> Document:
        return await self._pipelines.create(call.pipeline, call.body)

    async def _delete(self, call: Call) -> Document:
        await self._pipelines.delete(call.pipeline)
        return {"name": call.pipeline, "is_deleted": True}

    async def _start(self, call: Call) -> Document:
        return await self._pipelines.start(call.pipeline)

    async def _stop(self, call: Call) -> Document:
        return await self._pipelines.stop(call.pipeline)

    async def _progress(self, call: Call) -> Document:
        progress = self._pipelines.show(call.pipeline)["progress"]
        assert isinstance(progress, dict)
        return progress

    async def _log(self, call: Call) -> Document:
        lines = self._pipelines.log(call.pipeline)
        top = call.query.integer("top", LOG_LINES_MAX, LOG_LINES_MAX, least=1)
        return {"name": call.pipeline, "lines": lines[-top:]}


def _route(
    path: str,
    summary: str,
    schema: str,
    *,
    method: str = "GET",
    body: str | None = None,
    more: tuple[Parameter, ...] = (),
) -> Route:
    verb = path.removeprefix("/") if method == "POST" else ""
    return Route(
        f"{_ONE}{path}",
        summary,
        schema,
        method=method,
        body=body,
        right=MANAGE,
        parameters=(PIPELINE, *more),
        identifier=f"{verb}{schema}" if verb else "",
    )
