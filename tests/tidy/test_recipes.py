"""How many files a property of entities and a kind of pipelines take: what CONTRIBUTING says of
them is so.
"""

import re

import pytest

from shardbus.app.pipelines.definition import KINDS
from shardbus.core.namespace.property import PROPERTIES
from tests.tidy.source import ROOT, python_files

FILES_MAX = 3
# The layers that carry any property without knowing it; what a property does is known elsewhere.
CARRIERS = (
    "src/shardbus/app/cli/entities",
    "src/shardbus/app/setup",
    "src/shardbus/core/namespace",
    "src/shardbus/gateway/http/api/entities",
    "src/shardbus/gateway/http/atom",
    "src/shardbus/stores",
)
# No carrier does anything with these.
CARRIED = ("is_batched", "is_express", "lifecycle", "user_metadata")


@pytest.mark.parametrize("name", CARRIED)
def test_a_property_takes_at_most_three_files(name: str) -> None:
    assert name in {each.name for each in PROPERTIES}

    assert 1 < len(_naming(name, *CARRIERS)) <= FILES_MAX, _naming(name, *CARRIERS)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_kind_of_pipelines_takes_three_files(kind: str) -> None:
    found = _naming(f'"{kind}"', "src/shardbus/app/pipelines", "spark/src/shardbus_spark/pipelines")
    own = [
        f"spark/src/shardbus_spark/pipelines/{kind}.py",
        f"src/shardbus/app/pipelines/{kind}.py",
    ]

    assert all((ROOT / path).is_file() for path in own)
    assert {"src/shardbus/app/pipelines/definition.py"} == {*found} - {*own}


def _naming(name: str, *roots: str) -> list[str]:
    """The files that say a name, quoted, as an attribute or as a keyword."""
    said = re.compile(re.escape(name) if '"' in name else rf'(["\'.]|\b){name}["\'=,) ]')
    return [
        str(path.relative_to(ROOT))
        for path in python_files(*roots)
        if said.search(path.read_text("utf-8")) is not None
    ]
