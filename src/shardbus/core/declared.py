"""How commands, replies and frames declare their fields; the wire encoder is derived from this.

A class lists its fields in `FIELDS` under the names of its attributes. The constructor takes
parameters of the same names. Fields are written in the order of `FIELDS`. A constructor raises
ValueError when its arguments contradict each other.
"""

from __future__ import annotations

from typing import ClassVar, Final, final

OPTIONAL: Final = 0
SMALL: Final = 1
TWO_BYTES: Final = 2
LONG: Final = 3
INTEGER: Final = 4
STRING: Final = 5
BYTES: Final = 6
FIXED: Final = 7
WORD: Final = 8
PACKED_FLAGS: Final = 9
PACKED_RUNS: Final = 10
LIST: Final = 11
KEYED: Final = 12
TUPLE: Final = 13
RECORD: Final = 14

OF_MESSAGES: Final = 0
OF_SESSIONS: Final = 1
OF_TRANSACTIONS: Final = 2
OF_TRANSFERS: Final = 3
OF_TICKETS: Final = 4
OF_READERS: Final = 5
OF_STAGES: Final = 6
OF_RUNNER: Final = 7
OF_LIFECYCLE: Final = 8
OF_SEALING: Final = 9
FAMILIES: Final = 10


@final
class Form:
    """The values that a field can have, which decides how they are written.

    An OPTIONAL field is not written when its value is `absent`. A SMALL field holds a number up to
    `top`; the error for a larger one calls the field `noun`. A field is written only to processes
    that speak version `since` of the protocol. To older ones a value other than `absent` cannot be
    sent, unless the field `is_dispensable`: it is left out then.
    """

    def __init__(  # noqa: PLR0913 - a record, all but the first by keyword
        self,
        kind: int,
        *,
        parts: tuple[Form, ...] = (),
        absent: object = None,
        top: int = 0,
        noun: str = "",
        words: tuple[str, ...] = (),
        record: type[object] = object,
        fields: dict[str, Form] | None = None,
        since: int = 0,
        is_dispensable: bool = False,
    ) -> None:
        self.kind = kind
        self.parts = parts
        self.absent = absent
        self.top = top
        self.noun = noun
        self.words = words
        self.record = record
        self.fields = fields
        self.since = since
        self.is_dispensable = is_dispensable


class Declared:
    """A class that declares its fields; `SINCE` is the first version of the protocol with it."""

    FIELDS: ClassVar[dict[str, Form]] = {}
    SINCE: ClassVar[int] = 0


class Asked(Declared):
    """A command. The handler of its family decides it."""

    FAMILY: ClassVar[int] = OF_RUNNER


def fields(**forms: Form) -> dict[str, Form]:
    return forms


def small(top: int, noun: str) -> Form:
    """A number from 0 to `top`, at most 255."""
    return Form(SMALL, top=top, noun=noun)


def fixed(size: int) -> Form:
    """Exactly `size` bytes."""
    return Form(FIXED, top=size)


def word(words: tuple[str, ...], noun: str) -> Form:
    """One of the given words."""
    return Form(WORD, words=words, noun=noun)


def maybe(form: Form) -> Form:
    """A value or None."""
    return unless(None, form)


def unless(absent: object, form: Form) -> Form:
    """A value that is usually `absent`, and then is not written."""
    return Form(OPTIONAL, parts=(form,), absent=absent)


def since(version: int, form: Form, *, is_dispensable: bool = False) -> Form:
    """An optional field that this version of the protocol added.

    It stands after all optional fields of earlier versions. `is_dispensable`: older processes may
    do without it.
    """
    assert form.kind == OPTIONAL, "only an optional field can be added to a class"
    return Form(
        OPTIONAL,
        parts=form.parts,
        absent=form.absent,
        since=version,
        is_dispensable=is_dispensable,
    )


def list_of(form: Form) -> Form:
    return Form(LIST, parts=(form,))


def tuple_of(*forms: Form) -> Form:
    return Form(TUPLE, parts=forms)


def keyed(form: Form) -> Form:
    """A dictionary with integer keys."""
    return Form(KEYED, parts=(form,))


def record(of: type[object], known: dict[str, Form] | None = None) -> Form:
    """A nested object: its fields are those that its class declares, or those in `known`."""
    return Form(RECORD, record=of, fields=known)


FLAG: Final = Form(OPTIONAL, absent=False)
SHORT: Final = Form(TWO_BYTES)
COUNT: Final = Form(LONG)
NUMBER: Final = Form(INTEGER)
TEXT: Final = Form(STRING)
DATA: Final = Form(BYTES)
FLAGS: Final = Form(PACKED_FLAGS)
"""A list of booleans."""
RUNS: Final = Form(PACKED_RUNS)
NUMBERS: Final = list_of(NUMBER)
NAMES: Final = list_of(DATA)
