"""Who may import what: the rules that import-linter cannot say by module name alone."""

import ast
import re
from pathlib import Path

import pytest

from tests.tidy.source import imports, python_files, shown, tree

PURE = ("core", "rules", "message", "codec", "amqp")
_IMPURE = {
    "asyncio", "datetime", "glob", "io", "multiprocessing", "os", "pathlib", "random", "secrets",
    "select", "selectors", "shutil", "signal", "socket", "sqlite3", "ssl", "subprocess", "sys",
    "tempfile", "threading", "time", "uuid",
}  # fmt: skip


@pytest.mark.parametrize("package", PURE)
def test_pure_packages_import_no_clock_no_dice_and_no_world(package: str) -> None:
    """A fragment that is a pure machine replays from its seed; one import would end that."""
    offences = [
        f"{shown(path)} imports {name}"
        for path in python_files(f"src/shardbus/{package}")
        for name in sorted({name.partition(".")[0] for name in imports(path)} & _IMPURE)
    ]

    assert offences == []


def test_pure_packages_import_only_the_standard_library_and_what_is_argued() -> None:
    allowed = {"mypy_extensions", "shardbus", "xxhash"}
    known = {"__future__", "array", "base64", "bisect", "collections", "dataclasses", "decimal",
             "enum", "functools", "hashlib", "heapq", "hmac", "itertools", "json", "math",
             "operator", "re", "struct", "typing", "urllib", "zlib"}  # fmt: skip
    offences = [
        f"{shown(path)} imports {name}"
        for path in python_files(*(f"src/shardbus/{package}" for package in PURE))
        for name in sorted({name.partition(".")[0] for name in imports(path)} - allowed - known)
    ]

    assert offences == []


def test_outside_the_stores_only_their_interface_is_known() -> None:
    """The interface is what is called base; it knows no store either."""
    interface = [path for path in python_files("src/shardbus/stores") if is_interface(path)]
    outside = python_files("src/shardbus/app", "src/shardbus/broker", "src/shardbus/gateway")
    offences = [
        f"{shown(path)} imports {name}"
        for path in [*outside, *interface]
        for name in sorted(imports(path))
        if name.startswith("shardbus.stores.") and not name.startswith("shardbus.stores.base.")
    ]

    assert len(interface) > 5
    assert offences == []


def test_a_kind_of_store_is_named_by_its_package_and_by_one_line() -> None:
    kinds = re.compile("sqlite|postgres", re.IGNORECASE)
    files = [path for path in python_files("src/shardbus") if not is_of_a_kind(path)]
    named = [
        f"{shown(path)}: {line.strip()}"
        for path in files
        for line in path.read_text(encoding="utf-8").splitlines()
        if kinds.search(line)
    ]

    assert named == [
        'src/shardbus/app/server/store_kinds.py: "sqlite": "shardbus.stores.sqlite.package",',
        'src/shardbus/app/server/store_kinds.py: "postgresql": "shardbus.stores.postgres.package",',
    ]


def is_interface(path: Path) -> bool:
    """What is in `stores/base`."""
    return shown(path).startswith("src/shardbus/stores/base/")


def is_of_a_kind(path: Path) -> bool:
    """What a kind of store is made of; what is in memory is of none."""
    is_stores = shown(path).startswith("src/shardbus/stores/")
    return is_stores and not is_interface(path) and path.parent.name != "memory"


def test_no_import_is_relative_so_that_a_module_reads_the_same_from_everywhere() -> None:
    offences = [
        shown(path)
        for path in python_files("src", "spark/src")
        if "from ." in path.read_text(encoding="utf-8")
    ]

    assert offences == []


def test_a_name_is_imported_from_where_it_is_defined() -> None:
    """`import x as x` is how a module offers what another one defines."""
    offences = [
        shown(path, node.lineno)
        for path in python_files("src", "spark/src")
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    ]

    assert offences == []
