"""Descriptions of entities to create or change, and their possible members, from one table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, defstruct

from shardbus.core.errors import Refused
from shardbus.core.message_fields import COMPARED
from shardbus.core.namespace.address import ADDRESS_CHARACTERS_MAX, NAME_CHARACTERS_MAX, path_of
from shardbus.core.namespace.description import (
    MESSAGE_KB_PREMIUM_MIN,
    STATUSES_OF,
    USER_METADATA_CHARACTERS_MAX,
    validate,
)
from shardbus.core.namespace.entity import EntitySpec
from shardbus.core.namespace.property import (
    DESTINATION,
    DURATION,
    FLAG,
    MEGABYTES,
    NUMBER,
    QUEUE,
    SUBSCRIPTION,
    TEXT,
    TOPIC,
    WORD,
    EntityProperty,
    properties_of,
)
from shardbus.core.namespace.rule_spec import FILTER_KINDS
from shardbus.core.namespace.tier import ALWAYS, CHOSEN, INFINITE_MS, NOT_OFFERED, Tier
from shardbus.gateway.http.api.entities.rules import NamedNewRule
from shardbus.gateway.http.document import INTEGER_MAX, Body, Count, Json, Maybe, one_of, told
from shardbus.gateway.http.server.refusal import invalid

KINDS: Final = (QUEUE, TOPIC, SUBSCRIPTION)
_FORMS: Final = (FLAG, NUMBER, MEGABYTES, DURATION, WORD, TEXT, DESTINATION)
_UNITS: Final = {DURATION: "ms", MEGABYTES: "MB"}
_SHORT: Final = {MEGABYTES: "size"}
_KILOBYTES: Final = "message_kb_max"
_PARTITIONING: Final = {
    CHOSEN: "",
    ALWAYS: "The tier of the namespace partitions every entity.",
    NOT_OFFERED: "The tier of the namespace partitions no entity.",
}


class SizeChoice(Struct, kw_only=True):
    size_mb: Count
    size_mb_max: Annotated[Count, told("Of an entity that is not partitioned.")]
    size_mb_max_partitioned: Annotated[
        Count, told("Of a partitioned entity: the size times the number of fragments.")
    ]


class PropertyShown(Struct, kw_only=True):
    name: Annotated[str, told("The member of a description.")]
    form: Annotated[str, one_of(*_FORMS)]
    unit: Annotated[str, told("ms, MB, KB or nothing.")]
    least: Annotated[Count | None, told("The least value of a number.")]
    most: Annotated[Count | None, told("The greatest value; null means no bound.")]
    default: Annotated[Json, told("The value if none is given; null means for ever, or none.")]
    is_fixed: Annotated[bool, told("Whether it can be set only at creation.")]
    choices: Annotated[list[Json], told("All possible values, if they are few.")]
    label: str
    option: Annotated[str, told("The option of the command line, without its dashes.")]
    element: Annotated[str, told("The name in the management dialect.")]
    help: str
    tier_reason: Annotated[
        str, told("Why the tier of the namespace does not let it be chosen; else empty.")
    ]


class PropertiesOfKinds(Struct, kw_only=True):
    queue: list[PropertyShown]
    topic: list[PropertyShown]
    subscription: list[PropertyShown]


class EntityForms(Struct, kw_only=True):
    tier: Annotated[str, one_of("basic", "standard", "premium")]
    generation: str
    has_topics: bool
    partitioning: Annotated[
        str,
        one_of(CHOSEN, ALWAYS, NOT_OFFERED),
        told("Whether entities are partitioned: by choice, always, or never."),
    ]
    partitioning_reason: Annotated[str, told("Why it cannot be chosen; else empty.")]
    is_partitioned_by_default: bool
    fragments_when_partitioned: Count
    sizes: list[SizeChoice]
    kinds: PropertiesOfKinds
    filter_kinds: list[str]
    correlation_fields: Annotated[
        list[str], told("Message fields that correlation filters can compare.")
    ]


def settable_of(kind: str) -> list[EntityProperty]:
    """The properties that a description in JSON may have."""
    return [each for each in properties_of(kind) if each.option or not each.is_hidden]


def _shape(kind: str, each: EntityProperty) -> object:
    text = each.note or each.help
    if each.form == FLAG:
        return Annotated[bool, told(text)]
    if each.form == DURATION:
        duration = Annotated[int, Meta(ge=each.low, le=each.high)]
        if each.high != INFINITE_MS:
            return Annotated[duration, told(f"{text} Milliseconds.")]
        return Annotated[duration | None, told(f"{text} Milliseconds; null means for ever.")]
    if each.form in (NUMBER, MEGABYTES):
        bounds = Meta(ge=each.low or 1, le=each.high or INTEGER_MAX)
        return Annotated[int, bounds, told(text)]
    if each.form == WORD:
        return Annotated[Literal[STATUSES_OF[kind]], told(text)]
    most = ADDRESS_CHARACTERS_MAX if each.form == DESTINATION else USER_METADATA_CHARACTERS_MAX
    return Annotated[Annotated[str, Meta(max_length=most)] | None, told(f"{text} Null clears it.")]


def _form(name: str, kind: str, more: list[tuple[str, object, object]]) -> type[Struct]:
    members = [(each.name, Maybe[_shape(kind, each)], UNSET) for each in settable_of(kind)]  # type: ignore[misc]  # known when it runs
    return defstruct(
        name,
        [*members, *more],
        bases=(Body,),
        module=__name__,
        kw_only=True,
        frozen=True,
        forbid_unknown_fields=True,
    )


if TYPE_CHECKING:
    QueueForm: TypeAlias = Body
    TopicForm: TypeAlias = Body
    SubscriptionForm: TypeAlias = Body

    class NewSubscriptionForm(Body, kw_only=True, frozen=True):
        default_rule: Maybe[NamedNewRule] = UNSET

else:
    QueueForm = _form("QueueForm", QUEUE, [])
    TopicForm = _form("TopicForm", TOPIC, [])
    SubscriptionForm = _form("SubscriptionForm", SUBSCRIPTION, [])
    _RULE = Annotated[
        Maybe[NamedNewRule], told("The first rule; by default it matches every message.")
    ]
    NewSubscriptionForm = _form(
        "NewSubscriptionForm", SUBSCRIPTION, [("default_rule", _RULE, UNSET)]
    )


def fill(kind: str, spec: EntitySpec, form: Body) -> None:
    """Set the members of a form on a spec; other members of the spec do not change."""
    for each in settable_of(kind):
        value: object = getattr(form, each.name)
        if value is UNSET:
            continue
        if each.form == DESTINATION:
            _put_destination(each, spec, value)
        elif each.form == DURATION:
            each.put(spec, INFINITE_MS if value is None else _whole(value))
        elif each.form == TEXT:
            each.put(spec, "" if value is None else str(value))
        else:
            assert isinstance(value, int | str)
            each.put(spec, value)


def says(form: Body, name: str) -> bool:
    """Whether a form has this member."""
    return getattr(form, name) is not UNSET


def _put_destination(each: EntityProperty, spec: EntitySpec, value: object) -> None:
    text = "" if value is None else str(value).strip()
    path = path_of(text)
    if len(path) > NAME_CHARACTERS_MAX:
        raise invalid(
            f"{each.name} names an entity with more than {NAME_CHARACTERS_MAX} characters."
        )
    each.put(spec, path)
    each.put_written(spec, text if path and "://" in text else "")


def _whole(value: object) -> int:
    assert isinstance(value, int)
    return value


# Possible members.


def forms_document(tier: Tier, spec: EntitySpec) -> EntityForms:
    """The possible members of descriptions in a namespace of a tier; `spec` has the defaults."""
    count = tier.fragments_when_partitioned
    only = 1 if tier.partitioning != ALWAYS else count
    return EntityForms(
        tier=tier.name,
        generation=tier.generation,
        has_topics=not tier.is_basic,
        partitioning=tier.partitioning,
        partitioning_reason=_PARTITIONING[tier.partitioning],
        is_partitioned_by_default=tier.is_partitioned(spec.is_partitioned),
        fragments_when_partitioned=count,
        sizes=[
            SizeChoice(size_mb=size, size_mb_max=size * only, size_mb_max_partitioned=size * count)
            for size in tier.sizes_mb
        ],
        kinds=PropertiesOfKinds(
            **{
                kind: [_property(kind, each, tier, spec) for each in settable_of(kind)]
                for kind in KINDS
            }
        ),
        filter_kinds=list(FILTER_KINDS),
        correlation_fields=[each.dialect for each in COMPARED],
    )


def _property(kind: str, each: EntityProperty, tier: Tier, spec: EntitySpec) -> PropertyShown:
    least, most = _range(each, tier)
    return PropertyShown(
        name=each.name,
        form=each.form,
        unit="KB" if each.name == _KILOBYTES else _UNITS.get(each.form, ""),
        least=least,
        most=most,
        default=_default(each, tier, spec),
        is_fixed=each.is_fixed,
        choices=_choices(kind, each, tier),
        label=each.label or _SHORT.get(each.form) or each.option.replace("-", " ") or each.name,
        option=each.option,
        element=each.element,
        help=each.help,
        tier_reason=_tier_reason(kind, each, tier, spec),
    )


def _range(each: EntityProperty, tier: Tier) -> tuple[int | None, int | None]:
    if each.name == _KILOBYTES:
        least = MESSAGE_KB_PREMIUM_MIN if tier.is_premium else tier.message_kb_default
        return least, tier.message_kb_max
    if not each.high:
        return None, None
    most = min(each.high, tier.ttl_ms_max) if each.name == "default_ttl_ms" else each.high
    return each.low, None if most == INFINITE_MS else most


def _default(each: EntityProperty, tier: Tier, spec: EntitySpec) -> int | str | None:
    if each.name == "is_partitioned":
        return tier.is_partitioned(spec.is_partitioned)
    if each.form == DURATION:
        duration_ms = each.integer(spec)
        return None if duration_ms >= INFINITE_MS else duration_ms
    if each.form == DESTINATION:
        return each.text(spec) or None
    return each.value(spec)


def _choices(kind: str, each: EntityProperty, tier: Tier) -> list[object]:
    if each.form == MEGABYTES:
        return list(tier.sizes_mb)
    return list(STATUSES_OF[kind]) if each.form == WORD else []


def _tier_reason(kind: str, each: EntityProperty, tier: Tier, spec: EntitySpec) -> str:
    """Why values other than the default are refused, determined by trying one."""
    if each.name == "is_partitioned":
        return _PARTITIONING[tier.partitioning]
    tried = spec.copy()
    if each.form == FLAG:
        each.put(tried, not each.integer(spec))
    elif each.form == NUMBER:
        each.put(tried, each.integer(spec) + 1)
    elif each.form == DESTINATION:
        each.put(tried, "another")
    try:
        validate(kind if kind == QUEUE or not tier.is_basic else QUEUE, tried, tier)
    except Refused as refusal:
        return refusal.message
    return ""
