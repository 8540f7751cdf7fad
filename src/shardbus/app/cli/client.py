"""The command line's client of the management API: signs requests, and turns answers into
failures.
"""

import http.client
import re
import select
import ssl
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol
from urllib.parse import quote, urlsplit

from shardbus.app.cli.entities.atom import (
    QUEUE,
    SUBSCRIPTION,
    TOPIC,
    AtomDescription,
    EntityKind,
    content_of,
    parse,
    read_entities,
    read_entity,
    read_error,
    read_feed,
    write_entity,
    write_entry,
)
from shardbus.app.cli.entities.rule_atom import AtomRule, read_rule, write_rule
from shardbus.app.cli.failures import (
    CommandError,
    ConnectionLost,
    NotFound,
    Refused,
    ServerUnavailable,
    Usage,
)
from shardbus.app.cli.missing import ENTITY, RULE, Names, already_exists, no_entity
from shardbus.app.cli.sas import Credential
from shardbus.gateway.http.atom.element_reader import CONNECT

API_VERSION: Final = "2024-05"
TOKEN_LIFETIME_S: Final = 300
TIMEOUT_S: Final = 60
ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
PAGE_SIZE: Final = 100
PAGES_MAX: Final = 10_000

_NO_TARGET: Final = re.compile(
    r"The messaging entity '(?:sb://[^/]*/)?(.+)' could not be found: Forward"
)
_SUBCODE: Final = re.compile(r"^SubCode=\d+\. (?:[A-Z][A-Za-z ]+\. )?(?=.)")


@dataclass(frozen=True, slots=True)
class Answer:
    """Status and body of one HTTP answer."""

    status: int
    body: bytes


class Transport(Protocol):
    """Carries one request to the bus; raises `ServerUnavailable` without an answer."""

    def ask(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None
    ) -> Answer: ...


class HttpTransport:
    """Carries requests over one connection, which is kept as long as the bus keeps it.

    `ca_file` has the certificates that HTTPS trusts in place of the system's.
    """

    def __init__(
        self, endpoint: str, ca_file: str | None = None, timeout_s: float = TIMEOUT_S
    ) -> None:
        self._connection: http.client.HTTPConnection | None = None
        self._let_go: Callable[[], object] = _nothing
        self._endpoint = endpoint
        self._host, self._port, self._is_secure = _address(endpoint)
        self._ca_file = ca_file
        self._timeout_s = timeout_s

    def close(self) -> None:
        """Close the connection; the next request makes a new one."""
        if self._connection is not None:
            self._let_go()
            self._connection = None

    def ask(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None
    ) -> Answer:
        connection = self._connected()
        is_asked = False
        try:
            connection.request(method, target, body=body, headers=dict(headers))
            is_asked = method != "GET"
            response = connection.getresponse()
            text = response.read(ANSWER_BYTES_MAX + 1)
        except ssl.SSLError as error:
            self.close()
            raise ServerUnavailable(self._no_trust(error)) from error
        except (OSError, http.client.HTTPException) as error:
            self.close()
            kind = ConnectionLost if is_asked else ServerUnavailable
            raise kind(self._silent(error, is_asked=is_asked)) from error
        except KeyboardInterrupt:
            # The next request must not read the answer to this one.
            self.close()
            raise
        if len(text) > ANSWER_BYTES_MAX:
            self.close()
            raise CommandError(f"the answer is longer than {ANSWER_BYTES_MAX} bytes")
        if response.will_close:
            self.close()
        return Answer(response.status, text)

    def _connected(self) -> http.client.HTTPConnection:
        # Checked before a request is sent: a request that was sent is never repeated, since the bus
        # may have done it.
        if self._connection is not None and _has_ended(self._connection):
            self.close()
        if self._connection is None:
            self._connection = self._new_connection()
            # The owner of a transport need not close it.
            self._let_go = weakref.finalize(self, self._connection.close)
        return self._connection

    def _new_connection(self) -> http.client.HTTPConnection:
        if not self._is_secure:
            return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)
        try:
            trust = ssl.create_default_context(cafile=self._ca_file)
        except OSError as error:
            raise Usage(f"--ca {self._ca_file} holds no certificates: {error}") from error
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=self._timeout_s, context=trust
        )

    def _no_trust(self, error: ssl.SSLError) -> str:
        hint = ""
        if isinstance(error, ssl.SSLCertVerificationError):
            hint = (
                ": give the authority that signed its certificate with --ca FILE; the connection "
                "string of a bus without TLS ends in UseDevelopmentEmulator=true"
            )
        return f"TLS with {self._endpoint} failed ({error}){hint}"

    def _silent(self, error: Exception, *, is_asked: bool) -> str:
        reason = str(error) or type(error).__name__
        if is_asked:
            return (
                f"{self._endpoint} did not answer the request ({reason}): it may have done "
                "it, so check before you repeat it"
            )
        return (
            f"no Shardbus answers at {self._endpoint} ({reason}): start one with `shardbus "
            "serve`, or give another address with --endpoint or a connection string"
        )


def _address(endpoint: str) -> tuple[str, int | None, bool]:
    try:
        address = urlsplit(endpoint)
        host, port = address.hostname, address.port
    except ValueError as error:
        raise Usage(f"{endpoint!r} is not an endpoint: {error}") from error
    if address.scheme not in ("http", "https") or not host:
        raise Usage(f"{endpoint!r} is not an endpoint: write http://host:port")
    return host, port, address.scheme == "https"


def _nothing() -> None:
    """There is no connection yet."""


def _has_ended(connection: http.client.HTTPConnection) -> bool:
    """Between two answers readable means closed: the bus sends nothing else then."""
    if connection.sock is None:
        return True
    return bool(select.select([connection.sock], [], [], 0)[0])


class NamespaceClient:
    """Asks one namespace; every request carries a token of its own, because applying a large file
    takes longer than a token is valid.
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

    def _token(self) -> str:
        expires_at_s = int(self._clock()) + TOKEN_LIFETIME_S
        return self._credential.token_for(self._resource, expires_at_s=expires_at_s)


class Management(NamespaceClient):
    """The entities of one namespace.

    A subscription's path is `<topic>/Subscriptions/<name>`; that of a rule adds `/Rules/<name>`.
    """

    def create(
        self, kind: EntityKind, path: str, elements: dict[str, str], rule: AtomRule | None = None
    ) -> AtomDescription:
        """`rule` replaces the default rule of a new subscription."""
        first = None if rule is None else write_rule(rule, "DefaultRuleDescription")
        body = write_entity(kind, elements, first)
        return self._described(kind, path, self._ask("PUT", path, body=body, word=kind.word))

    def update(self, kind: EntityKind, path: str, elements: dict[str, str]) -> AtomDescription:
        """Change the given elements and leave the others as they are."""
        whole = {**self.entity(kind, path).elements, **elements}
        body = write_entity(kind, whole)
        answer = self._ask("PUT", path, body=body, is_update=True, word=kind.word)
        return self._described(kind, path, answer)

    def entity(self, kind: EntityKind, path: str) -> AtomDescription:
        return self._described(kind, path, self._ask("GET", path, word=kind.word))

    def look(
        self, path: str, kinds: Sequence[EntityKind]
    ) -> tuple[EntityKind, AtomDescription] | None:
        """The entity at a path, if it is of one of these kinds."""
        try:
            answer = self._ask("GET", path)
        except NotFound:
            return None
        found = ((kind, read_entity(kind, answer.body)) for kind in kinds)
        return next(((kind, entity) for kind, entity in found if entity is not None), None)

    def entities(self, kind: EntityKind, path: str) -> list[AtomDescription]:
        """All entities of a list, page by page."""
        return [
            entity for document in self._pages(path) for entity in read_entities(kind, document)
        ]

    def delete(self, path: str) -> None:
        self._ask("DELETE", path)

    def tier(self) -> str:
        """The tier of the namespace in lower case; empty when the bus does not report it."""
        return self._about("MessagingSKU").lower()

    def created_at(self) -> str:
        """When the namespace was created; empty when the bus does not report it."""
        return self._about("CreatedTime")

    def names(self, word: str, owner: str) -> list[str]:
        """The names of a kind of entities, or of the rules of a subscription."""
        if word == RULE:
            return [rule.name for rule in self.rules(f"{owner}/Rules")]
        if word == SUBSCRIPTION.word:
            found = self.entities(SUBSCRIPTION, f"{owner}/Subscriptions")
        else:
            found = self.entities(QUEUE if word == QUEUE.word else TOPIC, f"$Resources/{word}s")
        return [entity.name for entity in found]

    def create_rule(self, path: str, rule: AtomRule) -> AtomRule:
        return self._put_rule(path, rule, is_update=False)

    def update_rule(self, path: str, rule: AtomRule) -> AtomRule:
        """Replace the rule of the same name."""
        return self._put_rule(path, rule, is_update=True)

    def rule(self, path: str) -> AtomRule:
        return read_rule(parse(self._ask("GET", path).body))

    def rules(self, path: str) -> list[AtomRule]:
        return [read_rule(entry) for document in self._pages(path) for entry in read_feed(document)]

    def _about(self, name: str) -> str:
        """What the bus reports of the namespace under this name."""
        info = content_of(parse(self._ask("GET", "$namespaceinfo").body), "NamespaceInfo")
        found = None if info is None else info.text_of(CONNECT, name)
        return (found or "").strip()

    def _put_rule(self, path: str, rule: AtomRule, *, is_update: bool) -> AtomRule:
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
        word: str = ENTITY,
    ) -> Answer:
        headers = {"Authorization": self._token(), "Accept": "application/atom+xml"}
        if body is not None:
            headers["Content-Type"] = "application/atom+xml;type=entry;charset=utf-8"
        if is_update:
            headers["If-Match"] = "*"
        target = f"/{quote(path, safe='/$')}?api-version={API_VERSION}{paging}"
        answer = self._transport.ask(method, target, headers, body)
        check_answer(path, answer, self._credential, self.names, word)
        return answer

    def _described(self, kind: EntityKind, path: str, answer: Answer) -> AtomDescription:
        entity = read_entity(kind, answer.body)
        if entity is None:
            raise no_entity(path, self.names, kind.word)
        return entity


def check_answer(
    path: str, answer: Answer, credential: Credential, names: Names, word: str
) -> None:
    """Raise the failure of an unsuccessful answer; `word` is what the path should name."""
    if answer.status < 300:
        return
    detail = reason_of(answer) or http.client.responses.get(answer.status, "no reason given")
    match answer.status:
        case 401:
            raise Refused(not_authorised(detail, credential))
        case 404 if (target := _NO_TARGET.match(detail)) is not None:
            # Not the entity of the path is missing, but its forwarding destination.
            raise no_entity(target[1], names, ENTITY)
        case 404 | 410:
            raise no_entity(path, names, word)
        case 409:
            if "already exists" in detail:
                raise already_exists(path, names, word)
            raise Refused(f"{path} already exists, or is being changed: {detail}")
        case 504:
            raise ServerUnavailable(detail)
        case 429 | 500 | 502 | 503:
            raise ServerUnavailable(f"the bus cannot do this now, try again: {detail}")
        case _:
            raise Refused(detail)


def not_authorised(detail: str, credential: Credential) -> str:
    """Who was refused, why, and what to do."""
    if "InvalidSignature" not in detail:
        signer = credential.key_name or "the token"
        return f"not authorised: {detail} (signed by {signer})"
    if credential == Credential():
        return (
            "not authorised: this bus does not have the development key; give --key-name and "
            "--key, or --connection-string"
        )
    if credential.token:
        return "not authorised: the signature of the token in the connection string is wrong"
    return (
        f"not authorised: the given key is not a key of the access rule {credential.key_name}, or "
        "there is no such rule; check the key and the name, or the connection string"
    )


def reason_of(answer: Answer) -> str:
    """The bus's own reason for a refusal; empty when it gave none.

    The tracking id is left out: it is only useful with the server's log. So is what the status says
    too.
    """
    return _SUBCODE.sub("", read_error(answer.body).partition(" TrackingId:")[0])
