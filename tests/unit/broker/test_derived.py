"""What classes declare of their fields: that it is so, and that those written by hand agree."""

import ast
import hashlib
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardbus.broker.wire import codec as wire
from shardbus.broker.wire import commands as wire_commands
from shardbus.broker.wire import exchange
from shardbus.broker.wire.derived import Codec, Codecs
from shardbus.broker.wire.fields import I64, LENGTH, FieldReader, FieldWriter, TooNew, WireError
from shardbus.broker.wire.frames import PROTOCOL_VERSION, PROTOCOL_VERSION_MIN, Frame
from shardbus.core import declared
from shardbus.core.declared import (
    NUMBER,
    TEXT,
    Declared,
    Form,
    fields,
    list_of,
    maybe,
    since,
    unless,
)
from shardbus.core.fragment.command import ClientCommand, Reply
from shardbus.core.messages.command import Delivery, Sent
from shardbus.core.stages.command import Producer
from shardbus.core.transfers.command import TakeOver
from tests.tidy.source import ROOT
from tests.unit.broker.wire_values import Facts, facts, records

LAYOUTS = {11: "21b8c5f57b54e15c", 12: "116d9da88714e44d"}
"""What the frames of each version of the protocol look like, as a digest. A released one stays."""

# Of each of many classes.
EXAMPLES = 8

BY_HAND: dict[type[object], Codec] = {**wire_commands.BY_HAND, **exchange.BY_HAND}
# The payload of a delivery stands in its entry, which no declaration can say.
DERIVED = Codecs({Delivery: BY_HAND[Delivery]})
COMPARED = [kind for kind in BY_HAND if kind is not Delivery]
VERSIONS = st.integers(PROTOCOL_VERSION_MIN, PROTOCOL_VERSION)
# What never leaves a process.
PRIVATE = {Producer: {"noted_ms"}, Sent: {"apart"}}


def said() -> list[type[Declared]]:
    """Every class that is said between processes and declares its fields."""
    found: dict[type[Declared], None] = {}
    waiting = [*get_args(ClientCommand), *get_args(Reply), *get_args(Frame)]
    while waiting:
        kind = waiting.pop()
        if kind not in found and issubclass(kind, Declared):
            found[kind] = None
            waiting += [named for form in kind.FIELDS.values() for named in _named(form)]
    return sorted(found, key=lambda kind: kind.__name__)


def _named(form: Form) -> list[type[object]]:
    inner = [kind for part in form.parts for kind in _named(part)]
    return [*inner, form.record] if form.kind == declared.RECORD else inner


def written(codec: Codec, value: object, version: int = PROTOCOL_VERSION) -> bytes:
    """The fields; what is missing in this version, if the value has such a field."""
    writer = FieldWriter(version)
    try:
        codec.put(writer, value)
    except TooNew as error:
        return f"since {error.since}".encode()
    return b"".join(writer.parts)


def taken(codec: Codec, data: bytes, version: int = PROTOCOL_VERSION) -> Facts:
    reader = FieldReader(data, version)
    try:
        value = codec.take(reader)
    except WireError:
        return "an error"
    return facts(value), reader.position


@pytest.mark.parametrize("kind", said())
@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_what_is_declared_says_the_same_after_the_wire(
    kind: type[Declared], data: st.DataObject
) -> None:
    value = data.draw(records(kind))
    codec = Codecs(wire.BY_HAND | wire_commands.BY_HAND).of(kind)
    reader = FieldReader(written(codec, value))

    assert facts(codec.take(reader)) == facts(value)
    reader.end()


@pytest.mark.parametrize("kind", COMPARED)
@given(data=st.data())
def test_codecs_by_hand_write_what_the_derived_ones_would(
    kind: type[object], data: st.DataObject
) -> None:
    value = data.draw(records(kind))
    version = data.draw(VERSIONS)

    found = written(BY_HAND[kind], value, version)
    assert found == written(DERIVED.of(kind), value, version)


@pytest.mark.parametrize("kind", COMPARED)
@given(data=st.data())
def test_codecs_by_hand_read_and_refuse_what_the_derived_ones_would(
    kind: type[object], data: st.DataObject
) -> None:
    damaged = bytearray(written(DERIVED.of(kind), data.draw(records(kind))))
    for _ in range(data.draw(st.integers(0, 3))):
        if damaged:
            damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    whole, cut = bytes(damaged), bytes(damaged[: data.draw(st.integers(0, len(damaged)))])
    version = data.draw(VERSIONS)

    for found in (whole, cut):
        by_hand = taken(BY_HAND[kind], found, version)
        assert by_hand == taken(DERIVED.of(kind), found, version)


@pytest.mark.parametrize("kind", said())
@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_any_bytes_are_what_is_declared_or_a_clean_error(
    kind: type[Declared], data: st.DataObject
) -> None:
    codec = DERIVED.of(kind)
    found = data.draw(st.binary(max_size=200))

    try:
        value = codec.take(FieldReader(found))
    except WireError:
        return
    assert facts(codec.take(FieldReader(written(codec, value)))) == facts(value)


@given(st.integers(1, 2**32 - 1), st.data())
def test_no_count_is_believed_beyond_the_bytes_that_are_there(
    count: int, data: st.DataObject
) -> None:
    kind = data.draw(st.sampled_from([kind for kind in said() if _begins_with_list(kind)]))
    few = data.draw(st.binary(max_size=min(count - 1, 20)))

    with pytest.raises(WireError):
        DERIVED.of(kind).take(FieldReader(count.to_bytes(4, "big") + few))


def _begins_with_list(kind: type[Declared]) -> bool:
    forms = list(kind.FIELDS.values())
    is_optional = any(form.kind == declared.OPTIONAL for form in forms)
    return bool(forms) and not is_optional and forms[0].kind == declared.LIST


@pytest.mark.parametrize("kind", said())
def test_what_is_declared_is_what_the_constructor_takes(kind: type[Declared]) -> None:
    # Of what types they are a compiled constructor checks itself, when it is given such values.
    named = parameters_of(kind) if kind.FIELDS else set()

    assert kind.FIELDS.keys() == named - PRIVATE.get(kind, set())


def parameters_of(kind: type[Declared]) -> set[str]:
    """By its source: a compiled class does not tell those that have defaults."""
    module = Path(ROOT, "src", *kind.__module__.split(".")).with_suffix(".py")
    made = [
        node
        for defined in ast.parse(module.read_text("utf-8")).body
        if isinstance(defined, ast.ClassDef)
        and defined.name in {one.__name__ for one in kind.__mro__}
        for node in defined.body
        if isinstance(node, ast.FunctionDef) and node.name == "__init__"
    ][-1]
    return {each.arg for each in [*made.args.args, *made.args.kwonlyargs]} - {"self"}


def test_fields_that_may_be_absent_are_not_in_lists() -> None:
    class Odd(Declared):
        FIELDS = fields(some=list_of(maybe(NUMBER)))

    with pytest.raises(AssertionError, match="only a field"):
        Codecs({}).of(Odd)


def test_a_field_of_a_later_version_stands_behind_those_of_earlier_ones() -> None:
    class Odd(Declared):
        FIELDS = fields(new=since(12, maybe(NUMBER)), old=maybe(NUMBER))

    with pytest.raises(AssertionError):
        Codecs({}).of(Odd)


class Grown:
    # No `Declared`: a class of a test cannot be made of a compiled one.
    FIELDS = fields(
        number=NUMBER,
        name=since(12, unless("", TEXT)),
        note=since(13, unless("", TEXT), is_dispensable=True),
    )

    def __init__(self, number: int, name: str = "", note: str = "") -> None:
        self.number = number
        self.name = name
        self.note = note


@given(st.integers(11, 14), st.integers(0, 9), st.sampled_from(["", "a"]), st.text(max_size=3))
def test_a_record_that_grew_is_said_as_its_reader_knows_it(
    version: int, number: int, name: str, note: str
) -> None:
    """R42: to an older one without a byte of what is new; never with a part of what is needed."""
    codec = Codecs({}).of(Grown, Grown.FIELDS)
    found = written(codec, Grown(number, name, note), version)

    if name and version < 12:
        assert found == b"since 12"
        return
    assert version >= 12 or len(found) == I64.size
    reader = FieldReader(found, version)
    value = codec.take(reader)
    reader.end()
    expected = (number, name, note if version >= 13 else "")
    assert isinstance(value, Grown) and (value.number, value.name, value.note) == expected


def test_messages_that_are_taken_over_with_a_number_too_few_are_refused() -> None:
    codec = DERIVED.of(TakeOver)
    whole = written(codec, TakeOver((1, 2, 3), [], [], [], 4))
    numbers = 4 * I64.size
    lying = whole[:numbers] + b"\0\0\0\1" + bytes(I64.size) + whole[numbers + LENGTH.size :]

    with pytest.raises(WireError, match="0 messages come with 1 transfer numbers"):
        codec.take(FieldReader(lying))


@pytest.mark.parametrize("version", range(PROTOCOL_VERSION_MIN, PROTOCOL_VERSION + 1))
def test_frames_of_a_released_version_do_not_change(version: int) -> None:
    """R42: what is new is of the version that is not released yet, whose digest may change."""
    digest = hashlib.sha256("\n".join(layout_in(version)).encode()).hexdigest()[:16]

    advice = "give what is new `since` or SINCE of PROTOCOL_VERSION, and record the digest of that"
    assert LAYOUTS[version] == digest, advice


def layout_in(version: int) -> list[str]:
    """What a version of the protocol can say."""
    tagged = [*get_args(ClientCommand), "answers", *get_args(Reply), "frames", *get_args(Frame)]
    known = [each for each in tagged if isinstance(each, str) or _since(each) <= version]
    layout = [each if isinstance(each, str) else each.__name__ for each in known]
    for kind in said():
        if _since(kind) <= version:
            forms = {name: form for name, form in kind.FIELDS.items() if form.since <= version}
            layout.append(f"{kind.__name__}: {shown(forms)}")
    return layout


def _since(kind: type[object]) -> int:
    return kind.SINCE if issubclass(kind, Declared) else 0


def shown(fields: dict[str, Form]) -> list[object]:
    return [
        (
            name,
            (form.kind, form.absent, form.top, form.words, form.record.__name__),
            [shown({"": part}) for part in form.parts],
        )
        for name, form in fields.items()
    ]
