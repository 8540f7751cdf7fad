"""Everything that brokers and gateways say as Hypothesis strategies, and what a value says."""

from typing import get_args

from hypothesis import strategies as st

from shardbus.broker.wire.frames import Answered, Frame, Request
from shardbus.core.declared import (
    BYTES,
    FIXED,
    INTEGER,
    KEYED,
    LIST,
    LONG,
    OPTIONAL,
    PACKED_FLAGS,
    PACKED_RUNS,
    RECORD,
    SMALL,
    STRING,
    TUPLE,
    TWO_BYTES,
    WORD,
    Declared,
    Form,
)
from shardbus.core.errors import ALL_KINDS, Refused, Unavailable
from shardbus.core.fragment.command import ClientCommand, Reply
from shardbus.core.message import Entry, Message
from shardbus.core.messages.command import Delivery
from shardbus.core.runs import Runs, runs_of
from shardbus.core.transfers.command import TakeOver
from shardbus.stores.base.store import FragmentId

Facts = object | tuple[object, ...]
Values = st.SearchStrategy[object]

_ids = st.integers(0, 2**63 - 1)
_u32 = st.integers(0, 2**32 - 1)
_texts = st.text(st.characters(codec=None), max_size=20)
_bytes = st.binary(max_size=40)
_SIMPLE: dict[int, Values] = {
    TWO_BYTES: st.integers(0, 2**16 - 1),
    LONG: _u32,
    INTEGER: st.integers(-(2**63), 2**63 - 1),
    STRING: _texts,
    BYTES: _bytes,
    PACKED_FLAGS: st.lists(st.booleans(), max_size=5),
    PACKED_RUNS: st.sets(_ids.filter(bool), max_size=5).map(lambda some: runs_of(sorted(some))),
}


def values_of(form: Form) -> Values:
    """Values of a declared form."""
    kind, parts = form.kind, form.parts
    if kind == OPTIONAL:
        return st.just(form.absent) | (values_of(parts[0]) if parts else st.just(True))
    if kind == SMALL:
        return st.integers(0, form.top)
    if kind == FIXED:
        return st.binary(min_size=form.top, max_size=form.top)
    if kind == WORD:
        return st.sampled_from(form.words)
    if kind == LIST:
        return st.lists(values_of(parts[0]), max_size=3)
    if kind == KEYED:
        return st.dictionaries(_SIMPLE[INTEGER], values_of(parts[0]), max_size=3)
    if kind == TUPLE:
        return st.tuples(*[values_of(part) for part in parts])
    if kind == RECORD:
        return records(form.record, form.fields)
    return _SIMPLE[kind]


def records(kind: type[object], known: dict[str, Form] | None = None) -> Values:
    """Objects of a class with such fields as it declares, or are known of it."""
    if kind is Delivery:
        return _deliveries()
    if kind is Request:
        return st.builds(Request, _ids, _fragments, any_of(get_args(ClientCommand)))
    if kind is Answered:
        replies = any_of(get_args(Reply))
        return _failed() | st.builds(Answered, _ids, replies, st.booleans())
    if kind is TakeOver:
        return _take_overs()
    if known is None:
        assert issubclass(kind, Declared)
        known = kind.FIELDS
    return st.builds(kind, **_named(known))


def any_of(kinds: tuple[type[object], ...]) -> Values:
    return st.sampled_from(kinds).flatmap(records)


def _named(fields: dict[str, Form]) -> dict[str, Values]:
    return {name: values_of(form) for name, form in fields.items()}


@st.composite
def _take_overs(draw: st.DrawFn) -> TakeOver:
    """With as many numbers as messages."""
    messages = draw(st.lists(st.builds(Message, **_named(Message.FIELDS)), max_size=3))
    numbers = draw(st.lists(_ids, min_size=len(messages), max_size=len(messages)))
    source = draw(_ids), draw(_ids), draw(_ids)
    return TakeOver(source, messages, numbers, draw(st.lists(_ids, max_size=3)), draw(_ids))


@st.composite
def _deliveries(draw: st.DrawFn) -> Delivery:
    entry = draw(records(Entry))
    assert isinstance(entry, Entry)
    return Delivery(entry, entry.payload, draw(_u32), draw(_bytes), draw(_ids))


@st.composite
def _failed(draw: st.DrawFn) -> Answered:
    # Made here and not by `builds`, which keeps weak references: exceptions that mypyc compiled do
    # not tell those when they go, and the collector then walks freed memory.
    text, is_last = draw(_texts), draw(st.booleans())
    if draw(st.booleans()):
        return Answered(draw(_ids), Refused(draw(st.sampled_from(ALL_KINDS)), text), is_last)
    return Answered(draw(_ids), Unavailable(text, draw(st.booleans())), is_last)


_fragments = st.builds(FragmentId, _ids, st.integers(0, 2**16 - 1))
frames: st.SearchStrategy[Frame] = any_of(get_args(Frame))  # type: ignore[assignment]  # those are


def facts(value: object) -> Facts:
    """All that a value says, comparable: compiled classes have no `__eq__` and no `__dict__`."""
    if value is None or isinstance(value, bytes | str | int):
        return value
    if isinstance(value, Runs):
        return tuple(value.pairs())
    if isinstance(value, list | tuple):
        return tuple(facts(item) for item in value)
    if isinstance(value, dict):
        return tuple((name, facts(item)) for name, item in value.items())
    names = [name for name in dir(value) if name[0] != "_" and not name.isupper()]
    told = [(name, getattr(value, name)) for name in names]
    said = tuple((name, facts(item)) for name, item in told if not callable(item))
    return type(value).__name__, said
