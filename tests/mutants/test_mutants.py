"""The tests are tested: planted bugs must be caught. `make mutants` plants all of them."""

import pytest

from tests.mutants.places import Sources
from tests.mutants.planting import CAUGHT, ROOT, SIMULATION, SIMULATION_OF, Mutant, mutants, verdict
from tests.simulation.test_histories import ALL as SCENARIOS

ALL = mutants()
CHOSEN = [mutant for mutant in ALL if mutant.is_chosen]


@pytest.mark.long
@pytest.mark.parametrize("mutant", CHOSEN, ids=[mutant.name for mutant in CHOSEN])
def test_a_planted_bug_is_caught(mutant: Mutant) -> None:
    assert verdict(mutant) == CAUGHT


@pytest.fixture(scope="module")
def sources() -> Sources:
    return Sources(ROOT / "src")


@pytest.mark.parametrize("mutant", ALL, ids=[mutant.name for mutant in ALL])
def test_every_planted_bug_still_finds_its_place(mutant: Mutant, sources: Sources) -> None:
    sources.check(mutant.edits)


@pytest.mark.parametrize("caught_by", sorted({mutant.caught_by for mutant in ALL}))
def test_the_tests_that_catch_planted_bugs_are_there(caught_by: str) -> None:
    if caught_by.startswith(SIMULATION_OF):
        assert caught_by.removeprefix(SIMULATION_OF) in SCENARIOS
    elif caught_by != SIMULATION:
        assert (ROOT / caught_by.partition("::")[0]).exists()


def test_there_are_enough_of_them_under_names_of_their_own() -> None:
    assert len({mutant.name for mutant in ALL}) == len(ALL) >= 15
