"""Names of nodes in certificates: `shardbus://CLUSTER/ROLE/NAME`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, final

BROKER: Final = "broker"
GATEWAY: Final = "gateway"
LANE: Final = "lane"
PIPELINES: Final = "pipelines"
ROLES: Final = (BROKER, GATEWAY, LANE, PIPELINES)

_WORD: Final = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
WORD: Final = re.compile(_WORD, re.ASCII)
_NAME: Final = re.compile(
    rf"shardbus://(?P<cluster>{_WORD})/(?P<role>{'|'.join(ROLES)})/(?P<name>{_WORD})", re.ASCII
)


@final
@dataclass(frozen=True, slots=True)
class NodeName:
    """A node in one of its roles."""

    cluster: str
    role: str
    name: str

    def __str__(self) -> str:
        return f"shardbus://{self.cluster}/{self.role}/{self.name}"


def node_names(texts: Iterable[str]) -> list[NodeName]:
    """The names of nodes among the alternative names of a certificate."""
    found = (_NAME.fullmatch(text) for text in texts)
    return [NodeName(each["cluster"], each["role"], each["name"]) for each in found if each]


def refusal(names: list[NodeName], cluster: str, role: str, name: str | None) -> str:
    """Why a certificate with these names does not belong to this node; empty if it does."""
    if not names:
        return "its certificate does not name a node of a cluster"
    here = [each for each in names if each.cluster == cluster]
    if not here:
        return f"its certificate is for the cluster {names[0].cluster!r}, not for {cluster!r}"
    fitting = [each for each in here if each.role == role]
    if not fitting:
        roles = ", ".join(dict.fromkeys(each.role for each in here))
        return f"its certificate is for the role {roles}, not for {role}"
    if name is not None and all(each.name != name for each in fitting):
        return f"its certificate is for the node {fitting[0].name}, not for {name}"
    return ""
