"""Atom: the entries that clients send, and entries and feeds that both strict readers accept."""

from __future__ import annotations

from typing import Final, final
from urllib.parse import quote

from shardbus.core.errors import INVALID_ARGUMENT, Refused
from shardbus.gateway.http.atom.element_reader import CONNECT, ElementReader, described_by
from shardbus.gateway.http.atom.markup import INSTANCE, Element, escaped, parse, tag
from shardbus.gateway.http.moment import format_moment

ATOM: Final = "http://www.w3.org/2005/Atom"
# An extension beside `content` in an entry, where Atom allows foreign elements: the dialect has no
# element for the number of fragments, or for partial numbers.
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

_HEAD: Final = '<?xml version="1.0" encoding="utf-8"?>'
# Characters that both a name and a URL may have: one reader takes names from the path undecoded.
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
        raise _invalid(f"'{description.name}' is not in the XML namespace {CONNECT}.")
    if description.name not in DESCRIPTIONS:
        raise _invalid(f"'{description.name}' is not a description of an entity.")
    return description


def read_description(document: bytes, name: str = QUEUE_DESCRIPTION) -> ElementReader:
    """The description of this name in an entry, its elements in any order."""
    description = read_entry(document)
    if description.name != name:
        raise _invalid(f"The entry has a {description.name}; it must have a {name}.")
    return described_by(description)


@final
class FeedPage:
    """The part of a list that is shown; `next_skip` is where the next part starts, 0 on the
    last.
    """

    def __init__(self, title: str, path: str, skip: int, next_skip: int, top: int) -> None:
        self.title = title
        self.path = path
        self.skip = skip
        self.next_skip = next_skip
        self.top = top


@final
class FeedWriter:
    """Writes the documents of one request: ids and links are below the URL that the client used."""

    def __init__(self, base_url: str, api_version: str, author: str, now_ms: int) -> None:
        self._base_url = base_url
        self.api_version = api_version
        self._author = author
        self._now = format_moment(now_ms)

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
        """The destination of forwarding: as a client wrote it, or as an address.

        The address is absolute and below the host that the client addressed.
        """
        authority = self._base_url.partition("://")[2]
        return written or (f"sb://{authority}/{name}" if name else "")

    def document(self, entry: str) -> str:
        """An entry as a document of its own."""
        return _HEAD + entry

    def entry(
        self, title: str, path: str, moments: tuple[str, str], description: str, extension: str = ""
    ) -> str:
        url = (
            f"{self._base_url}/{quote(path, safe=_PATH_CHARACTERS)}?api-version={self.api_version}"
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

    def feed(self, page: FeedPage, entries: list[str]) -> str:
        """A page of entries.

        Both readers take a second link, and nothing else, as the sign that there is more.
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

    def _list_url(self, path: str, skip: int, top: int) -> str:
        page = f"$skip={skip}&$top={top}"
        return f"{self._base_url}/{path}?api-version={self.api_version}&{page}"

    def _link(self, relation: str, url: str) -> str:
        return f'<link rel="{relation}" href="{escaped(url)}"/>'


def error_document(status: int, detail: str) -> str:
    return f"{_HEAD}<Error>{tag('Code', str(status))}{tag('Detail', detail)}</Error>"


def _invalid(message: str) -> Refused:
    return Refused(INVALID_ARGUMENT, message)
