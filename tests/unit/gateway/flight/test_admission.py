"""Nobody takes anything of the lane before the bus has vouched for them."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from shardbus.gateway.flight.server import lane, places
from shardbus.gateway.flight.server.admission import ADMITTED_MAX, ADMITTED_S, LaneAdmission
from shardbus.gateway.flight.server.bus import BusError
from shardbus.gateway.flight.server.peers import connections, hang_up, peer_name
from tests.support.waiting import wait_until
from tests.unit.gateway.flight.lane_site import LaneSite, TableBus, options

ROWS = pa.RecordBatch.from_arrays([pa.array([b"a"])], ["body"])
# Clients of one process share a connection otherwise.
ALONE: list[tuple[str, int | str]] = [("grpc.use_local_subchannel_pool", 1)]
ANSWER: dict[str, object] = {"rule": "root", "entity": ""}


def test_a_token_is_asked_about_once_in_a_while() -> None:
    bus, now_s = TableBus(), [0.0]
    bus.answers["token"] = ANSWER
    admission = LaneAdmission(bus, monotonic_s=lambda: now_s[0])

    for _ in range(3):
        admission.enter("t")
    assert bus.asked == [("token", "t")]
    now_s[0] += ADMITTED_S
    admission.enter("t")
    assert len(bus.asked) == 2
    for number in range(ADMITTED_MAX):
        admission.leave(admission.enter(f"t{number}"))
    admission.enter("t")
    assert len(bus.asked) == 3 + ADMITTED_MAX


def test_who_has_no_good_token_has_no_call() -> None:
    bus = TableBus()
    bus.answers["token"] = BusError(401, "unauthorized", "InvalidSignature")
    admission = LaneAdmission(bus)

    for token in ("", "wrong", "wrong"):
        with pytest.raises(BusError, match=r"^unauthorized: "):
            admission.enter(token)

    assert len(bus.asked) == 2
    assert admission.calls_open == 0


def test_calls_are_bounded_all_together_and_for_each_rule() -> None:
    bus = TableBus()
    bus.answers["token"] = ANSWER
    admission = LaneAdmission(bus, calls_max=3, of_rule_max=2)

    mine = [admission.enter("t"), admission.enter("another of the same rule")]
    with pytest.raises(BusError, match=r"^server-busy: "):
        admission.enter("t")
    bus.answers["token"] = {"rule": "other", "entity": "q"}
    admission.enter("u")
    with pytest.raises(BusError, match=r"^server-busy: "):
        admission.enter("u")
    admission.leave(mine[0])
    admission.enter("u")

    assert admission.calls_open == 3


def test_calls_are_counted_until_they_end(site: LaneSite) -> None:
    site.send(b"a")
    site.describe(2)

    assert site.read(**{"from": 1, "to": 2}).num_rows == 1
    site.act("describe")
    with pytest.raises(flight.FlightServerError):
        site.act("dance")

    assert site.lane.admission.calls_open == 0


def test_a_stranger_is_turned_away_before_anything_is_asked_or_read(site: LaneSite) -> None:
    site.strangers.answers["token"] = BusError(401, "unauthorized", "InvalidSignature")
    command = flight.FlightDescriptor.for_command(b"{}")

    for ask in (
        lambda: list(site.client.list_actions(options("x"))),
        lambda: site.client.get_flight_info(command, options("x")),
        lambda: site.client.do_get(flight.Ticket(b"{}"), options("x")).read_all(),
        lambda: list(site.client.do_action(flight.Action("describe", b"{}"), options(""))),
    ):
        with pytest.raises(flight.FlightUnauthenticatedError, match=r"^unauthorized: "):
            ask()

    assert site.bus.asked == []
    site.client.wait_for_available(timeout=10)


def test_a_claim_is_asked_for_before_there_is_a_place_for_it(site: LaneSite) -> None:
    site.bus.answers["entities/q/readers/runs"] = BusError(401, "unauthorized", "No.")

    with pytest.raises(flight.FlightUnauthenticatedError):
        site.read(reader="r", ordinals=[1, 1])

    assert site.lane.streams_open == 0


def test_a_put_that_stays_silent_is_ended(site: LaneSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before its first batch, after which nothing is left of it."""
    monkeypatch.setattr(lane, "FIRST_S_MAX", 0.1)
    command = json.dumps({"entity": "q", "stage": "s"}).encode()
    with flight.connect(f"grpc://127.0.0.1:{site.lane.port}", generic_options=ALONE) as client:
        writer, _ = client.do_put(
            flight.FlightDescriptor.for_command(command), ROWS.schema, options()
        )
        wait_until(lambda: site.lane.streams_open == 1)

        def is_ended() -> bool:
            site.lane.end_silent()
            return site.lane.streams_open == 0

        wait_until(is_ended)
        with pytest.raises(pa.ArrowException) as told:
            writer.close()
    assert not isinstance(told.value, flight.FlightTimedOutError)

    assert site.act("describe")
    assert site.lane.streams_open == 0


def test_puts_without_a_batch_keep_nobody_off_the_lane(tmp_path: Path) -> None:
    site = LaneSite(tmp_path, streams_max=1)
    site.send(b"a")
    site.describe(2)
    with flight.connect(f"grpc://127.0.0.1:{site.lane.port}", generic_options=ALONE) as client:
        command = json.dumps({"entity": "q", "stage": "s"}).encode()
        descriptor = flight.FlightDescriptor.for_command(command)
        silent = [client.do_put(descriptor, ROWS.schema, options()) for _ in range(20)]
        wait_until(lambda: site.lane.streams_open == 20)

        assert site.read(**{"from": 1, "to": 2}).num_rows == 1

        for writer, _ in silent:
            writer.close()
    site.close()


def test_a_put_that_falls_silent_gives_its_place_to_who_needs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "YIELDS_AFTER_S", 0.1)
    site = LaneSite(tmp_path, streams_max=1)
    site.send(b"a")
    site.describe(2)
    site.bus.answers["entities/q/stages/s"] = {}
    with flight.connect(f"grpc://127.0.0.1:{site.lane.port}", generic_options=ALONE) as client:
        command = json.dumps({"entity": "q", "stage": "s"}).encode()
        writer, _ = client.do_put(
            flight.FlightDescriptor.for_command(command), ROWS.schema, options()
        )
        writer.write_batch(ROWS)
        wait_until(lambda: site.lane.places_taken == 1)
        time.sleep(0.2)

        # Who reads has places of its own.
        assert site.read(**{"from": 1, "to": 2}).num_rows == 1
        assert site.lane.places_taken == 1
        other, answers = site.client.do_put(
            flight.FlightDescriptor.for_command(command), ROWS.schema, options()
        )
        other.write_batch(ROWS)
        other.done_writing()
        assert answers.read() is not None  # type: ignore[attr-defined]  # the stubs say another
        other.close()

        with pytest.raises(pa.ArrowException):
            writer.close()
    site.close()


def test_a_connection_is_found_by_its_peer_and_ended(site: LaneSite) -> None:
    site.act("describe")
    found = connections(site.lane.port)

    assert not hang_up(site.lane.port, "127.0.0.1 1")
    assert hang_up(site.lane.port, found[0].peer)

    assert len(found) == 1
    # Clients of gRPC connect again by themselves.
    site.client.wait_for_available(timeout=10)
    assert site.act("describe")


@pytest.mark.parametrize(
    ("told", "name"),
    [
        ("ipv4:127.0.0.1:5301", "127.0.0.1 5301"),
        ("ipv6:%5B::1%5D:5301", "::1 5301"),
        ("ipv6:%5B::ffff:127.0.0.1%5D:5301", "127.0.0.1 5301"),
        ("ipv6:[fe80::1%25eth0]:5301", "fe80::1 5301"),
    ],
)
def test_peers_are_named_as_sockets_name_them(told: str, name: str) -> None:
    assert peer_name(told) == name
