"""A gateway for every test that asks for one, torn down after it."""

from collections.abc import Iterator

import pytest

from tests.unit.gateway.http.messages_web import MessagesWeb
from tests.unit.gateway.http.web import Web


@pytest.fixture
def web() -> Iterator[Web]:
    web = Web()
    yield web
    web.close()


@pytest.fixture
def api() -> Iterator[MessagesWeb]:
    web = MessagesWeb()
    yield web
    web.close()
