"""The version, and whether the hot modules are compiled."""

import platform
from importlib.util import find_spec

from shardbus import __version__

# Any compiled module would do: all of them are built together or none is.
_WITNESS = "shardbus.codec.value"


def is_compiled() -> bool:
    """Whether the hot modules come from mypyc; false when `src` shadows the install."""
    spec = find_spec(_WITNESS)
    return spec is not None and spec.origin is not None and not spec.origin.endswith(".py")


def describe() -> dict[str, str | bool]:
    return {
        "version": __version__,
        "compiled": is_compiled(),
        "python": platform.python_version(),
    }
