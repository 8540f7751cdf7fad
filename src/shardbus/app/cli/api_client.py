"""The command line's client of the JSON API: signs requests, and turns answers into failures."""

import json
from collections.abc import Callable
from typing import Final
from urllib.parse import quote, urlencode

from shardbus.app.cli.client import TOKEN_LIFETIME_S, Answer, Transport, check_answer, reason_of
from shardbus.app.cli.console import Json
from shardbus.app.cli.failures import CommandError, NotFound, Refused
from shardbus.app.cli.sas import Credential

PREFIX: Final = "/api/v1/"

Document = dict[str, Json]
"""What the API takes and answers: always one object."""


class ApiClient:
    """Paths are relative to the API and plain text: `entities/a b/fragments`.

    Every method raises the failures of commands, with the API's own reasons.
    """

    def __init__(
        self,
        transport: Transport,
        endpoint: str,
        credential: Credential,
        *,
        clock: Callable[[], float],
    ) -> None:
        """`clock` returns the seconds since 1970, for tokens."""
        self._transport = transport
        self._resource = endpoint.rstrip("/")
        self._credential = credential
        self._clock = clock

    def get(self, path: str, **query: str | int | None) -> Document:
        """`None` leaves a parameter out; `from_` is the parameter `from`."""
        given = {name.rstrip("_"): str(value) for name, value in query.items() if value is not None}
        return self._ask("GET", path, query=urlencode(given))

    def post(self, path: str, document: Document) -> Document:
        return self._ask("POST", path, document)

    def put(self, path: str, document: Document) -> Document:
        return self._ask("PUT", path, document)

    def delete(self, path: str) -> Document:
        return self._ask("DELETE", path)

    def _ask(
        self, method: str, path: str, document: Document | None = None, query: str = ""
    ) -> Document:
        expires_at_s = int(self._clock()) + TOKEN_LIFETIME_S
        headers = {
            "Authorization": self._credential.token_for(self._resource, expires_at_s=expires_at_s),
            "Accept": "application/json",
        }
        body = None
        if document is not None:
            headers["Content-Type"] = "application/json"
            body = json.dumps(document).encode()
        target = PREFIX + quote(path, safe="/$") + (f"?{query}" if query else "")
        answer = self._transport.ask(method, target, headers, body)
        _check(answer)
        return _read(answer.body)


def _check(answer: Answer) -> None:
    detail = reason_of(answer)
    if detail and answer.status == 404:
        raise NotFound(detail)
    if detail and answer.status in (409, 410):
        raise Refused(detail)
    check_answer("", answer)


def _read(body: bytes) -> Document:
    if not body:
        return {}
    try:
        document: object = json.loads(body)
    except ValueError as error:
        raise CommandError(f"the answer of the bus is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise CommandError("the answer of the bus is not a JSON object")
    return document
