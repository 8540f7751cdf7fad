"""The proxy that breaks connections adds nothing of its own to them."""

from __future__ import annotations

import socket

from tests.support.breaking import BreakingProxy


def test_a_small_piece_does_not_wait_for_the_acknowledgement_of_the_one_before() -> None:
    """A client that waits for each commit made 12 a second: each waited twice for 40 ms."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        BreakingProxy(listener.getsockname()[1]) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port)) as client,
        listener.accept()[0] as server,
    ):
        client.sendall(b"piece")
        passed = server.recv(5)
        [pair] = proxy.pairs

        delays = [each.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for each in pair]

    assert passed == b"piece"
    assert 0 not in delays
