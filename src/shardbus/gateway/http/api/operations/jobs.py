"""Jobs in the JSON API: work on many messages, which the server does in the background."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Final, final

from msgspec import Meta, Struct

from shardbus.core.errors import Refused
from shardbus.core.namespace.access import LISTEN, MANAGE, SEND
from shardbus.gateway.http.api.call import Call, Nothing, Reply, Row, Written, shows, takes
from shardbus.gateway.http.api.entities.managing import Deleted
from shardbus.gateway.http.api.messages.scan import entry_of
from shardbus.gateway.http.api.messages.values import Number, read_numbers
from shardbus.gateway.http.api.places import EntityPlaces
from shardbus.gateway.http.api.route import JOB, NAME, Parameter, Route
from shardbus.gateway.http.api.search.rule_trial import ValueChange
from shardbus.gateway.http.document import INTEGER_MAX, Body, Shape, told
from shardbus.gateway.http.jobs.job import EXPORT, Edit, Job, NewJob
from shardbus.gateway.http.jobs.known import KeptJobs
from shardbus.gateway.http.jobs.repairing import Repair, Unrepairable, check_repair, is_repair
from shardbus.gateway.http.server.gate import Gate
from shardbus.gateway.http.server.refusal import invalid

EXPORT_BYTES_MAX: Final = 4 * 1024 * 1024
JSON_LINES: Final = "application/x-ndjson; charset=utf-8"

_JOBS: Final = "/api/v1/entities/{name}/jobs"
_ONE: Final = f"{_JOBS}/{{job}}"
SAMPLES_MAX: Final = 20


class JobList(Struct, kw_only=True):
    jobs: Annotated[list[Job], told("Newest first.")]
    is_complete: Annotated[
        bool,
        told("False if there may be other gateways: the jobs that they started are not listed."),
    ]


class EditTest(Body, kw_only=True, frozen=True):
    numbers: Annotated[
        list[Number], Meta(min_length=1, max_length=SAMPLES_MAX, examples=[["281474976710657"]])
    ]
    edit: Annotated[
        Edit,
        Meta(
            description="With action, body_set or both.",
            examples=[{"action": "SET color = 'red'"}],
        ),
    ]


class EditTrial(Struct, kw_only=True):
    number: str
    error: Annotated[str, told("Why the message cannot be changed in this way; empty if it can.")]
    changes: list[ValueChange]


class EditTested(Struct, kw_only=True):
    results: Annotated[list[EditTrial], told("For the messages that exist.")]


@final
class JobPages:
    """A Group of the API."""

    def __init__(self, places: EntityPlaces, jobs: KeptJobs) -> None:
        self._places = places
        self._jobs = jobs
        self._gate = Gate(places.bus.namespace, places.bus.authorizer)

    def rows(self) -> list[Row]:
        return [
            shows(
                Route("/api/v1/jobs", "The jobs of all entities.", JobList, right=MANAGE),
                self._list_all,
            ),
            shows(
                _route(_JOBS, "The jobs of an entity.", JobList, identifier="showJobsOfEntity"),
                self._list,
            ),
            takes(
                _route(
                    _JOBS,
                    "Start a job on the messages of a line: resubmit, move, delete or export them, "
                    "or make them dead letters.",
                    Job,
                    method="POST",
                    identifier="startJob",
                    status=HTTPStatus.CREATED,
                ),
                NewJob,
                self._begin,
            ),
            self._test_row(),
            shows(_route(_ONE, "The progress of a job.", Job), self._show),
            shows(
                _route(
                    _ONE,
                    "Forget a job that has ended.",
                    Deleted,
                    method="DELETE",
                    identifier="deleteJob",
                ),
                self._delete,
            ),
            shows(
                _route(
                    f"{_ONE}/stop",
                    "Stop a job after its present chunk.",
                    Job,
                    method="POST",
                    identifier="stopJob",
                ),
                self._stop,
            ),
            self._export_row(),
        ]

    def _export_row(self) -> Row:
        return shows(
            Route(
                f"{_ONE}/export",
                "A part of the JSON lines of a job; X-Export-Next is the position of the next "
                "part.",
                None,
                right=LISTEN,
                parameters=(
                    NAME,
                    JOB,
                    Parameter("offset", "query", "The first byte.", most=INTEGER_MAX),
                ),
                identifier="showExport",
                content_type="application/x-ndjson",
            ),
            self._export,
        )

    def _test_row(self) -> Row:
        return takes(
            _route(
                "/api/v1/entities/{name}/edit-test",
                "Show what an edit would change in some messages; nothing is changed.",
                EditTested,
                method="POST",
                identifier="testEdit",
            ),
            EditTest,
            self._test,
        )

    async def _list_all(self, call: Call[Nothing]) -> JobList:
        return JobList(jobs=await self._jobs.all(), is_complete=self._jobs.is_complete)

    async def _list(self, call: Call[Nothing]) -> JobList:
        self._places.line_of(call.name)
        return JobList(jobs=await self._jobs.all(call.name), is_complete=self._jobs.is_complete)

    async def _begin(self, call: Call[NewJob]) -> Reply:
        new = call.body
        place = (self._places.place if new.action == EXPORT else self._places.receivable)(call.name)
        destination = self._jobs.destination(place, new)
        if destination:
            # A client without the right to send must not send through a job.
            self._gate.require(call.request, SEND, destination, otherwise=MANAGE)
            only = self._places.target(destination).subscription
            if only is not None:
                # The topic and the rules of the subscription are not involved.
                self._gate.require(call.request, MANAGE, only.name)
        self._places.pay(1)
        job = await self._jobs.begin(place, new, destination)
        return Reply(HTTPStatus.CREATED, job)

    async def _test(self, call: Call[EditTest]) -> EditTested:
        place = self._places.line_of(call.name)
        edit = call.body.edit
        if not is_repair(edit):
            raise invalid("edit has neither action nor body_set: there is nothing to try.")
        check_repair(edit)
        self._places.pay(1)
        repair = Repair(edit)
        tested = EditTested(results=[])
        for number in read_numbers(call.body.numbers):
            try:
                entry = await entry_of(place, number)
            except Refused:
                continue
            trial = EditTrial(number=str(number), error="", changes=[])
            try:
                _, trial.changes = repair.mended(entry, entry.payload or b"")
            except Unrepairable as failure:
                trial.error = str(failure)
            tested.results.append(trial)
        return tested

    async def _show(self, call: Call[Nothing]) -> Job:
        return await self._jobs.show(call.name, call.job)

    async def _stop(self, call: Call[Nothing]) -> Job:
        return await self._jobs.stop(call.name, call.job)

    async def _delete(self, call: Call[Nothing]) -> Deleted:
        await self._jobs.remove(call.name, call.job)
        return Deleted(deleted=call.job)

    async def _export(self, call: Call[Nothing]) -> Written:
        offset = call.query.integer("offset", 0)
        piece, size = await self._jobs.export(call.name, call.job, offset, EXPORT_BYTES_MAX)
        headers = [
            ("X-Export-Size", str(size)),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            ("Content-Disposition", f'attachment; filename="{call.job}.jsonl"'),
        ]
        if offset + len(piece) < size:
            headers.append(("X-Export-Next", str(offset + len(piece))))
        return Written(piece, content_type=JSON_LINES, headers=headers)


def _route(
    path: str,
    summary: str,
    shape: Shape,
    *,
    method: str = "GET",
    identifier: str = "",
    status: int = 200,
) -> Route:
    return Route(
        path,
        summary,
        shape,
        method=method,
        right=LISTEN,
        otherwise=MANAGE,
        parameters=(NAME, JOB) if "{job}" in path else (NAME,),
        identifier=identifier,
        status=status,
    )
