"""The tests are tested: planted bugs must be caught. `make mutants` plants all of them."""

from pathlib import Path

import pytest

from tests.mutants.planting import CAUGHT, ROOT, Mutant, mutants, plant, verdict

ALL = mutants()
FAST = [mutant for mutant in ALL if mutant.is_fast]


@pytest.mark.parametrize("mutant", FAST, ids=[mutant.name for mutant in FAST])
def test_a_planted_bug_is_caught(mutant: Mutant) -> None:
    assert verdict(mutant) == CAUGHT


@pytest.mark.parametrize("mutant", ALL, ids=[mutant.name for mutant in ALL])
def test_every_planted_bug_still_finds_its_place(mutant: Mutant, tmp_path: Path) -> None:
    for file, _, _ in mutant.edits:
        copy = tmp_path / "shardbus" / file
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes((ROOT / "src" / "shardbus" / file).read_bytes())

    plant(mutant, tmp_path)


def test_there_are_enough_of_them_under_names_of_their_own() -> None:
    assert len({mutant.name for mutant in ALL}) == len(ALL) >= 15
