"""Every property of queues, topics and subscriptions, in one table.

The catalogue's record, ranges and what is fixed at creation, ATOM elements, JSON documents and
their schema, options of the command line and the keys of set-up files are derived from it. The
values are typed attributes of `entity.QueueSpec`, by the names given here; a new `QueueSpec` has
the defaults.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from shardbus.core.limits import LOCK_MS_MAX, LOCK_MS_MIN
from shardbus.core.namespace.tier import DAY_MS, INFINITE_MS

QUEUE: Final = "queue"
TOPIC: Final = "topic"
SUBSCRIPTION: Final = "subscription"

# How a value is written. A word is a text that every entity has; a text may be empty, and is
# cleared by leaving it out; a destination is the path of an entity, and cleared likewise.
FLAG: Final = "flag"
NUMBER: Final = "number"
MEGABYTES: Final = "megabytes"
DURATION: Final = "duration"
WORD: Final = "word"
TEXT: Final = "text"
DESTINATION: Final = "destination"

_ALL: Final = (QUEUE, TOPIC, SUBSCRIPTION)
_SENT: Final = (QUEUE, TOPIC)
_RECEIVED: Final = (QUEUE, SUBSCRIPTION)

DELIVERY_COUNT_MAX: Final = 2000
TTL_MS_MIN: Final = 1000
DUPLICATE_WINDOW_MS_MIN: Final = 20_000
DUPLICATE_WINDOW_MS_MAX: Final = 7 * DAY_MS
AUTO_DELETE_IDLE_MS_MIN: Final = 300_000


@final
@dataclass(frozen=True)
class EntityProperty:
    """A property: `name` is its attribute, `element` its name in the dialect.

    `kinds` are told it; those of `derived`, who have it from their topic or their partitioning,
    see it in JSON too, and of what `is_hidden` nobody sees anything there. `option` is its name on
    the command line and in files, and `label` that in tables; without one it is not there. `low`
    and `high` are its range, if it has one. `is_late`: records of before do not have it.
    """

    name: str
    element: str
    form: str
    kinds: tuple[str, ...]
    derived: tuple[str, ...] = ()
    option: str = ""
    help: str = ""
    label: str = ""
    note: str = ""
    low: int = 0
    high: int = 0
    is_fixed: bool = False
    is_late: bool = False
    is_hidden: bool = False

    def value(self, spec: object) -> int | str:
        """What a spec says; flags are integers too."""
        value: object = getattr(spec, self.name)
        assert isinstance(value, (int, str))
        return value

    def integer(self, spec: object) -> int:
        value = self.value(spec)
        assert isinstance(value, int)
        return value

    def text(self, spec: object) -> str:
        value = self.value(spec)
        assert isinstance(value, str)
        return value

    def put(self, spec: object, value: int | str) -> None:
        setattr(spec, self.name, value)

    def written(self, spec: object) -> str:
        """Of a destination: the URI that named it, if it was one."""
        value: object = getattr(spec, f"{self.name}_written")
        assert isinstance(value, str)
        return value

    def put_written(self, spec: object, value: str) -> None:
        setattr(spec, f"{self.name}_written", value)


PROPERTIES: Final = (
    EntityProperty(
        "is_partitioned",
        "EnablePartitioning",
        FLAG,
        _SENT,
        derived=(SUBSCRIPTION,),
        is_fixed=True,
        option="partitioning",
        help="Spread over fragments; the tier decides when not given.",
    ),
    EntityProperty(
        "size_mb",
        "MaxSizeInMegabytes",
        MEGABYTES,
        _SENT,
        derived=(SUBSCRIPTION,),
        option="size-gb",
        help="Size; of each fragment when partitioned.",
        note="The size of each fragment.",
    ),
    EntityProperty(
        "lock_ms",
        "LockDuration",
        DURATION,
        _RECEIVED,
        low=LOCK_MS_MIN,
        high=LOCK_MS_MAX,
        option="lock-duration",
        label="lock duration",
        help="How long a receiver holds a message: 30s, 5m, PT1M.",
    ),
    EntityProperty(
        "delivery_count_max",
        "MaxDeliveryCount",
        NUMBER,
        _RECEIVED,
        low=1,
        high=DELIVERY_COUNT_MAX,
        option="max-delivery-count",
        label="maximum deliveries",
        help="Deliveries before a message is dead-lettered.",
    ),
    EntityProperty(
        "default_ttl_ms",
        "DefaultMessageTimeToLive",
        DURATION,
        _ALL,
        low=TTL_MS_MIN,
        high=INFINITE_MS,
        option="default-ttl",
        label="default time to live",
        help="Life of a message that names none: 14d, forever.",
    ),
    EntityProperty(
        "dead_letters_on_expiration",
        "DeadLetteringOnMessageExpiration",
        FLAG,
        _RECEIVED,
        option="dead-letter-on-expiration",
        label="dead-letter on expiry",
        help="Dead-letter what expires instead of dropping it.",
    ),
    EntityProperty(
        "dead_letters_on_filter_errors",
        "DeadLetteringOnFilterEvaluationExceptions",
        FLAG,
        (SUBSCRIPTION,),
        is_late=True,
        option="dead-letter-on-filter-errors",
        label="dead-letter on filter errors",
        help="Dead-letter what a rule fails on instead of dropping it.",
    ),
    EntityProperty(
        "requires_session",
        "RequiresSession",
        FLAG,
        _RECEIVED,
        is_fixed=True,
        option="sessions",
        label="sessions",
        help="Every message belongs to a session.",
    ),
    EntityProperty(
        "requires_duplicate_detection",
        "RequiresDuplicateDetection",
        FLAG,
        _SENT,
        is_fixed=True,
        option="duplicate-detection",
        label="duplicate detection",
        help="Drop a message whose id was seen in the window.",
    ),
    EntityProperty(
        "duplicate_window_ms",
        "DuplicateDetectionHistoryTimeWindow",
        DURATION,
        _SENT,
        low=DUPLICATE_WINDOW_MS_MIN,
        high=DUPLICATE_WINDOW_MS_MAX,
        option="duplicate-window",
        help="How long ids are remembered.",
    ),
    EntityProperty(
        "auto_delete_idle_ms",
        "AutoDeleteOnIdle",
        DURATION,
        _ALL,
        low=AUTO_DELETE_IDLE_MS_MIN,
        high=INFINITE_MS,
        option="auto-delete-on-idle",
        help="Delete it after this time unused.",
    ),
    EntityProperty(
        "forward_to",
        "ForwardTo",
        DESTINATION,
        _RECEIVED,
        option="forward-to",
        label="forwards to",
        help="Entity that gets every message.",
    ),
    EntityProperty(
        "forward_dead_letters_to",
        "ForwardDeadLetteredMessagesTo",
        DESTINATION,
        _RECEIVED,
        option="forward-dead-letters-to",
        label="forwards dead letters to",
        help="Entity that gets the dead letters.",
    ),
    EntityProperty(
        "status",
        "Status",
        WORD,
        _ALL,
        is_hidden=True,
        option="status",
        help="Active, Disabled, SendDisabled (no subscription) or ReceiveDisabled (no topic).",
    ),
    EntityProperty(
        "user_metadata",
        "UserMetadata",
        TEXT,
        _ALL,
        option="user-metadata",
        help="Free text kept with it.",
    ),
    EntityProperty(
        "message_kb_max",
        "MaxMessageSizeInKilobytes",
        NUMBER,
        _SENT,
        derived=(SUBSCRIPTION,),
        option="max-message-kb",
        help="Largest message in kilobytes; Premium only.",
    ),
    EntityProperty(
        "is_batched",
        "EnableBatchedOperations",
        FLAG,
        _ALL,
        option="batched-operations",
        help="Kept for clients that ask; batching is always on.",
    ),
    EntityProperty(
        "is_express",
        "EnableExpress",
        FLAG,
        _SENT,
        option="express",
        help="Kept for clients that ask; all is durable.",
    ),
    EntityProperty(
        "supports_ordering",
        "SupportOrdering",
        FLAG,
        (TOPIC,),
        derived=_RECEIVED,
        is_late=True,
        option="ordering",
        help="Kept for clients that ask; keys keep order.",
    ),
    EntityProperty("is_anonymous_accessible", "IsAnonymousAccessible", FLAG, _SENT, is_hidden=True),
    EntityProperty(
        "filters_before_publishing",
        "FilteringMessagesBeforePublishing",
        FLAG,
        (TOPIC,),
        is_late=True,
    ),
    EntityProperty(
        "is_subscription_partitioned",
        "EnableSubscriptionPartitioning",
        FLAG,
        (TOPIC,),
        is_hidden=True,
        is_fixed=True,
        is_late=True,
    ),
)


def properties_of(kind: str) -> list[EntityProperty]:
    """Those that entities of a kind are told."""
    return [each for each in PROPERTIES if kind in each.kinds]


def options_of(kind: str) -> list[EntityProperty]:
    """Those that people are asked about."""
    return [each for each in properties_of(kind) if each.option]


def shown_of(kind: str) -> list[EntityProperty]:
    """Those that the description of an entity shows in JSON."""
    return [each for each in PROPERTIES if kind in each.kinds + each.derived and not each.is_hidden]
