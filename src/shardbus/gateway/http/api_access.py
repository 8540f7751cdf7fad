"""Access rules in the JSON API: of the namespace, of queues and of topics (R34)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from shardbus.broker.clock import Clock
from shardbus.broker.namespace import Namespace
from shardbus.broker.namespace_access import Change, check_has_rules
from shardbus.core.access import (
    KEY_CHARACTERS_MAX,
    KEY_NAME_CHARACTERS_MAX,
    MANAGE,
    RULES_MAX,
    AccessRule,
    right_named,
    right_names,
)
from shardbus.core.errors import NOT_ALLOWED, NOT_FOUND, Refused
from shardbus.gateway.http.access_markup import complete_rules, new_key
from shardbus.gateway.http.api_call import Answer, Call, Members
from shardbus.gateway.http.api_route import NAME, RULE, Route
from shardbus.gateway.http.documents_schema import (
    FLAG,
    MOMENT_OR_NEVER,
    TEXT,
    TEXT_OR_NONE,
    Document,
    Schema,
    body_of,
    described,
    list_of,
    object_of,
    one_of,
    reference,
)
from shardbus.gateway.http.moment import format_moment
from shardbus.gateway.http.refusal import invalid, shown

PRIMARY: Final = "primary"
SECONDARY: Final = "secondary"

_RIGHTS: Final[Schema] = list_of(one_of("Manage", "Send", "Listen"))
_SUMMARY: Final[dict[str, Schema]] = {
    "name": TEXT,
    "rights": _RIGHTS,
    "is_of_settings": described(FLAG, "Given by the settings of the bus and changed only there."),
    "created_at": MOMENT_OR_NEVER,
    "modified_at": MOMENT_OR_NEVER,
}
_KEY: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": KEY_CHARACTERS_MAX}
_SCHEMAS: Final[dict[str, Schema]] = {
    "AccessRuleSummary": object_of(_SUMMARY),
    "AccessRules": object_of({"access_rules": list_of(reference("AccessRuleSummary"))}),
    "AccessRule": object_of(
        {
            **_SUMMARY,
            "primary_key": described(TEXT_OR_NONE, "Null for the rule of the settings."),
            "secondary_key": TEXT_OR_NONE,
        }
    ),
    "AccessRuleChange": body_of(
        {
            "rights": described(_RIGHTS, "Needed for a new rule; Manage holds the other two."),
            "primary_key": described(_KEY, "Left out: the key stays, and a new rule gets one."),
            "secondary_key": described(_KEY, "Left out: the key stays, and a new rule gets one."),
        }
    ),
    "KeyRotation": body_of({"key": one_of(PRIMARY, SECONDARY)}, ("key",)),
    "AccessRuleDeleted": object_of({"name": TEXT, "is_deleted": FLAG}),
}


@final
class AccessPages:
    """Shows and changes access rules. A list has no keys: they are told one rule at a time."""

    def __init__(self, namespace: Namespace, clock: Clock) -> None:
        self._namespace = namespace
        self._clock = clock

    def schemas(self) -> dict[str, Schema]:
        return _SCHEMAS

    def routes(self) -> list[tuple[Route, Answer]]:
        return [*self._routes("", "the namespace"), *self._routes("entities/{name}/", "an entity")]

    def _routes(self, where: str, whose: str) -> list[tuple[Route, Answer]]:
        rules = f"{where}access-rules"
        rule = f"{rules}/{{rule}}"
        suffix = "OfEntity" if where else ""

        def route(path: str, summary: str, schema: str, verb: str, **more: str) -> Route:
            return _route(path, summary, schema, f"{verb}{schema}{suffix}", **more)

        return [
            (route(rules, f"The access rules of {whose}.", "AccessRules", "show"), self._list),
            (route(rule, f"An access rule of {whose}.", "AccessRule", "show"), self._show),
            (
                route(
                    rule,
                    f"Make or change an access rule of {whose}; what is left out stays.",
                    "AccessRule",
                    "put",
                    method="PUT",
                    body="AccessRuleChange",
                ),
                self._put,
            ),
            (
                route(
                    rule,
                    f"Delete an access rule of {whose}; links opened with its keys end.",
                    "AccessRuleDeleted",
                    "delete",
                    method="DELETE",
                ),
                self._delete,
            ),
            (
                route(
                    f"{rule}/rotate",
                    "Put a new key in the place of one of the two; links opened with it end.",
                    "AccessRule",
                    "rotate",
                    method="POST",
                    body="KeyRotation",
                ),
                self._rotate,
            ),
        ]

    async def _list(self, call: Call) -> Document:
        rules = self._rules(call.name)
        return {"access_rules": [self._summary(call.name, rule) for rule in rules]}

    async def _show(self, call: Call) -> Document:
        return self._document(call)

    async def _put(self, call: Call) -> Document:
        self._check_changeable(call)

        def change(rules: list[AccessRule]) -> list[AccessRule]:
            old = _find(rules, call.rule)
            new = _changed(call, old)
            return [new if rule is old else rule for rule in rules] + ([] if old else [new])

        return await self._changed(call, change)

    async def _rotate(self, call: Call) -> Document:
        self._check_changeable(call)
        is_primary = call.body.choice("key", (PRIMARY, SECONDARY)) == PRIMARY

        def change(rules: list[AccessRule]) -> list[AccessRule]:
            old = self._found(rules, call)
            primary = new_key() if is_primary else old.primary_key
            secondary = old.secondary_key if is_primary else new_key()
            new = AccessRule(old.name, old.rights, primary, secondary)
            return [new if rule is old else rule for rule in rules]

        return await self._changed(call, change)

    async def _delete(self, call: Call) -> Document:
        self._check_changeable(call)

        def change(rules: list[AccessRule]) -> list[AccessRule]:
            old = self._found(rules, call)
            return [rule for rule in rules if rule is not old]

        await self._namespace.change_access(call.name, change)
        return {"name": call.rule, "is_deleted": True}

    async def _changed(self, call: Call, change: Change) -> Document:
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

    def _found(self, rules: Sequence[AccessRule], call: Call) -> AccessRule:
        rule = _find(rules, call.rule)
        if rule is None:
            raise Refused(NOT_FOUND, f"There is no access rule {shown(call.rule)}.")
        return rule

    def _is_of_settings(self, name: str, rule: str) -> bool:
        return not name and rule == self._namespace.settings.root_rule.name

    def _check_changeable(self, call: Call) -> None:
        if self._is_of_settings(call.name, call.rule):
            raise Refused(
                NOT_ALLOWED,
                f"{call.rule} is given by the settings of the bus: change sas-key there and start "
                "the bus again.",
            )

    def _document(self, call: Call) -> Document:
        rule = self._found(self._rules(call.name), call)
        # Whoever may manage need not learn the one key that cannot be taken from them again.
        is_hidden = self._is_of_settings(call.name, rule.name)
        return {
            **self._summary(call.name, rule),
            "primary_key": None if is_hidden else rule.primary_key,
            "secondary_key": None if is_hidden else rule.secondary_key or None,
        }

    def _summary(self, name: str, rule: AccessRule) -> Document:
        is_dated = bool(rule.created_at_ms)
        return {
            "name": rule.name,
            "rights": right_names(rule.rights),
            "is_of_settings": self._is_of_settings(name, rule.name),
            "created_at": format_moment(rule.created_at_ms) if is_dated else None,
            "modified_at": format_moment(rule.modified_at_ms) if is_dated else None,
        }


def _route(path: str, summary: str, schema: str, identifier: str, **more: str) -> Route:
    named = (NAME,) if "{name}" in path else ()
    ruled = (RULE,) if "{rule}" in path else ()
    return Route(
        f"/api/v1/{path}",
        summary,
        schema,
        right=MANAGE,
        parameters=(*named, *ruled),
        identifier=identifier,
        method=more.get("method", "GET"),
        body=more.get("body"),
    )


def _find(rules: Sequence[AccessRule], name: str) -> AccessRule | None:
    return next((rule for rule in rules if rule.name == name), None)


def _changed(call: Call, old: AccessRule | None) -> AccessRule:
    """The rule that a body asks for; keys that it leaves out are as before, or new."""
    if len(call.rule) > KEY_NAME_CHARACTERS_MAX or not call.rule.isprintable():
        raise invalid(
            f"The name of an access rule has 1 to {KEY_NAME_CHARACTERS_MAX} printable characters."
        )
    keep_primary = new_key() if old is None else old.primary_key
    keep_secondary = new_key() if old is None else old.secondary_key
    return AccessRule(
        call.rule,
        _rights(call.body, old),
        _key(call.body, "primary_key", keep_primary),
        _key(call.body, "secondary_key", keep_secondary),
    )


def _rights(body: Members, old: AccessRule | None) -> int:
    if old is not None and not body.has("rights"):
        return old.rights
    rights = 0
    for word in body.texts("rights", most=RULES_MAX):
        try:
            rights |= right_named(word)
        except ValueError as error:
            raise invalid(f"rights: {error}.") from error
    return rights


def _key(body: Members, name: str, otherwise: str) -> str:
    if not body.has(name):
        return otherwise
    key = body.text(name, most=KEY_CHARACTERS_MAX)
    if not key or any(character.isspace() or character == ";" for character in key):
        raise invalid(f"{name} must be a key without spaces or semicolons.")
    return key
