"""A fragment against the simplest model, whatever happens in whatever order.

Commands, time, pages, commits and crashes interleave freely, with and without sessions, readers,
stages and duplicate detection, and with bounds so small that everything overflows; after every step
the fragment, what it stored and the model agree.
"""

import os

import pytest
from hypothesis import HealthCheck, Phase, settings

from shardbus.core.limits import STAGE_MS_MIN
from tests.model.core.machine import FragmentMachine
from tests.model.core.reader_machine import ReaderMachine
from tests.model.core.session_machine import SessionMachine
from tests.model.core.session_reader_machine import SessionReaderMachine
from tests.model.core.stage_machine import StageMachine
from tests.support.examples import examples

# A planted bug need only be found; making its example small can take minutes.
PHASES = [Phase.generate] if os.environ.get("MUTANT") else list(Phase)

SETTINGS = settings(
    max_examples=examples(200),
    stateful_step_count=50,
    deadline=None,
    derandomize=True,
    phases=PHASES,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow],
)

TestFragment = FragmentMachine.TestCase
TestFragment.settings = SETTINGS

TestFragmentWithSessions = SessionMachine.TestCase
TestFragmentWithSessions.settings = SETTINGS

TestFragmentWithReaders = ReaderMachine.TestCase
TestFragmentWithReaders.settings = SETTINGS

TestFragmentWithReadersOfSessions = SessionReaderMachine.TestCase
TestFragmentWithReadersOfSessions.settings = SETTINGS

TestFragmentWithStages = StageMachine.TestCase
TestFragmentWithStages.settings = SETTINGS


@pytest.mark.parametrize("is_noticed", [True, False])
def test_a_stage_that_is_loaded_has_its_whole_time_again(is_noticed: bool) -> None:
    """Steady readings end with their process; the model kept to the moment of before."""
    machine = StageMachine()
    machine.start(1, False, False, False, False)
    machine.stage(b"a", 1, 1, None, -1, 0, STAGE_MS_MIN)
    machine.pass_much_time(STAGE_MS_MIN - 1, is_noticed)
    machine.crash()
    machine.pass_much_time(STAGE_MS_MIN - 1, is_noticed)
    machine.the_stages_are_those_of_the_model()
    assert set(machine.model.stages) == {b"a"}

    machine.pass_time(1, True)

    machine.the_stages_are_those_of_the_model()
    machine.the_store_holds_the_pieces_of_the_model()
    assert machine.model.stages == {}
    machine.teardown()
