"""How the descriptors of the process are shared out."""

import logging
import subprocess
import sys

import pytest

from shardbus.app.server.descriptors import DescriptorShares, places


def test_with_many_descriptors_everybody_gets_what_was_asked_for() -> None:
    assert places(1_048_576, 5_000) == DescriptorShares(
        amqp=5_000, http=1_000, silent=8_192, secured=1_024
    )


@pytest.mark.parametrize("descriptors", [64, 256, 1_024, 4_096, 20_000, 1_048_576])
@pytest.mark.parametrize("connections_max", [1, 100, 5_000, 1_000_000])
def test_nobody_takes_what_the_stores_need(descriptors: int, connections_max: int) -> None:
    shared = places(descriptors, connections_max)

    total = shared.amqp + shared.http + shared.silent + shared.secured
    assert total <= descriptors - min(1_024, descriptors // 4)
    assert min(shared.amqp, shared.http, shared.silent, shared.secured) > 0
    assert shared.amqp <= connections_max


def test_fewer_connections_than_were_asked_for_are_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        places(1_024, 5_000)

    [record] = caplog.records
    assert "connections-max is 5000" in record.getMessage()
    assert "only 384" in record.getMessage()


def test_the_soft_limit_becomes_the_hard_one() -> None:
    """In a process of its own: nobody can lower a hard limit and raise it again."""
    script = (
        "import resource\n"
        "from shardbus.app.server.descriptors import raise_limit\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (100, 300))\n"
        "print(raise_limit(), resource.getrlimit(resource.RLIMIT_NOFILE))\n"
    )

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)

    assert done.stdout.decode().strip() == "300 (300, 300)"
