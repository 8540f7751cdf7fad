"""How commands, replies and frames declare their fields; what writes them as bytes reads this.

A class has its fields in `FIELDS`, by the names of its attributes, which are also the names of the
parameters of its constructor. They are written in that order. A constructor raises ValueError when
its arguments do not fit each other.
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
FAMILIES: Final = 8


@final
class Form:
    """What values a field has, and so how they are written.

    An OPTIONAL one is not written when the value is `absent`. Of the values up to `top` a SMALL one
    says `noun` when it has none of them.
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
    ) -> None:
        self.kind = kind
        self.parts = parts
        self.absent = absent
        self.top = top
        self.noun = noun
        self.words = words
        self.record = record
        self.fields = fields


class Declared:
    """Something that says what fields it has."""

    FIELDS: ClassVar[dict[str, Form]] = {}


class Asked(Declared):
    """A command. Its family decides it."""

    FAMILY: ClassVar[int] = OF_RUNNER


def fields(**forms: Form) -> dict[str, Form]:
    return forms


def small(top: int, noun: str) -> Form:
    """A number from 0 to `top`, at most 255."""
    return Form(SMALL, top=top, noun=noun)


def fixed(size: int) -> Form:
    """So many bytes."""
    return Form(FIXED, top=size)


def word(words: tuple[str, ...], noun: str) -> Form:
    """One of some words."""
    return Form(WORD, words=words, noun=noun)


def maybe(form: Form) -> Form:
    """A value or None."""
    return unless(None, form)


def unless(absent: object, form: Form) -> Form:
    """A value that is usually this one."""
    return Form(OPTIONAL, parts=(form,), absent=absent)


def list_of(form: Form) -> Form:
    return Form(LIST, parts=(form,))


def tuple_of(*forms: Form) -> Form:
    return Form(TUPLE, parts=forms)


def keyed(form: Form) -> Form:
    """A dictionary by numbers."""
    return Form(KEYED, parts=(form,))


def record(of: type[object], known: dict[str, Form] | None = None) -> Form:
    """Something with fields: those that its class declares, or that are known of it."""
    return Form(RECORD, record=of, fields=known)


FLAG: Final = Form(OPTIONAL, absent=False)
SHORT: Final = Form(TWO_BYTES)
COUNT: Final = Form(LONG)
NUMBER: Final = Form(INTEGER)
TEXT: Final = Form(STRING)
DATA: Final = Form(BYTES)
FLAGS: Final = Form(PACKED_FLAGS)
"""A list of true and false."""
RUNS: Final = Form(PACKED_RUNS)
NUMBERS: Final = list_of(NUMBER)
NAMES: Final = list_of(DATA)
