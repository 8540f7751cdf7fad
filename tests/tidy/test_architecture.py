"""ARCHITECTURE names every package, and what it says about places is so."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "shardbus"
PLACES = (SOURCE, ROOT / "spark" / "src", ROOT / "src")
TEXT = (ROOT / "docs" / "internals" / "ARCHITECTURE.md").read_text("utf-8")


def test_every_package_is_named() -> None:
    packages = [path.parent for path in SOURCE.rglob("__init__.py") if path.parent != SOURCE]
    assert len(packages) > 30

    assert [str(one) for one in packages if not re.search(rf"\b{one.name}\b", TEXT)] == []


def test_every_function_in_an_answer_is_in_the_file_of_the_answer() -> None:
    answers = re.findall(r"`(\w+)\.(\w+)` in \[([^\]]+)\]", TEXT)
    assert len(answers) >= 4

    for owner, function, name in answers:
        [code] = [(place / name).read_text("utf-8") for place in PLACES if (place / name).exists()]
        assert f"class {owner}" in code and f"def {function}(" in code, (owner, function, name)


def test_every_file_that_is_named_exists() -> None:
    names = re.findall(r"`((?:\w+/)+\w+\.py)`", TEXT)
    assert len(names) > 20

    assert [name for name in names if not any((place / name).exists() for place in PLACES)] == []
