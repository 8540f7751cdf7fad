"""The lifecycle records of a fragment tell its state, whatever happens in whatever order (P8).

The machines are those of `test_fragment`; after every step the records, replayed, give the messages
by line and state, the locked ones, and the dropped duplicates.
"""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model.core.machine import FragmentMachine
from tests.model.core.reader_machine import ReaderMachine
from tests.model.core.session_machine import SessionMachine
from tests.model.core.stage_machine import StageMachine
from tests.model.core.test_fragment import PHASES

SETTINGS = settings(
    max_examples=30,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    phases=PHASES,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow],
)


class RecordedFragment(FragmentMachine):
    records_lifecycle = True


class RecordedSessions(SessionMachine):
    records_lifecycle = True


class RecordedReaders(ReaderMachine):
    records_lifecycle = True


class RecordedStages(StageMachine):
    records_lifecycle = True


@pytest.mark.parametrize(
    "machine", [RecordedFragment, RecordedSessions, RecordedReaders, RecordedStages]
)
def test_the_records_replayed_give_the_state(machine: type[FragmentMachine]) -> None:
    run_state_machine_as_test(machine, settings=SETTINGS)
