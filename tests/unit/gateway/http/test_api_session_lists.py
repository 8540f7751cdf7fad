"""Sessions that are listed and shown, with their messages, holders and states (R26, R46)."""

import pytest

from shardbus.gateway.http.api.messages import session_counts
from tests.unit.gateway.http.test_api_exploring import ask, put
from tests.unit.gateway.http.web import Web


def test_a_session_tells_its_messages_holder_and_state(web: Web) -> None:
    """R26, R46."""
    web.create_sessions("s", is_partitioned=True)
    put(web, "s", {"body": "a", "session_id": "x"}, {"body": "b", "session_id": "x"})
    put(web, "s", {"body": "other", "session_id": "y"})
    state = {"session_id": "X", "state_text": "half way"}
    assert ask(web, "POST", "entities/s/sessions/state", state)["size_bytes"] == 8

    free = ask(web, "POST", "entities/s/sessions/show", {"session_id": "x"})
    ask(web, "POST", "entities/s/messages/receive", {"session_id": "x"})
    held = ask(web, "POST", "entities/s/sessions/show", {"session_id": "x"})

    assert (free["messages"], free["active"], free["is_more"]) == (2, 2, False)
    assert (free["state_text"], free["locked_until"], free["held_by"]) == ("half way", None, "")
    assert (free["state_bytes"], held["state_bytes"], free["holder"]) == (8, None, "")
    assert held["locked_until"] and held["locked_messages"] == 1
    assert (held["held_by"], held["reader"]) == ("client", "")
    assert (held["is_state_known"], held["state_text"]) == (False, None)
    ask(web, "POST", "entities/s/sessions/state", state, status=410)
    ask(web, "POST", "entities/q/sessions/show", {"session_id": "x"}, status=400)


def test_a_session_tells_the_reader_that_has_claimed_its_messages(web: Web) -> None:
    """R26, R46, P4"""
    web.create_sessions("s", is_partitioned=False)
    put(web, "s", {"body": "a", "session_id": "x"})
    me = {"reader": "archive", "owner": "driver"}
    ask(web, "POST", "entities/s/readers/open", me)
    claims = [{"fragment": 0, "ordinal": 1, "count_max": 9}]
    ask(web, "POST", "entities/s/readers/claim", {**me, "claims": claims})

    held = ask(web, "POST", "entities/s/sessions/show", {"session_id": "x"})

    assert (held["held_by"], held["reader"], held["locked_messages"]) == ("reader", "archive", 0)


def test_a_session_tells_the_receiver_that_holds_it_over_amqp(web: Web) -> None:
    """R26, R46"""
    web.create_sessions("s", is_partitioned=True)
    put(web, "s", {"body": "a", "session_id": "x"}, {"body": "b", "session_id": "y"})
    client = web.client()
    link = client.session_receiver("s", "X", name="picker-7")
    web.pass_s()
    assert client.is_opened(link)

    held = ask(web, "POST", "entities/s/sessions/show", {"session_id": "x"})
    listed = _sessions(ask(web, "GET", "entities/s/sessions"))
    link.detach()
    client.flush()
    web.pass_s()
    free = ask(web, "POST", "entities/s/sessions/show", {"session_id": "x"})

    container = client.connection.config.container_id
    assert (held["held_by"], held["holder"]) == ("client", f"{container}/picker-7")
    assert [(one["session_id"], one.get("holder")) for one in listed] == [
        ("x", f"{container}/picker-7"),
        ("y", None),
    ]
    assert (free["held_by"], free["holder"]) == ("", "")


def test_sessions_are_listed_with_their_messages_as_far_as_these_were_looked_at(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R26, R46"""
    web.create_sessions("s", is_partitioned=True)
    for name in ("x", "X", "x", "y"):
        put(web, "s", {"body": "a", "session_id": name})
    state = {"session_id": "z", "state_text": "only a state"}
    ask(web, "POST", "entities/s/sessions/state", state)

    whole = ask(web, "GET", "entities/s/sessions?counts=1")
    monkeypatch.setattr(session_counts, "MESSAGES_MAX", 0)
    partly = ask(web, "GET", "entities/s/sessions?counts=1")
    plain = ask(web, "GET", "entities/s/sessions")

    counts = {one["session_id"]: one["messages"] for one in _sessions(whole)}
    assert (counts, whole["is_counted"]) == ({"x": 3, "y": 1, "z": 0}, True)
    assert all(one["oldest_at"] for one in _sessions(whole) if one["messages"])
    assert (partly["is_counted"], _sessions(partly)[0]["messages"]) == (False, 0)
    assert "messages" not in _sessions(plain)[0]
    ask(web, "GET", "entities/s/sessions?counts=2", status=400)


def _sessions(page: dict[str, object]) -> list[dict[str, object]]:
    found = page["sessions"]
    assert isinstance(found, list)
    return found
