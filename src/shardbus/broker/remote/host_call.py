"""A broker's rare operations as documents: questions of a gateway, answers of the broker."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, final

from shardbus.broker.namespace.host import FragmentHost, FragmentStatistics
from shardbus.broker.remote.topic_call import TopicHearer
from shardbus.broker.survey import FragmentRow, Survey
from shardbus.core.document import Fields
from shardbus.core.errors import INVALID_ARGUMENT, Refused
from shardbus.core.namespace.entity import Entity, entity_from_json
from shardbus.core.readers.record import ReaderStanding
from shardbus.stores.base.store import FragmentId

JOIN: Final = "join"
CREATE: Final = "create-fragments"
UPDATE: Final = "update-fragments"
DELETE: Final = "delete-fragments"
LIST: Final = "fragment-ids"
COUNT: Final = "statistics"
DOUBT: Final = "in-doubt"
TRANSFER: Final = "transferring"
LOSS: Final = "loss"
SURVEY: Final = "survey"


def join_question(namespace_id: str, *, is_empty_expected: bool) -> str:
    fields: dict[str, object] = {
        "namespace_id": namespace_id,
        "is_empty_expected": is_empty_expected,
    }
    return _document(JOIN, fields)


def create_question(entity: Entity, numbers: Sequence[int]) -> str:
    return _document(CREATE, {"entity": bare_json(entity), "numbers": list(numbers)})


def update_question(entity: Entity, numbers: Sequence[int]) -> str:
    return _document(UPDATE, {"entity": bare_json(entity), "numbers": list(numbers)})


def delete_question(entity_id: int, numbers: Sequence[int]) -> str:
    return _document(DELETE, {"entity_id": entity_id, "numbers": list(numbers)})


def list_question(*, is_timed: bool = False) -> str:
    return _document(LIST, {"is_timed": is_timed})


def doubt_question() -> str:
    return _document(DOUBT, {})


def transfer_question() -> str:
    return _document(TRANSFER, {})


def loss_question() -> str:
    return _document(LOSS, {})


def survey_question(since: int) -> str:
    return _document(SURVEY, {"since": since})


def count_question(entity_id: int, numbers: Sequence[int]) -> str:
    return _document(COUNT, {"entity_id": entity_id, "numbers": list(numbers)})


def bare_json(entity: Entity) -> str:
    """The document of an entity without rules, which a runner of a fragment does not need."""
    return entity.without_rules().to_json()


def read_joined(answer: str) -> list[int]:
    """The answer to `join_question`, as a list of one; ValueError when it is invalid."""
    return [Fields(json.loads(answer), "answer").integer("highest_entity_id")]


def read_ids(answer: str) -> list[FragmentId]:
    """The answer to a question for fragments; ValueError when it is invalid."""
    flat = Fields(json.loads(answer), "list of fragments").integers("fragments")
    return [FragmentId(flat[at], flat[at + 1]) for at in range(0, len(flat) - 1, 2)]


def read_loss(answer: str) -> list[str]:
    """The answer to `loss_question`, as a list of one; ValueError when it is invalid."""
    return [Fields(json.loads(answer), "answer").text("loss")]


def read_survey(answer: str) -> Survey:
    """The answer to `survey_question`; ValueError when it is invalid."""
    fields = Fields(json.loads(answer), "survey")
    rows = [_read_row(row) for row in fields.values("rows")]
    is_new, is_complete = fields.boolean("is_new"), fields.boolean("is_complete")
    return Survey(fields.integer("version"), rows, is_new=is_new, is_complete=is_complete)


def read_statistics(answer: str) -> list[FragmentStatistics]:
    """The answer to `count_question`; ValueError when it is invalid."""
    parts = Fields(json.loads(answer), "statistics").values("fragments")
    return [_read_part(Fields(part, "fragment")) for part in parts]


@final
class HostCalls:
    """Answers these questions for one broker."""

    def __init__(self, host: FragmentHost) -> None:
        self._host = host
        self._topics = TopicHearer(host)

    def end_turns(self, last: int) -> None:
        """See `topic_call.TopicHearer`."""
        self._topics.end_turns(last)

    async def answer(self, do: str, fields: Fields) -> str | None:
        """The document to answer with; None when the question is not about fragments.

        Raises ValueError for a damaged question, and what the broker raises.
        """
        if do == JOIN:
            is_empty_expected = fields.boolean("is_empty_expected")
            highest = await self._host.join(
                fields.text("namespace_id"), is_empty_expected=is_empty_expected
            )
            return json.dumps({"highest_entity_id": highest})
        if do == CREATE:
            await self._host.create_fragments(_entity(fields), fields.integers("numbers"))
            return "{}"
        if do == UPDATE:
            await self._host.update_fragments(_entity(fields), fields.integers("numbers"))
            return "{}"
        if do == DELETE:
            entity_id, numbers = fields.integer("entity_id"), fields.integers("numbers")
            await self._host.delete_fragments(entity_id, numbers)
            self._topics.forget(entity_id)
            return "{}"
        if do == LIST:
            ids = await self._host.fragment_ids(is_timed=fields.boolean("is_timed"))
            return json.dumps({"fragments": [part for fragment in ids for part in fragment]})
        if do == DOUBT:
            ids = await self._host.in_doubt()
            return json.dumps({"fragments": [part for fragment in ids for part in fragment]})
        if do == TRANSFER:
            ids = await self._host.transferring()
            return json.dumps({"fragments": [part for fragment in ids for part in fragment]})
        if do == LOSS:
            return json.dumps({"loss": await self._host.loss()})
        if do == COUNT:
            numbers = fields.integers("numbers")
            found = await self._host.statistics(fields.integer("entity_id"), numbers)
            return json.dumps({"fragments": [_part(part) for part in found]})
        if do == SURVEY:
            return _survey(await self._host.survey(fields.integer("since")))
        return await self._topics.answer(do, fields)


def read_question(document: str) -> tuple[str, Fields]:
    """The kind of a question and its fields; Refused when the document is not a question."""
    try:
        fields = Fields(json.loads(document), "question")
        return fields.text("do"), fields
    except (ValueError, RecursionError) as error:
        raise Refused(INVALID_ARGUMENT, f"The question cannot be read: {error}") from error


def _document(do: str, fields: dict[str, object]) -> str:
    return json.dumps({"do": do, **fields}, separators=(",", ":"))


def _entity(fields: Fields) -> Entity:
    return entity_from_json(fields.text("entity"))


def _survey(survey: Survey) -> str:
    document = {
        "version": survey.version,
        "rows": survey.rows,
        "is_new": survey.is_new,
        "is_complete": survey.is_complete,
    }
    return json.dumps(document, separators=(",", ":"))


def _read_row(value: object) -> FragmentRow:
    values: list[object] = value if isinstance(value, list) else []
    numbers = [each for each in values[:-1] if isinstance(each, int)]
    reason = values[-1] if values else None
    if len(numbers) != len(FragmentRow._fields) - 1 or not isinstance(reason, str):
        raise ValueError("a row of the survey does not have the fields of a fragment")
    return FragmentRow._make([*numbers, reason])


def _part(part: FragmentStatistics) -> dict[str, object]:
    return {
        "number": part.number,
        "counts": part.counts,
        "deferred": part.deferred_count,
        "scheduled": part.scheduled_count,
        "set_aside": part.set_aside_count,
        "claimed": part.claimed_count,
        "readers": [_standing(one) for one in part.readers],
        "sent_total": part.sent_total,
        "duplicates": part.duplicate_count,
        "states": part.state_count,
        "last_used_ms": part.last_used_ms,
        "unused_ms": part.unused_ms,
        "is_counted": part.is_counted,
        "is_missing": part.is_missing,
        "size_bytes": part.size_bytes,
        "state": part.state,
        "reason": part.reason,
    }


def _standing(one: ReaderStanding) -> dict[str, object]:
    return {"line": one.line, "name": one.name, "waiting": one.waiting, "claimed": one.claimed}


def _read_standing(fields: Fields) -> ReaderStanding:
    return ReaderStanding(
        fields.integer("line"),
        fields.text("name"),
        fields.integer("waiting"),
        fields.integer("claimed"),
    )


def _read_part(fields: Fields) -> FragmentStatistics:
    counts = fields.integers("counts")
    if len(counts) != 3:
        raise ValueError("a fragment does not have exactly three lines")
    part = FragmentStatistics(
        fields.integer("number"),
        counts,
        fields.integer("size_bytes"),
        fields.text("state"),
        fields.text("reason"),
    )
    part.deferred_count = fields.integer("deferred")
    part.scheduled_count = fields.integer("scheduled")
    part.set_aside_count = fields.integer("set_aside")
    part.claimed_count = fields.integer("claimed")
    part.readers = [_read_standing(Fields(one, "reader")) for one in fields.values("readers")]
    part.sent_total = fields.integer("sent_total")
    part.duplicate_count = fields.integer("duplicates")
    part.state_count = fields.integer("states")
    part.last_used_ms = fields.integer("last_used_ms")
    part.unused_ms = fields.integer("unused_ms")
    part.is_counted = fields.boolean("is_counted")
    part.is_missing = fields.boolean("is_missing")
    return part
