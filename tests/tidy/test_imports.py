"""Who may import what: the rules that import-linter cannot say by module name alone."""

import pytest

from tests.tidy.source import imports, python_files, shown

_IMPURE = {
    "asyncio", "datetime", "glob", "io", "multiprocessing", "os", "pathlib", "random", "secrets",
    "select", "selectors", "shutil", "signal", "socket", "sqlite3", "ssl", "subprocess", "sys",
    "tempfile", "threading", "time", "uuid",
}  # fmt: skip


@pytest.mark.parametrize("package", ["core", "rules", "amqp"])
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
        for path in python_files("src/shardbus/core", "src/shardbus/rules", "src/shardbus/amqp")
        for name in sorted({name.partition(".")[0] for name in imports(path)} - allowed - known)
    ]

    assert offences == []


def test_brokers_and_gateways_know_only_the_interface_of_the_stores() -> None:
    offences = [
        f"{shown(path)} imports {name}"
        for path in python_files("src/shardbus/broker", "src/shardbus/gateway")
        for name in sorted(imports(path))
        if name.startswith("shardbus.stores.") and not name.startswith("shardbus.stores.base")
    ]

    assert offences == []


def test_no_import_is_relative_so_that_a_module_reads_the_same_from_everywhere() -> None:
    offences = [
        shown(path)
        for path in python_files("src", "spark/src")
        if "from ." in path.read_text(encoding="utf-8")
    ]

    assert offences == []
