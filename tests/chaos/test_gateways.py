"""Several gateways over the same brokers, and processes that end without a word."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from typing import Final

import pytest

from shardbus.amqp.events import IncomingDelivery
from shardbus.amqp.outcomes import ACCEPTED, Accepted
from shardbus.app.cli.access import ClientAccess
from shardbus.app.cli.failures import NotFound
from shardbus.app.cli.sas import Credential, parse_connection_string
from shardbus.codec.codes import UUID
from shardbus.codec.types import Array, Uuid, value_of
from shardbus.message.sections import encode_data_message
from tests.chaos.processes import BROKERS, ProcessServer, process_server, wait_until_gone
from tests.support.amqp_client import Address, AmqpClient, Ended, connected
from tests.support.messages import seen
from tests.support.queues import create_queue, describe_queue
from tests.support.server import COMMAND, START_TIMEOUT_S, Server

GATEWAY: Final = (COMMAND[0], "gateway")
SOON_S: Final = 10.0


class Gateway(Server):
    """`shardbus gateway` over the brokers of a server."""

    def __init__(self, data_dir: Path, brokers: Path) -> None:
        """`brokers` is the directory that holds the list of brokers and their secret."""
        super().__init__(
            data_dir,
            *("--brokers-config", str(brokers / "brokers.conf")),
            *("--secret-file", str(brokers / "broker-secret")),
        )

    def start(self) -> None:
        position = len(self.output)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*GATEWAY, *self._arguments()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._ready = self._wait_until_ready(position, time.monotonic() + START_TIMEOUT_S)


@contextmanager
def two_gateways(directory: Path) -> Iterator[tuple[ProcessServer, Gateway]]:
    """A server with broker processes, and a second gateway beside the server's own."""
    with process_server(directory / "data") as server:
        gateway = Gateway(directory / "gateway", server.data_dir)
        gateway.start()
        try:
            yield server, gateway
        except BaseException as failure:
            failure.add_note(f"output of the second gateway:\n{gateway.output[-10_000:]}")
            raise
        finally:
            gateway.close()


@pytest.fixture(scope="module")
def gateways(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[ProcessServer, Gateway]]:
    """Two gateways for the tests that harm neither."""
    with two_gateways(tmp_path_factory.mktemp("gateways")) as both:
        yield both


def client_of(server: Server) -> AbstractAsyncContextManager[AmqpClient]:
    credential = parse_connection_string(server.connection_string).credential
    return connected(Address(server.host, server.amqp_port), credential)


def soon(server: Server, queue: str, *, exists: bool) -> None:
    """Wait until a gateway knows what another one did."""
    deadline = time.monotonic() + SOON_S
    while _knows(server, queue) != exists:
        assert time.monotonic() < deadline, f"'{queue}' exists={exists} was not heard of"
        time.sleep(0.02)


def _knows(server: Server, queue: str) -> bool:
    try:
        describe_queue(server, queue)
    except NotFound:
        return False
    return True


async def complete_by_management(client: AmqpClient, queue: str, delivery: IncomingDelivery) -> int:
    requests = await client.requests(f"{queue}/$management")
    token = Uuid(uuid.UUID(bytes_le=delivery.tag).bytes)
    answer = await requests.ask(
        {"disposition-status": "completed", "lock-tokens": Array(UUID, [token])},
        {"operation": "com.microsoft:update-disposition"},
    )
    status = answer.application_properties["statusCode"]
    number = value_of(status)
    assert isinstance(number, int)
    return number


def test_a_lock_taken_through_one_gateway_is_settled_through_another(
    gateways: tuple[ProcessServer, Gateway],
) -> None:
    """D7: gateways keep nothing."""

    async def story(first: Server, second: Server) -> None:
        async with client_of(first) as here, client_of(second) as there:
            sender = await here.sender("shared")
            for number in range(32):
                assert isinstance(await sender.send(encode_data_message(b"%d" % number)), Accepted)
            receiver = await there.receiver("shared", credit=32)
            deliveries = await receiver.take_many(32)
            assert {int(seen(delivery.payload).body) for delivery in deliveries} == set(range(32))

            statuses = [await complete_by_management(here, "shared", d) for d in deliveries]

            assert set(statuses) == {200}

    server, gateway = gateways
    create_queue(server, "shared")
    soon(gateway, "shared", exists=True)

    asyncio.run(story(server, gateway))

    assert describe_queue(gateway, "shared").message_count == 0


def test_what_one_gateway_changes_the_others_hear_of(
    gateways: tuple[ProcessServer, Gateway],
) -> None:
    """R28 with several gateways: each can manage, and all agree."""
    server, gateway = gateways
    for number in range(3):
        create_queue(server, f"theirs-{number}")
        create_queue(gateway, f"ours-{number}", LockDuration="PT7S")
    for number in range(3):
        soon(gateway, f"theirs-{number}", exists=True)
        soon(server, f"ours-{number}", exists=True)

    assert describe_queue(server, "ours-1").elements["LockDuration"] == "PT7S"


def test_messages_flow_from_one_gateway_to_a_receiver_at_another(
    gateways: tuple[ProcessServer, Gateway],
) -> None:
    """R19 across gateways: nobody polls, so the receiver must be woken."""

    async def story(first: Server, second: Server) -> None:
        async with client_of(first) as here, client_of(second) as there:
            receiver = await there.receiver("flow", credit=10)
            sender = await here.sender("flow")
            for number in range(10):
                await sender.send(encode_data_message(b"%d" % number))
                [delivery] = await receiver.take_many(1)
                assert int(seen(delivery.payload).body) == number
                await receiver.settle([delivery], ACCEPTED)

    server, gateway = gateways
    create_queue(server, "flow")
    soon(gateway, "flow", exists=True)

    asyncio.run(story(server, gateway))


@pytest.mark.parametrize("where", ["access-rules", "entities/keyed/access-rules"])
def test_a_key_rotated_at_one_gateway_ends_links_at_another(
    gateways: tuple[ProcessServer, Gateway], where: str
) -> None:
    """R34 with several gateways: none has to be started again."""
    server, gateway = gateways
    api = ClientAccess(
        f"http://{server.host}:{server.http_port}",
        parse_connection_string(server.connection_string).credential,
    ).api()
    if not _knows(server, "keyed"):
        create_queue(server, "keyed")
    soon(gateway, "keyed", exists=True)
    made = api.put(f"{where}/worker", {"rights": ["Listen"]})

    async def put_token(client: AmqpClient, key: object) -> int:
        token = Credential("worker", str(key)).token_for(
            "sb://h/keyed", expires_at_s=int(time.time()) + 600
        )
        deadline = time.monotonic() + SOON_S
        while True:
            status = await client.put_token(token, "sb://h/keyed")
            if status == 202 or time.monotonic() > deadline:
                return status

    async def story() -> None:
        address = Address(gateway.host, gateway.amqp_port)
        async with connected(address) as old, connected(address) as other:
            assert await put_token(old, made["primary_key"]) == 202
            assert await put_token(other, made["secondary_key"]) == 202
            ending = await old.receiver("keyed", credit=1)
            staying = await other.receiver("keyed", credit=1)

            rotated = await asyncio.to_thread(
                api.post, f"{where}/worker/rotate", {"key": "primary"}
            )

            with pytest.raises(Ended, match="unauthorized-access"):
                await ending.take_some()
            assert staying.error is None
            assert await put_token(old, rotated["primary_key"]) == 202
            await old.receiver("keyed")

    asyncio.run(story())
    api.delete(f"{where}/worker")


def test_a_killed_gateway_leaves_brokers_and_other_gateways_at_work(tmp_path: Path) -> None:
    async def send(server: Server) -> None:
        async with client_of(server) as client:
            sender = await client.sender("kept")
            assert isinstance(await sender.send(encode_data_message(b"x")), Accepted)

    with two_gateways(tmp_path) as (server, gateway):
        create_queue(gateway, "kept")
        soon(server, "kept", exists=True)
        asyncio.run(send(gateway))

        gateway.kill()
        asyncio.run(send(server))

        assert describe_queue(server, "kept").message_count == 2


def test_brokers_end_with_a_killed_server_and_their_successors_serve_what_they_kept(
    tmp_path: Path,
) -> None:
    async def send(server: Server) -> None:
        async with client_of(server) as client:
            sender = await client.sender("kept")
            assert isinstance(await sender.send(encode_data_message(b"x")), Accepted)

    with process_server(tmp_path / "data") as server:
        create_queue(server, "kept")
        asyncio.run(send(server))
        pids = server.broker_pids()

        os.kill(server.pid, signal.SIGKILL)
        for pid in pids:
            wait_until_gone(pid)
        server.close()
        server.start()

        assert describe_queue(server, "kept").message_count == 1
        assert len(set(server.broker_pids()) - set(pids)) == BROKERS


def test_a_data_directory_moves_between_one_process_and_several(tmp_path: Path) -> None:
    """The same files either way: what one process kept, broker processes serve, and back."""
    with process_server(tmp_path / "data") as server:
        create_queue(server, "kept", LockDuration="PT9S")
        server.stop()
    alone = Server(tmp_path / "data", "--brokers", str(BROKERS))
    alone.start()
    try:
        assert describe_queue(alone, "kept").elements["LockDuration"] == "PT9S"
    finally:
        alone.close()


@contextmanager
def brokers_by_hand(directory: Path, count: int) -> Iterator[None]:
    """Brokers on TCP, with the list of them and their secret in the directory."""
    secret = directory / "broker-secret"
    directory.mkdir()
    secret.touch(0o600)
    secret.write_text("a secret that both sides know", encoding="utf-8")
    processes = [_broker(directory, index) for index in range(count)]
    try:
        ready = [_first_line(process) for process in processes]
        assert [line.split()[:2] for line in ready] == [
            ["ready", f"broker-{index}"] for index in range(count)
        ]
        listed = "".join(f"{line.split()[2]}\n" for line in ready)
        (directory / "brokers.conf").write_text(listed, encoding="utf-8")
        yield
    finally:
        for process in processes:
            process.terminate()
        assert [process.wait(SOON_S) for process in processes] == [0] * count
        for process in processes:
            assert process.stdout is not None
            process.stdout.close()


def _broker(directory: Path, index: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            *(COMMAND[0], "broker"),
            *("--name", f"broker-{index}"),
            *("--data-dir", str(directory / f"store-{index}")),
            *("--listen", "127.0.0.1:0"),
            *("--secret-file", str(directory / "broker-secret")),
            *(["--catalogue"] if index == 0 else []),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )


def _first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def test_brokers_and_gateways_started_by_hand_find_each_other_over_tcp(tmp_path: Path) -> None:
    async def send(server: Server) -> None:
        async with client_of(server) as client:
            sender = await client.sender("kept")
            for _ in range(16):
                assert isinstance(await sender.send(encode_data_message(b"x")), Accepted)

    with brokers_by_hand(tmp_path / "brokers", 2):
        gateway = Gateway(tmp_path / "gateway", tmp_path / "brokers")
        gateway.start()
        try:
            create_queue(gateway, "kept")
            asyncio.run(send(gateway))

            assert describe_queue(gateway, "kept").message_count == 16
            gateway.stop()
        finally:
            gateway.close()
