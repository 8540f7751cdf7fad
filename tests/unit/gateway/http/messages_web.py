"""The message part of the JSON API in virtual time."""

import json
from collections.abc import Callable, Mapping

from shardbus.broker.fragment.answers import ReplyTo
from shardbus.broker.routing.dispatch import FragmentPort
from shardbus.core.errors import Unavailable
from shardbus.core.fragment.command import Command
from shardbus.core.messages.command import Settle
from shardbus.gateway.http.api.messages.routes import MessagesApi
from shardbus.gateway.http.server.message import HttpResponse
from tests.unit.gateway.http.web import Web

Document = dict[str, object]


class MessagesWeb(Web):
    """The message part of the API, asked in Python's words."""

    def __init__(self, *, fragment_bytes_max: int = 0) -> None:
        super().__init__(fragment_bytes_max=fragment_bytes_max)
        self.with_groups([MessagesApi(self.bus, self.counts)])

    def break_fragment(
        self, entity: str, index: int, kind: type[Command], how: int | None = None
    ) -> None:
        """Let a fragment do nothing of one kind any more; of settlements, of one way."""
        handle = self.bus.find(entity)
        assert handle is not None
        ports = handle.router.ports
        ports[index] = Stubborn(ports[index], kind, how)
        handle.router.outboxes[index]._port = ports[index]

    def call(
        self, method: str, path: str, body: object = None, token: str | None = None
    ) -> HttpResponse:
        content = b"" if body is None else json.dumps(body).encode()
        return self.fetch(method, f"/api/v1/entities/{path}", content, token=token)

    def post(self, path: str, **body: object) -> Document:
        response = self.call("POST", path, body)
        assert response.status == 200, response.body
        answer: Document = json.loads(response.body)
        return answer

    def refusal(self, path: str, **body: object) -> tuple[int, str]:
        """Status and text of what must be refused."""
        response = self.call("POST", path, body)
        return response.status, json.loads(response.body)["error"]["message"]

    def put(self, entity: str, *messages: Mapping[str, object]) -> Document:
        return self.post(f"{entity}/messages", messages=list(messages))

    def peek(self, entity: str, query: str = "") -> list[Document]:
        answer: Document = json.loads(self.call("GET", f"{entity}/messages{query}").body)
        return messages_of(answer)

    def get(self, entity: str, **wish: object) -> list[Document]:
        return messages_of(self.post(f"{entity}/messages/receive", **wish))


class Stubborn:
    """A fragment that does everything but one kind of command."""

    is_available = True

    def __init__(self, port: FragmentPort, kind: type[Command], how: int | None = None) -> None:
        self._port = port
        self._kind = kind
        self._how = how

    def submit(self, command: Command, reply_to: ReplyTo) -> None:
        is_other_way = isinstance(command, Settle) and self._how not in (None, command.how)
        if isinstance(command, self._kind) and not is_other_way:
            reply_to(Unavailable("away"))
        else:
            self._port.submit(command, reply_to)

    def watch(self, line: int, wake: Callable[[], None], session: bytes = b"") -> None:
        self._port.watch(line, wake, session)

    def unwatch(self, line: int, wake: Callable[[], None], session: bytes = b"") -> None:
        self._port.unwatch(line, wake, session)


def messages_of(answer: Document) -> list[Document]:
    messages = answer["messages"]
    assert isinstance(messages, list)
    return messages


def bodies(messages: list[Document]) -> list[object]:
    return [message.get("body") for message in messages]
