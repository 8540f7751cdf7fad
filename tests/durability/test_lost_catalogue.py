"""The catalogue is lost, or an old copy of it is restored: no message goes with it (R28, D4)."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from pathlib import Path
from typing import Final

import pytest

from shardbus.app.cli.api_client import ApiClient, Document
from shardbus.app.cli.client import HttpTransport
from shardbus.app.cli.sas import parse_connection_string
from tests.support.queues import create_queue
from tests.support.server import COMMAND, Server, ServerFailed
from tests.support.waiting import wait_for

BROKERS: Final = 2
MESSAGES: Final = 40
SHARDBUS: Final = COMMAND[0]

MODES: Final = {
    "threads": ("--brokers", str(BROKERS)),
    "processes": ("--brokers", str(BROKERS), "--broker-processes", "--broker-restart-ms", "300"),
}


@pytest.fixture(params=["threads", pytest.param("processes", marks=pytest.mark.long)])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Server:
    return Server(tmp_path / "data", *MODES[request.param])


@pytest.fixture(autouse=True)
def _end(server: Server) -> object:
    yield
    server.close()


def api(server: Server) -> ApiClient:
    endpoint = f"http://{server.host}:{server.http_port}"
    credential = parse_connection_string(server.connection_string).credential
    return ApiClient(HttpTransport(endpoint), endpoint, credential, clock=time.time)


def send(server: Server, queue: str, prefix: str) -> set[str]:
    bodies = [f"{prefix}-{number}" for number in range(MESSAGES)]
    messages: list[Document] = [
        {"body": body, "partition_key": str(number)} for number, body in enumerate(bodies)
    ]
    api(server).post(f"entities/{queue}/messages", {"messages": list(messages)})
    return set(bodies)


def received(server: Server, queue: str) -> set[str]:
    """All that a queue holds."""
    found: set[str] = set()
    while len(found) < MESSAGES:
        body: Document = {"count": 100, "wait_ms": 2_000, "mode": "receive_and_delete"}
        answer = api(server).post(f"entities/{queue}/messages/receive", body)
        messages = answer["messages"]
        assert isinstance(messages, list)
        if not messages:
            break
        found |= {str(each["body"]) for each in messages if isinstance(each, dict)}
    return found


def reasons(server: Server) -> str:
    found = api(server).get("health")["reasons"]
    assert isinstance(found, list)
    return "; ".join(str(reason) for reason in found)


def check(server: Server, *options: str) -> tuple[int, Document]:
    run = subprocess.run(
        [SHARDBUS, "check", "--json", *options, str(server.data_dir)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.stdout, run.stderr
    found: Document = json.loads(run.stdout)
    return run.returncode, found


def must_not_start(server: Server) -> str:
    before = len(server.output)
    with pytest.raises(ServerFailed):
        server.start()
    server.close()
    return server.output[before:]


def test_a_lost_catalogue_stops_the_start_and_all_is_there_when_it_is_back(
    server: Server, tmp_path: Path
) -> None:
    """R28."""
    server.start()
    create_queue(server, "orders", EnablePartitioning="true")
    bodies = send(server, "orders", "m")
    server.stop()
    catalogue = server.data_dir / "catalogue.db"
    shutil.move(catalogue, tmp_path / "kept.db")

    for _ in range(2):
        said = must_not_start(server)
        assert "catalogue.db does not exist, but the stores beside it hold messages" in said
        assert "Nothing was changed" in said
        assert not catalogue.exists()

    shutil.move(tmp_path / "kept.db", catalogue)
    server.start()
    assert received(server, "orders") == bodies
    assert "belong to no entity" not in reasons(server)


def test_without_a_copy_of_the_catalogue_every_message_can_be_rescued(server: Server) -> None:
    """R28."""
    server.start()
    create_queue(server, "orders", EnablePartitioning="true")
    bodies = send(server, "orders", "m")
    server.stop()
    (server.data_dir / "catalogue.db").unlink()
    code, _ = check(server)
    assert code == 1 and not (server.data_dir / "catalogue.db").exists()

    code, found = check(server, "--adopt")
    assert (code, found["orphaned_fragments"]) == (0, 16)
    server.start()
    assert "16 fragments belong to no entity" in reasons(server)
    create_queue(server, "orders", EnablePartitioning="true")
    fresh = send(server, "orders", "fresh")
    orphans = api(server).get("orphans")["orphans"]
    assert isinstance(orphans, list) and len(orphans) == BROKERS
    ids = {each["entity_id"] for each in orphans if isinstance(each, dict)}
    counts = [each["messages"] for each in orphans if isinstance(each, dict)]
    assert len(ids) == 1 and sum(int(str(count)) for count in counts) == MESSAGES
    [entity_id] = ids

    api(server).post("orphans/recover", {"entity_id": entity_id, "name": "rescued"})

    assert received(server, "rescued") == bodies
    assert received(server, "orders") == fresh
    assert reasons(server) == ""
    server.restart()
    assert api(server).get("orphans")["orphans"] == []


def test_an_old_copy_of_the_catalogue_removes_nothing(server: Server, tmp_path: Path) -> None:
    """R28."""
    server.start()
    create_queue(server, "old", EnablePartitioning="true")
    create_queue(server, "gone", EnablePartitioning="true")
    old = send(server, "old", "o")
    server.stop()
    catalogue = server.data_dir / "catalogue.db"
    shutil.copy(catalogue, tmp_path / "yesterday.db")
    server.start()
    api(server).get("orphans")
    run = subprocess.run(
        [
            SHARDBUS, "queue", "delete", "gone", "--yes",
            "--connection-string", server.connection_string,
            "--endpoint", f"http://{server.host}:{server.http_port}",
        ],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    create_queue(server, "since", EnablePartitioning="true")
    since = send(server, "since", "s")
    server.stop()
    shutil.move(catalogue, tmp_path / "today.db")
    shutil.copy(tmp_path / "yesterday.db", catalogue)

    server.start()
    wait_for(lambda: reasons(server), lambda found: "lacks fragments of 'gone'" in found)
    assert "16 fragments belong to no entity" in reasons(server)
    create_queue(server, "other", EnablePartitioning="true")
    other = send(server, "other", "x")
    server.restart()
    assert received(server, "other") == other
    server.stop()
    shutil.copy(tmp_path / "today.db", catalogue)

    server.start()
    assert received(server, "since") == since
    assert received(server, "old") == old


def test_a_store_that_is_not_there_is_not_made_anew(server: Server, tmp_path: Path) -> None:
    """R15: the volume may not be mounted; the others serve, and it joins when it is back."""
    server.start()
    create_queue(server, "orders", EnablePartitioning="true")
    bodies = send(server, "orders", "m")
    server.stop()
    store = server.data_dir / "broker-1.db"
    shutil.move(store, tmp_path / "broker-1.db")

    server.start()
    wait_for(lambda: reasons(server), lambda found: "broker-1.db does not exist" in found)
    assert not store.exists()
    some = received(server, "orders")
    assert some and some < bodies

    shutil.move(tmp_path / "broker-1.db", store)
    wait_for(lambda: reasons(server), lambda found: found == "")
    assert some | received(server, "orders") == bodies


def test_a_store_of_another_namespace_is_not_served(server: Server, tmp_path: Path) -> None:
    """R28."""
    other = Server(tmp_path / "other", "--brokers", str(BROKERS))
    for one, name in ((server, "mine"), (other, "theirs")):
        one.start()
        create_queue(one, "orders", EnablePartitioning="true")
        send(one, "orders", name)
        one.stop()
    store, theirs = server.data_dir / "broker-1.db", other.data_dir / "broker-1.db"
    shutil.move(store, tmp_path / "mine.db")
    shutil.copy(theirs, store)
    before = store.read_bytes()

    server.start()
    wait_for(lambda: reasons(server), lambda found: "belongs to the namespace" in found)
    found = received(server, "orders")
    assert found and all(body.startswith("mine-") for body in found)
    server.stop()

    assert store.read_bytes() == before
    shutil.move(tmp_path / "mine.db", store)
    server.start()
    assert len(found | received(server, "orders")) == MESSAGES
