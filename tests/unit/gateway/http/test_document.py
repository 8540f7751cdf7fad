"""Types as documents: what follows from one that is not seen through a single route."""

import json

import pytest
from msgspec import Struct
from msgspec.structs import fields

from shardbus.app.pipelines.definition import KINDS
from shardbus.core.errors import Refused
from shardbus.gateway.http.api.documents import error_document
from shardbus.gateway.http.api.groups import api_groups
from shardbus.gateway.http.api.messages.documents import NewMessage
from shardbus.gateway.http.api.messages.message import Message
from shardbus.gateway.http.document import KindReader, components, converted, example_of, write
from shardbus.message.sent import read_batch
from tests.unit.gateway.http.kept_backups import Kept as KeptBackups
from tests.unit.gateway.http.kept_pipelines import Kept
from tests.unit.gateway.http.web import Web


def test_every_body_reads_its_own_example(web: Web) -> None:
    groups = api_groups(
        web.bus, web.counts, read_batch=read_batch, pipelines=Kept(), backups=KeptBackups()
    )
    bodies = [row.body for group in groups for row in group.rows() if row.body is not None]
    shapes = [body for body in bodies if isinstance(body, type)]
    assert len(bodies) - len(shapes) == 1, "pipelines alone have several types"

    for shape in (*shapes, *KINDS.values()):
        [reference], schemas = components([shape])
        example = example_of(reference, schemas)
        assert isinstance(converted(example, shape, "the example"), Struct)


def test_a_message_may_be_sent_with_whatever_is_shown_of_it() -> None:
    shown = {field.encode_name for field in fields(Message)}

    assert shown == {field.encode_name for field in fields(NewMessage)}


def test_what_is_no_text_is_written_as_an_escape() -> None:
    """Names of files need not be text, and stand in errors."""
    document = json.loads(write(error_document("internal", "no file \udc80")))

    # wording: the very text that was told
    assert document["error"]["message"] == "no file \udc80"


NAMES = "backfill, capture, lifecycle, python, replay, sql, triage"


@pytest.mark.parametrize(
    ("document", "told"),
    [
        (b'{"kind": "sweep"}', f"kind of the body is 'sweep'; it must be one of {NAMES}."),
        (b'{"kind": 7}', f"kind of the body must be one of {NAMES}."),
        (b"{}", "The body has no member entity."),
        (b'{"kind": "replay", "entity": "q", "columns": {"body": 1}}', "columns.body of the body"),
    ],
)
def test_of_several_types_the_kind_is_read_first(document: bytes, told: str) -> None:
    with pytest.raises(Refused) as refused:
        KindReader(KINDS).read(document)

    assert refused.value.message.startswith(told)
