"""Compile the hot modules with mypyc; everything else about the build is in pyproject.toml."""

import os
from pathlib import Path

from setuptools import setup

# One group, one list: modules compiled together call each other as C, not through the interpreter.
HOT_GLOBS = (
    "src/shardbus/amqp/*.py",
    "src/shardbus/core/**/*.py",
    "src/shardbus/stores/chunk.py",
    "src/shardbus/broker/storage.py",
    "src/shardbus/broker/runner.py",
    "src/shardbus/broker/dispatch.py",
    "src/shardbus/broker/router.py",
    "src/shardbus/gateway/amqp/inbound.py",
    "src/shardbus/gateway/amqp/outbound.py",
)


def hot_modules() -> list[str]:
    """Every module to compile; `__init__` files hold no hot code and stay Python."""
    root = Path(__file__).resolve().parent
    found = {path.relative_to(root) for glob in HOT_GLOBS for path in root.glob(glob)}
    return sorted(str(path) for path in found if path.name != "__init__.py")


def is_pure() -> bool:
    return os.environ.get("SHARDBUS_PURE") == "1"


if is_pure() or not hot_modules():
    setup()
else:
    from mypyc.build import mypycify

    extensions = mypycify(
        ["--config-file=pyproject.toml", *hot_modules()],
        opt_level="3",
        debug_level="0",
        group_name="shardbus",
    )
    setup(ext_modules=extensions)  # type: ignore[arg-type]  # mypyc also names distutils' class
