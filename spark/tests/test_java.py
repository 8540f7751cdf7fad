"""The Java that is found, and the wrapper around the one that pip brings."""

import subprocess
from pathlib import Path

import pytest

from shardbus_spark import java
from shardbus_spark.java import JavaMissing, java_home

FAKE = """#!/bin/sh
echo "    java.home = {home}" >&2
echo "    java.specification.version = {version}" >&2
echo "$@"
"""


def _fake(home: Path, version: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(FAKE.format(home=home, version=version))
    program.chmod(0o755)
    return home


def test_the_java_of_the_environment_comes_before_that_of_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named, found = _fake(tmp_path / "named", "21"), _fake(tmp_path / "found", "17")
    monkeypatch.setenv("PATH", f"{found / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("JAVA_HOME", str(named))
    assert java_home() == named

    monkeypatch.delenv("JAVA_HOME")

    assert java_home() == found


@pytest.mark.parametrize("version", ["1.8", "11", "16"])
def test_an_old_java_is_passed_over_for_the_one_that_pip_brought(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    bundled = _fake(tmp_path / "bundled", "25")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("JAVA_HOME", str(_fake(tmp_path / "old", version)))
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr(java, "_bundled", lambda: bundled / "bin" / "java")
    monkeypatch.setattr("importlib.metadata.version", lambda name: "25.0")

    home = java_home(cache=tmp_path / "cache of mine")

    said = subprocess.run(
        [home / "bin" / "java", "-a", "--add-modules=jdk.incubator.vector", "b c"],
        capture_output=True,
        check=True,
    )
    assert said.stdout == b"-a b c\n"
    assert java_home(cache=tmp_path / "cache of mine") == home
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java_home() == home, "the wrapper stays in use when it is the Java of the environment"


def test_no_java_at_all_is_told_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr(java, "_bundled", lambda: None)

    with pytest.raises(JavaMissing, match=r"Java 17 or newer.*shardbus-spark\[java\]"):
        java_home()
