"""Under which names a bus with the public key answers (R34)."""

import pytest

from shardbus.core.errors import Refused
from shardbus.gateway.http.server.own_host import check_host


@pytest.mark.parametrize(
    "host",
    [
        "",
        "localhost",
        "LOCALHOST:5300",
        "localhost.",
        "bus",
        "my-bus_1:80",
        "127.0.0.1",
        "127.0.0.1:5300",
        "[::1]:5300",
        "192.168.1.5:5300",
        "a.localhost",
        "host.docker.internal:5300",
        "name.servicebus.windows.net",
    ],
)
def test_names_that_no_stranger_can_give_are_answered(host: str) -> None:
    check_host(host)


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:5300",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "evil.local",
        "notlocalhost.example",
        "user@evil.example",
        "localhost@evil.example",
        "servicebus.windows.net.evil.example",
        "[::1",
        ":5300",
        "a b",
        "évil",
    ],
)
def test_names_that_a_web_site_could_have_are_not(host: str) -> None:
    with pytest.raises(Refused) as refusal:
        check_host(host)

    assert refusal.value.kind.status == 421
