"""Who may do what: tokens, key pairs and the rights they give (R34)."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from typing import Final, Protocol, final

from shardbus.broker.access.sas import SasToken, is_signature
from shardbus.broker.access.signed_tokens import SignedTokens
from shardbus.broker.access.slowdown import Slowdown
from shardbus.broker.clock import Clock
from shardbus.core.errors import INVALID_ARGUMENT, UNAUTHORIZED, Refused, RefusedAt
from shardbus.core.message import NEVER_MS
from shardbus.core.namespace.access import AccessRule, right_names
from shardbus.core.namespace.address import audience_path, covers, owners

DEVELOPMENT_KEY_NAME: Final = "RootManageSharedAccessKey"
DEVELOPMENT_KEY: Final = "SAS_KEY_VALUE"

# Compared in place of the keys of a rule that does not exist, so that the response time does not
# reveal which names exist.
_NO_RULE: Final = AccessRule("", 0, "no rule has an empty name")

_PLAIN_BYTES_MAX: Final = 4096
# With this user name, the password of SASL PLAIN is a token of the issuer: the official JMS library
# of the cloud signs in so.
TOKEN_USER: Final = b"$jwt"
_SHOWN_CHARACTERS_MAX: Final = 300


class RuleSource(Protocol):
    """Where access rules are found; the namespace is one."""

    def namespace_rules(self) -> Sequence[AccessRule]:
        """The rules that apply to every entity."""
        ...

    def entity_rules(self, path: str) -> Sequence[AccessRule]:
        """The rules of one entity, by its lower-case path; none when it does not exist."""
        ...


class BearerTokens(Protocol):
    """Verifies the tokens of an issuer (`sign_in.SignIn`)."""

    async def prepare(self, text: str) -> None:
        """Learn the key that a token names, if that is possible."""
        ...

    def verify(self, text: str, path: str) -> Grant:
        """The grant of a token at a path. Raises Refused or Unavailable."""
        ...

    def is_vouched_for(self, signer: SignedIn) -> bool:
        """Whether the key that signed the token is still valid."""
        ...


@final
class WrongKey(Refused):
    """The token or key was made with no known key: it may be a guess."""


@final
class Signer:
    """Which key of which rule authorised a client: enough to check later whether it is still valid.

    `owner` is the entity that has the rule, empty for the namespace.
    """

    def __init__(self, owner: str, rule: AccessRule, key: str) -> None:
        self.owner = owner
        self.name = rule.name
        self._key_digest = _key_digest(key)

    def is_still_in(self, rule: AccessRule) -> bool:
        """Whether the rule has the name, and the key as one of its two."""
        return rule.name == self.name and any(
            hmac.compare_digest(self._key_digest, _key_digest(key)) for key in rule.valid_keys()
        )


@final
class SignedIn:
    """Who signed in with a token of an issuer, and which key of the issuer vouches for that."""

    def __init__(self, name: str, key_digest: bytes) -> None:
        self.name = name
        self.key_digest = key_digest


@final
class Share:
    """Rights on one entity and, if it is a topic, on its subscriptions; or on all entities.

    `owner` is the entity's lower-case path, empty for all of them.
    """

    def __init__(self, rights: int, owner: str) -> None:
        self.rights = rights
        self.owner = owner

    def reaches(self, entity: str) -> bool:
        return not self.owner or self.owner in owners(entity)


@final
class Grant:
    """What the holder of a verified token may do, where, and until when.

    `expires_at_ms` is NEVER_MS for a connection that presented the key itself.
    """

    def __init__(
        self, shares: Sequence[Share], path: str, signer: Signer | SignedIn, expires_at_ms: int
    ) -> None:
        self.shares = shares
        self.path = path
        self.signer = signer
        self.expires_at_ms = expires_at_ms

    @property
    def rights(self) -> int:
        """All rights that it gives anywhere."""
        rights = 0
        for share in self.shares:
            rights |= share.rights
        return rights

    @property
    def owner(self) -> str:
        """The only entity that the grant gives rights on, as an entity's rule does; else empty."""
        named = {share.owner for share in self.shares}
        return named.pop() if len(named) == 1 else ""

    def allows(self, right: int, entity: str) -> bool:
        """Whether the grant gives a right on an entity, by its lower-case path; expiry is checked
        separately.
        """
        return covers(self.path, entity) and any(
            share.rights & right and share.reaches(entity) for share in self.shares
        )

    def is_expired(self, now_ms: int) -> bool:
        return self.expires_at_ms != NEVER_MS and self.expires_at_ms <= now_ms


@final
class Authorizer:
    """Checks what clients present against the namespace's rules.

    It answers at once. A caller that passes a WrongKey on to a client calls `slowdown` first.
    `sign_in` verifies tokens that are no shared access signatures, if the settings name an issuer.
    """

    def __init__(self, rules: RuleSource, clock: Clock) -> None:
        self.sign_in: BearerTokens | None = None
        self._rules = rules
        self._clock = clock
        self._tokens = SignedTokens()
        # Anybody who knows the public key may read all other keys: there is nothing to guess.
        known = [key for rule in rules.namespace_rules() for key in rule.valid_keys()]
        self.slowdown = Slowdown(clock, is_on=DEVELOPMENT_KEY not in known)

    def verify_token(self, text: str, audience: str, *, host: str = "", below: str = "") -> Grant:
        """What a token grants for an audience (an entity's URI or path, or the namespace's).

        A token whose resource is just the `host`, without a scheme, is for the whole namespace. A
        token whose resource lies between the audience and `below`, a path under it, is accepted as
        well.

        Refused with INVALID_ARGUMENT when the text is not a token, and with UNAUTHORIZED when it is
        forged, expired or for something else. Whether the entity exists is not checked.
        """
        path = audience_path(audience)
        if self.sign_in is not None and not is_signature(text):
            return self.sign_in.verify(text, path)
        token = self._tokens.read(text)
        signer, rights = self._signer(token, path)
        if token.expires_at_ms <= self._clock.now_ms():
            raise Refused(UNAUTHORIZED, "ExpiredToken: The token has expired.")
        scope = "" if host and token.scope == host else token.scope
        if not covers(scope, path) and not (below and covers(scope, below)):
            raise Refused(
                UNAUTHORIZED,
                f"InvalidAudience: The token is for {_shown(token.scope)}, which does not "
                f"cover {_shown(path)}.",
            )
        self._tokens.keep(text, token)
        return Grant([Share(rights, signer.owner)], path, signer, token.expires_at_ms)

    async def prepare(self, text: str) -> None:
        """Learn what there is to know before a token is verified: an issuer has new keys."""
        if self.sign_in is not None and text and not is_signature(text):
            await self.sign_in.prepare(text)

    def scope_of(self, text: str) -> str:
        """What a token is for by its own words; Refused when it is no token.

        That of an issuer is for the whole namespace, as far as its holder's rights go.
        """
        if self.sign_in is not None and not is_signature(text):
            return ""
        return self._tokens.read(text).scope

    def token_in_plain(self, response: bytes) -> str | None:
        """The issuer's token in a response of SASL PLAIN; None where it contains a key."""
        parts = response.split(b"\0", 2)
        if self.sign_in is None or len(parts) != 3 or parts[1] != TOKEN_USER:
            return None
        token = parts[2].decode("ascii", "replace")
        # A signature may be a guess, whose answer is slowed like that of a wrong key.
        return None if is_signature(token) else token

    def verify_plain(self, response: bytes) -> Grant:
        """What SASL PLAIN's `authorization NUL key name NUL key` grants on the whole connection."""
        parts = response.split(b"\0") if len(response) <= _PLAIN_BYTES_MAX else []
        if len(parts) != 3:
            raise Refused(INVALID_ARGUMENT, "The PLAIN response is not a key name and a key.")
        _, name, shown = parts
        found = _NO_RULE
        for rule in self._rules.namespace_rules():
            if rule.name.encode() == name:
                found = rule
        shown_key = ""
        for key in found.valid_keys():
            if hmac.compare_digest(key.encode(), shown):
                shown_key = key
        if not shown_key or found is _NO_RULE:
            raise WrongKey(
                UNAUTHORIZED, "The key name is unknown, or the key does not belong to it."
            )
        return Grant([Share(found.rights, "")], "", Signer("", found, shown_key), NEVER_MS)

    def renewed(self, grant: Grant) -> Grant | None:
        """The grant under the present rules, perhaps with other rights; None when its key is
        gone.
        """
        signer = grant.signer
        if isinstance(signer, SignedIn):
            is_good = self.sign_in is not None and self.sign_in.is_vouched_for(signer)
            return grant if is_good else None
        for rule in self._rules_of(signer.owner):
            if signer.is_still_in(rule):
                shares = [Share(rule.rights, signer.owner)]
                return Grant(shares, grant.path, signer, grant.expires_at_ms)
        return None

    def _signer(self, token: SasToken, path: str) -> tuple[Signer, int]:
        """The signer and its rights: a rule of the entity, of its topic, or of the namespace."""
        candidates = [
            (owner, rule)
            for owner in [*owners(path), ""]
            for rule in self._rules_of(owner)
            if rule.name in token.key_names
        ]
        for owner, rule in candidates or [("", _NO_RULE)]:
            key = token.signing_key(rule.valid_keys())
            if key is not None and rule is not _NO_RULE:
                return Signer(owner, rule, key), rule.rights
        raise WrongKey(UNAUTHORIZED, "InvalidSignature: The token has an invalid signature.")

    def _rules_of(self, owner: str) -> Sequence[AccessRule]:
        return self._rules.entity_rules(owner) if owner else self._rules.namespace_rules()


def claims_required(right: int, path: str) -> Refused:
    """The refusal of a client that lacks a right, in the words that SDKs show their users."""
    names = ", ".join(right_names(right))
    text = f"Unauthorized access. '{names}' claim(s) are required to perform this operation."
    return RefusedAt(UNAUTHORIZED, f"{text} Resource:", path, ".")


def _key_digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


def _shown(text: str) -> str:
    """A client's text for an error message: truncated, and on one line."""
    return repr(text[:_SHOWN_CHARACTERS_MAX])
