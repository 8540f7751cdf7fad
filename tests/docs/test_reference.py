"""Generated pages are fresh, and what the program has is in them."""

from collections.abc import Sequence

import pytest

from shardbus.app.server.settings import TABLE
from shardbus.core.message_fields import SENT_COLUMNS, SENT_TEXTS
from tests.docs.pages import ROOT, pages


@pytest.mark.parametrize("name", sorted(pages()))
def test_a_generated_page_is_as_the_code_would_write_it(name: str) -> None:
    stored = (ROOT / name).read_text(encoding="utf-8")

    assert stored == pages()[name], "run `make docs`"


def test_every_setting_has_its_flag_and_its_variable_on_the_page() -> None:
    page = pages()["docs/reference/settings.md"]

    assert [row.name for row in TABLE if f"| `{row.flag}` | `{row.variable}` |" not in page] == []


@pytest.mark.parametrize(
    ("page", "heading", "names"),
    [
        ("docs/reference/http.md", "## Properties", [field.dialect for field in SENT_TEXTS]),
        ("docs/reference/flight.md", "## Writing", SENT_COLUMNS),
        ("spark/README.md", "A row needs `body`", SENT_COLUMNS),
    ],
)
def test_pages_that_list_fields_list_all_of_them(
    page: str, heading: str, names: Sequence[str]
) -> None:
    text = (ROOT / page).read_text(encoding="utf-8").partition(heading)[2].partition("\n## ")[0]

    assert text
    assert [name for name in names if name and f"`{name}`" not in text] == []
