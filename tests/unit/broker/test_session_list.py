"""The ids of sessions, page by page over the fragments of an entity (R26)."""

import pytest

from shardbus.core.errors import Unavailable
from tests.unit.broker.house import House
from tests.unit.broker.queues import Queue, queue_rules


@pytest.fixture
def sessions(house: House) -> Queue:
    return Queue(house, 3, queue_rules(requires_session=True))


def listed(
    queue: Queue, *, skip: int, count_max: int = 10, updated_after_ms: int = -1
) -> list[str]:
    return queue.do(
        queue.operations.list_sessions(
            updated_after_ms=updated_after_ms, skip=skip, count_max=count_max
        )
    )


@pytest.mark.parametrize("page", [1, 3, 100])
def test_sessions_are_listed_page_by_page_over_all_fragments(sessions: Queue, page: int) -> None:
    names = [f"s{number}" for number in range(20)]
    for name in names:
        sessions.send_to_session(name, b"x")

    found: list[str] = []
    while ids := listed(sessions, skip=len(found), count_max=page):
        found += ids

    assert sorted(found) == sorted(names)


def test_a_page_in_the_middle_needs_no_pages_before_it(sessions: Queue) -> None:
    for number in range(20):
        sessions.send_to_session(f"s{number}", b"x")
    everything = listed(sessions, skip=0, count_max=100)

    for skip in range(22):
        forgetful = sessions.new_operations()
        page = forgetful.list_sessions(updated_after_ms=-1, skip=skip, count_max=4)
        assert sessions.do(page) == everything[skip : skip + 4]


def test_sessions_are_listed_by_when_their_state_was_set(sessions: Queue) -> None:
    for name in ("old", "new"):
        sessions.do(sessions.operations.set_state(sessions.accept(name).token, b"x"))
        sessions.house.pass_s(10)
    sessions.send_to_session("stateless", b"x")

    after_ms = sessions.house.clock.now_ms() - 15_000
    assert listed(sessions, skip=0, updated_after_ms=after_ms) == ["new"]


def test_a_list_with_holes_is_not_given(sessions: Queue) -> None:
    """An error is never answered with an empty result."""
    sessions.send_to_session("a", b"x")
    sessions.house.disk.broken_fragments.add(sessions.runners[1].fragment_id)

    with pytest.raises(Unavailable):
        listed(sessions, skip=0)


def test_an_empty_list_does_not_hide_the_sessions_that_come_later(sessions: Queue) -> None:
    """Where a list ended is kept for who continues it, not for who begins again."""
    assert listed(sessions, skip=0) == []
    for name in ("a", "b", "c"):
        sessions.send_to_session(name, b"x")
    assert sorted(listed(sessions, skip=0)) == ["a", "b", "c"]
    sessions.send_to_session("d", b"x")

    assert sorted(listed(sessions, skip=0)) == ["a", "b", "c", "d"]


def test_of_some_sessions_those_are_told_that_somebody_holds(sessions: Queue) -> None:
    names = [f"s{number}" for number in range(8)]
    accepted = [sessions.accept(name) for name in names[:3]]

    holds = sessions.do(sessions.operations.holds(names))

    assert sorted((hold.session_id, hold.locked_until_ms) for hold in holds) == [
        (each.session_id, each.locked_until_ms) for each in accepted
    ]
    assert sessions.do(sessions.operations.holds([])) == []
