"""Rules mean in Spark what they mean to the bus, for every message (P5)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final, cast

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from shardbus.app.pipelines.definition import definition_from
from shardbus.app.pipelines.selecting import Selecting
from shardbus.codec.encoder import encode
from shardbus.codec.types import Map
from shardbus.core import message_fields
from shardbus.core.errors import Refused
from shardbus.gateway.flight.reading.batches import BatchMaker, wanted_for
from shardbus.gateway.flight.reading.rows import Rows
from shardbus.gateway.flight.reading.schema import COLUMNS
from shardbus.gateway.http.api.places import EntityPlaces
from shardbus.message.rule_values import value_from
from shardbus.message.rule_view import RuleView
from shardbus.rules.arithmetic import TRUE
from shardbus.rules.compiler import compile_condition
from shardbus.rules.errors import EvaluationError
from shardbus.rules.filter import CorrelationFilter, SqlFilter
from shardbus.rules.portable import Document, portable_condition, portable_filter
from shardbus.rules.scope import NewIds, Scope
from shardbus.rules.tree import Condition
from shardbus.rules.values import Duration, Moment, Property, Value, by_name, ms_of
from shardbus_spark.errors import OptionError
from shardbus_spark.pipelines.selection import chosen
from shardbus_spark.rules import arithmetic
from shardbus_spark.rules.columns import RuleColumns
from shardbus_spark.rules.view import VIEW, with_view
from tests.model.rules.draw import CONDITIONS, GIVEN, PROPERTIES, SYSTEM
from tests.support.render import render_filter

SEED: Final = bytes(16)
READ: Final = [*COLUMNS, "amqp"]
EVERY: Final = settings(
    max_examples=12,
    deadline=None,
    # Each example is a query: shrinking would take minutes.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def message(system: dict[int, Value], properties: list[Property]) -> bytes:
    """A message that was sent with these."""
    fields: list[bytes] = [b"\x40"] * 6
    for number, place in (
        (message_fields.MESSAGE_ID, 0),
        (message_fields.LABEL, 3),
        (message_fields.CORRELATION_ID, 5),
    ):
        text = system.get(number)
        if isinstance(text, str):
            fields[place] = encode(text)
    payload = _section(0x73, fields, 0xC0)
    ttl = system.get(message_fields.TIME_TO_LIVE)
    if isinstance(ttl, Duration):
        payload = (
            _section(0x70, [b"\x40", b"\x40", b"\x52" + bytes([ms_of(ttl) % 256])], 0xC0) + payload
        )
    pairs = [(each.name, value_from(each)) for each in properties if _can_be_sent(each.value)]
    names = dict(pairs)
    payload += b"\x00\x53\x74" + encode(Map(list(names.items())))
    return payload + b"\x00\x53\x75\xa0\x01x"


def _can_be_sent(value: Value) -> bool:
    # A moment of AMQP has milliseconds.
    return not isinstance(value, Moment) or value.ticks % 10_000 == 0


def _section(code: int, fields: list[bytes], kind: int) -> bytes:
    content = b"".join(fields)
    return bytes([0, 0x53, code, kind, len(content) + 1, len(fields)]) + content


def table(spark: SparkSession, payloads: list[bytes]) -> DataFrame:
    """The messages as rows of a capture, with the view of rules."""
    return with_view(captured(spark, payloads))


def captured(spark: SparkSession, payloads: list[bytes]) -> DataFrame:
    """The messages as rows of a capture, made by the code of the bulk lane."""
    rows = Rows(wanted_for(READ))
    buffer = b"".join(payloads)
    at = 0
    for number, payload in enumerate(payloads):
        assert rows.add_plain(number, 0, 0, buffer, at, at + len(payload))
        at += len(payload)
    batch = BatchMaker(READ, 0).batch(rows, buffer)
    return spark.createDataFrame(pa.Table.from_batches([batch]))


def decided(rows: DataFrame, columns: list[Column]) -> list[list[bool | None]]:
    """For each message, what each column says."""
    numbered = [column.alias(f"c{index}") for index, column in enumerate(columns)]
    found = rows.select("sequence_number", *numbered).orderBy("sequence_number").collect()
    return [list(row)[1:] for row in found]


def by_bus(condition: Condition, parameters: dict[str, Property], payload: bytes) -> bool:
    try:
        check = compile_condition(condition, "", parameters)
        return check.truth(Scope(RuleView(payload), NewIds(SEED))) == TRUE
    except EvaluationError:
        return False


def document_of(condition: Condition, parameters: dict[str, Property]) -> list[Document] | None:
    """None for a condition that the bus, or Spark, refuses as a whole."""
    try:
        compile_condition(condition, "", parameters)
        return portable_condition(condition, parameters)
    except Refused:
        return None


@pytest.mark.long
@EVERY
@given(
    conditions=st.lists(CONDITIONS, min_size=25, max_size=25),
    sent=st.lists(st.tuples(SYSTEM, PROPERTIES), min_size=20, max_size=20),
    given_values=GIVEN,
)
def test_generated_filters_decide_the_same_on_generated_messages(
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    conditions: list[Condition],
    sent: list[tuple[dict[int, Value], list[Property]]],
    given_values: list[Property],
) -> None:
    """P5: where Spark must give up (arithmetic of decimals, doubles as text) it says so, and never
    decides otherwise."""
    given_up: list[Column] = []
    monkeypatch.setattr(arithmetic, "_refused", _noting(given_up))
    parameters = by_name(given_values)
    payloads = [message(system, properties) for system, properties in sent]
    documents = [(each, document_of(each, parameters)) for each in conditions]
    build = RuleColumns(READ, VIEW)
    asked: list[tuple[Condition, Column]] = []
    for each, made in documents:
        if made is not None:
            given_up.clear()
            matches = build.condition(made).matches()
            asked.append((each, _where_not(given_up, matches)))

    found = decided(table(spark, payloads), [matches for _, matches in asked])

    answered = [answer for answers in found for answer in answers if answer is not None]
    assert len(answered) > len(payloads) * len(asked) * 0.8
    for payload, answers in zip(payloads, found, strict=True):
        for (condition, _), answer in zip(asked, answers, strict=True):
            if answer is not None:
                expected = by_bus(condition, parameters, payload)
                assert answer == expected, (render_filter(condition), parameters, payload)


def _noting(given_up: list[Column]) -> Callable[[Column, str], Column]:
    """Notes where a query would end, in place of ending it."""

    def refused(where: Column, what: str) -> Column:
        given_up.append(where)
        return F.lit(False)

    return refused


def _where_not(given_up: list[Column], matches: Column) -> Column:
    """Null where the query would end."""
    is_over = F.lit(False)
    for where in given_up:
        is_over = is_over | F.coalesce(where, F.lit(False))
    return F.when(~is_over, matches)


FILTERS: Final = [
    "region = 'north'",
    "region <> 'north'",
    "NOT region = 'north'",
    "amount > 100",
    "amount >= 1 AND amount <= 2",
    "amount = 5 OR missing = 1",
    "missing IS NULL AND region IS NOT NULL",
    "EXISTS(amount) AND NOT EXISTS(missing)",
    "sys.Label = 'order' AND sys.MessageId LIKE 'm%'",
    "sys.Label LIKE '50!% of_' ESCAPE '!'",
    "region IN ('north', 'south')",
    "region NOT IN ('north', amount)",
    "amount / 0 = 1",
    "region = 'x' AND amount / 0 = 1",
    "amount % 3 = 2",
    "-amount < 0",
    "'#' + region = '#north'",
    "paid",
    "NOT paid",
    "property('Re' + 'gion') = 'north'",
    "sys.TimeToLive IS NULL",
    "sys.EnqueuedTimeUtc IS NULL",
]


def samples() -> list[bytes]:
    values: list[list[Property]] = [
        [Property("Region", 14, "north"), Property("amount", 9, 5)],
        [Property("region", 14, "south"), Property("amount", 11, 1.5), Property("paid", 1, True)],
        [Property("region", 9, 7), Property("amount", 11, float("nan"))],
        [Property("amount", 14, "5"), Property("paid", 14, "true")],
        [Property("amount", 5, 2**64 - 1), Property("paid", 0, None)],
        [],
    ]
    labels: list[dict[int, Value]] = [
        {message_fields.LABEL: "order", message_fields.MESSAGE_ID: "m1"},
        {message_fields.LABEL: "50% off"},
        {message_fields.TIME_TO_LIVE: Duration(50_000)},
    ]
    return [message(labels[i % 3], properties) for i, properties in enumerate(values)]


def test_filters_of_people_decide_the_same_and_each_decides_something(spark: SparkSession) -> None:
    """P5"""
    payloads = samples()
    build = RuleColumns(READ, VIEW)
    filters = [SqlFilter(text) for text in FILTERS]
    truths = [build.condition(portable_filter(each)) for each in filters]

    found = decided(table(spark, payloads), [truth.matches() for truth in truths])

    for payload, answers in zip(payloads, found, strict=True):
        expected = [by_bus(each.condition, {}, payload) for each in filters]
        assert answers == expected
    assert sum(answer is True for answers in found for answer in answers) > len(FILTERS)


def test_correlation_filters_compare_numbers_by_value(spark: SparkSession) -> None:
    """P5"""
    payloads = samples()
    filters = [
        CorrelationFilter({message_fields.LABEL: "order"}, [Property("region", 14, "north")]),
        CorrelationFilter({}, [Property("AMOUNT", 11, 5.0)]),
        CorrelationFilter({}, [Property("amount", 9, 5)]),
        CorrelationFilter({}, [Property("amount", 11, 1.5)]),
        CorrelationFilter({}, [Property("paid", 1, True)]),
        CorrelationFilter({}, [Property("amount", 5, 2**64 - 1)]),
    ]
    build = RuleColumns(READ, VIEW)

    found = decided(
        table(spark, payloads),
        [build.condition(portable_filter(each)).matches() for each in filters],
    )

    for payload, answers in zip(payloads, found, strict=True):
        scope = Scope(RuleView(payload), NewIds(SEED))
        assert answers == [all(c.holds(scope) for c in each.conditions) for each in filters]
    assert all(any(answers[index] for answers in found) for index in range(len(filters)))


def test_what_spark_cannot_compute_ends_the_query_instead_of_deciding_otherwise(
    spark: SparkSession,
) -> None:
    """P5"""
    payload = message({}, [Property("price", 11, 1.5)])
    truth = RuleColumns(READ, VIEW).condition(portable_filter(SqlFilter("'a' + price = 'a1.5'")))

    with pytest.raises(PySparkException, match="double"):
        decided(table(spark, [payload]), [truth.matches()])


def test_a_rule_with_a_new_id_or_a_computed_escape_is_refused_by_the_bus() -> None:
    for text in ("newid() = a", "a LIKE b ESCAPE c"):
        with pytest.raises(Refused):
            portable_filter(SqlFilter(text))


def test_a_table_without_the_column_of_a_system_property_is_refused_by_name() -> None:
    document = json.dumps([[portable_filter(SqlFilter("sys.Label = 'a'"))]])

    with pytest.raises(OptionError, match="subject"):
        RuleColumns(["body"], VIEW).matching(document)


SELECTING: Final[list[dict[str, object]]] = [
    {"kind": "capture", "keep": True},
    {"kind": "replay", "path": "p"},
    {"kind": "backfill", "entity": "t/Subscriptions/s", "from_pipeline": "a"},
    {"kind": "triage"},
]


def filters_of(rule: str, kind: int) -> str | None:
    """The filters that the driver of a pipeline with this rule gets; None if it is refused."""
    members = {"name": "one", "entity": "q", "rule": rule, **SELECTING[kind % len(SELECTING)]}
    try:
        task = definition_from(members).task
        assert isinstance(task, Selecting)
        # Only like_subscription looks for entities.
        return task.filters(cast(EntityPlaces, None))
    except Refused:
        return None


def selected_by_bus(rule: str, payload: bytes) -> bool:
    try:
        truth = SqlFilter(rule).check.truth(Scope(RuleView(payload), NewIds(SEED)))
    except EvaluationError:
        return False
    return truth == TRUE


@pytest.mark.long
@settings(EVERY, max_examples=6)
@given(
    rules=st.lists(
        CONDITIONS.map(render_filter).filter(lambda rule: filters_of(rule, 0) is not None),
        min_size=8,
        max_size=8,
    ),
    sent=st.lists(st.tuples(SYSTEM, PROPERTIES), min_size=15, max_size=15),
)
def test_the_rule_of_a_pipeline_of_any_kind_selects_what_the_bus_would(
    spark: SparkSession, rules: list[str], sent: list[tuple[dict[int, Value], list[Property]]]
) -> None:
    """P5, P7: from the text in a definition to the rows that are read; or the query says that it
    cannot decide.
    """
    payloads = [message(system, properties) for system, properties in sent]
    rows = captured(spark, payloads)
    decided_count = 0
    for kind, rule in enumerate(rules):
        filters = filters_of(rule, kind)
        assert filters is not None, "the kinds read rules by the same code"
        try:
            found = chosen(rows, "", filters).select("sequence_number").collect()
        except PySparkException as error:
            assert "which Spark cannot do as the bus does" in str(error), rule
            continue
        wanted = [n for n, payload in enumerate(payloads) if selected_by_bus(rule, payload)]
        assert sorted(row[0] for row in found) == wanted, rule
        decided_count += 1
    assert decided_count, rules
