"""Stages and publishing in the JSON API: what the bulk lane asks for a sink.

A stage is put in pieces, which are AMQP batches as clients send them. Nothing of it can be seen
until it is published, together with all other stages of its batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from shardbus.amqp.errors import DecodeError
from shardbus.core.access import MANAGE, SEND
from shardbus.core.entity import Entity
from shardbus.core.errors import INVALID_ARGUMENT, Refused
from shardbus.core.limits import (
    FINGERPRINT_CHARACTERS_MAX,
    PRODUCER_NAME_CHARACTERS_MAX,
    STAGE_MS_DEFAULT,
    STAGE_MS_MAX,
    STAGE_MS_MIN,
    STAGE_NAME_CHARACTERS_MAX,
    STAGES_MAX,
)
from shardbus.core.message import Message
from shardbus.gateway.http.api_call import Answer, Call
from shardbus.gateway.http.api_places import Places
from shardbus.gateway.http.api_route import NAME, Parameter, Route
from shardbus.gateway.http.documents_schema import (
    COUNT,
    FLAG,
    TEXT,
    Document,
    Schema,
    body_of,
    described,
    list_of,
    object_of,
    reference,
)
from shardbus.gateway.http.piece_parts import PARTS_MAX, PieceParts

PIECE_MAX: Final = 1_000_000

ReadBatch = Callable[[bytes, int, int, str], list[Message]]
"""What the bus reads from a batch at a moment, of messages up to the size that an entity takes;
Refused or DecodeError.
"""

_ENTITY: Final = "/api/v1/entities/{name}"
_STAGE: Final = Parameter("rule", "path", "The stage: a name that only this attempt has.")
_SCHEMAS: Final[dict[str, Schema]] = {
    "StagedPiece": object_of(
        {
            "stage": TEXT,
            "piece": COUNT,
            "count": COUNT,
            "fragments": described(
                COUNT, "Of the entity: pieces whose keys fall into few of them are cheaper."
            ),
        }
    ),
    "ChosenStage": body_of(
        {
            "stage": {"type": "string", "minLength": 1, "maxLength": STAGE_NAME_CHARACTERS_MAX},
            "count": described(COUNT, "How many messages it must have."),
        },
        ("stage", "count"),
    ),
    "Publication": body_of(
        {
            "producer": {
                "type": "string",
                "minLength": 1,
                "maxLength": PRODUCER_NAME_CHARACTERS_MAX,
            },
            "batch": described(
                {"type": "integer", "minimum": 1}, "Rises; one that was published is passed over."
            ),
            "stages": list_of(reference("ChosenStage")),
            "fingerprint": described(
                {"type": "string", "maxLength": FINGERPRINT_CHARACTERS_MAX},
                "What the rows are known by: other rows under a number that was published are "
                "refused. Without, they are passed over.",
            ),
            "once": described(
                FLAG,
                "True: the producer has no other batch. It is forgotten when asked to, or after an "
                "hour.",
            ),
        },
        ("producer", "batch", "stages"),
    ),
    "Published": object_of(
        {"is_new": described(FLAG, "False: the batch was published before."), "count": COUNT}
    ),
    "DoneProducer": body_of(
        {
            "producer": {
                "type": "string",
                "minLength": 1,
                "maxLength": PRODUCER_NAME_CHARACTERS_MAX,
            }
        },
        ("producer",),
    ),
    "ForgottenProducer": object_of({"producer": TEXT}),
    "NamedStages": body_of(
        {
            "stages": list_of(
                described(TEXT, "A name that ends in a slash is all stages that begin so.")
            )
        },
        ("stages",),
    ),
    "StagesTold": object_of({"stages": COUNT}),
}


@final
class StagePages:
    """A Group of the API: stage, publish, discard."""

    def __init__(self, places: Places, read_batch: ReadBatch) -> None:
        self._places = places
        self._read_batch = read_batch
        self._parts = PieceParts(places.bus.clock.steady_ms)

    def schemas(self) -> dict[str, Schema]:
        return _SCHEMAS

    def routes(self) -> list[tuple[Route, Answer]]:
        pieces = (
            NAME,
            _STAGE,
            Parameter(
                "piece", "query", "Its number; the same one again is put once.", most=PIECE_MAX
            ),
            Parameter("lifetime_ms", "query", "How long it is kept.", most=STAGE_MS_MAX),
            Parameter(
                "parts", "query", "Of a message too large for a request: how many.", most=PARTS_MAX
            ),
            Parameter("part", "query", "Which of them this is, from 0 on.", most=PARTS_MAX),
        )
        return [
            (
                Route(
                    f"{_ENTITY}/stages/{{rule}}",
                    "Keep messages, an AMQP batch, durably and out of sight.",
                    "StagedPiece",
                    method="PUT",
                    takes_bytes=True,
                    right=SEND,
                    otherwise=MANAGE,
                    parameters=pieces,
                    identifier="stageMessages",
                ),
                self._stage,
            ),
            (_posted("publish", "Publication", "Published", "Make stages visible."), self._publish),
            (
                _posted(
                    "forget",
                    "DoneProducer",
                    "ForgottenProducer",
                    "Forget a producer that published once.",
                ),
                self._forget,
            ),
            (_posted("discard", "NamedStages", "StagesTold", "Forget stages."), self._discard),
            (
                _posted(
                    "prolong", "NamedStages", "StagesTold", "Keep stages for their time again."
                ),
                self._prolong,
            ),
        ]

    async def _stage(self, call: Call) -> Document:
        handle = self._places.sendable(call.name)
        piece = call.query.integer("piece", 0, PIECE_MAX)
        lifetime_ms = call.query.integer(
            "lifetime_ms", STAGE_MS_DEFAULT, STAGE_MS_MAX, least=STAGE_MS_MIN
        )
        now_ms = self._places.bus.clock.now_ms()
        fragments = len(handle.router.ports)
        content = self._whole(call, handle.entity, piece)
        if content is None:
            return {"stage": call.rule, "piece": piece, "count": 0, "fragments": fragments}
        messages = self._read(content, now_ms, handle.entity)
        self._places.pay(len(messages))
        await handle.staging.stage(call.rule, piece, messages, lifetime_ms=lifetime_ms)
        return {"stage": call.rule, "piece": piece, "count": len(messages), "fragments": fragments}

    def _whole(self, call: Call, entity: Entity, piece: int) -> bytes | None:
        """The piece; None while parts of it are to come."""
        parts = call.query.integer("parts", 1, PARTS_MAX, least=1)
        part = call.query.integer("part", 0, PARTS_MAX)
        if parts == 1:
            return call.request.body
        key = _client_of(call), entity.entity_id, call.rule, piece
        size_max = entity.spec.message_kb_max * 1024
        return self._parts.add(key, part, parts, call.request.body, size_max)

    def _read(self, body: bytes, now_ms: int, entity: Entity) -> list[Message]:
        size_max = entity.spec.message_kb_max * 1024
        try:
            return self._read_batch(body, now_ms, size_max, entity.name)
        except DecodeError as error:
            raise Refused(
                INVALID_ARGUMENT, f"The body is no batch of messages: {error}."
            ) from error

    async def _publish(self, call: Call) -> Document:
        handle = self._places.sendable(call.name)
        producer = call.body.text("producer", most=PRODUCER_NAME_CHARACTERS_MAX)
        batch = call.body.integer("batch", least=1)
        chosen = {
            one.text("stage", most=STAGE_NAME_CHARACTERS_MAX): one.integer("count")
            for one in call.body.objects("stages", ("stage", "count"), most=STAGES_MAX)
        }
        fingerprint = call.body.text("fingerprint", "", most=FINGERPRINT_CHARACTERS_MAX)
        is_once = call.body.flag("once", False)
        is_new = await handle.staging.publish(
            producer, batch, chosen, fingerprint=fingerprint, is_once=is_once
        )
        return {"is_new": is_new, "count": sum(chosen.values()) if is_new else 0}

    async def _forget(self, call: Call) -> Document:
        handle = self._places.sendable(call.name)
        producer = call.body.text("producer", most=PRODUCER_NAME_CHARACTERS_MAX)
        await handle.staging.forget(producer)
        return {"producer": producer}

    async def _discard(self, call: Call) -> Document:
        handle = self._places.sendable(call.name)
        stages = call.body.texts("stages", most=STAGES_MAX)
        await handle.staging.discard(stages)
        return {"stages": len(stages)}

    async def _prolong(self, call: Call) -> Document:
        handle = self._places.sendable(call.name)
        stages = call.body.texts("stages", most=STAGES_MAX)
        await handle.staging.prolong(stages)
        return {"stages": len(stages)}


def _client_of(call: Call) -> str:
    """The access rule that signed the token, as whose all that show such tokens count."""
    grant = call.request.grant
    assert grant is not None, "the route needs a right"
    return f"{grant.owner}/{grant.signer.rule_name}"


def _posted(path: str, body: str, schema: str, summary: str) -> Route:
    return Route(
        f"{_ENTITY}/stages/{path}",
        summary,
        schema,
        method="POST",
        body=body,
        right=SEND,
        otherwise=MANAGE,
        parameters=(NAME,),
        identifier=f"{path}Stages",
    )
