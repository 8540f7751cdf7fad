"""Codecs that are derived from the declared fields of classes (see `core.declared`).

A record with optional fields or flags begins with a byte that has a bit for each of those, the
first field the lowest; absent fields are not written. All other fields are written one after the
other, and a list after its length. A field that a later version added has no bit on a connection
with an earlier version; a record without any other optional field has no such byte there.
"""
# Compiled by mypyc.

from __future__ import annotations

from typing import Final, Generic, Protocol, TypeVar, cast, final

from shardbus.broker.wire.fields import (
    I64,
    LENGTH,
    U16,
    FieldReader,
    FieldWriter,
    TooNew,
    WireError,
)
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
    Declared,
    Form,
)
from shardbus.core.runs import Runs, unpack_runs

_OPTIONAL_MAX: Final = 8


class Codec:
    """Writes and reads values of one form; none takes less than `size_min` bytes."""

    def __init__(self, size_min: int = 0) -> None:
        self.size_min = size_min

    def put(self, writer: FieldWriter, value: object) -> None:
        raise NotImplementedError

    def take(self, reader: FieldReader) -> object:
        raise NotImplementedError


@final
class _Simple(Codec):
    """Integers, texts and bytes."""

    def __init__(self, form: Form) -> None:
        sizes = {SMALL: 1, TWO_BYTES: U16.size, INTEGER: I64.size, FIXED: form.top}
        super().__init__(sizes.get(form.kind, LENGTH.size))
        self._kind = form.kind
        self._top = form.top
        self._noun = form.noun

    def put(self, writer: FieldWriter, value: object) -> None:
        kind = self._kind
        if isinstance(value, int):
            if kind == INTEGER:
                writer.i64(value)
            elif kind == LONG:
                writer.count(value)
            elif kind == TWO_BYTES:
                writer.u16(value)
            else:
                writer.u8(value)
        elif isinstance(value, bytes):
            if kind == FIXED:
                writer.fixed(value, self._top)
            else:
                writer.data(value)
        else:
            assert isinstance(value, str)
            writer.text(value)

    def take(self, reader: FieldReader) -> object:
        kind = self._kind
        if kind == INTEGER:
            return reader.i64()
        if kind == BYTES:
            return reader.data()
        if kind == STRING:
            return reader.text()
        if kind == LONG:
            return reader.u32()
        if kind == FIXED:
            return reader.fixed(self._top)
        return reader.u16() if kind == TWO_BYTES else reader.small(self._top, self._noun)


@final
class _Word(Codec):
    """One of the given words, as its index."""

    def __init__(self, words: tuple[str, ...], noun: str) -> None:
        super().__init__(1)
        self._words = words
        self._noun = noun

    def put(self, writer: FieldWriter, value: object) -> None:
        assert isinstance(value, str)
        writer.u8(self._words.index(value))

    def take(self, reader: FieldReader) -> object:
        return self._words[reader.small(len(self._words) - 1, self._noun)]


@final
class _Flags(Codec):
    """A list of booleans, a byte each."""

    def __init__(self) -> None:
        super().__init__(LENGTH.size)

    def put(self, writer: FieldWriter, value: object) -> None:
        assert isinstance(value, list)
        writer.data(bytes(value))

    def take(self, reader: FieldReader) -> object:
        return reader.flags()


@final
class _Runs(Codec):
    def __init__(self) -> None:
        super().__init__(LENGTH.size)

    def put(self, writer: FieldWriter, value: object) -> None:
        assert isinstance(value, Runs)
        writer.data(value.pack())

    def take(self, reader: FieldReader) -> object:
        packed = reader.data()
        try:
            return unpack_runs(packed)
        except ValueError as error:
            raise WireError(str(error)) from error


@final
class _List(Codec):
    def __init__(self, codec: Codec) -> None:
        super().__init__(LENGTH.size)
        self._codec = codec
        self._each_min = max(codec.size_min, 1)

    def put(self, writer: FieldWriter, value: object) -> None:
        assert isinstance(value, list)
        writer.count(len(value))
        for each in value:
            self._codec.put(writer, each)

    def take(self, reader: FieldReader) -> object:
        codec = self._codec
        return [codec.take(reader) for _ in range(reader.count(self._each_min))]


@final
class _Keyed(Codec):
    """A dictionary with integer keys."""

    def __init__(self, codec: Codec) -> None:
        super().__init__(LENGTH.size)
        self._codec = codec

    def put(self, writer: FieldWriter, value: object) -> None:
        assert isinstance(value, dict)
        writer.count(len(value))
        for number, each in value.items():
            writer.i64(number)
            self._codec.put(writer, each)

    def take(self, reader: FieldReader) -> object:
        count = reader.count(I64.size + self._codec.size_min)
        found: dict[int, object] = {}
        for _ in range(count):
            number = reader.i64()
            found[number] = self._codec.take(reader)
        return found


@final
class _Tuple(Codec):
    def __init__(self, codecs: list[Codec]) -> None:
        super().__init__(sum(codec.size_min for codec in codecs))
        self._codecs = codecs

    def put(self, writer: FieldWriter, value: object) -> None:
        assert isinstance(value, tuple)
        for codec, each in zip(self._codecs, value, strict=True):
            codec.put(writer, each)

    def take(self, reader: FieldReader) -> object:
        return tuple([codec.take(reader) for codec in self._codecs])


@final
class _Field:
    """`bit` is 0 for a field that is always written; a flag is only its bit."""

    def __init__(self, name: str, bit: int, form: Form, codec: Codec | None) -> None:
        self.name = name
        self.bit = bit
        self.absent = form.absent
        self.since = form.since
        self.is_dispensable = form.is_dispensable
        self.codec = codec


class _Make(Protocol):
    """A class whose constructor takes the fields by keyword."""

    def __call__(self, **held: object) -> object: ...


@final
class _Record(Codec):
    def __init__(self, of: type[object]) -> None:
        super().__init__()
        self._make = cast("_Make", of)
        self._noun = of.__name__
        self._fields: list[_Field] = []
        self._bits = 0
        self._since = 0

    def add(self, name: str, form: Form, codec: Codec | None) -> None:
        """Add a field; a flag has no codec."""
        bit = 0
        if form.kind == OPTIONAL:
            assert form.since >= self._since, f"{self._noun}.{name} stands before older fields"
            self._since = form.since
            bit = self._bits + 1
            self._bits = self._bits << 1 | 1
            assert self._bits < 1 << _OPTIONAL_MAX, f"{self._noun} has too many optional fields"
            if bit == 1 and not form.since:
                self.size_min += 1
        elif codec is not None:
            self.size_min += codec.size_min
        self._fields.append(_Field(name, bit, form, codec))

    def put(self, writer: FieldWriter, value: object) -> None:
        flags = 0
        bits = self._bits_in(writer.version)
        at = writer.reserve() if bits else 0
        for field in self._fields:
            held: object = getattr(value, field.name)
            if field.bit:
                if held == field.absent:
                    continue
                if field.since > writer.version:
                    if field.is_dispensable:
                        continue
                    raise TooNew(f"{self._noun} with {field.name}", field.since)
                flags |= field.bit
            if field.codec is not None:
                field.codec.put(writer, held)
        if bits:
            writer.parts[at] = flags.to_bytes(1, "big")

    def take(self, reader: FieldReader) -> object:
        bits = self._bits_in(reader.version)
        flags = reader.bits(bits, self._noun) if bits else 0
        held: dict[str, object] = {}
        for field in self._fields:
            if field.bit and not flags & field.bit:
                held[field.name] = field.absent
            else:
                held[field.name] = True if field.codec is None else field.codec.take(reader)
        try:
            return self._make(**held)
        except ValueError as error:
            raise WireError(str(error)) from error

    def _bits_in(self, version: int) -> int:
        """The bits of the optional fields that a version has."""
        if version >= self._since:
            return self._bits
        bits = 0
        for field in self._fields:
            if field.since <= version:
                bits |= field.bit
        return bits


@final
class Codecs:
    """The codecs of classes: hand-written ones, and derived ones for all others."""

    def __init__(self, by_hand: dict[type[object], Codec]) -> None:
        self._of = dict(by_hand)

    def of(self, kind: type[object], known: dict[str, Form] | None = None) -> Codec:
        codec = self._of.get(kind)
        if codec is not None:
            return codec
        if known is None:
            assert issubclass(kind, Declared), f"{kind.__name__} declares no fields"
            known = kind.FIELDS
        made = _Record(kind)
        for name, form in known.items():
            if form.kind != OPTIONAL:
                made.add(name, form, self._form(form))
            else:
                made.add(name, form, self._form(form.parts[0]) if form.parts else None)
        self._of[kind] = made
        return made

    def _form(self, form: Form) -> Codec:
        kind = form.kind
        assert kind != OPTIONAL, "only a field may be absent"
        if kind == LIST:
            return _List(self._form(form.parts[0]))
        if kind == KEYED:
            return _Keyed(self._form(form.parts[0]))
        if kind == TUPLE:
            return _Tuple([self._form(part) for part in form.parts])
        if kind == RECORD:
            return self.of(form.record, form.fields)
        if kind == PACKED_FLAGS:
            return _Flags()
        if kind == PACKED_RUNS:
            return _Runs()
        return _Word(form.words, form.noun) if form.words else _Simple(form)


Kind = TypeVar("Kind")


@final
class Tagged(Generic[Kind]):
    """A value of one of several classes, with a byte for its class: the index, from 1.

    `noun` is the word for such a value in errors.
    """

    def __init__(self, noun: str, kinds: tuple[type[object], ...], codecs: Codecs) -> None:
        self._noun = noun
        self._codecs = [codecs.of(kind) for kind in kinds]
        self._since = [kind.SINCE if issubclass(kind, Declared) else 0 for kind in kinds]
        self.tags: dict[type[object], int] = {
            kind: place for place, kind in enumerate(kinds, start=1)
        }

    def put(self, writer: FieldWriter, value: Kind) -> int:
        """Write the fields; returns the tag."""
        tag = self.tags[type(value)]
        if self._since[tag - 1] > writer.version:
            raise TooNew(type(value).__name__, self._since[tag - 1])
        self._codecs[tag - 1].put(writer, value)
        return tag

    def take(self, tag: int, reader: FieldReader) -> Kind:
        if not 0 < tag <= len(self._codecs) or self._since[tag - 1] > reader.version:
            raise WireError(f"there is no {self._noun} {tag}")
        return cast("Kind", self._codecs[tag - 1].take(reader))
