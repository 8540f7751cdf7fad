"""Stages in the JSON API: put, publish, discard (P3)."""

from __future__ import annotations

import json

import pytest

from shardbus.core.namespace.access import SEND, AccessRule
from shardbus.gateway.http.api.bulk import piece_parts
from shardbus.gateway.http.api.groups import api_groups
from shardbus.message.sections import encode_batch, encode_data_message
from shardbus.message.sent import read_batch
from tests.support.refusals import check_named
from tests.unit.gateway.http.messages_web import Document, MessagesWeb, bodies


@pytest.fixture
def api(api: MessagesWeb) -> MessagesWeb:
    api.with_groups(api_groups(api.bus, api.counts, read_batch=read_batch))
    return api


def stage(api: MessagesWeb, name: str, *texts: str, piece: int = 0) -> tuple[int, Document]:
    batch = encode_batch([encode_data_message(text.encode()) for text in texts])
    response = api.fetch("PUT", f"/api/v1/entities/many/stages/{name}?piece={piece}", batch)
    return response.status, json.loads(response.body)


def publish(api: MessagesWeb, batch: int, **stages: int) -> Document:
    chosen = [{"stage": name, "count": count} for name, count in stages.items()]
    return api.post("many/stages/publish", producer="p", batch=batch, stages=chosen)


def shown(api: MessagesWeb) -> list[str]:
    return sorted(map(str, bodies(api.peek("many"))))


def test_what_is_staged_is_seen_when_it_is_published(api: MessagesWeb) -> None:
    """P3."""
    assert stage(api, "one", "a", "b") == (
        200,
        {"stage": "one", "piece": 0, "count": 2, "fragments": 16},
    )
    stage(api, "one", "c", piece=1)
    stage(api, "one", "c", piece=1)
    stage(api, "two", "d")
    assert shown(api) == []

    assert publish(api, 1, one=3, two=1) == {"is_new": True, "count": 4}

    assert shown(api) == ["a", "b", "c", "d"]


def test_a_batch_is_published_once(api: MessagesWeb) -> None:
    """P3."""
    stage(api, "one", "a")
    publish(api, 7, one=1)
    stage(api, "again", "a")

    assert publish(api, 7, again=1) == {"is_new": False, "count": 0}
    assert publish(api, 6) == {"is_new": False, "count": 0}
    assert shown(api) == ["a"]


def test_a_used_number_with_other_rows_is_refused_and_who_publishes_once_is_forgotten(
    api: MessagesWeb,
) -> None:
    """P3."""
    stage(api, "one", "a")
    told = {"producer": "w", "batch": 1, "stages": [{"stage": "one", "count": 1}]}
    assert api.post("many/stages/publish", **told, fingerprint="1:a", once=True)["is_new"] is True

    status, text = api.refusal("many/stages/publish", **told, fingerprint="1:b", once=True)
    assert (status, "rows that are not known to be the same" in text) == (409, True)
    assert api.post("many/stages/forget", producer="w") == {"producer": "w"}
    assert api.post("many/stages/publish", producer="w", batch=1, stages=[])["is_new"] is True


def test_a_stage_that_is_not_whole_is_not_published(api: MessagesWeb) -> None:
    """P3."""
    stage(api, "one", "a")

    status, text = api.refusal(
        "many/stages/publish", producer="p", batch=1, stages=[{"stage": "one", "count": 2}]
    )

    assert status == 410
    assert "has 1 messages, not 2" in text
    assert shown(api) == []


def test_what_is_discarded_is_gone(api: MessagesWeb) -> None:
    """P3."""
    stage(api, "one", "a")

    assert api.post("many/stages/discard", stages=["one"]) == {"stages": 1}

    status, _ = api.refusal(
        "many/stages/publish", producer="p", batch=1, stages=[{"stage": "one", "count": 1}]
    )
    assert status == 410


def test_a_message_that_the_entity_does_not_take_is_named(api: MessagesWeb) -> None:
    status, document = stage(api, "one", "a", "b" * 300_000)

    assert status == 413
    error = document["error"]
    assert isinstance(error, dict)
    assert error["code"] == "too-large"
    check_named(str(error["message"]), "Message 1", "300008", "262144", "'many'")


@pytest.mark.parametrize("body", [b"", b"not a batch", encode_data_message(b"x")[:-1]])
def test_what_is_no_batch_of_messages_is_refused(api: MessagesWeb, body: bytes) -> None:
    response = api.fetch("PUT", "/api/v1/entities/many/stages/one", body)

    assert response.status == 400
    assert json.loads(response.body)["error"]["code"] == "invalid-argument"


def test_a_piece_may_come_in_parts(api: MessagesWeb) -> None:
    """P3: each is a request, and the last one makes a piece like any."""
    batch = encode_batch([encode_data_message(b"a" * 1_000)])
    path = "/api/v1/entities/many/stages/one?piece=0&parts=2"

    first = api.fetch("PUT", f"{path}&part=0", batch[:600])
    last = api.fetch("PUT", f"{path}&part=1", batch[600:])

    assert [json.loads(one.body)["count"] for one in (first, last)] == [0, 1]
    assert publish(api, 1, one=1) == {"is_new": True, "count": 1}
    assert shown(api) == ["a" * 1_000]


def test_one_access_rule_leaves_room_for_parts_of_the_others(
    api: MessagesWeb, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P3: whoever may send has a share of what a gateway puts together, and no more."""
    monkeypatch.setattr(piece_parts, "CLIENT_BYTES_MAX", 1_000)
    monkeypatch.setattr(piece_parts, "GATHERED_BYTES_MAX", 2_000)
    rules = [AccessRule(name, SEND, f"key of {name}") for name in ("greedy", "modest")]
    api.run(api.namespace.set_rules(rules))
    greedy, modest = (api.token(key_name=rule.name, key=rule.primary_key) for rule in rules)
    batch = encode_batch([encode_data_message(b"a" * 1_500)])
    path = "/api/v1/entities/many/stages"

    taken = api.fetch("PUT", f"{path}/big?parts=9&part=0", bytes(1_000), token=greedy)
    more = api.fetch("PUT", f"{path}/more?parts=9&part=0", bytes(1), token=greedy)
    first = api.fetch("PUT", f"{path}/one?parts=2&part=0", batch[:900], token=modest)
    other = api.fetch("PUT", f"{path}/one?parts=2&part=1", batch[900:], token=greedy)

    assert [one.status for one in (taken, more, first)] == [200, 503, 200]
    assert [json.loads(one.body)["error"]["code"] for one in (more, other)] == [
        "server-busy",
        "stage-lost",
    ]
