"""A fragment against the simplest model, whatever happens in whatever order.

Commands, time, pages, commits and crashes interleave freely, with and without sessions, readers,
stages and duplicate detection, and with bounds so small that everything overflows; after every step
the fragment, what it stored and the model agree.
"""

import os

from hypothesis import HealthCheck, Phase, settings

from tests.model.core.machine import FragmentMachine
from tests.model.core.reader_machine import ReaderMachine
from tests.model.core.session_machine import SessionMachine
from tests.model.core.stage_machine import StageMachine

# A planted bug need only be found; making its example small can take minutes.
PHASES = [Phase.generate] if os.environ.get("MUTANT") else list(Phase)

SETTINGS = settings(
    max_examples=200,
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

TestFragmentWithStages = StageMachine.TestCase
TestFragmentWithStages.settings = SETTINGS
