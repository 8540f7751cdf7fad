"""Sign-in with tokens of an OpenID issuer: who holds them, and which rights they give (ADR 71)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, final

from shardbus.broker.access.auth import Grant, SignedIn
from shardbus.broker.access.bearer import KeySet, key_id_of, verify_bearer
from shardbus.broker.access.claim_grants import ClaimGrant, shares_of
from shardbus.broker.clock import Clock
from shardbus.core.errors import UNAUTHORIZED, Refused, RefusedAt
from shardbus.core.namespace.address import covers

_NAMING: Final = ("oid", "sub", "appid", "azp")
_NAME_CHARACTERS_MAX: Final = 200


class KeySource(Protocol):
    """Provides the keys of the issuer, which it fetches from time to time."""

    def known(self) -> KeySet | None:
        """The present keys; None if there are none, or they are too old."""
        ...

    def keys(self) -> KeySet:
        """The present keys; Unavailable, with the reason, when there are none."""
        ...

    async def ask_again(self) -> None:
        """Fetch the keys from the issuer, unless that was done a moment ago. Never raises."""
        ...


@dataclass(frozen=True, slots=True)
class Terms:
    """The accepted issuer and audience, and the rights that claims give."""

    issuer: str
    audiences: Sequence[str]
    grants: Sequence[ClaimGrant]


@final
class SignIn:
    """Verifies tokens with the terms of the operator and the keys of the issuer."""

    def __init__(self, terms: Terms, source: KeySource, clock: Clock) -> None:
        self._terms = terms
        self._source = source
        self._clock = clock

    async def prepare(self, text: str) -> None:
        """Fetch the keys of the issuer if the key that a token names is not known."""
        try:
            key_id = key_id_of(text)
        except Refused:
            # `verify` reports the error.
            return
        known = self._source.known()
        if known is None or not known.names(key_id):
            await self._source.ask_again()

    def verify(self, text: str, path: str) -> Grant:
        """The grant of a token at a path and below it. Refused, or Unavailable without keys."""
        verified = verify_bearer(
            text,
            self._source.keys(),
            issuer=self._terms.issuer,
            audiences=self._terms.audiences,
            now_s=self._clock.now_ms() / 1000,
        )
        shares = shares_of(verified.claims, self._terms.grants)
        if not any(covers(path, share.owner) or share.reaches(path) for share in shares):
            raise RefusedAt(
                UNAUTHORIZED,
                "Unauthorized access. The token is valid, but its roles, scopes and groups give no "
                "right on Resource:",
                path,
                ". See --oidc-grant.",
            )
        signer = SignedIn(_name(verified.claims), verified.key_digest)
        return Grant(shares, path, signer, verified.expires_at_ms)

    def is_vouched_for(self, signer: SignedIn) -> bool:
        """Whether the key that signed is still published by the issuer, as far as is known."""
        known = self._source.known()
        return known is None or known.has(signer.key_digest)


def _name(claims: Mapping[str, object]) -> str:
    """The name under which all clients with tokens of one holder are counted."""
    for claim in _NAMING:
        value = claims.get(claim)
        if isinstance(value, str) and value:
            return f"oidc:{value[:_NAME_CHARACTERS_MAX]}"
    return "oidc:"
