"""Every property of queues, topics and subscriptions, in one table.

The catalogue's record, the ranges, the properties fixed at creation, the ATOM elements, the JSON
documents and their schema, the options of the command line and the keys of set-up files are derived
from this table. The values are typed attributes of `entity.EntitySpec` under the names given here;
a new `EntitySpec` has the defaults.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from shardbus.core.limits import LOCK_MS_MAX, LOCK_MS_MIN
from shardbus.core.namespace.tier import DAY_MS, INFINITE_MS

QUEUE: Final = "queue"
TOPIC: Final = "topic"
SUBSCRIPTION: Final = "subscription"

# The form of a value. A word is a text that every entity has. A text may be empty and is cleared by
# leaving it out. A destination is the path of an entity and is cleared in the same way.
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

    Entities of the kinds in `kinds` have it in their own description. Those in `derived` have it
    from their topic or their partitioning, and show it in JSON too, unless it `is_hidden` there.
    `option` is its name on the command line and in files, `label` its name in tables; without one
    the property is missing there. `low` and `high` are its range, if it has one. `is_late`: older
    records lack it.
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
        """The property's value in a spec; flags are integers too."""
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
        """For a destination: the URI that named it, if it was a URI."""
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
        help="Spread the entity over fragments; the tier decides when this is not given.",
    ),
    EntityProperty(
        "size_mb",
        "MaxSizeInMegabytes",
        MEGABYTES,
        _SENT,
        derived=(SUBSCRIPTION,),
        option="size-gb",
        help="Maximum size; of each fragment when the entity is partitioned.",
        note="The maximum size of each fragment.",
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
        help="How long a receiver's lock on a message lasts: 30s, 5m, PT1M.",
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
        help="Number of failed deliveries after which a message is dead-lettered.",
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
        help="Time to live of messages that set none: 14d, forever.",
    ),
    EntityProperty(
        "dead_letters_on_expiration",
        "DeadLetteringOnMessageExpiration",
        FLAG,
        _RECEIVED,
        option="dead-letter-on-expiration",
        label="dead-letter on expiry",
        help="Dead-letter expired messages instead of dropping them.",
    ),
    EntityProperty(
        "dead_letters_on_filter_errors",
        "DeadLetteringOnFilterEvaluationExceptions",
        FLAG,
        (SUBSCRIPTION,),
        is_late=True,
        option="dead-letter-on-filter-errors",
        label="dead-letter on filter errors",
        help="Dead-letter messages on which a rule fails instead of dropping them.",
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
        help="Drop a message whose id was already seen in the duplicate detection window.",
    ),
    EntityProperty(
        "duplicate_window_ms",
        "DuplicateDetectionHistoryTimeWindow",
        DURATION,
        _SENT,
        low=DUPLICATE_WINDOW_MS_MIN,
        high=DUPLICATE_WINDOW_MS_MAX,
        option="duplicate-window",
        help="How long message ids are remembered for duplicate detection.",
    ),
    EntityProperty(
        "auto_delete_idle_ms",
        "AutoDeleteOnIdle",
        DURATION,
        _ALL,
        low=AUTO_DELETE_IDLE_MS_MIN,
        high=INFINITE_MS,
        option="auto-delete-on-idle",
        help="Delete the entity after this time without use.",
    ),
    EntityProperty(
        "forward_to",
        "ForwardTo",
        DESTINATION,
        _RECEIVED,
        option="forward-to",
        label="forwards to",
        help="Path of the entity to which every message is forwarded.",
    ),
    EntityProperty(
        "forward_dead_letters_to",
        "ForwardDeadLetteredMessagesTo",
        DESTINATION,
        _RECEIVED,
        option="forward-dead-letters-to",
        label="forwards dead letters to",
        help="Path of the entity to which dead letters are forwarded.",
    ),
    EntityProperty(
        "status",
        "Status",
        WORD,
        _ALL,
        is_hidden=True,
        option="status",
        help="Active, Disabled, SendDisabled (not for subscriptions) or ReceiveDisabled (not for "
        "topics).",
    ),
    EntityProperty(
        "user_metadata",
        "UserMetadata",
        TEXT,
        _ALL,
        option="user-metadata",
        help="Free text that is stored with the entity.",
    ),
    EntityProperty(
        "message_kb_max",
        "MaxMessageSizeInKilobytes",
        NUMBER,
        _SENT,
        derived=(SUBSCRIPTION,),
        option="max-message-kb",
        help="Maximum message size in kilobytes; Premium only.",
    ),
    EntityProperty(
        "is_batched",
        "EnableBatchedOperations",
        FLAG,
        _ALL,
        option="batched-operations",
        help="Stored and shown without effect: batching is always on.",
    ),
    EntityProperty(
        "is_express",
        "EnableExpress",
        FLAG,
        _SENT,
        option="express",
        help="Stored and shown without effect: all messages are durable.",
    ),
    EntityProperty(
        "supports_ordering",
        "SupportOrdering",
        FLAG,
        (TOPIC,),
        derived=_RECEIVED,
        is_late=True,
        option="ordering",
        help="Stored and shown without effect: messages with the same key always keep their order.",
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
    EntityProperty(
        "lifecycle",
        "Lifecycle",
        FLAG,
        _ALL,
        is_late=True,
        option="lifecycle",
        help="Record every event of every message, for `shardbus report` and as a table.",
        note="Whether every event of every message is recorded, for reports and as a table.",
    ),
)


def properties_of(kind: str) -> list[EntityProperty]:
    """The properties that entities of a kind have in their own description."""
    return [each for each in PROPERTIES if kind in each.kinds]


def options_of(kind: str) -> list[EntityProperty]:
    """The properties that are options of the command line and keys of set-up files."""
    return [each for each in properties_of(kind) if each.option]


def shown_of(kind: str) -> list[EntityProperty]:
    """The properties that the JSON description of an entity shows."""
    return [each for each in PROPERTIES if kind in each.kinds + each.derived and not each.is_hidden]
