"""Entities as ATOM documents: what clients send, and what both strict readers accept."""

from __future__ import annotations

from typing import Final, final
from urllib.parse import quote

from shardbus.broker.host import EntityStatistics
from shardbus.core.address import ADDRESS_CHARACTERS_MAX, NAME_CHARACTERS_MAX, path_of
from shardbus.core.entity import Entity, QueueSpec
from shardbus.core.errors import INVALID_ARGUMENT, Refused
from shardbus.gateway.http.access_markup import access_rules, read_access_rules
from shardbus.gateway.http.described import CONNECT, Described, described_by
from shardbus.gateway.http.markup import INSTANCE, Element, escaped, optional, parse, tag
from shardbus.gateway.http.moment import format_duration, format_moment

ATOM: Final = "http://www.w3.org/2005/Atom"
COUNTS: Final = "http://schemas.microsoft.com/netservices/2011/06/servicebus"
# Ours, beside `content` in an entry, where Atom allows foreign elements: the dialect has no
# element that tells the number of fragments or that numbers are partial.
EXTENSION: Final = "urn:shardbus"

QUEUE_DESCRIPTION: Final = "QueueDescription"
TOPIC_DESCRIPTION: Final = "TopicDescription"
SUBSCRIPTION_DESCRIPTION: Final = "SubscriptionDescription"
RULE_DESCRIPTION: Final = "RuleDescription"
DESCRIPTIONS: Final = (
    QUEUE_DESCRIPTION,
    TOPIC_DESCRIPTION,
    SUBSCRIPTION_DESCRIPTION,
    RULE_DESCRIPTION,
)

# The api-versions from which on descriptions have these elements.
MESSAGE_SIZE_SINCE: Final = "2021-05"
FILTER_COUNTS_SINCE: Final = "2024-05"

_HEAD: Final = '<?xml version="1.0" encoding="utf-8"?>'
# What a name may have and a URL may too: one reader takes names from the path as they stand there.
_PATH_CHARACTERS: Final = "/$-._~!'()*+,;=:@&"


def read_entry(document: bytes) -> Element:
    """The description in an entry: of a queue, topic, subscription or rule."""
    root = parse(document)
    if (root.namespace, root.name) != (ATOM, "entry"):
        raise _invalid("The document is not an Atom entry.")
    content = root.child(ATOM, "content")
    if content is None or len(content.children) != 1:
        raise _invalid("The entry has no content with one description in it.")
    description = content.children[0]
    if description.namespace != CONNECT:
        raise _invalid(f"'{description.name}' is not in the namespace {CONNECT}.")
    if description.name not in DESCRIPTIONS:
        raise _invalid(f"'{description.name}' is not a description of an entity.")
    return description


def read_description(document: bytes, name: str = QUEUE_DESCRIPTION) -> Described:
    """The description of this name in an entry, its elements in any order."""
    description = read_entry(document)
    if description.name != name:
        raise _invalid(f"A {description.name} was sent where a {name} belongs.")
    return described_by(description)


def fill_spec(spec: QueueSpec, described: Described) -> None:
    """Set what the description says on a spec; everything else in the spec stays.

    Read-only elements (counts, sizes, moments, availability, SupportOrdering) are passed over:
    clients send back whole descriptions. The three optional texts are the exception to "stays":
    SDKs leave them out to clear them.
    """
    spec.lock_ms = described.duration_ms("LockDuration", spec.lock_ms)
    spec.size_mb = described.integer("MaxSizeInMegabytes", spec.size_mb)
    spec.requires_duplicate_detection = described.boolean(
        "RequiresDuplicateDetection", spec.requires_duplicate_detection
    )
    spec.requires_session = described.boolean("RequiresSession", spec.requires_session)
    spec.default_ttl_ms = described.duration_ms("DefaultMessageTimeToLive", spec.default_ttl_ms)
    spec.dead_letters_on_expiration = described.boolean(
        "DeadLetteringOnMessageExpiration", spec.dead_letters_on_expiration
    )
    spec.duplicate_window_ms = described.duration_ms(
        "DuplicateDetectionHistoryTimeWindow", spec.duplicate_window_ms
    )
    spec.delivery_count_max = described.integer("MaxDeliveryCount", spec.delivery_count_max)
    spec.is_batched = described.boolean("EnableBatchedOperations", spec.is_batched)
    spec.is_anonymous_accessible = described.boolean(
        "IsAnonymousAccessible", spec.is_anonymous_accessible
    )
    spec.access_rules = read_access_rules(described, spec.access_rules)
    spec.status = described.text("Status", spec.status).strip()
    spec.auto_delete_idle_ms = described.duration_ms("AutoDeleteOnIdle", spec.auto_delete_idle_ms)
    spec.is_partitioned = described.boolean("EnablePartitioning", spec.is_partitioned)
    spec.is_express = described.boolean("EnableExpress", spec.is_express)
    fill_destinations(spec, described)
    spec.user_metadata = described.text("UserMetadata", "")
    spec.message_kb_max = described.integer("MaxMessageSizeInKilobytes", spec.message_kb_max)


def fill_destinations(spec: QueueSpec, described: Described) -> None:
    """Set where to forward to: nowhere, unless the description says so."""
    spec.forward_to, spec.forward_to_written = _read_destination(described, "ForwardTo")
    name = "ForwardDeadLetteredMessagesTo"
    spec.forward_dead_letters_to, spec.forward_dead_letters_to_written = _read_destination(
        described, name
    )


def _read_destination(described: Described, name: str) -> tuple[str, str]:
    """The path of the entity to forward to, and the URI that named it; both may be empty."""
    text = described.text(name, "").strip()
    path = path_of(text)
    if len(path) > NAME_CHARACTERS_MAX:
        raise _invalid(f"{name} names an entity in more than {NAME_CHARACTERS_MAX} characters.")
    if len(text) > ADDRESS_CHARACTERS_MAX:
        raise _invalid(f"{name} has more than {ADDRESS_CHARACTERS_MAX} characters.")
    return path, text if path and "://" in text else ""


@final
class Page:
    """Which part of a list is shown; `next_skip` is where the next part starts, 0 on the last."""

    def __init__(self, title: str, path: str, skip: int, next_skip: int, top: int) -> None:
        self.title = title
        self.path = path
        self.skip = skip
        self.next_skip = next_skip
        self.top = top


@final
class Writer:
    """Writes documents for one request: ids and links are under the URL that the client used."""

    def __init__(self, base_url: str, api_version: str, author: str, now_ms: int) -> None:
        self._base_url = base_url
        self._api_version = api_version
        self._author = author
        self._now = format_moment(now_ms)

    def queue(self, entity: Entity, statistics: EntityStatistics) -> str:
        """The document of one queue."""
        return _HEAD + self._queue_entry(entity, statistics)

    def queues(
        self, queues: list[tuple[Entity, EntityStatistics]], skip: int, next_skip: int, top: int
    ) -> str:
        """A page of queues; `next_skip` is where the next one starts, 0 on the last."""
        entries = [self._queue_entry(entity, statistics) for entity, statistics in queues]
        return self.feed(Page("Queues", "$Resources/queues", skip, next_skip, top), entries)

    def namespace(self, sku: str, created_at_ms: int) -> str:
        """The document about the namespace itself."""
        created = format_moment(created_at_ms)
        units = tag("MessagingUnits", "1") if sku == "Premium" else ""
        description = (
            f'<NamespaceInfo xmlns="{CONNECT}" xmlns:i="{INSTANCE}">'
            + tag("CreatedTime", created)
            + tag("MessagingSKU", sku)
            + units
            + tag("ModifiedTime", created)
            + tag("Name", self._author)
            + tag("NamespaceType", "Messaging")
            + "</NamespaceInfo>"
        )
        return _HEAD + self.entry(self._author, "$namespaceinfo", (created, created), description)

    def destination(self, name: str, written: str) -> str:
        """Where messages are forwarded to: as a client wrote it, or the address that they expect.

        The address is absolute and below the host that the client asks.
        """
        authority = self._base_url.partition("://")[2]
        return written or (f"sb://{authority}/{name}" if name else "")

    def forward_to(self, spec: QueueSpec) -> str:
        return optional("ForwardTo", self.destination(spec.forward_to, spec.forward_to_written))

    def forward_dead_letters_to(self, spec: QueueSpec) -> str:
        target = self.destination(
            spec.forward_dead_letters_to, spec.forward_dead_letters_to_written
        )
        return optional("ForwardDeadLetteredMessagesTo", target)

    def message_size(self, spec: QueueSpec) -> str:
        """Nothing for clients of a version that has no such element."""
        if self._api_version < MESSAGE_SIZE_SINCE:
            return ""
        return tag("MaxMessageSizeInKilobytes", str(spec.message_kb_max))

    def filter_counts(self, in_sql: int, in_correlation: int) -> str:
        """Nothing for clients of a version that has no such elements."""
        if self._api_version < FILTER_COUNTS_SINCE:
            return ""
        return tag("SqlFilterCount", str(in_sql)) + tag(
            "CorrelationFilterCount", str(in_correlation)
        )

    def document(self, entry: str) -> str:
        """An entry as a document of its own."""
        return _HEAD + entry

    def entity_entry(
        self, entity: Entity, statistics: EntityStatistics, title: str, description: str
    ) -> str:
        """The entry of an entity, with what the dialect has no element for."""
        moments = (format_moment(entity.created_at_ms), format_moment(entity.updated_at_ms))
        warnings = "".join(
            f'<Warning xmlns="{EXTENSION}">{escaped(warning)}</Warning>'
            for warning in statistics.warnings
        )
        extension = (
            f'<FragmentCount xmlns="{EXTENSION}">{len(entity.fragments)}</FragmentCount>'
            f'<IsPartial xmlns="{EXTENSION}">{boolean_text(statistics.is_partial)}</IsPartial>'
            f'<SetAsideMessageCount xmlns="{EXTENSION}">{statistics.set_aside_count}'
            "</SetAsideMessageCount>"
            f'<DeferredMessageCount xmlns="{EXTENSION}">{statistics.deferred_count}'
            f"</DeferredMessageCount>{warnings}"
        )
        return self.entry(title, entity.name, moments, description, extension)

    def entry(
        self, title: str, path: str, moments: tuple[str, str], description: str, extension: str = ""
    ) -> str:
        url = (
            f"{self._base_url}/{quote(path, safe=_PATH_CHARACTERS)}?api-version={self._api_version}"
        )
        return (
            f'<entry xmlns="{ATOM}">'
            + tag("id", url)
            + f'<title type="text">{escaped(title)}</title>'
            + tag("published", moments[0])
            + tag("updated", moments[1])
            + f"<author>{tag('name', self._author)}</author>"
            + self._link("self", url)
            + f'<content type="application/xml">{description}</content>{extension}</entry>'
        )

    def feed(self, page: Page, entries: list[str]) -> str:
        """A page of entries.

        Both readers take a second link, and nothing else, for the sign that there is more.
        """
        url = self._list_url(page.path, page.skip, page.top)
        links = self._link("self", url)
        if page.next_skip:
            links += self._link("next", self._list_url(page.path, page.next_skip, page.top))
        return (
            f'{_HEAD}<feed xmlns="{ATOM}"><title type="text">{page.title}</title>'
            + tag("id", url)
            + tag("updated", self._now)
            + links
            + "".join(entries)
            + "</feed>"
        )

    def _queue_entry(self, entity: Entity, statistics: EntityStatistics) -> str:
        description = _queue_description(entity, statistics, self)
        return self.entity_entry(entity, statistics, entity.name, description)

    def _list_url(self, path: str, skip: int, top: int) -> str:
        page = f"$skip={skip}&$top={top}"
        return f"{self._base_url}/{path}?api-version={self._api_version}&{page}"

    def _link(self, relation: str, url: str) -> str:
        return f'<link rel="{relation}" href="{escaped(url)}"/>'


def error_document(status: int, detail: str) -> str:
    return f"{_HEAD}<Error>{tag('Code', str(status))}{tag('Detail', detail)}</Error>"


def _queue_description(entity: Entity, statistics: EntityStatistics, writer: Writer) -> str:
    """In the order of the Python SDK, with every element that the JavaScript SDK insists on."""
    spec = entity.spec
    return (
        f'<QueueDescription xmlns="{CONNECT}" xmlns:i="{INSTANCE}">'
        + tag("LockDuration", format_duration(spec.lock_ms))
        + tag("MaxSizeInMegabytes", str(entity.size_mb_max()))
        + tag("RequiresDuplicateDetection", boolean_text(spec.requires_duplicate_detection))
        + tag("RequiresSession", boolean_text(spec.requires_session))
        + tag("DefaultMessageTimeToLive", format_duration(spec.default_ttl_ms))
        + tag("DeadLetteringOnMessageExpiration", boolean_text(spec.dead_letters_on_expiration))
        + tag("DuplicateDetectionHistoryTimeWindow", format_duration(spec.duplicate_window_ms))
        + tag("MaxDeliveryCount", str(spec.delivery_count_max))
        + tag("EnableBatchedOperations", boolean_text(spec.is_batched))
        + tag("SizeInBytes", str(statistics.size_bytes))
        + tag("MessageCount", str(statistics.message_count()))
        + tag("IsAnonymousAccessible", boolean_text(spec.is_anonymous_accessible))
        + access_rules(spec.access_rules)
        + tag("Status", spec.status)
        + tag("CreatedAt", format_moment(entity.created_at_ms))
        + tag("UpdatedAt", format_moment(entity.updated_at_ms))
        + tag("AccessedAt", format_moment(max(entity.accessed_at_ms, statistics.last_used_ms)))
        # Order is promised for each key only once an entity has several fragments.
        + tag("SupportOrdering", boolean_text(not spec.is_partitioned))
        + count_details(statistics)
        + tag("AutoDeleteOnIdle", format_duration(spec.auto_delete_idle_ms))
        + tag("EnablePartitioning", boolean_text(spec.is_partitioned))
        + tag("EntityAvailabilityStatus", statistics.availability)
        + tag("EnableExpress", boolean_text(spec.is_express))
        + writer.forward_to(spec)
        + optional("UserMetadata", spec.user_metadata)
        + writer.forward_dead_letters_to(spec)
        + writer.message_size(spec)
        + "</QueueDescription>"
    )


def count_details(statistics: EntityStatistics) -> str:
    # The JavaScript SDK finds the prefix by the one attribute of CountDetails.
    counts = (
        ("ActiveMessageCount", statistics.active_count),
        ("DeadLetterMessageCount", statistics.dead_letter_count),
        ("ScheduledMessageCount", statistics.scheduled_count),
        ("TransferMessageCount", statistics.transfer_count),
        ("TransferDeadLetterMessageCount", statistics.transfer_dead_letter_count),
    )
    inside = "".join(tag(f"d2p1:{name}", str(count)) for name, count in counts)
    return f'<CountDetails xmlns:d2p1="{COUNTS}">{inside}</CountDetails>'


def boolean_text(value: bool) -> str:
    return "true" if value else "false"


def _invalid(message: str) -> Refused:
    return Refused(INVALID_ARGUMENT, message)
