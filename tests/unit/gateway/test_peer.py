"""Which connections count as those of one peer."""

import pytest

from shardbus.gateway.listening.peer import UNKNOWN, peer_at


@pytest.mark.parametrize(
    ("address", "peer"),
    [
        (("192.0.2.7", 40_000), "192.0.2.7"),
        (("127.0.0.1", 40_000), "127.0.0.1"),
        (("::1", 40_000, 0, 0), "::1"),
        (("::ffff:192.0.2.7", 40_000, 0, 0), "192.0.2.7"),
        (("2001:db8:1:2:3:4:5:6", 40_000, 0, 0), "2001:db8:1:2::/64"),
        (("2001:db8:1:2:ffff::", 40_000, 0, 0), "2001:db8:1:2::/64"),
        (("2001:db8:1:3::", 40_000, 0, 0), "2001:db8:1:3::/64"),
        (("fe80::1%eth0", 40_000, 0, 2), "fe80::/64"),
    ],
)
def test_a_peer_is_an_address_or_the_network_of_one_customer(
    address: tuple[str | int, ...], peer: str
) -> None:
    assert peer_at(address) == peer


@pytest.mark.parametrize("address", [None, (), "", "/run/socket", (7, 8), ("nowhere", 1)])
def test_what_has_no_address_is_unknown(address: object) -> None:
    assert peer_at(address) == UNKNOWN
