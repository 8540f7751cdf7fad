"""Who may do what: tokens, key pairs and the rights they give (R34)."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from typing import Final, Protocol, final

from shardbus.broker.clock import Clock
from shardbus.broker.sas import Token, parse_token
from shardbus.core.access import ALL_RIGHTS, AccessRule, right_names
from shardbus.core.address import audience_path, covers, owners
from shardbus.core.errors import INVALID_ARGUMENT, UNAUTHORIZED, Refused
from shardbus.core.message import NEVER_MS

DEVELOPMENT_KEY_NAME: Final = "RootManageSharedAccessKey"
DEVELOPMENT_KEY: Final = "SAS_KEY_VALUE"

# Compared in place of the keys of a rule that does not exist, so that the time an answer takes
# does not tell which names do.
_NO_RULE: Final = AccessRule("", 0, "no rule has an empty name")

_PLAIN_BYTES_MAX: Final = 4096


class RuleSource(Protocol):
    """Where access rules are found; the namespace is one."""

    def namespace_rules(self) -> Sequence[AccessRule]:
        """The rules that reach every entity."""
        ...

    def entity_rules(self, path: str) -> Sequence[AccessRule]:
        """The rules of one entity, by its lower-case path; none when it does not exist."""
        ...


@final
class Grant:
    """What the holder of a verified token may do, where, and until when.

    `owner` is the entity whose rule signed, empty for a rule of the namespace. `expires_at_ms` is
    NEVER_MS for a connection that showed the key itself.
    """

    def __init__(self, rights: int, path: str, owner: str, expires_at_ms: int) -> None:
        self.rights = rights
        self.path = path
        self.owner = owner
        self.expires_at_ms = expires_at_ms

    def allows(self, right: int, entity: str) -> bool:
        """Whether one right reaches an entity, by its lower-case path; expiry is asked apart."""
        if not self.rights & right or not covers(self.path, entity):
            return False
        return not self.owner or self.owner in owners(entity)

    def is_expired(self, now_ms: int) -> bool:
        return self.expires_at_ms != NEVER_MS and self.expires_at_ms <= now_ms


@final
class Authorizer:
    """Checks what clients show against the namespace's rules."""

    def __init__(self, rules: RuleSource, clock: Clock) -> None:
        self._rules = rules
        self._clock = clock

    def verify_token(self, text: str, audience: str, *, host: str = "") -> Grant:
        """What a token gives for an audience (an entity's URI or path, or the namespace's).

        A token whose resource is nothing but the `host`, without a scheme, is for all of it.

        Refused with INVALID_ARGUMENT when the text is no token and with UNAUTHORIZED when it is
        forged, expired or for something else. Whether the entity exists is not asked.
        """
        token = parse_token(text)
        path = audience_path(audience)
        owner, rule = self._signer(token, path)
        if token.expires_at_ms <= self._clock.now_ms():
            raise Refused(UNAUTHORIZED, "ExpiredToken: The token has expired.")
        scope = "" if host and token.scope == host else token.scope
        if not covers(scope, path):
            raise Refused(
                UNAUTHORIZED,
                f"InvalidAudience: The token is for '{token.scope}', which does not "
                f"cover '{path}'.",
            )
        return Grant(rule.rights, path, owner, token.expires_at_ms)

    def verify_plain(self, response: bytes) -> Grant:
        """What SASL PLAIN's `authorization NUL key name NUL key` gives on the whole connection."""
        parts = response.split(b"\0") if len(response) <= _PLAIN_BYTES_MAX else []
        if len(parts) != 3:
            raise Refused(INVALID_ARGUMENT, "The PLAIN response is not a key name and a key.")
        _, name, shown = parts
        found = _NO_RULE
        for rule in self._rules.namespace_rules():
            if rule.name.encode() == name:
                found = rule
        is_known = False
        for key in found.valid_keys():
            is_known |= hmac.compare_digest(key.encode(), shown)
        if not is_known or found is _NO_RULE:
            raise Refused(UNAUTHORIZED, "The key name is unknown or the key is not its key.")
        return Grant(found.rights, "", "", NEVER_MS)

    def _signer(self, token: Token, path: str) -> tuple[str, AccessRule]:
        """The rule that signed: of the entity, then of its topic, then of the namespace."""
        candidates = [
            (owner, rule)
            for owner in [*owners(path), ""]
            for rule in self._rules_of(owner)
            if rule.name in token.key_names
        ]
        for owner, rule in candidates or [("", _NO_RULE)]:
            if token.is_signed_by(rule.valid_keys()) and rule is not _NO_RULE:
                return owner, rule
        raise Refused(UNAUTHORIZED, "InvalidSignature: The token has an invalid signature.")

    def _rules_of(self, owner: str) -> Sequence[AccessRule]:
        return self._rules.entity_rules(owner) if owner else self._rules.namespace_rules()


def claims_required(right: int, resource: str) -> Refused:
    """The refusal of somebody who lacks a right, in the words that SDKs show their users."""
    names = ", ".join(right_names(right))
    return Refused(
        UNAUTHORIZED,
        f"Unauthorized access. '{names}' claim(s) are required to perform this operation. "
        f"Resource: '{resource}'.",
    )


def development_rule() -> AccessRule:
    """The rule that every client of the emulator knows; `app` decides when it may be used."""
    return AccessRule(DEVELOPMENT_KEY_NAME, ALL_RIGHTS, DEVELOPMENT_KEY)
