"""The bulk lane of a real process in a crowd: strangers and silent clients keep nobody off it."""

from __future__ import annotations

import http.client
import itertools
import json
import time
from collections.abc import Iterator

import pyarrow.flight as flight
import pytest

from shardbus.app.cli.sas import Credential
from tests.support.flight_client import FlightClient, token_for
from tests.support.flight_crowd import ASKING, ROWS, call_options, crowd, put_command
from tests.support.ports import free_port
from tests.support.queues import create_queue
from tests.support.server import Server, running_server

KEY = "a-key-of-our-own-for-all-the-world-to-guess"
HONEST_S_MAX = 60
OTHER = Credential("other", "a-key-of-another-queue-of-forty-two-letters")

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With a key of its own: who guesses at it is slowed down."""
    data_dir = tmp_path_factory.mktemp("strangers") / "data"
    options = ("--flight-port", str(free_port()), "--sas-key", KEY)
    with running_server(data_dir, *options) as server:
        create_queue(server, "q")
        create_queue(server, "elsewhere")
        make_rule(server, "elsewhere", OTHER)
        yield server
        assert "Traceback" not in server.output


def make_rule(server: Server, entity: str, credential: Credential) -> None:
    body = json.dumps({"rights": ["Listen", "Send"], "primary_key": credential.key})
    path = f"/api/v1/entities/{entity}/access-rules/{credential.key_name}"
    connection = http.client.HTTPConnection(server.host, server.http_port, timeout=20)
    connection.request("PUT", path, body, {"Authorization": token_for(server)})
    assert connection.getresponse().status == 200
    connection.close()


def connect(server: Server) -> flight.FlightClient:
    """A connection of its own: clients of one process would share one."""
    return flight.connect(
        server.flight_url, generic_options=[("grpc.use_local_subchannel_pool", 1)]
    )


def work_honestly(server: Server) -> None:
    """Stage, discard and read, on a connection that was not there before."""
    token, stage = token_for(server), f"stage-{next(_numbers)}"
    deadline_s = time.monotonic() + HONEST_S_MAX
    with connect(server) as connection:
        writer, answers = connection.do_put(put_command(stage), ROWS.schema, call_options(token))
        with writer:
            writer.write_batch(ROWS)
            writer.done_writing()
            answer = answers.read()  # type: ignore[attr-defined]  # the stubs say another reader
        assert json.loads(answer.to_pybytes())["rows"] == 3
        client = FlightClient(connection, token)
        assert client.act("discard", "q", stages=[stage]) == {"stages": 1}
        assert client.read("q").num_rows == 0
    assert time.monotonic() < deadline_s


def tokens(server: Server) -> dict[str, str]:
    return {
        "no token": "",
        "a wrong token": token_for(server, Credential("RootManageSharedAccessKey", "a guess")),
        "a token of another entity": token_for(server, OTHER, path="elsewhere"),
        "a right token": token_for(server),
    }


@pytest.mark.parametrize("count", [64, 500])
@pytest.mark.parametrize(
    "shown", ["no token", "a wrong token", "a token of another entity", "a right token"]
)
def test_silent_streams_keep_nobody_off_the_lane(crowded: Server, shown: str, count: int) -> None:
    """P1, R34."""
    with crowd(crowded.flight_url, [tokens(crowded)[shown]], count):
        work_honestly(crowded)


@pytest.mark.parametrize("shown", ["a wrong token", "a token of another entity"])
def test_guessers_that_are_slowed_down_keep_nobody_off_the_lane(
    crowded: Server, shown: str
) -> None:
    """P1, R34."""
    with crowd(crowded.flight_url, [tokens(crowded)[shown]], 64, how=ASKING):
        # Until their answers are held back as long as any.
        time.sleep(4)
        for _ in range(3):
            work_honestly(crowded)


def test_all_kinds_of_strangers_together_keep_nobody_off_the_lane(crowded: Server) -> None:
    """P1, R34."""
    with crowd(crowded.flight_url, [*tokens(crowded).values()], 100):
        work_honestly(crowded)


def test_who_shows_no_good_token_is_told_so_and_nothing_else(crowded: Server) -> None:
    """R34: not even what the lane can do."""
    with connect(crowded) as connection:
        for shown in ("no token", "a wrong token"):
            token = tokens(crowded)[shown]
            with pytest.raises(flight.FlightUnauthenticatedError, match=r"^unauthorized: "):
                list(connection.list_actions(call_options(token)))
            with pytest.raises(flight.FlightUnauthenticatedError) as told:
                FlightClient(connection, token).act("describe", "q")
            assert str(crowded.data_dir) not in str(told.value)
