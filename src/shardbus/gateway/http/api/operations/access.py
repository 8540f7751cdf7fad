"""Access rules in the JSON API: of the namespace, of queues and of topics (R34)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, final

from msgspec import UNSET, Meta, Struct, UnsetType

from shardbus.broker.clock import Clock
from shardbus.broker.namespace.access import Change, check_has_rules
from shardbus.broker.namespace.namespace import Namespace
from shardbus.core.errors import NOT_ALLOWED, NOT_FOUND, Refused
from shardbus.core.namespace.access import (
    KEY_CHARACTERS_MAX,
    KEY_NAME_CHARACTERS_MAX,
    MANAGE,
    RULES_MAX,
    AccessRule,
    right_named,
    right_names,
)
from shardbus.gateway.http.api.call import Call, Nothing, Row, shows, takes
from shardbus.gateway.http.api.operations.system import ServerFacts
from shardbus.gateway.http.api.route import NAME, RULE, Route
from shardbus.gateway.http.atom.access_markup import complete_rules, new_key
from shardbus.gateway.http.document import B, Body, Maybe, Moment, Shape, one_of, told
from shardbus.gateway.http.moment import format_moment
from shardbus.gateway.http.server.refusal import invalid, shown

_Key = Annotated[
    Maybe[Annotated[str, Meta(min_length=1, max_length=KEY_CHARACTERS_MAX)]],
    told("If left out, the key does not change, and a new rule gets a random key."),
]


class AccessRuleSummary(Struct, kw_only=True):
    name: str
    rights: list[Annotated[str, one_of("Manage", "Send", "Listen")]]
    is_of_settings: Annotated[
        bool,
        told("Whether the rule comes from the settings of the bus and can be changed only there."),
    ]
    created_at: Moment | None
    modified_at: Moment | None


class AccessRules(Struct, kw_only=True):
    access_rules: list[AccessRuleSummary]


class AccessRuleShown(AccessRuleSummary, kw_only=True):
    primary_key: Annotated[str | None, told("Null for the rule of the settings.")]
    secondary_key: str | None
    primary_connection_string: Annotated[
        str | None, told("With the port for AMQP; null where the key is null.")
    ]
    secondary_connection_string: str | None


class AccessRuleChange(Body, kw_only=True, frozen=True):
    rights: Annotated[
        Maybe[Annotated[list[Literal["Manage", "Send", "Listen"]], Meta(max_length=RULES_MAX)]],
        Meta(
            description="Required for a new rule; Manage includes the other two.",
            examples=[["Send", "Listen"]],
        ),
    ] = UNSET
    primary_key: _Key = UNSET
    secondary_key: _Key = UNSET


class KeyRotation(Body, kw_only=True, frozen=True):
    key: Annotated[Literal["primary", "secondary"], Meta(examples=["primary"])]


class AccessRuleDeleted(Struct, kw_only=True):
    name: str
    is_deleted: bool


@final
class AccessPages:
    """Shows and changes access rules. Lists have no keys: they are shown one rule at a time."""

    def __init__(
        self, namespace: Namespace, clock: Clock, facts: ServerFacts | None = None
    ) -> None:
        self._namespace = namespace
        self._clock = clock
        self._facts = ServerFacts() if facts is None else facts

    def rows(self) -> list[Row]:
        return [*self._rows("", "the namespace"), *self._rows("entities/{name}/", "an entity")]

    def _rows(self, where: str, whose: str) -> list[Row]:
        rules = f"{where}access-rules"
        rule = f"{rules}/{{rule}}"
        suffix = "OfEntity" if where else ""

        def route(path: str, text: str, shape: Shape, verb: str, method: str = "GET") -> Route:
            return _route(path, text, shape, f"{verb}{suffix}", method)

        return [
            shows(
                route(rules, f"The access rules of {whose}.", AccessRules, "showAccessRules"),
                self._list,
            ),
            shows(
                route(rule, f"An access rule of {whose}.", AccessRuleShown, "showAccessRule"),
                self._show,
            ),
            takes(
                route(
                    rule,
                    f"Create or change an access rule of {whose}; members that are left out "
                    "stay as they are.",
                    AccessRuleShown,
                    "putAccessRule",
                    "PUT",
                ),
                AccessRuleChange,
                self._put,
            ),
            shows(
                route(
                    rule,
                    f"Delete an access rule of {whose}; links opened with its keys end.",
                    AccessRuleDeleted,
                    "deleteAccessRuleDeleted",
                    "DELETE",
                ),
                self._delete,
            ),
            takes(
                route(
                    f"{rule}/rotate",
                    "Replace one of the two keys by a new one; links opened with it end.",
                    AccessRuleShown,
                    "rotateAccessRule",
                    "POST",
                ),
                KeyRotation,
                self._rotate,
            ),
        ]

    async def _list(self, call: Call[Nothing]) -> AccessRules:
        rules = self._rules(call.name)
        return AccessRules(access_rules=[self._summary(call.name, rule) for rule in rules])

    async def _show(self, call: Call[Nothing]) -> AccessRuleShown:
        return self._document(call)

    async def _put(self, call: Call[AccessRuleChange]) -> AccessRuleShown:
        self._check_changeable(call)

        def change(rules: list[AccessRule]) -> list[AccessRule]:
            old = _find(rules, call.rule)
            new = _changed(call, old)
            return [new if rule is old else rule for rule in rules] + ([] if old else [new])

        return await self._changed(call, change)

    async def _rotate(self, call: Call[KeyRotation]) -> AccessRuleShown:
        self._check_changeable(call)
        is_primary = call.body.key == "primary"

        def change(rules: list[AccessRule]) -> list[AccessRule]:
            old = self._found(rules, call)
            primary = new_key() if is_primary else old.primary_key
            secondary = old.secondary_key if is_primary else new_key()
            new = AccessRule(old.name, old.rights, primary, secondary)
            return [new if rule is old else rule for rule in rules]

        return await self._changed(call, change)

    async def _delete(self, call: Call[Nothing]) -> AccessRuleDeleted:
        self._check_changeable(call)

        def change(rules: list[AccessRule]) -> list[AccessRule]:
            old = self._found(rules, call)
            return [rule for rule in rules if rule is not old]

        await self._namespace.change_access(call.name, change)
        return AccessRuleDeleted(name=call.rule, is_deleted=True)

    async def _changed(self, call: Call[B], change: Change) -> AccessRuleShown:
        def completed(rules: list[AccessRule]) -> list[AccessRule]:
            changed = change(rules)
            complete_rules(changed, rules, self._clock.now_ms())
            return changed

        await self._namespace.change_access(call.name, completed)
        return self._document(call)

    def _rules(self, name: str) -> Sequence[AccessRule]:
        if not name:
            return self._namespace.namespace_rules()
        entity = self._namespace.get(name)
        check_has_rules(entity)
        return entity.spec.access_rules

    def _found(self, rules: Sequence[AccessRule], call: Call[B]) -> AccessRule:
        rule = _find(rules, call.rule)
        if rule is None:
            raise Refused(NOT_FOUND, f"There is no access rule {shown(call.rule)}.")
        return rule

    def _is_of_settings(self, name: str, rule: str) -> bool:
        return not name and rule == self._namespace.settings.root_rule.name

    def _check_changeable(self, call: Call[B]) -> None:
        if self._is_of_settings(call.name, call.rule):
            raise Refused(
                NOT_ALLOWED,
                f"{call.rule} is defined by the settings of the bus: change sas-key there and "
                "restart the bus.",
            )

    def _document(self, call: Call[B]) -> AccessRuleShown:
        rule = self._found(self._rules(call.name), call)
        summary = self._summary(call.name, rule)
        # The key of the settings is not shown: it cannot be revoked over the API.
        is_hidden = summary.is_of_settings

        def string(key: str) -> str | None:
            if is_hidden or not key:
                return None
            return self._facts.connection_string(call.request, rule.name, key, call.name)

        return AccessRuleShown(
            name=summary.name,
            rights=summary.rights,
            is_of_settings=summary.is_of_settings,
            created_at=summary.created_at,
            modified_at=summary.modified_at,
            primary_key=None if is_hidden else rule.primary_key,
            secondary_key=None if is_hidden else rule.secondary_key or None,
            primary_connection_string=string(rule.primary_key),
            secondary_connection_string=string(rule.secondary_key),
        )

    def _summary(self, name: str, rule: AccessRule) -> AccessRuleSummary:
        is_dated = bool(rule.created_at_ms)
        return AccessRuleSummary(
            name=rule.name,
            rights=right_names(rule.rights),
            is_of_settings=self._is_of_settings(name, rule.name),
            created_at=format_moment(rule.created_at_ms) if is_dated else None,
            modified_at=format_moment(rule.modified_at_ms) if is_dated else None,
        )


def _route(path: str, summary: str, shape: Shape, identifier: str, method: str) -> Route:
    named = (NAME,) if "{name}" in path else ()
    ruled = (RULE,) if "{rule}" in path else ()
    return Route(
        f"/api/v1/{path}",
        summary,
        shape,
        right=MANAGE,
        parameters=(*named, *ruled),
        identifier=identifier,
        method=method,
    )


def _find(rules: Sequence[AccessRule], name: str) -> AccessRule | None:
    return next((rule for rule in rules if rule.name == name), None)


def _changed(call: Call[AccessRuleChange], old: AccessRule | None) -> AccessRule:
    """The rule that a body describes; omitted keys are kept, or generated for a new rule."""
    if len(call.rule) > KEY_NAME_CHARACTERS_MAX or not call.rule.isprintable():
        raise invalid(
            f"The name of an access rule must have 1 to {KEY_NAME_CHARACTERS_MAX} printable "
            "characters."
        )
    keep_primary = new_key() if old is None else old.primary_key
    keep_secondary = new_key() if old is None else old.secondary_key
    return AccessRule(
        call.rule,
        _rights(call.body, old),
        _key(call.body.primary_key, "primary_key", keep_primary),
        _key(call.body.secondary_key, "secondary_key", keep_secondary),
    )


def _rights(body: AccessRuleChange, old: AccessRule | None) -> int:
    if body.rights is UNSET:
        if old is None:
            raise invalid("The body has no member rights, which a new access rule must have.")
        return old.rights
    rights = 0
    for word in body.rights:
        rights |= right_named(word)
    return rights


def _key(key: str | UnsetType, name: str, otherwise: str) -> str:
    if key is UNSET:
        return otherwise
    if any(character.isspace() or character == ";" for character in key):
        raise invalid(f"{name} must be a key without spaces or semicolons.")
    return key
