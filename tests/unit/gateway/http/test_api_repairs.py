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
