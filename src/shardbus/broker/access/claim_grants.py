"""The rights that the operator has assigned to claims of signed-in clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from shardbus.broker.access.auth import Share
from shardbus.core.errors import Refused
from shardbus.core.message import MAIN_LINE
from shardbus.core.namespace.access import ALL_RIGHTS, MANAGE, right_named
from shardbus.core.namespace.address import ENTITY, SUBSCRIPTION, parse_address, validate_name

CLAIM_GRANTS_MAX: Final = 100
"""Most `--oidc-grant` settings."""

CLAIMS: Final[Mapping[str, tuple[str, ...]]] = {
    "role": ("roles",),
    "scope": ("scp", "scope"),
    "group": ("groups",),
    "subject": ("oid", "sub", "appid", "azp"),
}
"""The kinds of a grant, and the claims of a token in which each looks for its name."""

# Claims that hold several names in one text, with spaces between them.
_SPACED: Final = ("scp", "scope")

DEFAULT_GRANTS: Final = (
    "role:Azure Service Bus Data Owner=Manage",
    "role:Azure Service Bus Data Sender=Send",
    "role:Azure Service Bus Data Receiver=Listen",
)


@dataclass(frozen=True, slots=True)
class ClaimGrant:
    """The rights of all clients with this name in a claim of this kind.

    `entity` is the lower-case path of an entity; empty for the whole namespace.
    """

    kind: str
    name: str
    rights: int
    entity: str


def parse_grant(text: str) -> ClaimGrant:
    """Parse `KIND:NAME=RIGHT[,RIGHT][@ENTITY]`; ValueError, with the reason, if it is invalid."""
    held, equals, given = text.rpartition("=")
    kind, colon, name = held.partition(":")
    kind, name = kind.strip(), name.strip()
    if not equals or not colon or not name:
        raise ValueError(f"{text!r} is not KIND:NAME=RIGHT[,RIGHT][@ENTITY]")
    if kind not in CLAIMS:
        raise ValueError(f"{text!r} must begin with one of {', '.join(CLAIMS)}")
    words, at, entity = given.partition("@")
    rights = 0
    for word in words.split(","):
        rights |= right_named(word.strip())
    # Manage includes both others, as in an access rule.
    rights = ALL_RIGHTS if rights & MANAGE else rights
    return ClaimGrant(kind, name, rights, _entity_path(entity.strip()) if at else "")


def shares_of(claims: Mapping[str, object], grants: Sequence[ClaimGrant]) -> list[Share]:
    """The rights of a verified token with these claims, one share for each entity."""
    names = {kind: _names(claims, fields) for kind, fields in CLAIMS.items()}
    rights: dict[str, int] = {}
    for grant in grants:
        if grant.name in names[grant.kind]:
            rights[grant.entity] = rights.get(grant.entity, 0) | grant.rights
    return [Share(given, entity) for entity, given in rights.items()]


def _names(claims: Mapping[str, object], fields: Sequence[str]) -> set[str]:
    found: set[str] = set()
    for field in fields:
        value = claims.get(field)
        if isinstance(value, str):
            found.update(value.split() if field in _SPACED else [value])
        elif isinstance(value, list):
            found.update(name for name in value if isinstance(name, str))
    return found


def _entity_path(text: str) -> str:
    try:
        address = parse_address(text)
        if address.kind == ENTITY:
            validate_name(address.name)
    except Refused as refusal:
        raise ValueError(refusal.message) from refusal
    is_entity = address.kind in (ENTITY, SUBSCRIPTION)
    if "://" in text or not is_entity or address.line != MAIN_LINE or address.is_management:
        raise ValueError(f"{text!r} is not the name of a queue, topic or TOPIC/subscriptions/NAME")
    return address.entity
