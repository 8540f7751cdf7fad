"""Publishing to topics with more and more subscriptions of which one matches."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Final

from bench.features.shape import Shape
from bench.job import Endpoint, Job, Kind, Sample
from bench.peers import shardbus
from bench.rounds import run_job
from shardbus.app.cli.client import HttpTransport, Management
from shardbus.app.cli.entities.atom import SUBSCRIPTION, TOPIC
from shardbus.app.cli.entities.rule_atom import CORRELATION
from shardbus.app.cli.entities.rule_atom import AtomRule as RuleElement
from shardbus.app.cli.sas import Credential
from shardbus.codec.types import Value
from shardbus.message.rule_view import RuleView
from shardbus.message.sections import build_message
from shardbus.rules.filter import Rule, SqlFilter
from shardbus.rules.index import RuleIndex

SUBSCRIPTIONS: Final = (1, 10, 100, 1000)
_MESSAGES: Final = 20_000
_WARMUP: Final = 2_000
_WANTED: Final = "wanted"
_EVALUATIONS: Final = 20_000
_EXPRESSIONS: Final = (
    "region = 'eu'",
    "region = 'eu' AND amount > 100",
    "name LIKE 'order-%' AND region IN ('eu', 'us') AND NOT EXISTS (cancelled)",
)


def measure(
    directory: Path, shapes: Sequence[Shape], rounds: int, say: Callable[[str], None]
) -> dict[str, object]:
    """Publish the same messages to each topic in turn."""
    found: dict[str, object] = {"rounds": rounds, "messages": _MESSAGES, "sql_per_s": _sql(say)}
    for number, shape in enumerate(shapes):
        with shardbus.serving(directory / f"{number}") as server:
            topics = [_topic(server, count, shape, say) for count in SUBSCRIPTIONS]
            samples: list[list[Sample]] = [[] for _ in topics]
            for turn in range(rounds):
                order = list(enumerate(topics))
                for index, topic in order[::-1] if turn % 2 else order:
                    job = Job(Kind.SEND, _MESSAGES, _WARMUP, window=1000, message_id=_WANTED)
                    samples[index].append(run_job(topic, job))
                rates = ", ".join(f"{each[-1].rate:,.0f}/s" for each in samples)
                say(f"{shape}, round {turn + 1}: {rates} with {SUBSCRIPTIONS} subscriptions")
            found[shape] = _document(samples)
    return found


def _sql(say: Callable[[str], None]) -> dict[str, int]:
    """Messages per second that one SQL rule decides, the reading of the message included."""
    properties: dict[str, Value] = {"region": "eu", "amount": 250, "name": "order-7"}
    payload = build_message(body="x" * 100, application_properties=properties)
    found: dict[str, int] = {}
    for expression in _EXPRESSIONS:
        index = RuleIndex()
        index.add(1, Rule("sql", SqlFilter(expression), None))
        started_s = time.process_time()
        for _ in range(_EVALUATIONS):
            index.match(RuleView(payload), bytes(16))
        found[expression] = round(_EVALUATIONS / (time.process_time() - started_s))
    say(f"SQL rules: {found} messages a second")
    return found


def _topic(
    server: shardbus.Server, count: int, shape: Shape, say: Callable[[str], None]
) -> Endpoint:
    endpoint = f"http://127.0.0.1:{server.http_port}"
    first = server.endpoint(f"topic-{count}")
    credential = Credential(first.user, first.password)
    management = Management(HttpTransport(endpoint), endpoint, credential, clock=time.time)
    is_partitioned = "true" if shape.option == "--partitioning" else "false"
    elements = {"EnablePartitioning": is_partitioned, "MaxSizeInMegabytes": "5120"}
    management.create(TOPIC, first.address, elements)
    for number in range(count):
        wanted = _WANTED if number == count // 2 else f"other-{number}"
        rule = RuleElement("$Default", CORRELATION, fields={"MessageId": wanted})
        path = f"{first.address}/Subscriptions/s{number}"
        management.create(SUBSCRIPTION, path, {}, rule)
    say(f"{shape}: a topic with {count} subscriptions")
    return first


def _document(samples: Sequence[Sequence[Sample]]) -> dict[str, object]:
    base = samples[0]
    return {
        str(count): {
            "rate_over_one": _median_ratio([s.rate for s in each], [s.rate for s in base]),
            "server_cpu_over_one": _median_ratio(
                [s.server_cpu_us for s in each], [s.server_cpu_us for s in base]
            ),
            "per_s": [round(s.rate) for s in each],
            "server_cpu_us": [round(s.server_cpu_us, 2) for s in each],
        }
        for count, each in zip(SUBSCRIPTIONS, samples, strict=True)
    }


def _median_ratio(values: Sequence[float], base: Sequence[float]) -> float:
    return round(median(a / b for a, b in zip(values, base, strict=True)), 3)
