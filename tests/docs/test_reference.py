"""Generated pages are fresh, and what the program has is in them."""

import pytest

from shardbus.app.server.settings import TABLE
from tests.docs.pages import ROOT, pages


@pytest.mark.parametrize("name", sorted(pages()))
def test_a_generated_page_is_as_the_code_would_write_it(name: str) -> None:
    stored = (ROOT / name).read_text(encoding="utf-8")

    assert stored == pages()[name], "run `make docs`"


def test_every_setting_has_its_flag_and_its_variable_on_the_page() -> None:
    page = pages()["docs/reference/settings.md"]

    assert [row.name for row in TABLE if f"| `{row.flag}` | `{row.variable}` |" not in page] == []
