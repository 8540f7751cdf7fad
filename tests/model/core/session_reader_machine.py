"""Readers and receivers of the same sessions, each command checked against the model."""

from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from shardbus.core.message import ACTIVE, MAIN_LINE
from tests.model.core.agreement import NAMES
from tests.model.core.machine import counts, names, ways
from tests.model.core.reader_machine import ReaderMachine
from tests.model.core.reader_machine import names as reader_names
from tests.model.core.session_machine import SessionMachine


class SessionReaderMachine(SessionMachine, ReaderMachine):
    """The commands about sessions and those about readers."""

    def look_at_clocks(self) -> None:
        """As a runner does before commands: an overdue hold keeps readers out until it is ended."""
        self.pass_time(0, is_noticed=True)

    def ready(self, line: int, name: str) -> None:
        self.top_up_sessions()
        if self.model.reader(line, name) is None:
            self.open_reader(line, name, b"one", 10_000)

    @rule(
        name=reader_names,
        count_max=counts,
        session_id=st.none() | names,
        how=st.none() | ways,
        is_released=st.booleans(),
        is_completed=st.booleans(),
    )
    def claim_beside_a_receiver(
        self,
        name: str,
        count_max: int,
        session_id: str | None,
        how: int | None,
        is_released: bool,
        is_completed: bool,
    ) -> None:
        """A reader claims while somebody may hold a session, and more comes meanwhile."""
        self.serve(session_id, 1, how, 0, is_released)
        self.claim_next(MAIN_LINE, name, count_max, 100, False)
        self.send(2, session_id or NAMES[0], None, -1, 0)
        self.claim_next(MAIN_LINE, name, count_max, 100, False)
        reader = self.model.reader(MAIN_LINE, name)
        if is_completed and reader is not None and reader.open:
            self.complete(MAIN_LINE, name, reader.owner, reader.open[0])
        self.accept_next()

    # What is true after every step.

    @invariant()
    def no_reader_passes_what_it_may_claim(self) -> None:
        """What waits before the end of a scan is of a session that somebody else holds, and will be
        seen again; what waits behind an end without a tail does not exist.
        """
        sessions = self.desk.fragment._sessions
        assert sessions is not None
        for reader in self.model.readers:
            scan = sessions._scans.get(reader.name)
            if reader.line != MAIN_LINE or scan is None:
                continue
            for each in self.model.messages:
                is_waiting = each.line == MAIN_LINE and each.state == ACTIVE and not each.is_taken()
                if not is_waiting:
                    continue
                assert each.session_id is not None
                if each.number <= scan.end:
                    is_held = self.model.holder(each.session_id) is not None
                    assert is_held or self.model.claimer(each.session_id) not in (None, reader)
                    assert scan.passed[each.session_id.lower()] <= each.number
                else:
                    assert scan.has_tail

    @invariant()
    def no_session_has_two_holders(self) -> None:
        for name in NAMES:
            readers = {
                id(each.reader)
                for each in self.model.messages
                if each.reader is not None
                and each.line == MAIN_LINE
                and each.session_id is not None
                and each.session_id.lower() == name
            }
            assert len(readers) + (self.model.holder(name) is not None) <= 1
