"""What the operator chose for a namespace."""

from __future__ import annotations

from typing import final

from shardbus.broker.namespace.fragments import HOST_WAIT_MS
from shardbus.core.namespace.access import AccessRule
from shardbus.core.namespace.tier import Tier


@final
class NamespaceSettings:
    """The settings of a namespace; they may change while it serves.

    `is_partitioned_by_default` applies where the creator may choose (R5).
    `partitioned_entities_max` 0 means no limit; by default it is the tier's (R8).
    """

    def __init__(self, tier: Tier, root_rule: AccessRule, *, name: str = "localhost") -> None:
        self.tier = tier
        self.root_rule = root_rule
        self.name = name
        self.is_partitioned_by_default = True
        self.entities_max = 10_000
        self.partitioned_entities_max = tier.partitioned_count_max
        self.host_wait_ms = HOST_WAIT_MS
