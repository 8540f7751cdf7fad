"""A planted bug finds its code by name and meaning: it survives moves and layouts, not changes."""

import textwrap
from pathlib import Path

import pytest

from tests.mutants.places import Edit, Misplaced, Sources

STAGING = """
    LIMIT: Final = 42

    class Staging:
        def _stage(self, rows):
            if rows > LIMIT:
                raise TooMany(rows)
            for row in rows:
                self.keep(row)
                self.count += 1
            return rows

        def _keep(self, rows):
            return [row for row in rows if row]
"""


def sources(tmp_path: Path, **modules: str) -> Sources:
    """`core__staging=TEXT` is the module `shardbus.core.stages.staging`."""
    for name, text in modules.items():
        path = tmp_path.joinpath("shardbus", *name.split("__")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
    return Sources(tmp_path)


def planted(found: Sources, *edits: Edit) -> str:
    (text,) = found.apply(list(edits)).values()
    return text


def test_an_expression_is_replaced_wherever_the_module_was_moved_to(tmp_path: Path) -> None:
    edit = Edit("Staging._stage", "rows > LIMIT", "False")

    for number, name in enumerate(("core__staging", "core__stages__steps")):
        text = planted(sources(tmp_path / str(number), **{name: STAGING}), edit)

        assert "if False:" in text


def test_layout_comments_and_quotes_do_not_matter(tmp_path: Path) -> None:
    module = """
        def say():
            tell('hello',  # said first
                 name)
    """

    text = planted(sources(tmp_path, say=module), Edit("say", 'tell("hello", name)', "tell(name)"))

    assert text.endswith("    tell(name)")


def test_statements_that_follow_one_another_are_replaced(tmp_path: Path) -> None:
    old = "self.keep(row)\nself.count += 1"

    text = planted(sources(tmp_path, staging=STAGING), Edit("_stage", old, "self.count += 1"))

    assert "keep(row)" not in text
    assert "self.count += 1" in text


def test_nothing_is_left_where_all_statements_go(tmp_path: Path) -> None:
    old = "raise TooMany(rows)"

    text = planted(sources(tmp_path, staging=STAGING), Edit("Staging._stage", old, ""))

    assert "if rows > LIMIT:\n            pass" in text


def test_a_constant_is_a_place(tmp_path: Path) -> None:
    text = planted(sources(tmp_path, staging=STAGING), Edit("LIMIT", "42", "43"))

    assert "LIMIT: Final = 43" in text


def test_an_expression_of_several_lines_needs_no_brackets(tmp_path: Path) -> None:
    old = "[\nrow for row in rows\nif row]"

    text = planted(sources(tmp_path, staging=STAGING), Edit("_keep", old, "rows\nor\nNone"))

    assert "return rows or None" in text


def test_edits_of_one_body_do_not_move_each_other(tmp_path: Path) -> None:
    first = Edit("_stage", "self.keep(row)", "assert row\nassert self")
    second = Edit("_stage", "self.count += 1", "self.count += 2")

    text = planted(sources(tmp_path, staging=STAGING), first, second)

    lines = [line.strip() for line in text.splitlines()]
    start = lines.index("for row in rows:")
    assert lines[start + 1 : start + 4] == ["assert row", "assert self", "self.count += 2"]


def test_a_property_and_its_setter_are_one_place(tmp_path: Path) -> None:
    module = """
        class Lamp:
            @property
            def is_on(self):
                return self._is_on

            @is_on.setter
            def is_on(self, value):
                self._is_on = value
    """

    text = planted(sources(tmp_path, lamp=module), Edit("Lamp.is_on", "self._is_on = value", ""))

    assert "def is_on(self, value):\n        pass" in text


def test_a_text_file_goes_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "shardbus" / "schema").mkdir(parents=True)
    (tmp_path / "shardbus" / "schema" / "0001.sql").write_text("SELECT 1;\n", encoding="utf-8")

    text = planted(Sources(tmp_path), Edit("0001.sql", "SELECT 1", "SELECT 2"))

    assert text == "SELECT 2;\n"


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (Edit("Staging.stage", "rows", "None"), "nothing in shardbus is called 'Staging.stage'"),
        (Edit("_stage", "rows < LIMIT", "False"), "_stage says nowhere, and not once"),
        (Edit("Staging", "rows", "None"), "Staging says 5 times, and not once"),
        (Edit("_stage", "if rows:", "pass"), "`old` is neither an expression nor whole statements"),
        (Edit("_stage", "", "pass"), "`old` is empty"),
        (Edit("_keep", "row", "( row )"), "`old` and `new` say the same"),
        (Edit("0001.sql", "SELECT", ""), "0 files are called '0001.sql'"),
    ],
)
def test_an_edit_that_does_not_fit_says_why(tmp_path: Path, edit: Edit, reason: str) -> None:
    found = sources(tmp_path, staging=STAGING)

    with pytest.raises(Misplaced) as refusal:
        found.check([edit])

    assert str(refusal.value).startswith(reason)


def test_a_name_that_several_things_have_must_be_written_longer(tmp_path: Path) -> None:
    found = sources(tmp_path, core__staging=STAGING, broker__staging=STAGING)

    with pytest.raises(
        Misplaced, match=r"shardbus\.broker\.staging\.Staging\._stage, shardbus\.core"
    ):
        found.check([Edit("Staging._stage", "rows > LIMIT", "False")])

    found.check([Edit("core.staging.Staging._stage", "rows > LIMIT", "False")])
