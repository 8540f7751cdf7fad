"""The command line's client of the JSON API: signs requests, and turns answers into failures."""

import json
import re
import time
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, urlencode

from shardbus.app.cli.client import Answer, NamespaceClient, check_answer, reason_of
from shardbus.app.cli.console import Json
from shardbus.app.cli.failures import CommandError, NotFound, Refused
from shardbus.app.cli.missing import ENTITY, RULE, SUBSCRIPTION, did_you_mean, no_entity

PREFIX: Final = "/api/v1/"
PIPELINE: Final = "pipeline"
ACCESS_RULE: Final = "access rule"
# Names are for completion and for guesses at what was meant.
NAMES_PAGE: Final = 200
NAMES_MAX: Final = 10_000

# The bus's own words, which the SDKs recognise too.
_NO_ENTITY: Final = re.compile(
    r"The messaging entity '(?:sb://[^/]*/)?(.+)' (?:could not be found|does not exist)"
)
_NO_PIPELINE: Final = re.compile(r"There is no pipeline '(.+)'")
_NO_ACCESS_RULE: Final = re.compile(r"There is no access rule '(.+)'")

Document = dict[str, Json]
"""What the API takes and answers: always one object."""


class ApiClient(NamespaceClient):
    """Paths are relative to the API and plain text: `entities/a b/fragments`.

    Every method raises the failures of commands, with the API's own reasons.
    """

    def get(self, path: str, **query: str | int | None) -> Document:
        """`None` leaves a parameter out; `from_` is the parameter `from`."""
        return self._ask("GET", path, query=_encoded(query))

    def post(self, path: str, document: Document, **query: int | None) -> Document:
        return self._ask("POST", path, document, query=_encoded(query))

    def put(self, path: str, document: Document) -> Document:
        return self._ask("PUT", path, document)

    def delete(self, path: str, **query: int | None) -> Document:
        return self._ask("DELETE", path, query=_encoded(query))

    def _ask(
        self, method: str, path: str, document: Document | None = None, query: str = ""
    ) -> Document:
        headers = {"Authorization": self._token(), "Accept": "application/json"}
        body = None
        if document is not None:
            headers["Content-Type"] = "application/json"
            body = json.dumps(document).encode()
        target = PREFIX + quote(path, safe="/$") + (f"?{query}" if query else "")
        answer = self._transport.ask(method, target, headers, body)
        self._check(answer)
        return _read(answer.body)

    def names(self, word: str, owner: str, until_s: float | None = None) -> list[str]:
        """The names of all things of the kind `word`. `owner` is the subscription of rules, the
        topic of subscriptions, and the entity of access rules, or empty for the namespace.

        At the moment `until_s` of the steady clock, reading stops: names may then be missing.
        """
        if word == ACCESS_RULE:
            path = f"entities/{owner}/access-rules" if owner else "access-rules"
            return self._listed(path, "access_rules", until_s)
        if word == RULE:
            return self._listed(f"entities/{owner}/rules", "rules", until_s)
        if word == SUBSCRIPTION:
            found = self._listed(f"topics/{owner}/subscriptions", "subscriptions", until_s)
            return [name.rpartition("/")[2] for name in found]
        return self._listed(f"{word}s", f"{word}s", until_s)

    def _listed(self, path: str, member: str, until_s: float | None) -> list[str]:
        found: list[str] = []
        while len(found) < NAMES_MAX and (until_s is None or time.monotonic() < until_s):
            is_whole = member == f"{PIPELINE}s" or path.endswith("access-rules")
            page = self.get(path) if is_whole else self.get(path, skip=len(found), top=NAMES_PAGE)
            listed = page.get(member)
            entities = listed if isinstance(listed, list) else []
            found += [str(each.get("name")) for each in entities if isinstance(each, dict)]
            if is_whole or len(entities) < NAMES_PAGE:
                break
        return found

    def _check(self, answer: Answer) -> None:
        detail = reason_of(answer)
        if detail and answer.status == 404:
            raise self._not_found(detail)
        if detail and answer.status in (409, 410):
            raise Refused(detail)
        check_answer("", answer, self._credential, self.names, ENTITY)

    def _not_found(self, detail: str) -> NotFound:
        entity, pipeline = _NO_ENTITY.match(detail), _NO_PIPELINE.match(detail)
        if entity is not None:
            return no_entity(entity[1], self.names)
        access_rule = _NO_ACCESS_RULE.match(detail)
        if access_rule is not None:
            return NotFound(
                f"there is no access rule {access_rule[1]} (`shardbus sas rule list`, with "
                "--entity for those of an entity, shows what there is)"
            )
        if pipeline is None:
            return NotFound(detail)
        plain = f"there is no pipeline {pipeline[1]}"
        lists = "(`shardbus pipeline list` shows what there is)"

        def explain() -> str:
            return f"{plain}{did_you_mean(pipeline[1], self.names(PIPELINE, ''))} {lists}"

        return NotFound(plain, explain)


def _encoded(query: Mapping[str, str | int | None]) -> str:
    given = {name.rstrip("_"): str(value) for name, value in query.items() if value is not None}
    return urlencode(given)


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
