"""Lets a namespace continue with the existing files: for `shardbus check --adopt`.

Nothing that a store holds is removed. Fragments that the catalogue does not know are kept as
orphans.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from shardbus.core.namespace.entity import Entity
from shardbus.stores.base.check import CatalogueReport
from shardbus.stores.base.store import StoreError
from shardbus.stores.sqlite.examine.catalogue_repair import (
    check_catalogue,
    common_id,
    set_catalogue_aside,
    write_catalogue,
)
from shardbus.stores.sqlite.membership import CATALOGUE, Holding, holding_of, store_files
from shardbus.stores.sqlite.store import SqliteStore


def adopt(data_dir: Path, *, now_ms: int, new_id: str) -> list[str]:
    """Create what is missing and let all stores join the catalogue's namespace.

    Returns a description of each step. StoreError when a file cannot be used, or when a store of
    another namespace holds fragments that would be taken for those of an entity of this one.
    """
    files = {path: holding_of(path) for path in store_files(data_dir) if path.exists()}
    catalogue = check_catalogue(data_dir / CATALOGUE)
    done: list[str] = []
    if not catalogue.is_known:
        done += _make_catalogue(data_dir, catalogue, list(files.values()), now_ms, new_id)
    if not catalogue.namespace_id:
        raise StoreError(
            f"{data_dir / CATALOGUE} has no namespace id; repair it first, with `shardbus "
            "check --repair`, or start this version once"
        )
    foreign = [path for path, held in files.items() if held.namespace_id != catalogue.namespace_id]
    for path in foreign:
        _check_apart(path, catalogue)
    for path in foreign:
        _join(path, catalogue.namespace_id)
        done.append(f"{path.name} now belongs to the namespace {catalogue.namespace_id}")
    for index in sorted({home.broker_index for e in catalogue.entities for home in e.fragments}):
        path = data_dir / f"broker-{index}.db"
        if not path.exists():
            _join(path, catalogue.namespace_id)
            done.append(f"{path.name} was created, and is empty")
    return done


def _make_catalogue(
    data_dir: Path,
    catalogue: CatalogueReport,
    holdings: Sequence[Holding],
    now_ms: int,
    new_id: str,
) -> list[str]:
    path = data_dir / CATALOGUE
    done: list[str] = []
    if path.exists() and path.stat().st_size:
        done.append(f"{CATALOGUE} cannot be read; it was renamed to {set_catalogue_aside(path)}")
    catalogue.namespace_id = common_id(holdings) or new_id
    catalogue.created_at_ms = now_ms
    write_catalogue(path, catalogue, holdings)
    done.append(f"{CATALOGUE} was created, and has no entities")
    return done


def _check_apart(path: Path, catalogue: CatalogueReport) -> None:
    """Fragments of another namespace must not become those of an entity of this one.

    Nor may they have an id of this one: they could not be recovered beside that entity.
    """
    if not holding_of(path).namespace_id:
        return
    store = SqliteStore(path)
    try:
        held = {fragment.entity_id for fragment in store.fragments()}
    finally:
        store.close()
    for entity in catalogue.entities:
        if entity.entity_id in held:
            raise StoreError(_mixed(path, entity))


def _mixed(path: Path, entity: Entity) -> str:
    return (
        f"{path} belongs to another namespace, and has fragments with the id "
        f"{entity.entity_id}, which is that of '{entity.name}' here: they would be mixed up. "
        "Nothing was changed. Move the file into its own data directory and run `shardbus "
        "check --adopt` there"
    )


def _join(path: Path, namespace_id: str) -> None:
    store = SqliteStore(path)
    try:
        store.join(namespace_id)
    finally:
        store.close()
