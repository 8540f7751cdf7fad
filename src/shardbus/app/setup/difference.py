"""The steps that bring the bus to what a file describes, in an order that works."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, final

from shardbus.app.cli.duration import FOREVER_ISO
from shardbus.app.cli.entities.atom import QUEUE, SUBSCRIPTION, TOPIC, EntityKind
from shardbus.app.cli.entities.rule import filter_text
from shardbus.app.cli.entities.rule_atom import FALSE, TRUE, AtomRule
from shardbus.app.setup.access_steps import access_steps
from shardbus.app.setup.current import Current
from shardbus.app.setup.model import (
    DEFAULT_RULE,
    FORWARDS,
    Blueprint,
    DeclaredAccessRule,
    DeclaredEntity,
)
from shardbus.app.setup.order import creation_order, deletion_order, loop_of
from shardbus.app.setup.pipeline_steps import missing_pipelines, pipeline_steps
from shardbus.app.setup.step import BLOCKED, CHANGE, CREATE, DELETE, SAME, Change, SetupPlan, Step

PARTITIONING: Final = "EnablePartitioning"


def plan(blueprint: Blueprint, current: Current, *, deletes_missing: bool) -> SetupPlan:
    """The difference; computing it changes nothing."""
    return _Planner(blueprint, current, deletes_missing).plan()


@final
class _Planner:
    """Compares entity by entity, then sorts the steps."""

    def __init__(self, blueprint: Blueprint, current: Current, deletes_missing: bool) -> None:
        self._blueprint = blueprint
        self._current = current
        self._deletes = deletes_missing
        self._plan = SetupPlan(warnings=list(blueprint.warnings))

    def plan(self) -> SetupPlan:
        tier = self._current.tier()
        if self._blueprint.tier and tier and self._blueprint.tier != tier:
            self._plan.warnings.append(
                f"the file is for a namespace of the tier {self._blueprint.tier}, but this "
                f"one is {tier}"
            )
        said = [self._settled(entity, tier) for entity in self._blueprint.entities]
        there = {entity.key: self._current.at(entity.path) for entity in said}
        missing = [entity for entity in said if there[entity.key] is None]
        self._block_orphans(missing, {entity.key for entity in said})
        self._block_forwarding(said, there)
        self._plan.steps += self._access("", self._blueprint.access_rules, is_new=False)
        self._create(missing)
        # Entities that stop forwarding come first: they may be in the way of those that start.
        for entity in sorted(said, key=lambda each: bool(each.elements.get("ForwardTo"))):
            old = there[entity.key]
            if old is not None:
                self._change(entity, old)
        if self._deletes and self._blueprint.says_pipelines:
            self._plan.steps += missing_pipelines(self._current, self._blueprint.pipelines)
        self._leave_or_delete({entity.key for entity in said})
        self._plan.steps += pipeline_steps(self._current, self._blueprint.pipelines)
        return self._plan

    def _settled(self, entity: DeclaredEntity, tier: str) -> DeclaredEntity:
        """The entity without the properties that the bus decides."""
        dropped: dict[str, str] = {}
        if entity.elements.get("AutoDeleteOnIdle", FOREVER_ISO) != FOREVER_ISO and entity.targets():
            dropped["AutoDeleteOnIdle"] = "an entity that forwards is never idle"
        if PARTITIONING in entity.elements and tier == "premium":
            dropped[PARTITIONING] = "in a premium namespace the bus decides"
        for name, reason in dropped.items():
            self._plan.warnings.append(f"{entity.place}: {name} is ignored: {reason}")
        kept = {name: text for name, text in entity.elements.items() if name not in dropped}
        return replace(entity, elements=kept)

    def _block_orphans(self, missing: list[DeclaredEntity], said: set[str]) -> None:
        for entity in missing:
            topic = entity.topic
            if topic and topic.lower() not in said and self._current.at(topic) is None:
                self._block(entity, f"the topic {topic} is neither in the file nor on the bus")

    def _block_forwarding(
        self, said: list[DeclaredEntity], there: dict[str, DeclaredEntity | None]
    ) -> None:
        for entity in said:
            way = loop_of(entity, said)
            if way:
                self._plan.warnings.append(
                    f"{entity.place}: ForwardTo makes a loop: {' -> '.join(way)}: messages in it "
                    "become dead letters"
                )
            old = there[entity.key]
            kept = [] if old is None else old.targets()
            for target in entity.targets():
                if target in there or target in kept or self._current.at(target) is not None:
                    continue
                reason = f"it forwards to {target}, which is neither in the file nor on the bus"
                self._block(entity, reason)

    def _block(self, entity: DeclaredEntity, reason: str) -> None:
        step = Step(BLOCKED, entity.kind.word, entity.path, reason=reason, place=entity.place)
        self._plan.steps.append(step)

    def _create(self, missing: list[DeclaredEntity]) -> None:
        order = creation_order(missing)
        for entity in order.entities:
            postponed = order.postponed.get(entity.key, ())
            self._plan.steps.append(self._creation(entity, postponed))
            rules = [] if entity.rules is None else entity.rules[1:]
            self._plan.steps += [self._rule_creation(entity, rule) for rule in rules]
            self._plan.steps += self._access(entity.path, entity.access_rules, is_new=True)
        for entity in order.entities:
            changes = tuple(
                Change(name, "", target)
                for name in order.postponed.get(entity.key, ())
                if (target := entity.elements.get(name, ""))
            )
            if changes:
                self._plan.steps.append(self._update(entity, changes))

    def _creation(self, entity: DeclaredEntity, postponed: tuple[str, ...]) -> Step:
        elements = {
            name: text for name, text in entity.elements.items() if text and name not in postponed
        }

        def act() -> None:
            management = self._current.management
            if entity.rules is None or entity.rules:
                first = entity.rules[0] if entity.rules else None
                management.create(entity.kind, entity.path, elements, first)
                return
            # The bus creates a rule with every subscription: this one matches nothing until it is
            # deleted.
            nothing = AtomRule(DEFAULT_RULE, FALSE)
            management.create(entity.kind, entity.path, elements, nothing)
            management.delete(f"{entity.path}/Rules/{DEFAULT_RULE}")

        return Step(CREATE, entity.kind.word, entity.path, place=entity.place, act=act)

    def _change(self, entity: DeclaredEntity, old: DeclaredEntity) -> None:
        if old.kind is not entity.kind:
            self._block(entity, f"a {old.kind.word} of this name already exists")
            return
        fixed = {each.element for each in entity.kind.options if each.is_fixed}
        changes = [
            Change(name, old.elements.get(name, ""), text)
            for name, text in entity.elements.items()
            if not _is_same(name, old.elements.get(name, ""), text)
            and not self._is_outdated(entity, name)
        ]
        for change in changes:
            if change.name in fixed:
                self._block(
                    entity,
                    f"{change.name} is fixed at creation: it is {change.old} and cannot "
                    f"become {change.new}; delete the entity and apply again, or give its "
                    "present value in the file",
                )
        possible = tuple(change for change in changes if change.name not in fixed)
        if possible:
            self._plan.steps.append(self._update(entity, possible))
        elif not changes:
            self._plan.steps.append(Step(SAME, entity.kind.word, entity.path, place=entity.place))
        if entity.rules is not None:
            self._change_rules(entity, entity.rules)
        if entity.kind is not SUBSCRIPTION:
            self._plan.steps += self._access(entity.path, entity.access_rules, is_new=False)

    def _is_outdated(self, entity: DeclaredEntity, name: str) -> bool:
        """Whether a repartition has changed what the file says; files are for a creation."""
        is_map = name == PARTITIONING and entity.kind is not SUBSCRIPTION
        if not (is_map and self._current.is_repartitioned(entity.path)):
            return False
        self._plan.warnings.append(
            f"{entity.place}: {name} is ignored: {entity.path} was repartitioned since it was "
            "created, and `shardbus repartition` changes it again"
        )
        return True

    def _update(self, entity: DeclaredEntity, changes: tuple[Change, ...]) -> Step:
        elements = {change.name: change.new for change in changes}

        def act() -> None:
            self._current.management.update(entity.kind, entity.path, elements)

        return Step(CHANGE, entity.kind.word, entity.path, changes, place=entity.place, act=act)

    def _change_rules(self, entity: DeclaredEntity, rules: tuple[AtomRule, ...]) -> None:
        there = {rule.name.lower(): rule for rule in self._current.rules(entity.path)}
        for rule in rules:
            old = there.pop(rule.name.lower(), None)
            if old is None:
                self._plan.steps.append(self._rule_creation(entity, rule))
            elif replace(old, name=rule.name) == rule:
                self._plan.steps.append(_rule_step(SAME, entity, rule))
            else:
                self._plan.steps.append(self._rule_change(entity, rule, old))
        for rule in there.values():
            # The default rule of a subscription gives way to the rules in the file.
            is_automatic = rule == AtomRule(DEFAULT_RULE, TRUE)
            if is_automatic or self._deletes:
                self._plan.steps.append(self._rule_deletion(entity, rule, is_automatic))
            else:
                self._plan.unlisted.append(f"rule {rule.name} of {entity.path}")

    def _rule_creation(self, entity: DeclaredEntity, rule: AtomRule) -> Step:
        path = f"{entity.path}/Rules/{rule.name}"
        step = _rule_step(CREATE, entity, rule)
        return replace(step, act=lambda: self._current.management.create_rule(path, rule))

    def _rule_change(self, entity: DeclaredEntity, rule: AtomRule, old: AtomRule) -> Step:
        path = f"{entity.path}/Rules/{rule.name}"
        step = replace(_rule_step(CHANGE, entity, rule), changes=_rule_changes(old, rule))
        return replace(step, act=lambda: self._current.management.update_rule(path, rule))

    def _rule_deletion(self, entity: DeclaredEntity, rule: AtomRule, is_automatic: bool) -> Step:
        path = f"{entity.path}/Rules/{rule.name}"
        reason = "it matches every message, and the file gives other rules" if is_automatic else ""
        step = _rule_step(DELETE, entity, rule)
        return replace(step, reason=reason, act=lambda: self._current.management.delete(path))

    def _access(self, path: str, said: Sequence[DeclaredAccessRule], *, is_new: bool) -> list[Step]:
        deletes = self._deletes and self._blueprint.says_access_rules and not is_new
        return access_steps(self._current, path, said, is_new=is_new, deletes=deletes)

    def _leave_or_delete(self, said: set[str]) -> None:
        if not self._deletes:
            return
        gone: list[DeclaredEntity] = []
        for kind in (QUEUE, TOPIC):
            for path in self._current.paths(kind):
                gone += self._missing(kind, path, said)
        for entity in deletion_order(gone):
            self._plan.steps.append(self._deletion(entity))

    def _missing(self, kind: EntityKind, path: str, said: set[str]) -> list[DeclaredEntity]:
        if path.lower() not in said:
            found = self._current.at(path)
            return [] if found is None else [found]
        if kind is not TOPIC:
            return []
        below = self._current.paths(SUBSCRIPTION, path)
        found_below = [self._current.at(each) for each in below if each.lower() not in said]
        return [found for found in found_below if found is not None]

    def _deletion(self, entity: DeclaredEntity) -> Step:
        return Step(
            DELETE,
            entity.kind.word,
            entity.path,
            reason="with every message in it",
            act=lambda: self._current.management.delete(entity.path),
        )


def _rule_step(sign: str, entity: DeclaredEntity, rule: AtomRule) -> Step:
    return Step(sign, "rule", f"{rule.name} of {entity.path}", place=entity.place)


def _rule_changes(old: AtomRule, new: AtomRule) -> tuple[Change, ...]:
    pairs = (
        ("filter", filter_text(old), filter_text(new)),
        ("action", old.action, new.action),
        ("parameters", _parameters_text(old), _parameters_text(new)),
    )
    return tuple(Change(word, was, now) for word, was, now in pairs if was != now)


def _parameters_text(rule: AtomRule) -> str:
    values = (*rule.parameters, *rule.action_parameters)
    return ", ".join(f"@{value.name} = {value.text} ({value.type})" for value in values)


def _is_same(name: str, old: str, new: str) -> bool:
    return old.lower() == new.lower() if name in FORWARDS else old == new
