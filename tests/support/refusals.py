"""A failure is told by its kind, and by what it names; only where its words are a contract, because
clients read them, does a test quote them.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from shardbus.core.errors import ErrorKind, Refused, Unavailable


@contextmanager
def refusal_of(kind: ErrorKind, *named: str) -> Iterator[pytest.ExceptionInfo[Refused]]:
    """The block must end in a refusal of this kind, whose text names these."""
    with pytest.raises(Refused) as caught:
        yield caught
    assert caught.value.kind is kind, f"{caught.value.kind.name}: {caught.value}"
    check_named(str(caught.value), *named)


@contextmanager
def unavailability(
    *named: str, is_unknown: bool = False
) -> Iterator[pytest.ExceptionInfo[Unavailable]]:
    """The block must end with something unreachable whose text names these; `is_unknown` when it
    may have been done all the same.
    """
    with pytest.raises(Unavailable) as caught:
        yield caught
    assert caught.value.is_unknown is is_unknown, str(caught.value)
    check_named(str(caught.value), *named)


def check_named(text: str, *named: str) -> None:
    """The text of a failure must name all of these: an entity, a property, a value."""
    for name in named:
        assert name in text, f"{name} is not named in: {text}"
