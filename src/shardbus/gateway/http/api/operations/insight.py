"""The overview of the namespace and the history of its numbers, in the JSON API."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Final, final

from shardbus.broker.namespace.namespace import Namespace
from shardbus.core.errors import NOT_FOUND, Refused
from shardbus.core.namespace.access import LISTEN, MANAGE
from shardbus.gateway.http.api.call import Call, Nothing, Row, Written, shows
from shardbus.gateway.http.api.documents import HistoryShown, PipelineHistory
from shardbus.gateway.http.api.route import NAME, PIPELINE, Parameter, Route
from shardbus.gateway.http.document import write
from shardbus.gateway.http.moment import format_moment, parse_moment
from shardbus.gateway.http.observing.history import (
    COARSE_COUNT,
    COARSE_MS,
    COARSE_STEPS,
    FINE_COUNT,
    FINE_MS,
    History,
)
from shardbus.gateway.http.observing.overview import (
    NAMESPACE_KEY,
    PIPELINE_STATES,
    STATE,
    Overview,
    Overviews,
)
from shardbus.gateway.http.observing.snapshot import Snapshot, Snapshots
from shardbus.gateway.http.server.refusal import invalid, shown

_AGE: Final = "oldest_age_ms"
_ENTITY: Final = "entity"
_PIPELINE: Final = "pipeline"
_STEPS: Final = ("5s", "1m")
_PARAMETERS: Final = (
    Parameter("step", "query", "5s: the last hour, the default; 1m: the last day.", example="5s"),
    Parameter("since", "query", "Only the steps after this moment."),
)


@final
class InsightPages:
    """A Group of the API."""

    def __init__(self, namespace: Namespace, overviews: Overviews) -> None:
        self._namespace = namespace
        self._overviews = overviews
        self._snapshots = Snapshots()

    def rows(self) -> list[Row]:
        return [
            shows(
                Route(
                    "/api/v1/overview",
                    "Health, totals and all entities with counts and rates; at most a second old. "
                    "Send its ETag as If-None-Match, and poll.",
                    Overview,
                    right=LISTEN,
                    otherwise=MANAGE,
                    has_etag=True,
                ),
                self._show_overview,
            ),
            shows(
                Route(
                    "/api/v1/history",
                    "The history of the totals of the namespace.",
                    HistoryShown,
                    right=LISTEN,
                    otherwise=MANAGE,
                    parameters=_PARAMETERS,
                    has_etag=True,
                ),
                self._show_history,
            ),
            shows(
                Route(
                    "/api/v1/entities/{name}/history",
                    "The history of the numbers of an entity.",
                    HistoryShown,
                    right=LISTEN,
                    otherwise=MANAGE,
                    parameters=(NAME, *_PARAMETERS),
                    identifier="showHistoryOfEntity",
                    has_etag=True,
                ),
                self._show_entity,
            ),
            shows(
                Route(
                    "/api/v1/pipelines/{pipeline}/history",
                    "The history of the progress and the states of a pipeline.",
                    PipelineHistory,
                    right=MANAGE,
                    parameters=(PIPELINE, *_PARAMETERS),
                    identifier="showHistoryOfPipeline",
                    has_etag=True,
                ),
                self._show_pipeline,
            ),
        ]

    async def _show_overview(self, call: Call[Nothing]) -> Written:
        return _written(call, await self._overviews.current())

    async def _show_history(self, call: Call[Nothing]) -> Written:
        return self._of_entity(call, NAMESPACE_KEY)

    async def _show_entity(self, call: Call[Nothing]) -> Written:
        return self._of_entity(call, str(self._namespace.get(call.name).entity_id))

    async def _show_pipeline(self, call: Call[Nothing]) -> Written:
        if not self._overviews.has_pipeline(call.pipeline):
            raise Refused(NOT_FOUND, f"There is no pipeline {shown(call.pipeline)}.")
        window = _window(call, self._overviews.pipelines)
        return self._written(
            call, _PIPELINE, call.pipeline, window, lambda: self._pipeline(call.pipeline, window)
        )

    def _of_entity(self, call: Call[Nothing], key: str) -> Written:
        window = _window(call, self._overviews.entities)
        return self._written(call, _ENTITY, key, window, lambda: self._entity(key, window))

    def _written(
        self,
        call: Call[Nothing],
        kind: str,
        key: str,
        window: _Window,
        document: Callable[[], HistoryShown],
    ) -> Written:
        parts = (kind, key, window.step_ms, window.count)
        snapshot = self._snapshots.get(parts, window.tick, lambda: write(document()))
        return _written(call, snapshot)

    def _entity(self, key: str, window: _Window) -> HistoryShown:
        found, first_ms = _shown(self._overviews.entities, key, window)
        found.series[_AGE] = [
            self._overviews.age_ms(number, first_ms + index * window.step_ms)
            for index, number in enumerate(found.series[_AGE])
        ]
        return found

    def _pipeline(self, key: str, window: _Window) -> PipelineHistory:
        found, _ = _shown(self._overviews.pipelines, key, window)
        numbers = found.series.pop(STATE)
        return PipelineHistory(
            step_ms=found.step_ms,
            first_at=found.first_at,
            count=found.count,
            series=found.series,
            states=[None if one is None else PIPELINE_STATES[int(one)] for one in numbers],
        )


@final
class _Window:
    """The steps of a history that a client asks for; `tick` changes when they do."""

    def __init__(self, step_ms: int, last_ms: int, count: int, tick: int) -> None:
        self.step_ms = step_ms
        self.last_ms = last_ms
        self.count = count
        self.tick = tick


def _window(call: Call[Nothing], history: History) -> _Window:
    step = call.query.text("step", _STEPS[0])
    if step not in _STEPS:
        raise invalid(f"step is {shown(step)}; it must be one of {', '.join(_STEPS)}.")
    if step == _STEPS[0]:
        window = _Window(FINE_MS, history.at_ms, FINE_COUNT, history.step)
    else:
        last_ms, tick = history.coarse_at_ms(), history.step // COARSE_STEPS
        window = _Window(COARSE_MS, last_ms, COARSE_COUNT, tick)
    if call.query.has("since"):
        since_ms = parse_moment(call.query.text("since"))
        if since_ms is None:
            raise invalid("since must be a moment like 2026-01-02T03:04:05Z.")
        steps = (window.last_ms - since_ms + window.step_ms // 2) // window.step_ms
        window.count = max(0, min(window.count, steps))
    return window


def _shown(history: History, key: str, window: _Window) -> tuple[HistoryShown, int]:
    """The numbers in a window, and the moment of the first."""
    columns = (history.fine if window.step_ms == FINE_MS else history.coarse)(key, window.count)
    length = len(columns[0])
    first_ms = window.last_ms - (length - 1) * window.step_ms if length else window.last_ms
    series = dict(zip(history.names, columns, strict=True))
    found = HistoryShown(
        step_ms=window.step_ms, first_at=format_moment(first_ms), count=length, series=series
    )
    return found, first_ms


def _written(call: Call[Nothing], snapshot: Snapshot) -> Written:
    """A snapshot for this client: compressed if it can read that, 304 if it has it."""
    headers = [("ETag", snapshot.etag), ("Cache-Control", "no-cache"), ("Vary", "Accept-Encoding")]
    if snapshot.etag in call.request.headers.get("if-none-match", ""):
        return Written(b"", status=HTTPStatus.NOT_MODIFIED, headers=headers)
    if "gzip" in call.request.headers.get("accept-encoding", ""):
        headers.append(("Content-Encoding", "gzip"))
        return Written(snapshot.packed(), headers=headers)
    return Written(snapshot.text, headers=headers)
