"""The command line's way to the management API: sign, ask, and turn answers into three failures."""

import http.client
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol
from urllib.parse import quote, urlsplit

from shardbus.app.atom import (
    Described,
    EntityKind,
    parse,
    read_entities,
    read_entity,
    read_error,
    read_feed,
    write_entity,
    write_entry,
)
from shardbus.app.failures import CommandError, NotFound, Refused, Unavailable, Usage
from shardbus.app.rule_atom import Rule, read_rule, write_rule
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
    """The entities of one namespace; `now_s` is when the tokens start to count.

    A subscription's path is `<topic>/Subscriptions/<name>`, a rule's goes on with `/Rules/<name>`.
    """

    def __init__(
        self, transport: Transport, endpoint: str, credential: Credential, *, now_s: int
    ) -> None:
        self._transport = transport
        resource = endpoint.rstrip("/")
        self._token = credential.token_for(resource, expires_at_s=now_s + TOKEN_LIFETIME_S)

    def create(
        self, kind: EntityKind, path: str, elements: dict[str, str], rule: Rule | None = None
    ) -> Described:
        """`rule` is what a subscription is created with, in place of one that takes everything."""
        first = None if rule is None else write_rule(rule, "DefaultRuleDescription")
        body = write_entity(kind, elements, first)
        return _described(kind, path, self._ask("PUT", path, body=body, word=kind.word))

    def update(self, kind: EntityKind, path: str, elements: dict[str, str]) -> Described:
        """Change the named elements and leave the others as they are."""
        whole = {**self.entity(kind, path).elements, **elements}
        answer = self._ask("PUT", path, body=write_entity(kind, whole), is_update=True)
        return _described(kind, path, answer)

    def entity(self, kind: EntityKind, path: str) -> Described:
        return _described(kind, path, self._ask("GET", path, word=kind.word))

    def entities(self, kind: EntityKind, path: str) -> list[Described]:
        """All that a list holds, page by page."""
        return [
            entity for document in self._pages(path) for entity in read_entities(kind, document)
        ]

    def delete(self, path: str) -> None:
        self._ask("DELETE", path)

    def create_rule(self, path: str, rule: Rule) -> Rule:
        return self._put_rule(path, rule, is_update=False)

    def update_rule(self, path: str, rule: Rule) -> Rule:
        """Put another rule in the place of the one of the same name."""
        return self._put_rule(path, rule, is_update=True)

    def rule(self, path: str) -> Rule:
        return read_rule(parse(self._ask("GET", path).body))

    def rules(self, path: str) -> list[Rule]:
        return [read_rule(entry) for document in self._pages(path) for entry in read_feed(document)]

    def _put_rule(self, path: str, rule: Rule, *, is_update: bool) -> Rule:
        body = write_entry(write_rule(rule, "RuleDescription"))
        return read_rule(parse(self._ask("PUT", path, body=body, is_update=is_update).body))

    def _pages(self, path: str) -> Iterator[bytes]:
        for page in range(PAGES_MAX):
            paging = f"&$skip={page * PAGE_SIZE}&$top={PAGE_SIZE}"
            document = self._ask("GET", path, paging=paging).body
            yield document
            if len(read_feed(document)) < PAGE_SIZE:
                break

    def _ask(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        is_update: bool = False,
        paging: str = "",
        word: str = "entity",
    ) -> Answer:
        headers = {"Authorization": self._token, "Accept": "application/atom+xml"}
        if body is not None:
            headers["Content-Type"] = "application/atom+xml;type=entry;charset=utf-8"
        if is_update:
            headers["If-Match"] = "*"
        target = f"/{quote(path, safe='/$')}?api-version={API_VERSION}{paging}"
        answer = self._transport.ask(method, target, headers, body)
        check_answer(path, answer, word)
        return answer


def check_answer(path: str, answer: Answer, word: str = "entity") -> None:
    """Raise what an answer that is not a success means; `word` is what the path should name."""
    if answer.status < 300:
        return
    detail = read_error(answer.body) or http.client.responses.get(answer.status, "no reason given")
    match answer.status:
        case 401:
            raise Refused(
                f"not authorised: {detail} (give --key-name and --key, or a connection string)"
            )
        case 404 if "Forward" in detail:
            # What is missing is not what the path names, but where that should forward to.
            raise NotFound(detail)
        case 404 | 410:
            raise _not_found(path, word)
        case 409:
            raise Refused(f"{path} is there already, or is being changed: {detail}")
        case 429 | 500 | 502 | 503 | 504:
            raise Unavailable(f"the bus is not able to do that now, try again: {detail}")
        case _:
            raise Refused(f"{detail} (HTTP {answer.status})")


def _described(kind: EntityKind, path: str, answer: Answer) -> Described:
    entity = read_entity(kind, answer.body)
    if entity is None:
        raise _not_found(path, kind.word)
    return entity


def _not_found(path: str, word: str) -> NotFound:
    topic, separator, _ = path.partition("/Subscriptions/")
    lists = {
        "queue": "`shardbus queue list` shows",
        "topic": "`shardbus topic list` shows",
    }.get(word, "`shardbus queue list` and `shardbus topic list` show")
    if separator:
        lists = f"`shardbus subscription list {topic}` shows"
    return NotFound(f"there is no {word} {path}: {lists} what there is")
