"""The bus as the bulk lane uses it: the JSON API of a gateway, with the client's own token."""

from __future__ import annotations

import http.client
import json
import threading
from http import HTTPStatus
from typing import Final, Protocol, final
from urllib.parse import quote

from shardbus.broker.access.slowdown import WAITING_OF_PEER_MAX
from shardbus.core.document import Fields

TIMEOUT_S: Final = 90
ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
CALLS_MAX: Final = 32 + WAITING_OF_PEER_MAX
"""Concurrent requests; further ones wait WAIT_S for a place. The bus delays at most
WAITING_OF_PEER_MAX answers to wrong keys, so 32 places are always left for clients with a right
one.
"""
WAIT_S: Final = 30
WAITS_MAX: Final = 16
"""How many of these requests may wait for changes of an entity; further ones are answered at
once.
"""

Document = dict[str, object]


class BusError(Exception):
    """The bus refused, or did not answer. `status` is that of HTTP, 0 without an answer."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.status = status


class BusApi(Protocol):
    """The requests to the bus. BusError when it refuses or does not answer."""

    def get(self, path: str, token: str) -> Document: ...

    def post(self, path: str, token: str, document: Document) -> Document: ...

    def put(self, path: str, token: str, content: bytes | memoryview) -> Document: ...


@final
class BusClient:
    """A Bus that asks one gateway, over persistent connections.

    Every request here may be repeated, so a request that fails on a kept connection is sent once
    more on a new one.
    """

    def __init__(self, host: str, port: int, *, calls_max: int = CALLS_MAX) -> None:
        self._host = host
        self._port = port
        self._places = threading.BoundedSemaphore(calls_max)
        self._idle: list[http.client.HTTPConnection] = []

    def get(self, path: str, token: str) -> Document:
        return self._ask("GET", path, token, None)

    def post(self, path: str, token: str, document: Document) -> Document:
        return self._ask("POST", path, token, json.dumps(document).encode())

    def close(self) -> None:
        """Close the kept connections; the next request makes a new one."""
        while (kept := self._take_idle()) is not None:
            kept.close()

    def put(self, path: str, token: str, content: bytes | memoryview) -> Document:
        return self._ask("PUT", path, token, content, "application/octet-stream")

    def _ask(
        self,
        method: str,
        path: str,
        token: str,
        body: bytes | memoryview | None,
        content_type: str = "application/json",
    ) -> Document:
        headers = {"Authorization": token} if token else {}
        if body is not None:
            headers["Content-Type"] = content_type
        if not self._places.acquire(timeout=WAIT_S):
            raise BusError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "server-busy",
                "The bulk lane has too many requests waiting for the bus; try again later.",
            )
        try:
            status, content = self._exchange(method, "/api/v1/" + path, headers, body)
        except ValueError as error:
            raise BusError(
                HTTPStatus.BAD_REQUEST,
                "invalid-argument",
                "The token has characters that cannot be sent.",
            ) from error
        finally:
            self._places.release()
        return _document(status, content)

    def _exchange(
        self, method: str, path: str, headers: dict[str, str], body: bytes | memoryview | None
    ) -> tuple[int, bytes]:
        kept = self._take_idle()
        if kept is not None:
            try:
                return self._once(kept, method, path, headers, body)
            except TimeoutError as error:
                raise _silent(error) from error
            except (OSError, http.client.HTTPException):
                # The other side may close an idle connection at any time; the other kept ones are
                # hardly younger.
                self.close()
        connection = http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)
        try:
            return self._once(connection, method, path, headers, body)
        except (OSError, http.client.HTTPException) as error:
            raise _silent(error) from error

    def _once(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        headers: dict[str, str],
        body: bytes | memoryview | None,
    ) -> tuple[int, bytes]:
        is_whole = False
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            content = response.read(ANSWER_BYTES_MAX)
            is_whole = response.isclosed()
        finally:
            if not is_whole:
                connection.close()
        if not is_whole:
            raise BusError(response.status, "internal", "The answer of the bus is too long.")
        self._idle.append(connection)
        return response.status, content

    def _take_idle(self) -> http.client.HTTPConnection | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None


def entity_path(name: str, rest: str) -> str:
    """The path of the JSON API for something of an entity."""
    return f"entities/{quote(name, safe='/$')}/{rest}"


def _document(status: int, content: bytes) -> Document:
    try:
        answer: object = json.loads(content)
        if isinstance(answer, dict):
            if status < HTTPStatus.MULTIPLE_CHOICES:
                return answer
            refusal = Fields(answer.get("error"), "refusal")
            code, message = refusal.text("code"), refusal.text("message")
            raise BusError(status, code, message)
    except ValueError as error:
        raise BusError(status, "internal", "The answer of the bus is not a JSON object.") from error
    raise BusError(status, "internal", "The answer of the bus is not a JSON object.")


def _silent(error: Exception) -> BusError:
    return BusError(0, "unavailable", f"The bus does not answer: {error}")
