"""Receiving: what is settled when, and what happens when it cannot be shown."""

from collections.abc import Callable

import pytest

from shardbus.app.cli.api_client import Document
from shardbus.app.cli.failures import CommandError, Interrupted, ReaderGone, Usage
from shardbus.app.cli.messages.receive import wish_from
from shardbus.app.cli.messages.receiving import REQUEST_WAIT_MS, ReceiveOptions, Receiving
from tests.support.refusals import check_named
from tests.unit.app.scripted_api import Script, message

NONE: Document = {"messages": [], "session": None}
SETTLED: Document = {"settled": 2, "lost": []}
TWO: Document = {"messages": [message(1), message(2)], "session": None}


def in_session(*numbers: int) -> Document:
    listed = [message(number) for number in numbers]
    return {"messages": listed, "session": {"lock_token": "s", "locked_until": "x"}}


class Shown:
    def __init__(self) -> None:
        self.bodies: list[object] = []

    def show(self, message: Document, slow: Callable[[], None]) -> None:
        self.bodies.append(message["body"])


def test_messages_are_completed_after_they_were_shown() -> None:
    script, order = Script(TWO, SETTLED, NONE), list[str]()

    def show(message: Document, slow: Callable[[], None]) -> None:
        order.append(f"{message['body']} after {len(script.asked)} requests")

    Receiving(script.api(), ReceiveOptions("q", None, 0), show).run()

    assert order == ["1 after 1 requests", "2 after 1 requests"]
    assert script.lines() == [
        "POST entities/q/messages/receive",
        "POST entities/q/messages/settle",
        "POST entities/q/messages/receive",
    ]
    assert script.asked[1][1] == {"action": "complete", "lock_tokens": ["t1", "t2"]}


@pytest.mark.parametrize(
    ("error", "failure"), [(BrokenPipeError, ReaderGone), (KeyboardInterrupt, Interrupted)]
)
def test_what_could_not_be_shown_is_put_back_and_what_was_shown_is_told(
    error: type[BaseException], failure: type[CommandError]
) -> None:
    """A reader that takes one message and leaves, or Ctrl-C, loses nothing."""
    three: Document = {"messages": [message(1), message(2), message(3)], "session": None}
    script = Script(three, {"settled": 1, "lost": []}, SETTLED)

    def show(message: Document, slow: Callable[[], None]) -> None:
        if message["body"] != "1":
            raise error

    with pytest.raises(failure) as caught:
        Receiving(script.api(), ReceiveOptions("q", None, 0), show).run()
    check_named(str(caught.value), "1 message", "completed")

    assert [body for _, body in script.asked[1:]] == [
        {"action": "complete", "lock_tokens": ["t1"]},
        {"action": "release", "lock_tokens": ["t3", "t2"]},
    ]


def test_a_slow_reader_holds_no_locks_but_that_of_its_next_message() -> None:
    three: Document = {"messages": [message(1), message(2), message(3)], "session": None}
    one: Document = {"settled": 1, "lost": []}
    script = Script(three, one, one, one, NONE)
    shown = Shown()

    def show(message: Document, slow: Callable[[], None]) -> None:
        if message["body"] == "2":
            slow()
        shown.show(message, slow)

    Receiving(script.api(), ReceiveOptions("q", None, 0), show).run()

    assert shown.bodies == ["1", "2"]
    assert [body for line, body in script.asked if line.endswith("settle")] == [
        {"action": "complete", "lock_tokens": ["t1"]},
        {"action": "release", "lock_tokens": ["t3"]},
        {"action": "complete", "lock_tokens": ["t2"]},
    ]


def test_locks_that_were_lost_are_told() -> None:
    script = Script(TWO, {"settled": 1, "lost": ["t1"]}, NONE)

    with pytest.raises(CommandError, match="1 of 2 messages"):
        Receiving(script.api(), ReceiveOptions("q", None, 0), Shown().show).run()


def test_no_more_is_asked_for_than_is_wanted() -> None:
    script = Script(TWO, SETTLED)

    Receiving(script.api(), ReceiveOptions("q", 2, 5000), Shown().show).run()

    assert script.asked[0][1] == {"count": 2, "wait_ms": 5000}
    assert len(script.asked) == 2


def test_a_long_wait_is_several_requests() -> None:
    script = Script(NONE)

    Receiving(script.api(), ReceiveOptions("q", 1, 2 * REQUEST_WAIT_MS + 1), Shown().show).run()

    waits = [body["wait_ms"] for _, body in script.asked]
    assert waits == [REQUEST_WAIT_MS, REQUEST_WAIT_MS, 1]


def test_what_is_deleted_as_it_comes_is_not_settled() -> None:
    taken: Document = {"messages": [{"body": "1"}], "session": None}
    script = Script(taken, NONE)

    Receiving(
        script.api(), ReceiveOptions("q", None, 0, action="", is_deleting=True), Shown().show
    ).run()

    assert script.asked[0][1]["mode"] == "receive_and_delete"
    assert script.lines() == ["POST entities/q/messages/receive"] * 2


def test_what_is_abandoned_goes_back_at_the_end_only() -> None:
    script = Script(TWO, TWO, {"settled": 4, "lost": []})

    Receiving(script.api(), ReceiveOptions("q", 4, 0, action="abandon"), Shown().show).run()

    assert [line.rpartition("/")[2] for line in script.lines()] == ["receive", "receive", "settle"]


def test_sessions_are_emptied_one_after_the_other() -> None:
    """R26."""
    one: Document = {"settled": 1, "lost": []}
    script = Script(in_session(1), one, NONE, in_session(2), one, NONE, NONE)
    shown = Shown()

    Receiving(script.api(), ReceiveOptions("q", None, 0), shown.show).run()

    assert shown.bodies == ["1", "2"]
    continued = [body.get("session_lock_token") for line, body in script.asked if "receive" in line]
    assert continued == [None, "s", None, "s", None]


def test_a_session_that_is_not_empty_is_let_go() -> None:
    """R26."""
    script = Script(in_session(1), {"settled": 1, "lost": []}, {"released": True})

    Receiving(script.api(), ReceiveOptions("q", 1, 0, session_id="a"), Shown().show).run()

    assert script.asked[0][1]["session_id"] == "a"
    assert script.asked[-1] == (
        "POST entities/q/sessions/release",
        {"session_lock_token": "s"},
    )


def test_messages_that_stay_locked_keep_their_session() -> None:
    script = Script(in_session(1))

    Receiving(script.api(), ReceiveOptions("q", 1, 0, action=""), Shown().show).run()

    assert script.lines() == ["POST entities/q/messages/receive"]


def test_options_say_what_becomes_of_messages() -> None:
    assert wish_from("q", {}) == ReceiveOptions("q", 1, 5000)
    assert wish_from("q", {"is_all": True}) == ReceiveOptions("q", None, 0)
    assert wish_from("q", {"count": 9, "wait": "1m"}) == ReceiveOptions("q", 9, 60_000)
    assert wish_from("q", {"is_deleting": True, "is_all": True}).action == ""
    assert wish_from("q", {"is_abandoning": True}).action == "abandon"
    dead = wish_from("q", {"dead_letter_reason": "bad"})
    assert (dead.action, dead.reason) == ("dead_letter", "bad")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"is_deleting": True, "is_abandoning": True}, "give one of"),
        ({"is_all": True, "count": 3}, "--count or --all"),
        ({"session": "a", "is_next_session": True}, "--session"),
        ({"wait": "soon"}, "--wait"),
        ({"is_abandoning": True, "is_all": True}, "peek --all"),
        ({"is_locking": True, "count": 5000}, "at most 1000"),
        ({"dead_letter_reason": "x", "is_dead_letter": True}, "again"),
    ],
)
def test_options_that_contradict_each_other_are_told(
    options: dict[str, str | int | bool | None], words: str
) -> None:
    with pytest.raises(Usage, match=words):
        wish_from("q", options)
