"""The entities of the target: created where they are missing, with temporary rules for topics.

A message cannot be sent to a single subscription. So each subscription of the target has only one
rule until the messages of its topic have been moved: it matches messages that are tagged with the
name of the subscription, and removes the tag. Then the subscription gets the rules of the source.
If the topic detects duplicates, it would drop all but one of the copies that a message has in
several subscriptions: each copy is sent with a unique id, and the rule restores the original id.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import Final, final

from shardbus.app.cli.entities.atom import QUEUE, SUBSCRIPTION, TOPIC, EntityKind
from shardbus.app.cli.entities.rule_atom import SQL, AtomRule
from shardbus.app.cli.failures import Refused
from shardbus.app.migrate.journal import Journal
from shardbus.app.migrate.outgoing import MESSAGE_ID, TAG
from shardbus.app.setup.application import apply_plan
from shardbus.app.setup.current import Current
from shardbus.app.setup.difference import plan
from shardbus.app.setup.model import Blueprint, DeclaredEntity

DUPLICATES: Final = "RequiresDuplicateDetection"
SESSIONS: Final = "RequiresSession"
FORWARD: Final = "ForwardTo"
_FINISHED: Final = 0
_LIFE_CHARACTERS: Final = 12
_PROBE_BYTES: Final = 8


@final
class TargetEntities:
    """Prepares the target, and finishes its topics."""

    def __init__(
        self,
        namespaces: tuple[Current, Current],
        endpoint: str,
        source: Blueprint,
        journal: Journal,
        tell: Callable[[str], None],
    ) -> None:
        """`namespaces` are the source, at `endpoint`, and the target; `source` are the entities to
        move.
        """
        self._endpoint = endpoint
        self._there, self._target = namespaces
        self._source = source
        self._journal = journal
        self._tell = tell

    def prepare(self) -> None:
        """Create missing entities.

        Refused, and nothing is changed, for an entity that the target has and that cannot take the
        messages.
        """
        for entity in self._source.entities:
            self._check_alike(entity)
        for topic in self._source.of_kind(TOPIC):
            self._check_unused(topic)
        missing = [
            self._tagged(entity) if entity.kind is SUBSCRIPTION else entity
            for entity in self._source.entities
            if self._target.at(entity.path) is None
        ]
        applied = apply_plan(
            plan(
                replace(self._source, entities=missing, access_rules=[], says_access_rules=False),
                self._target,
                deletes_missing=False,
            ),
            lambda step: self._tell(step.lines()),
        )
        if applied.failure is not None:
            raise applied.failure

    def life(self, kind: EntityKind, path: str) -> str:
        """An id for an entity of the source and its counterpart on the target.

        It changes if one of them is deleted and created again: the new entity has the same path,
        and may have other messages under the same sequence numbers.
        """
        created = [
            "" if found is None else found[1].elements.get("CreatedAt", "")
            for found in (each.management.look(path, (kind,)) for each in self._ends)
        ]
        said = "\n".join([self._endpoint, path.lower(), *created])
        return hashlib.sha256(said.encode()).hexdigest()[:_LIFE_CHARACTERS]

    def detects_duplicates(self, path: str) -> bool:
        """Whether the target's queue or topic drops a message whose id it has seen."""
        found = self._target.at(path)
        return found is not None and _is_set(found, DUPLICATES)

    def waiting(self, kind: EntityKind, path: str) -> int:
        """How many messages can be received from an entity of the target."""
        return self._target.management.entity(kind, path).counts["active"]

    def is_finished(self, topic: str) -> bool:
        """Whether the messages of the topic were moved, and it has the rules of the source."""
        return self._journal.is_done(self._rules_line(topic), _FINISHED)

    def finish(self, topic: DeclaredEntity) -> None:
        """Give the subscriptions the rules of the source, when no tagged message is left."""
        self._journal.done(self._rules_line(topic.path), [_FINISHED])
        for entity in self._source.subscriptions_of(topic):
            there = {rule.name.lower() for rule in self._target.rules(entity.path)}
            for rule in entity.rules or ():
                if rule.name.lower() not in there:
                    self._target.management.create_rule(f"{entity.path}/Rules/{rule.name}", rule)
            if TAG in there:
                self._target.management.delete(f"{entity.path}/Rules/{TAG}")
            self._tell(f"~ subscription {entity.path}: has the rules of the source")

    def _check_alike(self, entity: DeclaredEntity) -> None:
        """Refused if messages would be lost, or arrive without their sessions, or be passed on."""
        there = self._target.at(entity.path)
        reason = "" if there is None else _difference(entity, there)
        if reason:
            raise Refused(
                f"{entity.path} {reason}: change or delete it there, or leave it out of --entities"
            )

    def _check_unused(self, topic: DeclaredEntity) -> None:
        """Refused if a subscription has other rules: it would get the messages of all others."""
        if self.is_finished(topic.path) or self._target.at(topic.path) is None:
            return
        for path in self._target.paths(SUBSCRIPTION, topic.path):
            if [rule.name for rule in self._target.rules(path)] != [TAG]:
                raise Refused(
                    f"{path} exists on the target and would get the messages of all subscriptions "
                    f"of {topic.path}: delete it there, or leave {topic.path} out of --entities"
                )

    @property
    def _ends(self) -> tuple[Current, Current]:
        return self._there, self._target

    def _tagged(self, entity: DeclaredEntity) -> DeclaredEntity:
        topic = next(each for each in self._source.of_kind(TOPIC) if each.path == entity.topic)
        there = self._target.at(topic.path) or topic
        rule = tag_rule(entity.name, restores_ids=_is_set(there, DUPLICATES))
        return replace(entity, rules=(rule,))

    def _rules_line(self, topic: str) -> str:
        return f"{topic} rules {self.life(TOPIC, topic)}"


def tag_rule(name: str, *, restores_ids: bool) -> AtomRule:
    """The rule by which a subscription gets the messages that are tagged with its name."""
    quoted = name.replace("'", "''")
    action = f"REMOVE user.{TAG}"
    if restores_ids:
        action += f"; SET sys.MessageId = user.{MESSAGE_ID}; REMOVE user.{MESSAGE_ID}"
    return AtomRule(TAG, SQL, f"user.{TAG} = '{quoted}'", action=action)


def are_one(there: Current, here: Current) -> bool:
    """Whether two addresses are those of one namespace.

    A restored namespace was created at the same moment as the original, and messages may be moved
    between the two. So if the moments are equal, a queue that is created in one is looked for in
    the other, and deleted.
    """
    created = there.management.created_at()
    if not created or created != here.management.created_at():
        return False
    probe = f"shardbus-migrate-{secrets.token_hex(_PROBE_BYTES)}"
    here.management.create(QUEUE, probe, {})
    try:
        return there.management.look(probe, (QUEUE,)) is not None
    finally:
        here.management.delete(probe)


def _difference(entity: DeclaredEntity, there: DeclaredEntity) -> str:
    """Why the target's entity cannot take the messages of the source's; empty if it can."""
    if there.kind is not entity.kind:
        return f"is a {entity.kind.word} on the source and a {there.kind.word} on the target"
    if _is_set(entity, SESSIONS) != _is_set(there, SESSIONS):
        side = "source" if _is_set(entity, SESSIONS) else "target"
        return f"requires sessions on the {side} only"
    if there.elements.get(FORWARD) and not entity.elements.get(FORWARD):
        return f"forwards to {there.elements[FORWARD]} on the target, but not on the source"
    return ""


def _is_set(entity: DeclaredEntity, name: str) -> bool:
    return entity.elements.get(name) == "true"
