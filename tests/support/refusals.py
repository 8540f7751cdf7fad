"""A refusal is told by its kind; only where its words are a contract does a test quote them."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from shardbus.core.errors import ErrorKind, Refused


@contextmanager
def refusal_of(kind: ErrorKind) -> Iterator[pytest.ExceptionInfo[Refused]]:
    """The block must end in a refusal of this kind."""
    with pytest.raises(Refused) as caught:
        yield caught
    assert caught.value.kind is kind, f"{caught.value.kind.name}: {caught.value}"
