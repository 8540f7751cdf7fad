"""The stores that a setting asks for. Nobody else in `app` knows how to find them."""

from __future__ import annotations

import secrets
from importlib import import_module
from pathlib import Path
from typing import Final

from shardbus.app.settings import DEFAULT_STORE, KINDS_OF_STORES, STORES
from shardbus.core.entity import MEGABYTE
from shardbus.stores.base import StoreError
from shardbus.stores.base_package import Durability, Site, Stores

NAMESPACE_ID_BYTES: Final = 16


def stores_of(
    data_dir: Path,
    store: str = DEFAULT_STORE,
    *,
    durability: Durability = "full",
    reserve_mb: int = 0,
) -> Stores:
    """The stores of a data directory; StoreError when the setting asks for what cannot be."""
    kind, _, address = store.partition(":")
    if kind not in STORES:
        raise StoreError(f"{store!r} is no kind of store; use {KINDS_OF_STORES}")
    # Late: a kind of store may need what is not installed where another is used.
    package = import_module(STORES[kind])
    found: Stores = package.stores(Site(data_dir, address, durability, reserve_mb * MEGABYTE))
    return found


def new_namespace_id() -> str:
    return secrets.token_hex(NAMESPACE_ID_BYTES)
