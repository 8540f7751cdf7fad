"""The command line's way to the management API: sign, ask, and turn answers into three failures."""

import http.client
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol
from urllib.parse import quote, urlsplit

from shardbus.app.atom import Queue, read_error, read_queue, read_queues, write_queue
from shardbus.app.failures import CommandError, NotFound, Refused, Unavailable, Usage
from shardbus.app.sas import Credential

API_VERSION: Final = "2021-05"
TOKEN_LIFETIME_S: Final = 300
TIMEOUT_S: Final = 60
ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
PAGE_SIZE: Final = 100
PAGES_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class Answer:
    """Status and body of one HTTP answer."""

    status: int
    body: bytes


class Transport(Protocol):
    """Carries one request to the bus; raises `Unavailable` when nobody answers."""

    def ask(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None
    ) -> Answer: ...


class HttpTransport:
    """One connection per request: a command asks once or twice and ends."""

    def __init__(self, endpoint: str) -> None:
        address = urlsplit(endpoint)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise Usage(f"{endpoint!r} is not an endpoint: write http://host:port")
        self._endpoint = endpoint
        self._host = address.hostname
        self._port = address.port
        self._is_secure = address.scheme == "https"

    def ask(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None
    ) -> Answer:
        connection = self._connection()
        try:
            connection.request(method, target, body=body, headers=dict(headers))
            response = connection.getresponse()
            text = response.read(ANSWER_BYTES_MAX + 1)
        except ssl.SSLError as error:
            raise Unavailable(f"TLS with {self._endpoint} did not work: {error}") from error
        except (OSError, http.client.HTTPException) as error:
            raise Unavailable(self._nobody(error)) from error
        finally:
            connection.close()
        if len(text) > ANSWER_BYTES_MAX:
            raise CommandError(f"the answer is longer than {ANSWER_BYTES_MAX} bytes")
        return Answer(response.status, text)

    def _connection(self) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._is_secure else http.client.HTTPConnection
        return kind(self._host, self._port, timeout=TIMEOUT_S)

    def _nobody(self, error: Exception) -> str:
        return (
            f"no Shardbus answers at {self._endpoint} ({str(error) or type(error).__name__}): "
            "start one with `shardbus serve`, or name another with --endpoint"
        )


class Management:
    """The queues of one namespace; `now_s` is when the tokens start to count."""

    def __init__(
        self, transport: Transport, endpoint: str, credential: Credential, *, now_s: int
    ) -> None:
        self._transport = transport
        resource = endpoint.rstrip("/")
        self._token = credential.token_for(resource, expires_at_s=now_s + TOKEN_LIFETIME_S)

    def create_queue(self, name: str, elements: dict[str, str]) -> Queue:
        return self._described(name, self._ask("PUT", name, body=write_queue(elements)))

    def update_queue(self, name: str, elements: dict[str, str]) -> Queue:
        """Change the named elements and leave the others as they are."""
        described = {**self.queue(name).elements, **elements}
        answer = self._ask("PUT", name, body=write_queue(described), is_update=True)
        return self._described(name, answer)

    def queue(self, name: str) -> Queue:
        return self._described(name, self._ask("GET", name))

    def queues(self) -> list[Queue]:
        found: list[Queue] = []
        for page in range(PAGES_MAX):
            paging = f"&$skip={page * PAGE_SIZE}&$top={PAGE_SIZE}"
            queues = read_queues(self._ask("GET", "$Resources/queues", paging=paging).body)
            found.extend(queues)
            if len(queues) < PAGE_SIZE:
                break
        return found

    def delete_queue(self, name: str) -> None:
        self._ask("DELETE", name)

    def _described(self, name: str, answer: Answer) -> Queue:
        queue = read_queue(answer.body)
        if queue is None:
            raise _not_found(name)
        return queue

    def _ask(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        is_update: bool = False,
        paging: str = "",
    ) -> Answer:
        headers = {"Authorization": self._token, "Accept": "application/atom+xml"}
        if body is not None:
            headers["Content-Type"] = "application/atom+xml;type=entry;charset=utf-8"
        if is_update:
            headers["If-Match"] = "*"
        target = f"/{quote(path, safe='/$')}?api-version={API_VERSION}{paging}"
        answer = self._transport.ask(method, target, headers, body)
        check_answer(path, answer)
        return answer


def check_answer(path: str, answer: Answer) -> None:
    """Raise what an answer that is not a success means."""
    if answer.status < 300:
        return
    detail = read_error(answer.body) or http.client.responses.get(answer.status, "no reason given")
    match answer.status:
        case 401:
            raise Refused(
                f"not authorised: {detail} (give --key-name and --key, or a connection string)"
            )
        case 404 | 410:
            raise _not_found(path)
        case 409:
            raise Refused(f"{path} is there already, or is being changed: {detail}")
        case 429 | 500 | 502 | 503 | 504:
            raise Unavailable(f"the bus is not able to do that now, try again: {detail}")
        case _:
            raise Refused(f"{detail} (HTTP {answer.status})")


def _not_found(name: str) -> NotFound:
    return NotFound(f"there is no queue {name}: `shardbus queue list` shows what there is")
