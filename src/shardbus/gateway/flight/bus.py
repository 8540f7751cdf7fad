"""The bus as the bulk lane sees it: the JSON API of a gateway, with the client's own token."""

from __future__ import annotations

import http.client
import json
import threading
from typing import Final, final
from urllib.parse import quote

from shardbus.core.document import Fields

TIMEOUT_S: Final = 90
ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024

Document = dict[str, object]


class BusError(Exception):
    """The bus refused, or did not answer. `status` is that of HTTP, 0 when nobody answered."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.status = status


@final
class BusClient:
    """Asks one gateway; a connection for each thread, which lives as long as both sides like."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._kept = threading.local()

    def get(self, path: str, token: str) -> Document:
        return self._ask("GET", path, token, None)

    def post(self, path: str, token: str, document: Document) -> Document:
        return self._ask("POST", path, token, json.dumps(document).encode())

    def _ask(self, method: str, path: str, token: str, body: bytes | None) -> Document:
        headers = {"Authorization": token} if token else {}
        if body is not None:
            headers["Content-Type"] = "application/json"
        status, content = self._exchange(method, "/api/v1/" + path, headers, body)
        try:
            answer: object = json.loads(content)
        except ValueError as error:
            raise BusError(status, "internal", "The bus answered something else.") from error
        if not isinstance(answer, dict):
            raise BusError(status, "internal", "The bus answered something else.")
        if status >= 300:
            refusal = Fields(answer.get("error"), "refusal")
            raise BusError(status, refusal.text("code"), refusal.text("message"))
        return answer

    def _exchange(
        self, method: str, path: str, headers: dict[str, str], body: bytes | None
    ) -> tuple[int, bytes]:
        kept: http.client.HTTPConnection | None = getattr(self._kept, "connection", None)
        try:
            if kept is not None:
                return self._once(kept, method, path, headers, body)
        except (OSError, http.client.HTTPException):
            # The other side may close a connection at any time while nothing is asked.
            kept = None
        connection = http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)
        try:
            return self._once(connection, method, path, headers, body)
        except (OSError, http.client.HTTPException) as error:
            raise BusError(0, "unavailable", f"The bus does not answer: {error}") from error

    def _once(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        headers: dict[str, str],
        body: bytes | None,
    ) -> tuple[int, bytes]:
        self._kept.connection = None
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            content = response.read(ANSWER_BYTES_MAX)
        except (OSError, http.client.HTTPException):
            connection.close()
            raise
        self._kept.connection = connection
        return response.status, content


def entity_path(name: str, rest: str) -> str:
    """Where the JSON API has something about an entity."""
    return f"entities/{quote(name, safe='/$')}/{rest}"
