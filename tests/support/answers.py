"""A refusal as the SDK for administration tells it: by its status, and by what it names."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from azure.core.exceptions import HttpResponseError

from tests.support.refusals import check_named


@contextmanager
def refused_with(status: int, *named: str) -> Iterator[pytest.ExceptionInfo[HttpResponseError]]:
    """The block must end in an answer with this status, whose text names these."""
    with pytest.raises(HttpResponseError) as caught:
        yield caught
    assert caught.value.status_code == status, str(caught.value)
    check_named(str(caught.value), *named)
