"""The overview of the namespace and the history of its numbers, in the JSON API."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final, final

from shardbus.broker.namespace.namespace import Namespace
from shardbus.core.errors import NOT_FOUND, Refused
from shardbus.core.namespace.access import LISTEN, MANAGE
from shardbus.gateway.http.api.call import Call, Nothing, Row, Written, shows
from shardbus.gateway.http.api.documents import HistoryShown, PipelineHistory
from shardbus.gateway.http.api.route import NAME, PIPELINE, Parameter, Route
from shardbus.gateway.http.moment import format_moment, parse_moment
from shardbus.gateway.http.observing.history import (
    COARSE_COUNT,
    COARSE_MS,
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
from shardbus.gateway.http.server.refusal import invalid, shown

_AGE: Final = "oldest_age_ms"
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
                ),
                self._show_pipeline,
            ),
        ]

    async def _show_overview(self, call: Call[Nothing]) -> Written:
        snapshot = await self._overviews.current()
        headers = [
            ("ETag", snapshot.etag),
            ("Cache-Control", "no-cache"),
            ("Vary", "Accept-Encoding"),
        ]
        if snapshot.etag in call.request.headers.get("if-none-match", ""):
            return Written(b"", status=HTTPStatus.NOT_MODIFIED, headers=headers)
        if "gzip" in call.request.headers.get("accept-encoding", ""):
            headers.append(("Content-Encoding", "gzip"))
            return Written(snapshot.packed(), headers=headers)
        return Written(snapshot.text, headers=headers)

    async def _show_history(self, call: Call[Nothing]) -> HistoryShown:
        return self._history(call, self._overviews.entities, NAMESPACE_KEY)

    async def _show_entity(self, call: Call[Nothing]) -> HistoryShown:
        entity = self._namespace.get(call.name)
        return self._history(call, self._overviews.entities, str(entity.entity_id))

    async def _show_pipeline(self, call: Call[Nothing]) -> PipelineHistory:
        if not self._overviews.has_pipeline(call.pipeline):
            raise Refused(NOT_FOUND, f"There is no pipeline {shown(call.pipeline)}.")
        found = self._history(call, self._overviews.pipelines, call.pipeline)
        numbers = found.series.pop(STATE)
        return PipelineHistory(
            step_ms=found.step_ms,
            first_at=found.first_at,
            count=found.count,
            series=found.series,
            states=[None if one is None else PIPELINE_STATES[int(one)] for one in numbers],
        )

    def _history(self, call: Call[Nothing], history: History, key: str) -> HistoryShown:
        step = call.query.text("step", _STEPS[0])
        if step not in _STEPS:
            raise invalid(f"step is {shown(step)}; it must be one of {', '.join(_STEPS)}.")
        is_fine = step == _STEPS[0]
        step_ms, most = (FINE_MS, FINE_COUNT) if is_fine else (COARSE_MS, COARSE_COUNT)
        last_ms = history.at_ms if is_fine else history.coarse_at_ms()
        count = most
        if call.query.has("since"):
            since_ms = parse_moment(call.query.text("since"))
            if since_ms is None:
                raise invalid("since must be a moment like 2026-01-02T03:04:05Z.")
            count = max(0, min(most, (last_ms - since_ms + step_ms // 2) // step_ms))
        columns = (history.fine if is_fine else history.coarse)(key, count)
        length = len(columns[0])
        first_ms = last_ms - (length - 1) * step_ms if length else last_ms
        series = dict(zip(history.names, columns, strict=True))
        if _AGE in series:
            series[_AGE] = [
                self._overviews.age_ms(number, first_ms + index * step_ms)
                for index, number in enumerate(series[_AGE])
            ]
        return HistoryShown(
            step_ms=step_ms, first_at=format_moment(first_ms), count=length, series=series
        )
