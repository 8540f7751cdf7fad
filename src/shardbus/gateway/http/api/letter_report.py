"""The report of a triage in the JSON API: dead letters in groups (P7)."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import UNSET, Struct

from shardbus.gateway.http.document import Count, Maybe, told

GROUPS_MAX: Final = 500

_At = Annotated[str, told("A moment in UTC; empty without letters.")]


class LetterSample(Struct, kw_only=True):
    sequence_number: int
    enqueued_at: _At
    delivery_count: int
    message_id: str
    excerpt: Annotated[str, told("The beginning of the body, in one line of visible characters.")]


class LetterGroup(Struct, kw_only=True):
    entity: str
    id: Annotated[str, told("The same in every report on letters that have these in common.")]
    reason: str
    source: str
    subject: str
    description: Annotated[str, told("Without numbers, ids, moments and quoted texts.")]
    shape: Annotated[str, told("The kind of content: for JSON the paths of its keys with types.")]
    count: Count
    first_at: _At
    last_at: _At
    samples: Annotated[list[LetterSample], told("The oldest, the newest and another letter.")]
    over_time: Annotated[list[int], told("How many letters of the group each step has.")]


class PipelineReport(Struct, kw_only=True):
    """Before the first report its name is empty."""

    version: int = 1
    entities: list[str] = []
    made_at: _At = ""
    letters: Count = 0
    group_count: Count = 0
    first_at: _At = ""
    last_at: _At = ""
    step_s: Annotated[Count, told("The duration of a step.")] = 0
    steps: Annotated[list[str], told("The moments at which steps begin.")] = []
    over_time: Annotated[list[int], told("How many letters each step has.")] = []
    groups: Annotated[list[LetterGroup], told("The largest groups, the largest first.")] = []
    name: Annotated[
        str,
        told("The directory of the report below that of the pipeline; empty before the first."),
    ] = ""
    location: Annotated[
        str, told("This directory on the machine of the bus, for `shardbus triage --from`.")
    ] = ""
    earlier: Annotated[list[str], told("The directories of earlier reports, newest first.")] = []
    page: Annotated[Maybe[str], told("The report as a page of HTML, without scripts.")] = UNSET
