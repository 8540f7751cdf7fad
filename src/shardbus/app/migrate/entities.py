"""The entities of the target: created where they are missing, topics so that messages can be moved.

Nothing can be sent to a single subscription. So each subscription of the target gets, until the
messages of its topic have been moved, one rule only, which matches messages that are tagged with
its name and removes the tag. Then it gets the rules of the source.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, final

from shardbus.app.cli.entities.atom import SUBSCRIPTION, TOPIC
from shardbus.app.cli.entities.rule_atom import SQL, AtomRule
from shardbus.app.cli.failures import Refused
from shardbus.app.migrate.journal import Journal
from shardbus.app.migrate.outgoing import TAG
from shardbus.app.setup.application import apply_plan
from shardbus.app.setup.current import Current
from shardbus.app.setup.difference import plan
from shardbus.app.setup.model import Blueprint, DeclaredEntity

_FINISHED: Final = 0


@final
class TargetEntities:
    """Prepares the target, and finishes its topics."""

    def __init__(
        self, target: Current, source: Blueprint, journal: Journal, tell: Callable[[str], None]
    ) -> None:
        self._target = target
        self._source = source
        self._journal = journal
        self._tell = tell

    def prepare(self) -> None:
        """Create what is missing. Refused for a topic whose subscriptions are in use there."""
        for topic in self._source.of_kind(TOPIC):
            self._check_unused(topic)
        missing = [
            _tagged(entity) if entity.kind is SUBSCRIPTION else entity
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

    def is_finished(self, topic: str) -> bool:
        """Whether the messages of the topic were moved, and its rules are those of the source."""
        return self._journal.is_done(_rules_line(topic), _FINISHED)

    def finish(self, topic: DeclaredEntity) -> None:
        """Give the subscriptions the rules of the source; from now on nothing is tagged."""
        self._journal.done(_rules_line(topic.path), [_FINISHED])
        for entity in self._source.subscriptions_of(topic):
            there = {rule.name.lower() for rule in self._target.rules(entity.path)}
            for rule in entity.rules or ():
                if rule.name.lower() not in there:
                    self._target.management.create_rule(f"{entity.path}/Rules/{rule.name}", rule)
            if TAG in there:
                self._target.management.delete(f"{entity.path}/Rules/{TAG}")
            self._tell(f"~ subscription {entity.path}: has its rules")

    def _check_unused(self, topic: DeclaredEntity) -> None:
        """A subscription with other rules would get the messages of its sisters too."""
        if self.is_finished(topic.path) or self._target.at(topic.path) is None:
            return
        for path in self._target.paths(SUBSCRIPTION, topic.path):
            if [rule.name for rule in self._target.rules(path)] != [TAG]:
                raise Refused(
                    f"{path} exists on the target, and would get the messages of all subscriptions "
                    f"of {topic.path}: delete it there, or leave {topic.path} out of --entities"
                )


def tag_rule(name: str) -> AtomRule:
    """The rule by which a subscription gets the messages that are tagged with its name."""
    quoted = name.replace("'", "''")
    return AtomRule(TAG, SQL, f"user.{TAG} = '{quoted}'", action=f"REMOVE user.{TAG}")


def _tagged(entity: DeclaredEntity) -> DeclaredEntity:
    return replace(entity, rules=(tag_rule(entity.name),))


def _rules_line(topic: str) -> str:
    return f"{topic} rules"
