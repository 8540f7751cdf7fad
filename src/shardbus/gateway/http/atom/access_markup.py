"""The access rules in a description: as XML, and completed with keys and dates."""

from __future__ import annotations

import secrets
from base64 import b64encode
from typing import Final

from shardbus.core.errors import INVALID_ARGUMENT, Refused
from shardbus.core.namespace.access import AccessRule, right_named, right_names
from shardbus.gateway.http.atom.element_reader import CONNECT, ElementReader, described_by
from shardbus.gateway.http.atom.markup import Element, optional, tag
from shardbus.gateway.http.moment import format_moment

_RULE_TYPE: Final = "SharedAccessAuthorizationRule"
_KEY_BYTES: Final = 32


def access_rules(rules: list[AccessRule]) -> str:
    return f"<AuthorizationRules>{''.join(map(_access_rule, rules))}</AuthorizationRules>"


def _access_rule(rule: AccessRule) -> str:
    rights = "".join(tag("AccessRights", name) for name in right_names(rule.rights))
    return (
        f'<AuthorizationRule i:type="{_RULE_TYPE}">'
        + tag("ClaimType", "SharedAccessKey")
        + tag("ClaimValue", "None")
        + f"<Rights>{rights}</Rights>"
        + tag("CreatedTime", format_moment(rule.created_at_ms))
        + tag("ModifiedTime", format_moment(rule.modified_at_ms))
        + tag("KeyName", rule.name)
        + tag("PrimaryKey", rule.primary_key)
        + optional("SecondaryKey", rule.secondary_key)
        + "</AuthorizationRule>"
    )


def _read_rule(element: Element) -> AccessRule:
    if (element.namespace, element.name) != (CONNECT, "AuthorizationRule"):
        raise _invalid("AuthorizationRules has an element that is not an AuthorizationRule.")
    described = described_by(element)
    rights = 0
    listed = element.child(CONNECT, "Rights")
    for right in listed.children if listed is not None else []:
        try:
            rights |= right_named(right.text.strip())
        except ValueError as error:
            raise _invalid(f"An authorization rule is invalid: {error}.") from error
    return AccessRule(
        described.text("KeyName", ""),
        rights,
        described.text("PrimaryKey", ""),
        described.text("SecondaryKey", ""),
    )


def read_access_rules(described: ElementReader, otherwise: list[AccessRule]) -> list[AccessRule]:
    """The rules in a description; `otherwise` when it has none."""
    element = described.element("AuthorizationRules")
    return otherwise if element is None else [_read_rule(child) for child in element.children]


def complete_rules(rules: list[AccessRule], old_rules: list[AccessRule], now_ms: int) -> None:
    """Complete rules with what their description left out: keys, and the moments of their changes.

    A rule without a primary key keeps its present keys, or gets new ones. With a primary key, a
    missing secondary key means that there is none (any more).
    """
    old_by_name = {rule.name: rule for rule in old_rules}
    for rule in rules:
        old = old_by_name.get(rule.name)
        if not rule.primary_key:
            rule.primary_key = new_key() if old is None else old.primary_key
            known = new_key() if old is None else old.secondary_key
            rule.secondary_key = rule.secondary_key or known
        rule.created_at_ms = now_ms if old is None else old.created_at_ms
        is_same = old is not None and old.is_same_as(rule)
        rule.modified_at_ms = old.modified_at_ms if old is not None and is_same else now_ms


def new_key() -> str:
    return b64encode(secrets.token_bytes(_KEY_BYTES)).decode()


def _invalid(message: str) -> Refused:
    return Refused(INVALID_ARGUMENT, message)
