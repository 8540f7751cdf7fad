"""A namespace that is a dictionary, for the client side of queue management."""

from collections.abc import Mapping
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree

from shardbus.app.cli.client import Answer
from shardbus.gateway.http.atom.element_reader import CONNECT
from shardbus.gateway.http.atom.entries import ATOM, EXTENSION


class Namespace:
    """Keeps queues as the elements that were put; answers as management over ATOM does."""

    def __init__(self) -> None:
        self.queues: dict[str, dict[str, str]] = {}
        self.headers: list[Mapping[str, str]] = []
        self.next_answer: Answer | None = None
        self.fragment_count: int | None = None

    def ask(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None
    ) -> Answer:
        self.headers.append(headers)
        if self.next_answer is not None:
            return self.next_answer
        address = urlsplit(target)
        assert parse_qs(address.query)["api-version"] == ["2024-05"]
        name = unquote(address.path).removeprefix("/")
        if name == "$Resources/queues":
            return self._page(parse_qs(address.query))
        if method == "PUT":
            return self._put(name, body or b"", is_update=headers.get("If-Match") == "*")
        if name not in self.queues:
            return Answer(404, b"<Error><Code>404</Code><Detail>gone</Detail></Error>")
        if method == "DELETE":
            del self.queues[name]
            return Answer(200, b"")
        return Answer(200, self._entry(name))

    def _put(self, name: str, body: bytes, *, is_update: bool) -> Answer:
        if name in self.queues and not is_update:
            return Answer(409, b"<Error><Detail>SubCode=40900. Conflict.</Detail></Error>")
        description = ElementTree.fromstring(body)[0][0]
        self.queues[name] = {
            child.tag.rpartition("}")[2]: child.text or "" for child in description
        }
        return Answer(200 if is_update else 201, self._entry(name))

    def _entry(self, name: str) -> bytes:
        elements = "".join(f"<{tag}>{text}</{tag}>" for tag, text in self.queues[name].items())
        described = f'<QueueDescription xmlns="{CONNECT}">{elements}</QueueDescription>'
        extension = ""
        if self.fragment_count is not None:
            count = self.fragment_count
            extension = f'<FragmentCount xmlns="{EXTENSION}">{count}</FragmentCount>'
        return (
            f'<entry xmlns="{ATOM}"><title>{name}</title>{extension}'
            f"<content>{described}</content></entry>"
        ).encode()

    def _page(self, query: dict[str, list[str]]) -> Answer:
        skip, top = int(query["$skip"][0]), int(query["$top"][0])
        names = sorted(self.queues)[skip : skip + top]
        entries = b"".join(self._entry(name) for name in names)
        return Answer(200, f'<feed xmlns="{ATOM}">'.encode() + entries + b"</feed>")
