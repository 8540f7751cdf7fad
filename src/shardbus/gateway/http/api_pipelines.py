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

CAPTURE: Final = "capture"
REPLAY: Final = "replay"
KINDS: Final = (CAPTURE, REPLAY)
CAPTURE_FORMATS: Final = ("parquet", "delta")
REPLAY_FORMATS: Final = ("parquet", "delta", "json", "csv")
BODIES: Final = ("column", "json")
MESSAGE_COLUMNS: Final = (
    "body",
    "message_id",
    "session_id",
    "partition_key",
    "correlation_id",
    "subject",
    "content_type",
    "to",
    "reply_to",
    "reply_to_session_id",
    "time_to_live_ms",
    "scheduled_time",
    "properties",
    "amqp",
)
"""What a row that is sent may have."""
STATES: Final = ("stopped", "starting", "running", "failing", "stopping", "finished")
LOG_LINES_MAX: Final = 500

_PIPELINES: Final = "/api/v1/pipelines"
_ONE: Final = f"{_PIPELINES}/{{pipeline}}"
_PROGRESS: Final[dict[str, Schema]] = {
    "at": described(MOMENT_OR_NEVER, "When the last batch was said to have ended."),
    "batch": COUNT,
    "rows": described(COUNT, "Of the last batch."),
    "rows_total": described(
        COUNT, "Of a capture, all since the bus was started; of a replay, all that were sent."
    ),
    "rows_planned": described(COUNT, "Of a replay, all that it sends; 0 until they are counted."),
    "rows_per_s": NUMBER,
    "backlog": described(
        COUNT, "Messages, or rows of a replay, that waited when the last batch ended."
    ),
    "batch_ms": COUNT,
}
_COMMON: Final[dict[str, Schema]] = {
    "kind": one_of(*KINDS),
    "entity": described(TEXT, "What is captured, or where rows of a replay are sent."),
    "path": described(
        TEXT,
        "Below the directory of captured data of the bus. Of a capture, by default its name; of a "
        "replay, where the table is.",
    ),
    "format": described(
        {"type": "string", "enum": ["", *REPLAY_FORMATS]},
        "Of a capture, parquet (the default) or delta. Of a replay, what is read; by default what "
        "its capture writes, or parquet.",
    ),
}
_CAPTURE: Final[dict[str, Schema]] = {
    **_COMMON,
    "keep": described(FLAG, "Messages stay on the bus."),
    "once": described(FLAG, "Take what waits, then end."),
    "interval_ms": COUNT,
    "rows_max": described(COUNT, "Most rows of a batch; 0: no other bound than the source's."),
    "compact": described(FLAG, "Small files of hours that are over become large ones."),
}
_REPLAY: Final[dict[str, Schema]] = {
    **_COMMON,
    "from_pipeline": described(TEXT, "The capture whose data is sent, instead of a path."),
    "from": described(TEXT, "A moment; rows of this time and later. Empty: from the first on."),
    "to": described(TEXT, "A moment; rows before this time. Empty: to the last."),
    "time_column": described(TEXT, "What from and to are about, and the order of rows."),
    "where": described(TEXT, "A condition on the table's columns, as in SQL."),
    "rate_max": described(COUNT, "Most rows in a second; 0: as fast as can be."),
    "columns": described(
        {"type": "object", "additionalProperties": TEXT},
        "Which column of the table each column of a message is made of; empty: it is left out.",
    ),
    "body": described(one_of(*BODIES), "json: the body is the whole row as JSON."),
}
DEFINITIONS: Final[dict[str, tuple[str, ...]]] = {
    CAPTURE: tuple(_CAPTURE),
    REPLAY: tuple(_REPLAY),
}
"""The members that each kind may have."""
_ALWAYS: Final[dict[str, Schema]] = {
    "name": TEXT,
    **_COMMON,
    "location": described(TEXT, "Where the driver writes, or a replay reads."),
    "state": one_of(*STATES),
    "starts": described(COUNT, "Of its driver, since the bus was started."),
    "last_error": described(TEXT, "Empty while all is well."),
    "progress": reference("PipelineProgress"),
}
_OF_A_KIND: Final[dict[str, Schema]] = {
    **_CAPTURE,
    **_REPLAY,
    "incarnation": described(TEXT, "Of a replay: another one if it is made again."),
}
SCHEMAS: Final[dict[str, Schema]] = {
    "NewPipeline": body_of({**_CAPTURE, **_REPLAY}, ("entity",)),
    "PipelineProgress": object_of(_PROGRESS),
    "Pipeline": {**object_of(_ALWAYS), "properties": {**_OF_A_KIND, **_ALWAYS}},
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
                    "Delete a stopped pipeline and its reader; what it captured or sent stays.",
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
