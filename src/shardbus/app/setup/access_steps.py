"""Steps for access rules, of the namespace and of entities."""

from collections.abc import Sequence

from shardbus.app.cli.api_client import Document
from shardbus.app.setup.current import Current, access_path
from shardbus.app.setup.model import DeclaredAccessRule
from shardbus.app.setup.step import CHANGE, CREATE, DELETE, SAME, Act, Change, Step
from shardbus.broker.access.auth import DEVELOPMENT_KEY_NAME

KIND = "access rule"


def access_steps(
    current: Current, path: str, said: Sequence[DeclaredAccessRule], *, is_new: bool, deletes: bool
) -> list[Step]:
    """The steps for the access rules of an entity, or of the namespace."""
    if not said and not deletes:
        return []
    has_keys = any(rule.primary_key or rule.secondary_key for rule in said)
    there = [] if is_new else current.access_rules(path, with_keys=has_keys)
    known = {rule.name: rule for rule in there}
    steps = [_step(current, path, rule, known.get(rule.name)) for rule in said]
    names = {rule.name for rule in said}
    if deletes:
        steps += [_deletion(current, path, rule) for rule in there if rule.name not in names]
    return steps


def _step(
    current: Current, path: str, rule: DeclaredAccessRule, old: DeclaredAccessRule | None
) -> Step:
    name = _name(path, rule)
    if not path and rule.name == DEVELOPMENT_KEY_NAME:
        reason = "the rule is defined by the settings of the bus, and can be changed only there"
        return Step(SAME, KIND, name, reason=reason, place=rule.place)
    document: Document = {"rights": list(rule.rights)}
    for key, text in (("primary_key", rule.primary_key), ("secondary_key", rule.secondary_key)):
        if text:
            document[key] = text
    act = _put(current, f"{access_path(path)}/{rule.name}", document)
    if old is None:
        return Step(CREATE, KIND, name, place=rule.place, act=act)
    changes = _changes(rule, old)
    if not changes:
        return Step(SAME, KIND, name, place=rule.place)
    return Step(CHANGE, KIND, name, changes, place=rule.place, act=act)


def _changes(rule: DeclaredAccessRule, old: DeclaredAccessRule) -> tuple[Change, ...]:
    changes: list[Change] = []
    if rule.rights != old.rights:
        changes.append(Change("rights", ", ".join(old.rights), ", ".join(rule.rights)))
    keys = (
        ("primary key", old.primary_key, rule.primary_key),
        ("secondary key", old.secondary_key, rule.secondary_key),
    )
    # The output may end in a log: keys are never printed.
    changes += [Change(word, "(old)", "(new)") for word, was, now in keys if now and was != now]
    return tuple(changes)


def _deletion(current: Current, path: str, rule: DeclaredAccessRule) -> Step:
    target = f"{access_path(path)}/{rule.name}"
    return Step(DELETE, KIND, _name(path, rule), act=lambda: current.api.delete(target))


def _put(current: Current, target: str, document: Document) -> Act:
    return lambda: current.api.put(target, document)


def _name(path: str, rule: DeclaredAccessRule) -> str:
    return f"{rule.name} of {path}" if path else rule.name
