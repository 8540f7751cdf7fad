"""The interface of a broker and its fragments for an endpoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from shardbus.broker.namespace.host import FragmentHost
from shardbus.broker.operations.browse import Browsable
from shardbus.broker.routing.dispatch import FragmentPort
from shardbus.core.namespace.entity import Entity


class ServedFragment(FragmentPort, Browsable, Protocol):
    """A fragment that reports its state; `reason` is why its state is not `available`."""

    @property
    def state(self) -> str: ...

    @property
    def reason(self) -> str: ...


class ServedBroker(FragmentHost, Protocol):
    """A broker that starts fragments when they are asked for."""

    @property
    def namespace_id(self) -> str:
        """The namespace to which its store belongs; empty when that is not known."""
        ...

    def runner(self, entity: Entity, number: int) -> ServedFragment: ...

    def configure(self, entity: Entity, numbers: Sequence[int]) -> None:
        """Apply a description to the running fragments."""
        ...
