"""Readers and claims in the JSON API: what the bulk lane asks for its clients (P1, P2)."""

from __future__ import annotations

import asyncio
import json

import pytest

from shardbus.core.namespace.access import LISTEN, SEND, AccessRule
from shardbus.core.namespace.entity import RECEIVE_DISABLED_STATUS, EntitySpec
from shardbus.gateway.http.api.groups import api_groups
from tests.unit.gateway.http.messages_web import Document, MessagesWeb

ME = {"reader": "r", "owner": "me"}


@pytest.fixture
def api(api: MessagesWeb) -> MessagesWeb:
    api.with_groups(api_groups(api.bus, api.counts))
    return api


def show(api: MessagesWeb, path: str) -> Document:
    response = api.call("GET", path)
    assert response.status == 200, response.body
    answer: Document = json.loads(response.body)
    return answer


def listed(answer: Document, name: str) -> list[Document]:
    found = answer[name]
    assert isinstance(found, list)
    return found


def put(api: MessagesWeb, entity: str, count: int) -> None:
    api.put(entity, *({"body": f"{number}"} for number in range(count)))


def claim(api: MessagesWeb, entity: str, *ordinals: int, **more: object) -> list[Document]:
    wanted = [{"fragment": 0, "ordinal": ordinal, **more} for ordinal in ordinals]
    return listed(api.post(f"{entity}/readers/claim", **ME, claims=wanted), "claims")


def code(api: MessagesWeb, path: str, **body: object) -> tuple[int, str]:
    response = api.call("POST", path, body)
    return response.status, json.loads(response.body)["error"]["code"]


def test_a_description_tells_how_far_the_fragments_go(api: MessagesWeb) -> None:
    """P1."""
    put(api, "many", 32)

    bulk = show(api, "many/bulk")

    fragments = listed(bulk, "fragments")
    assert [part["number"] for part in fragments] == list(range(16))
    assert {(part["state"], part["is_counted"], part["waiting"]) for part in fragments} == {
        ("available", True, 2)
    }
    assert [part["first"] for part in fragments] == [(part << 48) + 1 for part in range(16)]
    assert [part["next"] for part in fragments] == [(part << 48) + 3 for part in range(16)]
    assert bulk["requires_session"] is False


def test_a_description_that_is_known_is_told_when_it_is_another(api: MessagesWeb) -> None:
    """P1: whoever follows an entity need not ask all the time."""
    put(api, "many", 1)
    stamp = show(api, "many/bulk")["stamp"]

    same = show(api, f"many/bulk?known={stamp}&wait_ms=100")
    put(api, "many", 1)
    other = show(api, f"many/bulk?known={stamp}&wait_ms=5000")

    assert same["stamp"] == stamp
    assert other["stamp"] != stamp
    assert api.call("GET", "many/bulk?wait_ms=5001").status == 400


def test_claims_are_made_read_and_completed(api: MessagesWeb) -> None:
    """P2."""
    put(api, "q", 5)

    opened = listed(api.post("q/readers/open", **ME), "fragments")
    made = claim(api, "q", 1, 2, 3, count_max=3)
    again = claim(api, "q", 1, count_max=1)
    runs = api.post("q/readers/runs", reader="r", fragment=0, first_ordinal=1, last_ordinal=2)
    whole = api.post("q/readers/check", reader="r", fragment=0, first_ordinal=1, last_ordinal=2)
    others = api.get("q", count=10)
    done = api.post("q/readers/complete", **ME, claims=[{"fragment": 0, "ordinal": 2}])

    assert [(one["completed"], one["last"], one["claims"]) for one in opened] == [(0, 0, [])]
    assert [(one["ordinal"], one["count"], one["is_made"]) for one in made] == [
        (1, 3, True),
        (2, 2, True),
    ]
    assert made[1]["is_more"] is False, "what is asked for behind it is not tried"
    assert (again[0]["count"], again[0]["last"]) == (3, 3)
    assert [one["runs"] for one in listed(runs, "claims")] == [[[1, 3]], [[4, 5]]]
    assert whole == {"count": 5}
    assert others == []
    assert done["completed"] == [{"fragment": 0, "ordinal": 2}]
    assert api.peek("q") == []


def test_the_next_claims_complete_those_before(api: MessagesWeb) -> None:
    """P2: one request for the end of a batch and the begin of the next."""
    put(api, "q", 5)
    api.post("q/readers/open", **ME)
    claim(api, "q", 1, 2, count_max=1)

    wanted = [{"fragment": 0, "ordinal": 3, "count_max": 2}]
    answer = api.post("q/readers/claim", **ME, claims=wanted, done=[{"fragment": 0, "ordinal": 2}])
    nothing = api.post("q/readers/claim", **ME, claims=[], done=[{"fragment": 0, "ordinal": 3}])
    early = api.call(
        "POST",
        "q/readers/claim",
        {**ME, "claims": [{"fragment": 0, "ordinal": 4}], "done": [{"fragment": 0, "ordinal": 4}]},
    )

    assert [(one["first"], one["last"]) for one in listed(answer, "claims")] == [(3, 4)]
    assert answer["completed"] == [{"fragment": 0, "ordinal": 2}]
    assert nothing["completed"] == [{"fragment": 0, "ordinal": 3}]
    assert early.status == 400
    assert json.loads(early.body)["error"]["code"] == "invalid-argument"
    assert [one["sequence_number"] for one in api.peek("q")] == [5]


def test_an_entity_that_gives_nothing_completes_what_it_gave(api: MessagesWeb) -> None:
    """P2: the claims would run out otherwise, and what was read be received again."""
    put(api, "q", 2)
    api.post("q/readers/open", **ME)
    claim(api, "q", 1, count_max=1)
    api.set_status("q", RECEIVE_DISABLED_STATUS)

    wanted = [{"fragment": 0, "ordinal": 2}]
    refused = code(
        api, "q/readers/claim", **ME, claims=wanted, done=[{"fragment": 0, "ordinal": 1}]
    )

    assert refused[0] == 400
    assert [one["sequence_number"] for one in api.peek("q")] == [2]


def test_what_is_released_or_dropped_goes_back(api: MessagesWeb) -> None:
    """P2."""
    put(api, "q", 2)
    api.post("q/readers/open", **ME)
    claim(api, "q", 1)

    released = api.post("q/readers/release", **ME)
    lost = code(api, "q/readers/runs", reader="r", fragment=0, first_ordinal=1)
    claim(api, "q", 2)
    [known] = listed(show(api, "q/readers"), "readers")
    dropped = api.post("q/readers/drop", reader="r")

    assert released == dropped == {"reader": "r", "missing": []}
    assert lost == (410, "claim-lost")
    assert known["reader"] == "r"
    assert [(one["last"], one["lost"], one["claimed"]) for one in listed(known, "fragments")] == [
        (2, 1, 2)
    ]
    assert show(api, "q/readers") == {"readers": [], "missing": []}
    assert len(api.get("q", count=10)) == 2


def test_an_owner_keeps_others_out_and_is_fenced_when_silent(api: MessagesWeb) -> None:
    """P2."""
    other = {"reader": "r", "owner": "you"}
    api.post("q/readers/open", **ME)
    kept_out = code(api, "q/readers/open", **other)
    api.run(asyncio.sleep(20))
    api.post("q/readers/open", **other)

    assert kept_out == (409, "reader-in-use")
    assert code(api, "q/readers/keep", **ME) == (410, "reader-lost")
    assert code(api, "q/readers/keep", reader="nobody", owner="me") == (404, "reader-not-found")


def test_sessions_can_be_described_and_claimed(api: MessagesWeb) -> None:
    """P2."""
    spec = EntitySpec()
    spec.requires_session = True
    api.create("held", spec=spec)

    assert show(api, "held/bulk")["requires_session"] is True
    assert api.post("held/readers/open", **ME)["missing"] == []
    assert api.post("held/$DeadLetterQueue/readers/open", **ME)["missing"] == []
    send = [{"session_id": name, "body": name} for name in ("red", "blue", "red")]
    api.post("held/messages", messages=send)
    wish = {"fragment": 0, "ordinal": 1, "count_max": 2}
    [made] = listed(api.post("held/readers/claim", **ME, claims=[wish]), "claims")
    assert (made["count"], made["is_made"]) == (2, True)
    assert code(api, "held/messages/receive", session_id="red") == (410, "session-cannot-be-locked")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("open", {"reader": "", "owner": "me"}),
        ("open", {"reader": "r" * 129, "owner": "me"}),
        ("open", {"reader": "r"}),
        ("open", {**ME, "lease_ms": 1}),
        ("claim", {**ME, "claims": [{"fragment": 0, "ordinal": 0}]}),
        ("claim", {**ME, "claims": [{"fragment": 99, "ordinal": 1}]}),
        ("claim", {**ME, "claims": [{"fragment": 0, "ordinal": 1, "count_max": 5_000}]}),
        ("complete", {**ME, "claims": [{"fragment": 99, "ordinal": 1}]}),
        ("runs", {"reader": "r", "fragment": 99, "first_ordinal": 1}),
        ("runs", {"reader": "r", "fragment": 0, "first_ordinal": 2, "last_ordinal": 1}),
        ("runs", {"reader": "r", "fragment": 0, "first_ordinal": 1, "last_ordinal": 9_999}),
        ("check", {"reader": "r", "fragment": 99, "first_ordinal": 1}),
    ],
)
def test_what_cannot_be_is_refused(api: MessagesWeb, path: str, body: Document) -> None:
    api.post("q/readers/open", **ME)
    status, _ = code(api, f"q/readers/{path}", **body)
    assert status == 400


def test_listening_reads_and_claims_and_only_managing_drops(api: MessagesWeb) -> None:
    """P2, R34."""
    rules = [AccessRule("listener", LISTEN, "lk"), AccessRule("sender", SEND, "sk")]
    api.run(api.namespace.change_access("q", lambda _: rules))
    resource = "http://bus:5300/q"
    tokens = {
        rule.name: api.token(resource, key_name=rule.name, key=rule.primary_key) for rule in rules
    }

    def status(who: str, method: str, path: str, **body: object) -> int:
        sent = body if method == "POST" else None
        return api.call(method, path, sent, token=tokens[who]).status

    assert status("listener", "GET", "q/bulk") == 200
    assert status("listener", "POST", "q/readers/open", **ME) == 200
    assert status("listener", "POST", "q/readers/drop", reader="r") == 401
    assert status("sender", "GET", "q/bulk") == 401
    assert status("sender", "POST", "q/readers/open", **ME) == 401
    assert status("listener", "GET", "many/bulk") == 401, "a rule is for its own entity"
