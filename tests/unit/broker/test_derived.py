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
from shardbus.broker.wire.fields import I64, LENGTH, FieldReader, FieldWriter, WireError
from shardbus.broker.wire.frames import PROTOCOL_VERSION, Frame
from shardbus.core import declared
from shardbus.core.declared import NUMBER, Declared, Form, fields, list_of, maybe
from shardbus.core.fragment.command import ClientCommand, Reply
from shardbus.core.messages.command import Delivery, Sent
from shardbus.core.stages.command import Producer
from shardbus.core.transfers.command import TakeOver
from tests.tidy.source import ROOT
from tests.unit.broker.wire_values import Facts, facts, records

LAYOUTS = {11: "21b8c5f57b54e15c"}
"""What the frames of each version of the protocol look like, as a digest."""

# Of each of many classes.
EXAMPLES = 8

BY_HAND: dict[type[object], Codec] = {**wire_commands.BY_HAND, **exchange.BY_HAND}
# The payload of a delivery stands in its entry, which no declaration can say.
DERIVED = Codecs({Delivery: BY_HAND[Delivery]})
COMPARED = [kind for kind in BY_HAND if kind is not Delivery]
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


def written(codec: Codec, value: object) -> bytes:
    writer = FieldWriter()
    codec.put(writer, value)
    return b"".join(writer.parts)


def taken(codec: Codec, data: bytes) -> Facts:
    reader = FieldReader(data)
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

    assert written(BY_HAND[kind], value) == written(DERIVED.of(kind), value)


@pytest.mark.parametrize("kind", COMPARED)
@given(data=st.data())
def test_codecs_by_hand_read_and_refuse_what_the_derived_ones_would(
    kind: type[object], data: st.DataObject
) -> None:
    damaged = bytearray(written(DERIVED.of(kind), data.draw(records(kind))))
    for _ in range(data.draw(st.integers(0, 3))):
        if damaged:
            damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(damaged[: data.draw(st.integers(0, len(damaged)))])

    assert taken(BY_HAND[kind], bytes(damaged)) == taken(DERIVED.of(kind), bytes(damaged))
    assert taken(BY_HAND[kind], cut) == taken(DERIVED.of(kind), cut)


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
    [made] = [
        node
        for defined in ast.parse(module.read_text("utf-8")).body
        if isinstance(defined, ast.ClassDef) and defined.name == kind.__name__
        for node in defined.body
        if isinstance(node, ast.FunctionDef) and node.name == "__init__"
    ]
    return {each.arg for each in [*made.args.args, *made.args.kwonlyargs]} - {"self"}


def test_fields_that_may_be_absent_are_not_in_lists() -> None:
    class Odd(Declared):
        FIELDS = fields(some=list_of(maybe(NUMBER)))

    with pytest.raises(AssertionError, match="only a field"):
        Codecs({}).of(Odd)


def test_messages_that_are_taken_over_with_a_number_too_few_are_refused() -> None:
    codec = DERIVED.of(TakeOver)
    whole = written(codec, TakeOver((1, 2, 3), [], [], [], 4))
    numbers = 4 * I64.size
    lying = whole[:numbers] + b"\0\0\0\1" + bytes(I64.size) + whole[numbers + LENGTH.size :]

    with pytest.raises(WireError, match="0 messages come with 1 transfer numbers"):
        codec.take(FieldReader(lying))


def test_the_version_is_raised_when_frames_look_different() -> None:
    tagged = [*get_args(ClientCommand), "answers", *get_args(Reply), "frames", *get_args(Frame)]
    layout = [each if isinstance(each, str) else each.__name__ for each in tagged]
    layout += [f"{kind.__name__}: {shown(kind.FIELDS)}" for kind in said()]
    digest = hashlib.sha256("\n".join(layout).encode()).hexdigest()[:16]

    assert LAYOUTS[PROTOCOL_VERSION] == digest, "raise PROTOCOL_VERSION, and record the digest here"


def shown(fields: dict[str, Form]) -> list[object]:
    return [
        (
            name,
            (form.kind, form.absent, form.top, form.words, form.record.__name__),
            [shown({"": part}) for part in form.parts],
        )
        for name, form in fields.items()
    ]
