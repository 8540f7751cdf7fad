"""What one message costs in the AMQP engine, without a socket or a store.

Run as `python bench/micro_amqp.py [--json]`; the numbers are microseconds per message, best of
several rounds, and the report says whether the engine is compiled.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable

from shardbus.amqp.config import ConnectionConfig
from shardbus.amqp.connection import Connection
from shardbus.amqp.events import (
    DeliveriesReceived,
    LinkAttached,
    SaslInitReceived,
    SettlementsReceived,
)
from shardbus.amqp.link import Link
from shardbus.amqp.outcomes import ACCEPTED
from shardbus.codec import decoder
from shardbus.message.sections import (
    Stamp,
    build_message,
    encode_data_message,
    encode_delivery,
    scan_message,
)

COUNT = 1_000
ROUNDS = 15
PAYLOAD = encode_data_message(b"x" * 1024, message_id="0123456789abcdef", partition_key="key-17")
PLAIN = encode_data_message(b"x" * 1024, message_id="0123456789abcdef")
CONFIG = ConnectionConfig(unsettled_max=10_000_000, incoming_window=65_536)


class Pair:
    """A client and a server with one link in each direction, joined in memory."""

    def __init__(self) -> None:
        self.client = Connection(CONFIG, False, 0)
        self.server = Connection(CONFIG, True, 0)
        self.links: list[Link] = []
        self.client.open()
        self.exchange()
        session = self.client.begin_session()
        self.sender = session.attach_sender("sender", target="queue")
        self.receiver = session.attach_receiver("receiver", source="queue", settle_modes=(0, 1))
        self.exchange()
        for link in self.links:
            link.accept()
        self.links[0].grant(2_000_000_000)
        self.receiver.grant(2_000_000_000)
        self.exchange()

    def exchange(self) -> None:
        for _ in range(10):
            for event in self.server.receive(self.client.take_output(), 0):
                if isinstance(event, SaslInitReceived):
                    self.server.sasl_outcome(True)
                elif isinstance(event, LinkAttached):
                    self.links.append(event.link)
            self.client.receive(self.server.take_output(), 0)


def best_us(prepare: Callable[[], Callable[[], None]]) -> float:
    """Microseconds per message of what `prepare` gives, best of the rounds."""
    best = float("inf")
    for _ in range(ROUNDS):
        run = prepare()
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best / COUNT * 1e6


def receive_and_scan(pair: Pair) -> Callable[[], None]:
    ids = [pair.sender.send(b"0123456789abcdef", PAYLOAD, False) for _ in range(COUNT)]
    wire = pair.client.take_output()

    def run() -> None:
        for event in pair.server.receive(wire, 0):
            if isinstance(event, DeliveriesReceived):
                for delivery in event.deliveries:
                    scan_message(delivery.payload)
        pair.links[0].settle(ids, ACCEPTED)

    return run


def stamp_and_send(pair: Pair, payload: bytes) -> Callable[[], None]:
    head = scan_message(payload)
    # One stamp for all: making it is cheap for the compiled gateway and dear for this script.
    stamp = Stamp(
        sequence_number=0,
        enqueued_time_ms=1_700_000_000_000,
        locked_until_ms=1_700_000_030_000,
        partition_id=3,
    )
    pair.client.receive(pair.server.take_output(), 0)

    def run() -> None:
        link = pair.links[1]
        for number in range(COUNT):
            stamp.sequence_number = number
            link.send(b"0123456789abcdef", encode_delivery(payload, head, stamp), True)
            if number % 100 == 0:
                pair.server.take_output()
        pair.server.take_output()

    return run


def settle_each(pair: Pair, run_length: int) -> Callable[[], None]:
    """Outcomes of `run_length` deliveries per disposition, and the confirmation of each."""
    link = pair.links[1]
    ids = [link.send(b"0123456789abcdef", PLAIN, False) for _ in range(COUNT)]
    pair.client.receive(pair.server.take_output(), 0)
    for start in range(0, COUNT, run_length):
        pair.receiver.settle(ids[start : start + run_length], ACCEPTED, settled=False)
    wire = pair.client.take_output()

    def run() -> None:
        for event in pair.server.receive(wire, 0):
            if isinstance(event, SettlementsReceived):
                link.confirm(event.ids, event.state)
        pair.server.take_output()

    return run


def scan_alone(payload: bytes) -> Callable[[], None]:
    def run() -> None:
        for _ in range(COUNT):
            scan_message(payload)

    return run


def measure() -> dict[str, float]:
    rich = build_message(
        body="x" * 1024,
        message_id="0123456789abcdef",
        application_properties={f"property-{number}": f"value-{number}" for number in range(5)},
    )
    pair = Pair()
    return {
        "receive + scan + settle": best_us(lambda: receive_and_scan(pair)),
        "scan (message-id, partition key)": best_us(lambda: scan_alone(PAYLOAD)),
        "scan (five application properties)": best_us(lambda: scan_alone(rich)),
        "stamp + send": best_us(lambda: stamp_and_send(Pair(), PLAIN)),
        "stamp + send (sender's annotations)": best_us(lambda: stamp_and_send(Pair(), PAYLOAD)),
        "outcome + confirm, one each": best_us(lambda: settle_each(Pair(), 1)),
        "outcome + confirm, runs of 100": best_us(lambda: settle_each(Pair(), 100)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    is_compiled = not decoder.__file__.endswith(".py")
    result = measure()
    if arguments.json:
        text = json.dumps({"compiled": is_compiled, "us_per_message": result}, indent=2)
    else:
        lines = [f"shardbus.amqp, {'compiled' if is_compiled else 'interpreted'}, 1 KB messages"]
        lines += [f"{name:40} {value:8.3f} us" for name, value in result.items()]
        text = "\n".join(lines)
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    main()
