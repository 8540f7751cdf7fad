"""Finds the stores of a setting; no other module in `app` does."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Final

from shardbus.core.namespace.entity import MEGABYTE
from shardbus.stores.base.cluster import Making, SeenStores, SharedStores
from shardbus.stores.base.package import Durability, Site, Stores
from shardbus.stores.base.store import StoreError

STORES: Final = {
    "sqlite": "shardbus.stores.sqlite.package",
    "postgresql": "shardbus.stores.postgres.package",
}
"""The module of each kind of store, the default first (CONTRIBUTING.md says how to add one)."""
DEFAULT_STORE: Final = f"{next(iter(STORES))}:"
KINDS_OF_STORES: Final = ", ".join(f"`{kind}:`" for kind in STORES)
# Of the kind that several machines can reach.
SHARED_EXAMPLE: Final = f"{list(STORES)[-1]}://USER@HOST/DATABASE"

_IN_MEMORY: Final = "shardbus.stores.memory.package"

NAMESPACE_ID_BYTES: Final = 16


def stores_of(
    data_dir: Path,
    store: str = DEFAULT_STORE,
    *,
    durability: Durability = "full",
    reserve_mb: int = 0,
) -> Stores:
    """The stores of a data directory; StoreError for an invalid setting."""
    kind, _, address = store.partition(":")
    if kind not in STORES:
        raise StoreError(f"{store!r} is not a kind of store; use {KINDS_OF_STORES}")
    package = _package(kind)
    found: Stores = package.stores(Site(data_dir, address, durability, reserve_mb * MEGABYTE))
    return found


def stores_in_memory(data_dir: Path) -> Stores:
    """Stores that end with this process, for tests; no setting chooses them."""
    found: Stores = import_module(_IN_MEMORY).stores(Site(data_dir, "", "relaxed", 0))
    return found


def cluster_of(urls: Sequence[str], making: Making) -> SharedStores:
    """The cluster of some databases, which is made if there is none; StoreError if that fails."""
    found: SharedStores = _shared_package(urls).cluster(urls, making)
    return found


def seen_cluster(urls: Sequence[str], name: str) -> SeenStores:
    """The databases of a cluster for somebody who only looks; StoreError if there is none."""
    found: SeenStores = _shared_package(urls).look(urls, name)
    return found


def _shared_package(urls: Sequence[str]) -> ModuleType:
    kinds = {url.partition(":")[0] for url in urls}
    kind = kinds.pop() if len(kinds) == 1 else ""
    package = _package(kind) if kind in STORES else None
    if package is None or not hasattr(package, "cluster"):
        raise StoreError(f"{' '.join(urls)}: nodes share databases, as in {SHARED_EXAMPLE}")
    return package


def _package(kind: str) -> ModuleType:
    # Imported late: a kind of store may need libraries that are not installed where another is
    # used.
    try:
        return import_module(STORES[kind])
    except ModuleNotFoundError as error:
        # An extra of the distribution is named like the package of the stores that need it.
        extra = STORES[kind].split(".")[-2]
        raise StoreError(
            f"stores of the kind {kind} need {error.name}, which is not installed: "
            f"pip install 'shardbus[{extra}]'"
        ) from error


def new_namespace_id() -> str:
    return secrets.token_hex(NAMESPACE_ID_BYTES)
