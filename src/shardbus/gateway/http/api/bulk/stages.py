"""Stages and publishing in the JSON API, for the sinks of the bulk lane.

A stage is put in pieces, which are AMQP batches. It is invisible until it is published, together
with all other stages of its batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final, TypeVar, final

from msgspec import Meta, Struct

from shardbus.broker.operations.staging import EntityStages
from shardbus.codec.errors import DecodeError
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
from shardbus.core.namespace.access import MANAGE, SEND
from shardbus.core.namespace.entity import Entity
from shardbus.gateway.http.api.bulk.piece_parts import PARTS_MAX, PieceParts
from shardbus.gateway.http.api.call import Call, Nothing, Row, shows, takes
from shardbus.gateway.http.api.places import EntityPlaces, SendPlace
from shardbus.gateway.http.api.route import NAME, Parameter, Route
from shardbus.gateway.http.document import Body, Count, Positive, Shape, Text, told
from shardbus.gateway.http.server.gate import Gate
from shardbus.gateway.http.server.refusal import invalid

PIECE_MAX: Final = 1_000_000
PAST_MAX: Final = 10_000
_NUMBER_BYTES: Final = 8

P = TypeVar("P", bound=Struct)

ReadBatch = Callable[[bytes, int, int, str], list[Message]]
"""Reads a batch received at a moment, with messages up to the entity's maximum size; Refused or
DecodeError.
"""

_ENTITY: Final = "/api/v1/entities/{name}"
_STAGE: Final = Parameter("rule", "path", "The stage: a name that is unique to this attempt.")
_Producer = Annotated[
    str,
    Meta(min_length=1, max_length=PRODUCER_NAME_CHARACTERS_MAX, examples=["nightly-import"]),
]


class StagedPiece(Struct, kw_only=True):
    stage: str
    piece: Count
    count: Count
    fragments: Annotated[
        Count,
        told("The fragments of the entity: pieces whose keys fall into few of them are cheaper."),
    ]


class ChosenStage(Body, kw_only=True, frozen=True):
    stage: Annotated[
        str, Meta(min_length=1, max_length=STAGE_NAME_CHARACTERS_MAX, examples=["reader"])
    ]
    count: Annotated[
        Count, Meta(description="How many messages the stage must have.", examples=[1])
    ]


class Publication(Body, kw_only=True, frozen=True):
    producer: _Producer
    batch: Annotated[
        Positive,
        Meta(description="Ascending; a batch that was published before is skipped.", examples=[1]),
    ]
    stages: Annotated[list[ChosenStage], Meta(max_length=STAGES_MAX)]
    fingerprint: Annotated[
        str,
        Meta(
            max_length=FINGERPRINT_CHARACTERS_MAX,
            description="The fingerprint of the rows: with it, different rows under a published "
            "number are refused; without it they are skipped.",
            examples=["1:8f14e45fceea167a5a36dedd4bea2543"],
        ),
    ] = ""
    once: Annotated[
        bool,
        told(
            "True: the producer has no other batch. The bus forgets it on request, or after an "
            "hour."
        ),
    ] = False


class Published(Struct, kw_only=True):
    is_new: Annotated[bool, told("False: the batch was published before.")]
    count: Count


class DoneProducer(Body, kw_only=True, frozen=True):
    producer: _Producer


class ForgottenProducer(Struct, kw_only=True):
    producer: str


class NamedStages(Body, kw_only=True, frozen=True):
    stages: Annotated[
        list[
            Annotated[
                Text,
                told("A name that ends in a slash selects all stages whose names begin with it."),
            ]
        ],
        Meta(max_length=STAGES_MAX, examples=[["reader"]]),
    ]


class StagesTold(Struct, kw_only=True):
    stages: Count


@final
class StagePages:
    """A Group of the API: stage, publish, discard."""

    def __init__(self, places: EntityPlaces, read_batch: ReadBatch) -> None:
        self._places = places
        self._gate = Gate(places.bus.namespace, places.bus.authorizer)
        self._read_batch = read_batch
        self._parts = PieceParts(places.bus.clock.steady_ms)

    def rows(self) -> list[Row]:
        pieces = (
            NAME,
            _STAGE,
            Parameter(
                "piece",
                "query",
                "The number of the piece; a repeated piece is stored once.",
                most=PIECE_MAX,
            ),
            Parameter("lifetime_ms", "query", "How long the stage is kept.", most=STAGE_MS_MAX),
            Parameter(
                "parts",
                "query",
                "For a message too large for a request: the number of parts.",
                most=PARTS_MAX,
            ),
            Parameter("part", "query", "The index of this part, from 0.", most=PARTS_MAX),
            Parameter(
                "past",
                "query",
                "For a subscription: the topic published this many messages before; their sequence "
                "numbers, of 8 bytes each, precede the batch, and its rules decide about them.",
                most=PAST_MAX,
            ),
        )
        return [
            shows(
                Route(
                    f"{_ENTITY}/stages/{{rule}}",
                    "Store messages, an AMQP batch, durably without publishing them.",
                    StagedPiece,
                    method="PUT",
                    takes_bytes=True,
                    right=SEND,
                    otherwise=MANAGE,
                    parameters=pieces,
                    identifier="stageMessages",
                ),
                self._stage,
            ),
            takes(
                _posted("publish", Published, "Publish stages: make their messages visible."),
                Publication,
                self._publish,
            ),
            takes(
                _posted("forget", ForgottenProducer, "Forget a producer that published once."),
                DoneProducer,
                self._forget,
            ),
            takes(_posted("discard", StagesTold, "Forget stages."), NamedStages, self._discard),
            takes(
                _posted("prolong", StagesTold, "Restart the lifetime of stages."),
                NamedStages,
                self._prolong,
            ),
        ]

    async def _stage(self, call: Call[Nothing]) -> StagedPiece:
        target = self._target(call)
        handle = target.handle
        piece = call.query.integer("piece", 0, PIECE_MAX)
        lifetime_ms = call.query.integer(
            "lifetime_ms", STAGE_MS_DEFAULT, STAGE_MS_MAX, least=STAGE_MS_MIN
        )
        now_ms = self._places.bus.clock.now_ms()
        fragments = handle.router.present_count
        content = self._whole(call, target, piece)
        if content is None:
            return StagedPiece(stage=call.rule, piece=piece, count=0, fragments=fragments)
        past = call.query.integer("past", 0, PAST_MAX)
        numbers = _past_numbers(content, past)
        messages = self._read(content[past * _NUMBER_BYTES :], now_ms, handle.entity)
        if numbers and (target.subscription is None or len(numbers) != len(messages)):
            raise invalid(
                "past is for a subscription, and must be the number of messages in the body: "
                f"it is {past}, and the body has {len(messages)}."
            )
        for position, message in enumerate(messages):
            target.address(message, numbers[position] if numbers else 0)
        self._places.pay(len(messages))
        await _staging(target).stage(call.rule, piece, messages, lifetime_ms=lifetime_ms)
        return StagedPiece(stage=call.rule, piece=piece, count=len(messages), fragments=fragments)

    def _whole(self, call: Call[Nothing], target: SendPlace, piece: int) -> bytes | None:
        """The piece; None while parts of it are missing."""
        parts = call.query.integer("parts", 1, PARTS_MAX, least=1)
        part = call.query.integer("part", 0, PARTS_MAX)
        if parts == 1:
            return call.request.body
        entity = target.handle.entity
        key = _client_of(call), (target.subscription or entity).entity_id, call.rule, piece
        size_max = entity.spec.message_kb_max * 1024
        return self._parts.add(key, part, parts, call.request.body, size_max)

    def _read(self, body: bytes, now_ms: int, entity: Entity) -> list[Message]:
        size_max = entity.spec.message_kb_max * 1024
        try:
            return self._read_batch(body, now_ms, size_max, entity.name)
        except DecodeError as error:
            raise Refused(
                INVALID_ARGUMENT, f"The body is not a batch of messages: {error}."
            ) from error

    def _target(self, call: Call[P]) -> SendPlace:
        """The entity that keeps the stages; for a subscription its topic."""
        target = self._places.target(call.name)
        if target.subscription is not None:
            # The rules and other subscriptions of the topic do not apply.
            self._gate.require(call.request, MANAGE, target.name)
        return target

    async def _publish(self, call: Call[Publication]) -> Published:
        staging, body = _staging(self._target(call)), call.body
        chosen = {one.stage: one.count for one in body.stages}
        is_new = await staging.publish(
            body.producer, body.batch, chosen, fingerprint=body.fingerprint, is_once=body.once
        )
        return Published(is_new=is_new, count=sum(chosen.values()) if is_new else 0)

    async def _forget(self, call: Call[DoneProducer]) -> ForgottenProducer:
        await _staging(self._target(call)).forget(call.body.producer)
        return ForgottenProducer(producer=call.body.producer)

    async def _discard(self, call: Call[NamedStages]) -> StagesTold:
        await _staging(self._target(call)).discard(call.body.stages)
        return StagesTold(stages=len(call.body.stages))

    async def _prolong(self, call: Call[NamedStages]) -> StagesTold:
        await _staging(self._target(call)).prolong(call.body.stages)
        return StagesTold(stages=len(call.body.stages))


def _staging(target: SendPlace) -> EntityStages:
    staging, only = target.handle.staging, target.subscription
    return staging if only is None else staging.of_subscription(only.entity_id)


def _past_numbers(content: bytes, count: int) -> list[int]:
    if len(content) < count * _NUMBER_BYTES:
        raise invalid(
            f"The body is too short for the {count} sequence numbers of past: begin it with "
            f"{_NUMBER_BYTES} bytes for each."
        )
    return [
        int.from_bytes(content[at : at + _NUMBER_BYTES], "big")
        for at in range(0, count * _NUMBER_BYTES, _NUMBER_BYTES)
    ]


def _client_of(call: Call[Nothing]) -> str:
    """The access rule that signed the token; all clients with its tokens count as one."""
    grant = call.request.grant
    assert grant is not None, "the route must need a right"
    return f"{grant.owner}/{grant.signer.name}"


def _posted(path: str, shape: Shape, summary: str) -> Route:
    return Route(
        f"{_ENTITY}/stages/{path}",
        summary,
        shape,
        method="POST",
        right=SEND,
        otherwise=MANAGE,
        parameters=(NAME,),
        identifier=f"{path}Stages",
    )
