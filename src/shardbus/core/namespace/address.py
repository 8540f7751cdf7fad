"""Names and addresses: which node an address written by a client means."""

from __future__ import annotations

import re
from typing import Final, final
from urllib.parse import unquote

from shardbus.core.errors import INVALID_ARGUMENT, NOT_ALLOWED, Refused
from shardbus.core.message import DEAD_LETTER_LINE, MAIN_LINE, TRANSFER_DEAD_LETTER_LINE

NAME_CHARACTERS_MAX: Final = 260
SUBSCRIPTION_CHARACTERS_MAX: Final = 50
RULE_CHARACTERS_MAX: Final = 50
ADDRESS_CHARACTERS_MAX: Final = 2048

ENTITY: Final = "entity"
SUBSCRIPTION: Final = "subscription"
NAMESPACE: Final = "namespace"
CBS: Final = "cbs"

_DEAD_LETTER: Final = "$deadletterqueue"
_TRANSFER: Final = "$transfer"
_MANAGEMENT: Final = "$management"
_SUBSCRIPTIONS: Final = "subscriptions"
_CLOUD_HOST: Final = ".servicebus.windows.net"

_HOST: Final = re.compile(r"[A-Za-z0-9._\-:\[\]]{1,255}", re.ASCII)
_RULE_FORBIDDEN: Final = frozenset("/\\?#@*")
_NAME_CHARACTERS: Final = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_/"
)


@final
class Address:
    """A node of the bus.

    `entity` is the key under which the namespace knows the entity: lower case, for a subscription
    `topic/subscriptions/name`, empty for the namespace itself and for `$cbs`. `name` is the
    entity's name as the client wrote it, for texts.
    """

    def __init__(self, kind: str, name: str, line: int, is_management: bool) -> None:
        self.kind = kind
        self.name = name
        self.entity = name.lower()
        self.line = line
        self.is_management = is_management

    def path(self) -> str:
        """The path of the entity or its sub-queue, for texts."""
        return line_path(self.name, self.line)


def line_path(name: str, line: int) -> str:
    """The path of a line of an entity, for texts."""
    if line == MAIN_LINE:
        return name
    transfer = "/$Transfer" if line == TRANSFER_DEAD_LETTER_LINE else ""
    return f"{name}{transfer}/$DeadLetterQueue"


def not_sendable(address: Address) -> Refused:
    """The refusal of a send to a sub-queue or a subscription."""
    return Refused(
        NOT_ALLOWED,
        f"Messages cannot be sent to '{address.path()}': send them to the queue or topic it "
        "belongs to.",
    )


def parse_address(text: str) -> Address:
    """The node that a link or request address means; Refused when it cannot mean any."""
    if len(text) > ADDRESS_CHARACTERS_MAX:
        raise Refused(
            INVALID_ARGUMENT,
            f"The address has more than {ADDRESS_CHARACTERS_MAX} characters: use the path of "
            "an entity.",
        )
    segments = unquote(_without_authority(text)).strip("/").split("/")
    if len(segments) == 1 and segments[0].lower() == "$cbs":
        return Address(CBS, "", MAIN_LINE, False)
    is_management = segments[-1].lower() == _MANAGEMENT
    if is_management:
        segments.pop()
    line = _take_line(segments)
    name = "/".join(segments)
    if not name:
        if line != MAIN_LINE:
            raise Refused(
                INVALID_ARGUMENT,
                f"The address '{text}' does not name an entity: use the path of a queue, topic or "
                "subscription.",
            )
        return Address(NAMESPACE, "", MAIN_LINE, is_management)
    return Address(_kind_of(segments), name, line, is_management)


def audience_path(text: str) -> str:
    """The entity key that a token's audience or resource covers; empty for the whole namespace.

    Drops scheme, authority, query, `/$management` and sub-queue suffixes, and folds case. A
    resource without a scheme may start with a host. A first segment counts as a host only if it
    cannot be an entity's name or is in the cloud's domain: mistaking a name for a host would widen
    the token.
    """
    path = text.split("?", 1)[0].split("#", 1)[0]
    if "://" in path:
        path = _without_authority(path)
    else:
        first, _, rest = path.partition("/")
        if ":" in first or first.lower().endswith(_CLOUD_HOST):
            path = rest
    segments = unquote(path).strip("/").lower().split("/")
    if segments[-1] == _MANAGEMENT:
        segments.pop()
    _take_line(segments)
    return "/".join(segments)


def covers(scope: str, path: str) -> bool:
    """Whether a path lies in a scope, compared by segments; both in the form of `audience_path`."""
    return not scope or path == scope or path.startswith(scope + "/")


def owners(path: str) -> list[str]:
    """The entities whose access rules apply to a path: the entity itself, then a subscription's
    topic.

    A queue `a/b` is not a child of a queue `a`: a slash in a name gives no rights.
    """
    if not path:
        return []
    topic, separator, _ = path.partition(f"/{_SUBSCRIPTIONS}/")
    return [path, topic] if separator else [path]


def validate_name(name: str) -> None:
    """Refuse a text that cannot name a queue or topic."""
    if not name:
        raise Refused(INVALID_ARGUMENT, "The name of an entity cannot be empty.")
    if len(name) > NAME_CHARACTERS_MAX:
        raise Refused(
            INVALID_ARGUMENT,
            f"The name of an entity has at most {NAME_CHARACTERS_MAX} characters; "
            f"this one has {len(name)}.",
        )
    for character in name:
        if character not in _NAME_CHARACTERS:
            raise Refused(
                INVALID_ARGUMENT,
                f"The name '{name}' contains '{character}'; use only letters, digits, "
                "'.', '-', '_' and, as separator, '/'.",
            )
    for segment in name.split("/"):
        _validate_segment(name, segment)


def validate_subscription_name(name: str) -> None:
    """Refuse a text that cannot name a subscription of a topic."""
    if not 1 <= len(name) <= SUBSCRIPTION_CHARACTERS_MAX:
        raise Refused(
            INVALID_ARGUMENT,
            f"The name of a subscription has 1 to {SUBSCRIPTION_CHARACTERS_MAX} characters; "
            f"this one has {len(name)}.",
        )
    for character in name:
        if character == "/" or character not in _NAME_CHARACTERS:
            raise Refused(
                INVALID_ARGUMENT,
                f"The subscription's name '{name}' contains '{character}'; use only letters, "
                "digits, '.', '-' and '_'.",
            )
    _validate_segment(name, name)


def validate_rule_name(name: str) -> None:
    """Refuse a text that cannot name a rule of a subscription."""
    if not 1 <= len(name) <= RULE_CHARACTERS_MAX:
        raise Refused(
            INVALID_ARGUMENT,
            f"The name of a rule has 1 to {RULE_CHARACTERS_MAX} characters; "
            f"this one has {len(name)}.",
        )
    for character in name:
        if character in _RULE_FORBIDDEN or not character.isprintable():
            raise Refused(INVALID_ARGUMENT, f"The rule's name {name!r} contains {character!r}.")
    if name in (".", ".."):
        raise Refused(INVALID_ARGUMENT, f"A rule cannot be named '{name}': URLs drop this segment.")


def host_of(text: str, otherwise: str) -> str:
    """The host by which a client addresses this server, for texts and links, not for rights.

    A client can write anything there. A text that is longer than a host name, or has a character
    that no host name has, is not repeated.
    """
    return text if _HOST.fullmatch(text) else otherwise


def _validate_segment(name: str, segment: str) -> None:
    if not segment:
        raise Refused(
            INVALID_ARGUMENT,
            f"The name '{name}' has an empty part: put '/' only between two parts of a name.",
        )
    if segment in (".", ".."):
        raise Refused(
            INVALID_ARGUMENT, f"The name '{name}' has the part '{segment}', which URLs drop."
        )
    if segment.lower() == _SUBSCRIPTIONS:
        raise Refused(
            INVALID_ARGUMENT,
            f"The name '{name}' has the part '{segment}', which is reserved for subscriptions.",
        )


def path_of(text: str) -> str:
    """The path of a URI or of a path, in its spelling, without the query."""
    return _without_authority(text.strip()).partition("?")[0].strip("/")


def _without_authority(text: str) -> str:
    scheme_end = text.find("://")
    if scheme_end < 0:
        return text
    path_start = text.find("/", scheme_end + 3)
    return "" if path_start < 0 else text[path_start:]


def _take_line(segments: list[str]) -> int:
    """Remove a sub-queue suffix from the path and return the line it means."""
    if not segments or segments[-1].lower() != _DEAD_LETTER:
        return MAIN_LINE
    segments.pop()
    if segments and segments[-1].lower() == _TRANSFER:
        segments.pop()
        return TRANSFER_DEAD_LETTER_LINE
    return DEAD_LETTER_LINE


def _kind_of(segments: list[str]) -> str:
    if len(segments) >= 3 and segments[-2].lower() == _SUBSCRIPTIONS:
        return SUBSCRIPTION
    return ENTITY
