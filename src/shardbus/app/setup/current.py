"""The present namespace, read on demand and cached."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, final

from shardbus.app.cli.access import ClientAccess
from shardbus.app.cli.api_client import ApiClient, Document
from shardbus.app.cli.client import HttpTransport, Management
from shardbus.app.cli.entities.atom import QUEUE, SUBSCRIPTION, TOPIC, AtomDescription, EntityKind
from shardbus.app.cli.entities.rule_atom import AtomRule
from shardbus.app.cli.failures import CommandError, NotFound, ServerUnavailable
from shardbus.app.setup.canonical import described_elements, rights_form, rule_form
from shardbus.app.setup.model import (
    SUBSCRIPTIONS_SEGMENT,
    Blueprint,
    DeclaredAccessRule,
    DeclaredEntity,
)
from shardbus.app.setup.pipeline_form import declared_pipeline

_LISTS: Final = {QUEUE.word: "$Resources/queues", TOPIC.word: "$Resources/topics"}


@final
class Current:
    """The present namespace; `management` and `api` are also used to change it."""

    def __init__(self, management: Management, api: ApiClient) -> None:
        self.management = management
        self.api = api
        self._tier: str | None = None
        self._has_api: bool | None = None

    def tier(self) -> str:
        """In lower case; empty when the bus does not report it."""
        if self._tier is None:
            self._tier = self.management.tier()
        return self._tier

    def at(self, path: str) -> DeclaredEntity | None:
        """The queue, topic or subscription at a path, without its rules; None if there is none."""
        is_below = SUBSCRIPTIONS_SEGMENT in path
        found = self.management.look(path, (SUBSCRIPTION,) if is_below else (QUEUE, TOPIC))
        return None if found is None else _entity(found[0], path, found[1])

    def paths(self, kind: EntityKind, topic: str = "") -> list[str]:
        """All entities of a kind; for subscriptions, those of a topic."""
        if kind is SUBSCRIPTION:
            found = self.management.entities(kind, f"{topic}/Subscriptions")
            return [topic + SUBSCRIPTIONS_SEGMENT + described.name for described in found]
        return [found.name for found in self.management.entities(kind, _LISTS[kind.word])]

    def rules(self, path: str) -> list[AtomRule]:
        """The rules of a subscription, in canonical form."""
        return [rule_form(rule) for rule in self.management.rules(f"{path}/Rules")]

    def has_api(self) -> bool:
        """Whether this is a Shardbus: the live service has the ATOM API only."""
        if self._has_api is None:
            try:
                self._has_api = "version" in self.api.get("namespace")
            except ServerUnavailable:
                raise
            except CommandError:
                self._has_api = False
        return self._has_api

    def is_repartitioned(self, path: str) -> bool:
        """Whether a queue or topic has another map than the one that it was created with."""
        if not self.has_api():
            return False
        former = self.api.get(f"entities/{path}/repartition").get("former")
        return isinstance(former, int) and former > 0

    def access_rules(self, path: str, *, with_keys: bool) -> list[DeclaredAccessRule]:
        """The access rules of an entity, or with an empty path of the namespace.

        The rule of the settings is left out: no file can change it. The live service shows none.
        """
        if not self.has_api():
            return []
        below = access_path(path)
        found = self.api.get(below).get("access_rules")
        if not isinstance(found, list):
            raise CommandError("the answer of the bus about access rules cannot be read")
        names = [
            str(summary["name"])
            for summary in found
            if isinstance(summary, dict) and not summary.get("is_of_settings")
        ]
        if not with_keys:
            return [_access_rule(summary) for summary in found if summary.get("name") in names]
        return [_access_rule(self.api.get(f"{below}/{name}")) for name in names]

    def pipelines(self) -> list[Document]:
        """The definition and state of each; none where the bus knows no pipelines."""
        if not self.has_api():
            return []
        try:
            found = self.api.get("pipelines").get("pipelines")
        except NotFound:
            return []
        return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []

    def everything(self, *, with_keys: bool) -> Blueprint:
        """The whole namespace."""
        whole = Blueprint(tier=self.tier(), says_access_rules=self.has_api())
        whole.access_rules = self.access_rules("", with_keys=with_keys)
        for kind in (QUEUE, TOPIC):
            for described in self.management.entities(kind, _LISTS[kind.word]):
                entity = _entity(kind, described.name, described)
                rules = self.access_rules(entity.path, with_keys=with_keys)
                whole.entities.append(
                    DeclaredEntity(kind, entity.path, entity.elements, access_rules=tuple(rules))
                )
                if kind is TOPIC:
                    whole.entities += self._subscriptions(entity.path)
        whole.pipelines = [declared_pipeline(each) for each in self.pipelines()]
        return whole

    def _subscriptions(self, topic: str) -> list[DeclaredEntity]:
        entities: list[DeclaredEntity] = []
        for described in self.management.entities(SUBSCRIPTION, f"{topic}/Subscriptions"):
            path = topic + SUBSCRIPTIONS_SEGMENT + described.name
            elements = described_elements(SUBSCRIPTION, described)
            entities.append(DeclaredEntity(SUBSCRIPTION, path, elements, tuple(self.rules(path))))
        return entities


@contextmanager
def visiting(access: ClientAccess) -> Iterator[Current]:
    """A namespace over one connection, which is closed at the end."""
    transport = HttpTransport(access.endpoint, access.ca_file)
    signed = (transport, access.endpoint, access.credential)
    try:
        yield Current(Management(*signed, clock=time.time), ApiClient(*signed, clock=time.time))
    finally:
        transport.close()


def access_path(path: str) -> str:
    """The path of the JSON API for the access rules of an entity, or of the namespace."""
    return f"entities/{path}/access-rules" if path else "access-rules"


def _entity(kind: EntityKind, path: str, described: AtomDescription) -> DeclaredEntity:
    return DeclaredEntity(kind, path, described_elements(kind, described))


def _access_rule(document: Document) -> DeclaredAccessRule:
    rights = document.get("rights")
    primary, secondary = document.get("primary_key"), document.get("secondary_key")
    return DeclaredAccessRule(
        str(document.get("name")),
        rights_form([str(right) for right in rights] if isinstance(rights, list) else []),
        primary if isinstance(primary, str) else "",
        secondary if isinstance(secondary, str) else "",
    )
