"""Every SDK that there is, feature by feature; what is left out here is said, and fails in CI."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest
from azure.servicebus.management import ServiceBusAdministrationClient, SqlRuleFilter
from msgspec.structs import replace

from tests.conformance.sdk_programs import (
    FEATURES,
    LOADS,
    NOT_OFFERED,
    PARTITIONED,
    PASSED,
    PROGRAMS,
    RECONNECT,
    ROOT,
    SOAK,
    Program,
    Result,
    keep,
    kept,
    make_trust_store,
    results_in,
    run_features,
    trusting,
)
from tests.support.breaking import BreakingProxy
from tests.support.ports import free_port
from tests.support.server import Server, running_server

FEATURES_S: Final = 400.0
# How long a load may take to end: it waits 90 s for what was accepted.
ENDING_S: Final = 200.0
KILLS: Final = 10
SOAK_S: Final = float(os.environ.get("SHARDBUS_SOAK_S", "20"))
BREAK_S: Final = 2.0

_numbers = itertools.count(1)

each_load = pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.key)
each_kind = pytest.mark.parametrize("kind", ["", PARTITIONED], ids=["conventional", "partitioned"])
each_sdk = pytest.mark.parametrize(
    "program",
    [
        pytest.param(each, marks=[pytest.mark.release] if each.is_slowly_built else [])
        for each in PROGRAMS
    ],
    ids=lambda each: each.key,
)


@dataclass(frozen=True)
class Buses:
    """A bus of the standard tier, one of the premium tier, and how clients trust them."""

    standard: Server
    premium: Server
    directory: Path

    def variables(self, prefix: str) -> dict[str, str]:
        standard = self.standard
        by_tls = standard.connection_string.replace(
            f":{standard.amqp_port}", f":{standard.tls_port}"
        ).replace("UseDevelopmentEmulator=true;", "")
        bundle = self.directory / "ca.pem"
        return {
            "SHARDBUS_CONNECTION_STRING": standard.connection_string,
            "SHARDBUS_TLS_CONNECTION_STRING": by_tls,
            "SHARDBUS_PREMIUM_CONNECTION_STRING": self.premium.connection_string,
            "SHARDBUS_PREFIX": prefix,
            "SHARDBUS_CA_FILE": str(bundle),
            **trusting(bundle, self.directory / "trust.p12"),
        }


@pytest.fixture(scope="module")
def buses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Buses]:
    directory = tmp_path_factory.mktemp("sdks")
    options = ("--partitioned-entities-max", "1000", "--brokers", "2")
    with (
        running_server(directory / "a", "--tls-port", str(free_port()), *options) as standard,
        running_server(directory / "b", "--tier", "premium", "--brokers", "1") as premium,
    ):
        authorities = [standard.ca_file, premium.ca_file]
        bundle = b"".join(each.read_bytes() for each in authorities)
        (directory / "ca.pem").write_bytes(bundle)
        make_trust_store(directory / "trust.p12", authorities)
        yield Buses(standard, premium, directory)


def need(program: Program) -> None:
    if program.missing is not None:
        pytest.skip(f"the {program.name} SDK is left out: {program.missing}")


@each_sdk
def test_what_an_sdk_offers_works(program: Program, buses: Buses) -> None:
    """R36: each feature, on conventional and partitioned entities where both have it."""
    need(program)
    variables = buses.variables(f"{program.key}{next(_numbers)}")
    if program.is_plain:
        _make_plain_entities(buses, variables["SHARDBUS_PREFIX"])

    results = run_features(program, variables, FEATURES_S)

    told, all_features = [each.feature for each in results], set(FEATURES) - set(LOADS)
    keep(program, results, all_features)
    assert len(told) == len(set(told))
    assert set(told) <= all_features if program.is_plain else set(told) == all_features
    assert PASSED in {each.outcome for each in results}
    assert [each for each in results if each.outcome not in (PASSED, NOT_OFFERED)] == []
    _check_offered(program, results)


def _check_offered(program: Program, results: list[Result]) -> None:
    """What the table says of an SDK is what it does now."""
    shown = kept(program)
    assert shown.version == program.version, "run `make sdks` and `make docs`"
    assert set(shown.features) - set(LOADS) == {each.feature for each in results}
    for result in results:
        assert shown.features[result.feature].outcome == result.outcome, result


@pytest.mark.release
@each_kind
@each_load
def test_no_client_needs_a_restart_when_the_server_is_killed_ten_times(
    program: Program, kind: str, tmp_path: Path
) -> None:
    """R36, R37: nothing accepted is lost, nothing completed returns."""
    need(program)
    with running_server(tmp_path / "data", "--brokers", "2") as server:
        queue = _make_load_queue(program, kind, server)
        started = time.monotonic()
        with _load(program, RECONNECT + kind, queue, server.connection_string, server) as load:
            for _ in range(KILLS):
                time.sleep(random.uniform(1.0, 2.0))
                server.kill()
                server.start()
            seconds = round(time.monotonic() - started)
            result = _ended(load)

    keep(program, [replace(result, seconds=seconds, kills=KILLS, day=_today())])
    assert result.outcome == PASSED, result


@pytest.mark.release
@pytest.mark.timeout(SOAK_S + 2 * ENDING_S)
@each_kind
@each_load
def test_connections_that_break_at_random_lose_nothing(
    program: Program, kind: str, tmp_path: Path
) -> None:
    """R36, R37: twenty seconds of it, or as many as SHARDBUS_SOAK_S says."""
    need(program)
    with (
        running_server(tmp_path / "data", "--brokers", "2") as server,
        BreakingProxy(server.amqp_port) as proxy,
    ):
        queue = _make_load_queue(program, kind, server)
        through = server.connection_string.replace(f":{server.amqp_port}", f":{proxy.port}")
        started = time.monotonic()
        with _load(program, SOAK + kind, queue, through, server) as load:
            while time.monotonic() < started + SOAK_S:
                time.sleep(random.uniform(0.5, BREAK_S))
                proxy.break_one()
            seconds, broken = round(time.monotonic() - started), proxy.broken
            result = _ended(load)

    keep(program, [replace(result, seconds=seconds, breaks=broken, day=_today())])
    assert result.outcome == PASSED, result
    assert broken >= 5


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


@contextmanager
def _load(
    program: Program, feature: str, queue: str, connection_string: str, server: Server
) -> Iterator[subprocess.Popen[bytes]]:
    """A program that sends and completes until its standard input ends."""
    variables = {
        "SHARDBUS_CONNECTION_STRING": connection_string,
        "SHARDBUS_PREFIX": "load",
        "SHARDBUS_CA_FILE": str(server.ca_file),
    }
    errors = server.data_dir.with_name("load.err")
    with errors.open("wb") as log:
        load = subprocess.Popen(
            [*program.load, feature, queue],
            cwd=ROOT,
            env={**os.environ, **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
        )
    try:
        yield load
    except BaseException as failure:
        # Go tells in its errors where it is, and Java where it prints its results.
        load.send_signal(signal.SIGQUIT)
        time.sleep(1)
        load.kill()
        output, _ = load.communicate()
        failure.add_note(f"output of the load:\n{output.decode(errors='replace')[-20_000:]}")
        failure.add_note(f"errors of the load:\n{errors.read_text(errors='replace')[-20_000:]}")
        raise
    finally:
        load.kill()
        load.communicate()


def _ended(load: subprocess.Popen[bytes]) -> Result:
    output, _ = load.communicate(timeout=ENDING_S)
    results = results_in(output)
    assert len(results) == 1, output
    return results[0]


def _make_load_queue(program: Program, kind: str, server: Server) -> str:
    with _administration(server) as administration:
        administration.create_queue(
            "load",
            enable_partitioning=kind == PARTITIONED,
            lock_duration=timedelta(seconds=10),
            max_delivery_count=2000,
            requires_duplicate_detection=program.is_plain,
        )
    return "load"


def _make_plain_entities(buses: Buses, prefix: str) -> None:
    """Plain AMQP finds its entities, as it does in the cloud."""
    with _administration(buses.standard) as administration:
        for kind in ("conventional", "partitioned", "results"):
            administration.create_queue(
                f"{prefix}-{kind}",
                enable_partitioning=kind == "partitioned",
                lock_duration=timedelta(seconds=5),
                max_delivery_count=3,
            )
        for kind in ("conventional", "partitioned"):
            administration.create_queue(
                f"{prefix}-sessions-{kind}",
                enable_partitioning=kind == "partitioned",
                lock_duration=timedelta(seconds=30),
                requires_session=True,
            )
            administration.create_queue(
                f"{prefix}-ids-{kind}",
                enable_partitioning=kind == "partitioned",
                requires_duplicate_detection=True,
            )
        topic = f"{prefix}-topic"
        administration.create_topic(topic)
        administration.create_subscription(topic, "red")
        administration.delete_rule(topic, "red", "$Default")
        administration.create_rule(topic, "red", "red", filter=SqlRuleFilter("colour = 'red'"))
    with _administration(buses.premium) as administration:
        administration.create_queue(f"{prefix}-large", max_message_size_in_kilobytes=20480)


def _administration(server: Server) -> ServiceBusAdministrationClient:
    return ServiceBusAdministrationClient.from_connection_string(
        server.connection_string, connection_verify=str(server.ca_file)
    )
