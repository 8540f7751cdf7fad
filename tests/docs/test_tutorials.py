"""The tutorials: every cell is run, in order, with real Spark and a bus that has nothing in it."""

import re
from pathlib import Path
from typing import Final

import pytest

from tests.docs.examples import (
    NOTEBOOK_TIMEOUT_S,
    ROOT,
    documents,
    examples,
    is_notebook,
    resembles,
    run_notebook,
    workplace,
)
from tests.support.ports import free_port
from tests.support.server import running_server

TUTORIAL = "docs/tutorials/orders-in-spark.md"
# The rest of the pages run on a bus that allows no code.
_CODE: Final = re.compile(r"^make run ARGS=.*--pipeline-code (\w+)", re.MULTILINE)


def _notebooks() -> list[str]:
    found = [path for path in documents() if is_notebook(examples(path.read_text("utf-8")))]
    return [str(path.relative_to(ROOT)) for path in found]


# Four starts of Spark: minutes, beside other tests on two cores.
@pytest.mark.long
@pytest.mark.timeout(NOTEBOOK_TIMEOUT_S + 60)
@pytest.mark.parametrize(
    "page",
    [
        TUTORIAL,
        *(
            pytest.param(page, marks=pytest.mark.release)
            for page in sorted({*_notebooks()} - {TUTORIAL})
        ),
    ],
)
def test_the_cells_of_a_tutorial_do_what_it_says(page: str, tmp_path: Path) -> None:
    """R33, P1, P3, P4, P9, P11: read, aggregate, write back, capture, replay, transform."""
    text = (ROOT / page).read_text("utf-8")
    shown = examples(text)
    directory = workplace(tmp_path / "notebook")
    options = ["--flight-port", str(free_port())]
    if code := _CODE.search(text):
        options += ["--pipeline-code", str(directory / code[1])]
    with running_server(directory / "shardbus-data", *options) as server:
        printed = run_notebook(shown, server.http_port, server.flight_url, directory)

    pairs = zip(shown, printed, strict=True)
    assert [(cell, text) for cell, text in pairs if not resembles(cell, text)] == []
