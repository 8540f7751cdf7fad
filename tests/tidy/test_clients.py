"""How many files a client of the conformance run takes: what CONTRIBUTING says of it is so."""

import json
import re

from tests.tidy.source import ROOT

JS = ROOT / "tests" / "conformance" / "js"
RECIPE = re.compile(r"\*\*An SDK, or another client, .*?\n\n(?=[A-Z])", re.DOTALL)
# Added by the recipe.
ADDED = "rhea"


def test_the_recipe_names_files_that_are_there() -> None:
    [recipe] = RECIPE.findall((ROOT / "CONTRIBUTING.md").read_text("utf-8"))
    files = re.findall(r"`((?:tests|requirements)/[\w./-]+\.(?:json|in|mjs|py))`", recipe)

    assert len(files) == 6
    there = [
        file.replace("js/NAME", f"js/{ADDED}").replace("test_NAME", "test_proton") for file in files
    ]
    assert [file for file in there if not (ROOT / file).is_file()] == []


def test_a_client_takes_its_pin_and_its_file_of_tests() -> None:
    own = [path for path in sorted(JS.iterdir()) if path.is_file()]
    users = [path.name for path in own if f'from "{ADDED}"' in path.read_text("utf-8")]
    version = json.loads((JS / "package.json").read_text("utf-8"))["dependencies"][ADDED]
    locked = json.loads((JS / "package-lock.json").read_text("utf-8"))["packages"]

    assert users == [f"{ADDED}.test.mjs", f"{ADDED}_features.mjs", f"{ADDED}_load.mjs"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", version)
    assert locked[""]["dependencies"][ADDED] == version
    assert locked[f"node_modules/{ADDED}"]["version"] == version
