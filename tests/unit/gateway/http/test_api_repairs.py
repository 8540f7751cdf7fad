"""Dead letters that are mended on their way back: each once, and nothing else of them changes."""

from collections.abc import Iterator

import pytest

from shardbus.core.errors import INVALID_ARGUMENT
from shardbus.gateway.http.jobs.repairing import Unrepairable, read_path, with_value
from tests.support.refusals import refusal_of
from tests.unit.gateway.http.test_api_jobs import DEAD, Desk, Json

BODY = '{"order": 7, "price": 1.10, "customer": {"id": null, "name": "x"}, "lines": [{"sku": "a"}]}'


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk()
    yield desk
    desk.serving.cancel()
    desk.pass_s()
    desk.shelf.close()
    desk.close()


def _bury(desk: Desk, *bodies: str, entity: str = "q") -> list[int]:
    """Dead letters with these bodies; their numbers."""
    messages = [
        {"body": body, "subject": "old", "properties": {"n": at, "Region": "eu"}}
        for at, body in enumerate(bodies)
    ]
    desk.call("POST", f"entities/{entity}/messages", {"messages": messages})
    found = desk.call("POST", f"entities/{entity}/messages/receive", {"count": len(bodies)})
    received = found["messages"]
    assert isinstance(received, list)
    tokens = [one["lock_token"] for one in received]
    settlement = {"action": "dead_letter", "lock_tokens": tokens, "reason": "tested"}
    desk.call("POST", f"entities/{entity}/messages/settle", settlement)
    return sorted(one["sequence_number"] for one in received)


def _array(found: object) -> list[Json]:
    assert isinstance(found, list)
    return found


def _messages(desk: Desk, entity: str = "q") -> list[Json]:
    found = desk.call("POST", f"entities/{entity}/messages/search", {"count": 100})["messages"]
    assert isinstance(found, list)
    return found


def test_an_action_and_json_paths_mend_letters(desk: Desk) -> None:
    """P7"""
    numbers = _bury(desk, BODY)
    properties = "SET n = n + 10; SET why = DeadLetterReason; REMOVE region"
    edit = {
        "action": f"{properties}; SET sys.Label = 'new'",
        "body_set": {"$.customer.id": 4711, "lines[0].sku": "b", "$['new'].a": [True]},
    }

    job = desk.wait(desk.begin(f"q{DEAD}", "resubmit", selection={"numbers": numbers}, edit=edit))

    assert (job["state"], job["done"], job["skipped"]) == ("done", 1, 0), job
    [message] = _messages(desk)
    assert message["body"] == (
        '{"order":7,"price":1.10,"customer":{"id":4711,"name":"x"},"lines":[{"sku":"b"}],'
        '"new":{"a":[true]}}'
    )
    assert message["subject"] == "new"
    assert message["properties"] == {"n": 10, "why": "tested"}
    assert _messages(desk, f"q{DEAD}") == []


def test_what_cannot_be_mended_stays_a_dead_letter_and_is_told(desk: Desk) -> None:
    """P7"""
    numbers = _bury(desk, BODY, "no JSON", '{"customer": 1}', '{"a": NaN}')
    edit = {"body_set": {"$.customer.id": 1}}

    job = desk.wait(desk.begin(f"q{DEAD}", "resubmit", selection={"numbers": numbers}, edit=edit))

    assert (job["state"], job["done"], job["skipped"]) == ("done", 1, 3)
    warnings = job["warnings"]
    assert isinstance(warnings, list)
    assert [text.partition(" stays: ")[2][:20] for text in warnings] == [
        "The body is not JSON",
        "The body has no obje",
        "The body is not JSON",
    ]
    assert len(_messages(desk, f"q{DEAD}")) == 3
    assert len(_messages(desk)) == 1


def test_a_time_to_live_is_shown_as_rules_write_it(desk: Desk) -> None:
    sent = {"messages": [{"body": "x", "time_to_live_ms": 60_000}]}
    desk.call("POST", "entities/q/messages", sent)
    [message] = _messages(desk)
    wish = {"numbers": [message["number"]], "edit": {"action": "SET sys.TimeToLive = NULL"}}

    results = desk.call("POST", "entities/q/edit-test", wish)["results"]

    assert isinstance(results, list)
    assert results[0]["changes"] == [{"name": "sys.TimeToLive", "before": "PT1M", "after": None}]


def test_an_edit_is_tried_without_changing_anything(desk: Desk) -> None:
    """P7"""
    numbers = _bury(desk, BODY, "no JSON")
    edit = {"action": "SET n = 'x' + sys.Label", "body_set": {"order": 8}}
    wish = {"numbers": [*numbers, 999], "edit": edit}

    results = desk.call("POST", f"entities/q{DEAD}/edit-test", wish)["results"]

    assert isinstance(results, list)
    assert [one["number"] for one in results] == [str(number) for number in numbers]
    mended, kept = results
    assert mended["error"] == ""
    assert mended["changes"][0] == {"name": "n", "before": "0", "after": "xold"}
    assert mended["changes"][1]["name"] == "body"
    assert '"order":8' in mended["changes"][1]["after"]
    assert "not JSON" in kept["error"]
    assert len(_messages(desk, f"q{DEAD}")) == 2
    assert _messages(desk) == []


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        ({"action": "SET n ="}, "expression"),
        ({"action": "DROP TABLE letters"}, "SET"),
        ({"body_set": {"$": 1}}, "path"),
        ({"body_set": {"$..a": 1}}, "path"),
        ({"action": "SET n = 1", "body": "x"}, "cannot be combined"),
    ],
)
def test_an_edit_that_cannot_be_parsed_changes_nothing(desk: Desk, edit: Json, told: str) -> None:
    """P7"""
    numbers = _bury(desk, BODY)

    refused = desk.begin(
        f"q{DEAD}", "resubmit", selection={"numbers": numbers}, edit=edit, status=400
    )

    assert told in str(refused)
    assert len(_messages(desk, f"q{DEAD}")) == 1


def test_numbers_are_taken_once_however_often_they_are_asked_for(desk: Desk) -> None:
    """P7: a command that is repeated after a kill doubles nothing."""
    numbers = _bury(desk, *(f"m{n}" for n in range(30)))
    edit = {"action": "SET n = n + 1"}

    jobs = [
        desk.wait(desk.begin(f"q{DEAD}", "resubmit", selection={"numbers": numbers}, edit=edit))
        for _ in range(2)
    ]

    assert [(job["done"], job["skipped"]) for job in jobs] == [(30, 0), (0, 30)]
    assert len(_messages(desk)) == 30


def test_a_job_keeps_to_its_rate_and_can_be_stopped_while_it_waits(desk: Desk) -> None:
    """P7"""
    numbers = _bury(desk, *(f"m{n}" for n in range(30)))
    began_s = desk.loop.time()

    job = desk.begin(f"q{DEAD}", "resubmit", selection={"numbers": numbers[:20]}, rate_max=5)
    done = desk.wait(job)
    took_s = desk.loop.time() - began_s
    slow = desk.begin(f"q{DEAD}", "resubmit", rate_max=1)
    desk.pass_s(2)
    desk.call("POST", f"entities/q{DEAD}/jobs/{slow['id']}/stop")
    stopped = desk.wait(slow)

    assert done["done"] == 20
    assert took_s >= 3.9
    assert stopped["state"] == "stopped"
    assert 1 <= int(str(stopped["done"])) < 10


def test_a_restart_continues_with_the_numbers_that_are_left(desk: Desk) -> None:
    """P7"""
    numbers = _bury(desk, *(f"m{n}" for n in range(30)))
    edit = {"action": "SET n = n + 100"}

    job = desk.begin(f"q{DEAD}", "resubmit", selection={"numbers": numbers}, edit=edit, rate_max=5)
    desk.pass_s(3)
    desk.restart()
    done = desk.wait(job)

    assert (done["state"], done["restarts"]) == ("done", 1)
    assert int(str(done["done"])) + int(str(done["skipped"])) == 30
    repaired = [each["properties"] for each in _messages(desk)]
    assert sorted(int(str(each["n"])) for each in repaired if isinstance(each, dict)) == [
        *range(100, 130)
    ]
    assert _messages(desk, f"q{DEAD}") == []


def test_a_letter_whose_key_is_changed_goes_where_its_key_belongs(desk: Desk) -> None:
    """P7"""
    numbers = _bury(desk, *(f"m{n}" for n in range(12)), entity="many")
    edit = {"action": "SET sys.PartitionKey = 'one'"}

    job = desk.begin(f"many{DEAD}", "resubmit", selection={"numbers": numbers}, edit=edit)
    done = desk.wait(job)["done"]

    places = {int(str(each["sequence_number"])) >> 48 for each in _messages(desk, "many")}
    assert done == 12
    assert len({number >> 48 for number in numbers}) > 1
    assert len(places) == 1


@pytest.mark.parametrize(
    ("path", "steps"),
    [
        ("$.a.b", ["a", "b"]),
        ("a[0].b", ["a", 0, "b"]),
        ("$['a b'][\"c.d\"]", ["a b", "c.d"]),
        ("$[3]", [3]),
    ],
)
def test_paths_are_read(path: str, steps: list[str | int]) -> None:
    assert read_path(path) == steps


@pytest.mark.parametrize("path", ["", "$", "$..a", "$.", "a[", "a[-1]", "a['", "$.a" * 33])
def test_other_paths_are_refused(path: str) -> None:
    with refusal_of(INVALID_ARGUMENT, repr(path[:20]).strip("'")):
        read_path(path)


def test_a_value_is_set_and_its_neighbours_stay_as_they_are_written() -> None:
    document = b'{"a": 1.10, "b": {"c": 1e3, "d": "\\u00e9"}, "e": 12345678901234567890123}'

    made = with_value(document, ["b", "d"], b"2")

    assert made == b'{"a":1.10,"b":{"c":1e3,"d":2},"e":12345678901234567890123}'
    with pytest.raises(Unrepairable, match=r"0.*\$\.b"):
        with_value(document, ["b", 0], b"2")


def test_members_of_a_body_are_computed_by_an_action(desk: Desk) -> None:
    """P7"""
    numbers = _bury(
        desk,
        '{"price": 1.10, "n": 3, "who": {"id": null, "Name": "x"}, "big": 12345678901234567890}',
    )
    # The sender's text stays beside the changed members, also where no number could hold it.
    body_action = (
        "SET total = price * n; SET n = n + 1; SET [who.id] = 'guest'; SET [a.b] = sys.Label; "
        "REMOVE [who.name]"
    )
    edit = {"body_action": body_action}

    job = desk.wait(desk.begin(f"q{DEAD}", "resubmit", selection={"numbers": numbers}, edit=edit))

    assert (job["state"], job["done"]) == ("done", 1), job
    [message] = _messages(desk)
    assert message["body"] == (
        '{"price":1.10,"n":4,"who":{"id":"guest"},"big":12345678901234567890,"total":3.3000000000000003,'
        '"a":{"b":"old"}}'
    )


@pytest.mark.parametrize(
    ("body", "action", "told"),
    [
        ("[1]", "SET a = 1", "not a JSON object"),
        ('{"a": 1}', "SET b = a / 0", "zero"),
        ('{"a": 1}', "SET [a.b] = 1", "no object"),
        ("{" + '"x":{' * 200 + '"a":1' + "}" * 201, "SET a = 1", "done"),
        ('{"a": 1}', "SET b = newid()", "done"),
    ],
)
def test_a_body_that_an_action_does_not_fit_stays(
    desk: Desk, body: str, action: str, told: str
) -> None:
    numbers = _bury(desk, body)
    edit = {"body_action": action}

    job = desk.wait(desk.begin(f"q{DEAD}", "resubmit", selection={"numbers": numbers}, edit=edit))

    is_done = told == "done"
    assert (job["state"], job["done"], job["skipped"]) == ("done", is_done, not is_done)
    assert is_done or told in str(job["warnings"]), job


def test_an_action_of_bodies_sets_nothing_else(desk: Desk) -> None:
    numbers = _bury(desk, BODY)
    edit = {"body_action": "SET sys.Label = 'x'"}

    answer = desk.begin(
        f"q{DEAD}", "resubmit", selection={"numbers": numbers}, edit=edit, status=400
    )

    assert "not in the body" in str(answer["error"])


def test_what_was_redriven_and_not_received_becomes_a_dead_letter_again(desk: Desk) -> None:
    """P7"""
    numbers = _bury(desk, "a", "b", "c", "d")
    desk.call("POST", "entities/q/messages", {"messages": [{"body": "other"}]})
    wish = {"numbers": numbers[:3]}
    desk.wait(desk.begin(f"q{DEAD}", "resubmit", selection=wish, mark="m1"))
    desk.wait(desk.begin(f"q{DEAD}", "resubmit", selection={"numbers": numbers[3:]}, mark="m2"))
    received = desk.call("POST", "entities/q/messages/receive", {"count": 2})["messages"]
    assert isinstance(received, list)
    assert [one["body"] for one in received] == ["other", "a"]
    settlement = {"action": "abandon", "lock_tokens": [one["lock_token"] for one in received]}
    desk.call("POST", "entities/q/messages/settle", settlement)

    job = desk.wait(desk.begin("q", "undo", mark="m1"))

    assert (job["state"], job["done"], job["skipped"]) == ("done", 2, 1), job
    assert sorted(str(one["body"]) for one in _messages(desk)) == ["a", "d", "other"]
    letters = _messages(desk, f"q{DEAD}")
    assert [(one["body"], one["dead_letter_reason"]) for one in letters] == [
        ("b", "tested"),
        ("c", "tested"),
    ]
    again = desk.wait(desk.begin("q", "undo", mark="m1"))
    assert (again["state"], again["done"]) == ("done", 0)


def test_what_was_received_after_a_redrive_and_resubmitted_is_not_undone(desk: Desk) -> None:
    """P7: the letter is there for another reason than the first job knew."""
    numbers = _bury(desk, "a")
    desk.wait(desk.begin(f"q{DEAD}", "resubmit", selection={"numbers": numbers}, mark="m1"))
    [one] = _array(desk.call("POST", "entities/q/messages/receive", {"count": 1})["messages"])
    failed = {"action": "dead_letter", "lock_tokens": [one["lock_token"]], "reason": "again"}
    desk.call("POST", "entities/q/messages/settle", failed)
    desk.wait(desk.begin(f"q{DEAD}", "resubmit"))

    job = desk.wait(desk.begin("q", "undo", mark="m1"))

    assert (job["done"], len(_messages(desk)), _messages(desk, f"q{DEAD}")) == (0, 1, [])


def _let_go(desk: Desk, queue: str, received: Json) -> None:
    session = received["session"]
    assert isinstance(session, dict)
    held = {"session_lock_token": session["lock_token"]}
    desk.call("POST", f"entities/{queue}/sessions/release", held)


def _bury_in_sessions(desk: Desk, name: str, *sessions: str) -> str:
    """A redrive of dead letters with these sessions, in order, to their queue; its path."""
    desk.create_sessions(name, is_partitioned=name == "spread")
    messages = [{"body": f"m{n}", "session_id": each} for n, each in enumerate(sessions)]
    desk.call("POST", f"entities/{name}/messages", {"messages": messages})
    for each in dict.fromkeys(one.lower() for one in sessions):
        wish = {"session_id": each, "count": 50}
        got = desk.call("POST", f"entities/{name}/messages/receive", wish)
        tokens = [one["lock_token"] for one in _array(got["messages"])]
        settlement = {"action": "dead_letter", "lock_tokens": tokens, "reason": each}
        desk.call("POST", f"entities/{name}/messages/settle", settlement)
        _let_go(desk, name, got)
    job = desk.wait(desk.begin(f"{name}{DEAD}", "resubmit", mark="m1"))
    assert job["done"] == len(sessions), job
    return name


@pytest.mark.parametrize("queue", ["held", "spread"])
def test_messages_of_sessions_are_undone_and_the_rest_of_a_session_keeps_its_order(
    desk: Desk, queue: str
) -> None:
    """P7"""
    _bury_in_sessions(desk, queue, "a", "b", "A", "c", "b", "a")
    later = {"messages": [{"body": "new", "session_id": "a"}]}
    desk.call("POST", f"entities/{queue}/messages", later)
    wish = {"session_id": "b", "count": 1}
    held = desk.call("POST", f"entities/{queue}/messages/receive", wish)

    job = desk.wait(desk.begin(queue, "undo", mark="m1"))

    assert (job["state"], job["done"], job["skipped"]) == ("done", 4, 2), job
    [warning] = _array(job["warnings"])
    assert "'b'" in str(warning) and "locked by another receiver" in str(warning)
    letters = _messages(desk, f"{queue}{DEAD}")
    assert sorted((one["body"], one["dead_letter_reason"]) for one in letters) == [
        ("m0", "a"), ("m2", "a"), ("m3", "c"), ("m5", "a"),
    ]  # fmt: skip
    _let_go(desk, queue, held)
    again = desk.wait(desk.begin(queue, "undo", mark="m1"))
    assert (again["state"], again["done"], again["skipped"]) == ("done", 2, 0), again
    wish = {"session_id": "A", "count": 9}
    [rest] = _array(desk.call("POST", f"entities/{queue}/messages/receive", wish)["messages"])
    assert (rest["body"], rest["delivery_count"]) == ("new", 0)


def test_messages_of_sessions_that_were_received_are_not_undone(desk: Desk) -> None:
    """P7: what was abandoned, or is set apart for its receiver, stays in its session."""
    _bury_in_sessions(desk, "held", "a", "a", "a", "a")
    got = desk.call("POST", "entities/held/messages/receive", {"session_id": "a", "count": 3})
    tokens = [one["lock_token"] for one in _array(got["messages"])]
    for action, some in (("abandon", tokens[:1]), ("defer", tokens[1:2]), ("release", tokens[2:])):
        settlement = {"action": action, "lock_tokens": some}
        desk.call("POST", "entities/held/messages/settle", settlement)
    _let_go(desk, "held", got)

    job = desk.wait(desk.begin("held", "undo", mark="m1"))

    assert (job["state"], job["done"], job["skipped"]) == ("done", 2, 2), job
    assert sorted(str(one["body"]) for one in _messages(desk, "held")) == ["m0", "m1"]


def test_a_mark_that_a_sender_wrote_is_harmless(desk: Desk) -> None:
    desk.call("POST", "entities/q/messages", {"messages": [{"body": "x-opt-shardbus-redriven"}]})

    job = desk.wait(desk.begin("q", "undo", mark="m1"))

    assert (job["done"], job["skipped"], len(_messages(desk))) == (0, 0, 1)


@pytest.mark.parametrize(
    ("line", "body"),
    [
        ("q", {"action": "undo"}),
        (f"q{DEAD}", {"action": "undo", "mark": "m"}),
        (f"q{DEAD}", {"action": "delete", "mark": "m"}),
        ("q", {"action": "undo", "mark": "m", "edit": {"action": "SET a = 1"}}),
        ("q", {"action": "undo", "mark": "m", "destination": "many"}),
    ],
)
def test_an_undo_that_makes_no_sense_is_refused(desk: Desk, line: str, body: Json) -> None:
    desk.call("POST", f"entities/{line}/jobs", body, status=400)


def test_a_letter_of_the_maximum_size_has_no_room_for_a_mark(desk: Desk) -> None:
    handle = desk.bus.find("q")
    assert handle is not None
    numbers = _bury(desk, "x" * 200_000)
    [entry] = desk.run(handle.operations.lock_numbered(1, numbers))
    size_bytes = len(entry.payload or b"")
    handle.router.release([entry.token])
    handle.entity.spec.message_kb_max = size_bytes // 1024 + 1
    desk.pass_s()
    _bury(desk, "y" * (size_bytes // 1024 * 1024 + 900 - size_bytes + 200_000))

    job = desk.wait(desk.begin(f"q{DEAD}", "resubmit", mark="m" * 100))

    assert (job["state"], job["done"]) == ("done", 2), job
