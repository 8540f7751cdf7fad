"""The ATOM documents: what the command line writes is what the SDK reads, and the reverse."""

from xml.etree import ElementTree

import pytest

from shardbus.app.cli.entities.atom import (
    QUEUE,
    AtomError,
    read_entities,
    read_entity,
    read_error,
    write_entity,
)
from shardbus.gateway.http.atom.element_reader import CONNECT
from shardbus.gateway.http.atom.entries import ATOM

ENTRY = """<entry xmlns="http://www.w3.org/2005/Atom"><id>https://bus/q1</id>
<title type="text">q1</title>{extension}<content type="application/xml">
<QueueDescription xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
  xmlns:i="http://www.w3.org/2001/XMLSchema-instance"><LockDuration>PT1M</LockDuration>
<MaxSizeInMegabytes>16384</MaxSizeInMegabytes><SizeInBytes>77</SizeInBytes>
<MessageCount>3</MessageCount><AuthorizationRules/>
<CountDetails xmlns:d2p1="http://schemas.microsoft.com/netservices/2011/06/servicebus">
<d2p1:ActiveMessageCount>2</d2p1:ActiveMessageCount>
<d2p1:DeadLetterMessageCount>1</d2p1:DeadLetterMessageCount></CountDetails>
<EnablePartitioning>{partitioned}</EnablePartitioning></QueueDescription></content></entry>"""
FRAGMENTS = (
    '<FragmentCount xmlns="urn:shardbus">16</FragmentCount>'
    '<SetAsideMessageCount xmlns="urn:shardbus">5</SetAsideMessageCount>'
)


def entry(*, partitioned: str = "true", extension: str = FRAGMENTS) -> str:
    return ENTRY.format(partitioned=partitioned, extension=extension)


def test_an_entry_tells_sizes_counts_and_fragments() -> None:
    """R9, R29"""
    queue = read_entity(QUEUE, entry().encode())

    assert queue is not None
    assert (queue.name, queue.is_partitioned, queue.fragment_count) == ("q1", True, 16)
    assert (queue.size_max_mb, queue.size_bytes, queue.message_count) == (16384, 77, 3)
    assert queue.counts == {
        "active": 2,
        "dead_letter": 1,
        "scheduled": 0,
        "transfer": 0,
        "transfer_dead_letter": 0,
        "set_aside": 5,
    }
    assert queue.elements["LockDuration"] == "PT1M"


@pytest.mark.parametrize(("partitioned", "count"), [("false", 1), ("true", None)])
def test_a_bus_that_does_not_tell_its_fragments_is_not_guessed_at(
    partitioned: str, count: int | None
) -> None:
    queue = read_entity(QUEUE, entry(partitioned=partitioned, extension="").encode())

    assert queue is not None
    assert queue.fragment_count == count


def test_a_feed_gives_its_queues_in_order_and_passes_over_other_entities() -> None:
    topic = f'<entry xmlns="{ATOM}"><title>t</title><content/></entry>'
    feed = f'<feed xmlns="{ATOM}"><title>Queues</title>{entry()}{topic}{entry()}</feed>'

    assert [queue.name for queue in read_entities(QUEUE, feed.encode())] == ["q1", "q1"]
    assert read_entity(QUEUE, feed.encode()) is None


def test_written_elements_come_in_the_order_of_the_dialect() -> None:
    document = write_entity(QUEUE, {"EnablePartitioning": "true", "LockDuration": "PT30S"})

    description = ElementTree.fromstring(document)[0][0]
    assert description.tag == f"{{{CONNECT}}}QueueDescription"
    assert [(child.tag.rpartition("}")[2], child.text) for child in description] == [
        ("LockDuration", "PT30S"),
        ("EnablePartitioning", "true"),
    ]


def test_an_error_document_gives_its_detail_and_anything_else_gives_none() -> None:
    assert read_error(b"<Error><Code>409</Code><Detail>SubCode=40900.</Detail></Error>") == (
        "SubCode=40900."
    )
    assert read_error(b"<html/>") == ""
    assert read_error(b"not xml") == ""
    assert read_error(b'{"error": {"code": "not-found", "message": "No such queue."}}') == (
        "No such queue."
    )
    assert read_error(b'{"error": "no object"}') == read_error(b"{") == ""


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"<entry",
        b'<!DOCTYPE x [<!ENTITY a "b">]><entry/>',
        '<!DOCTYPE x [<!ENTITY a "b">]><entry/>'.encode("utf-16"),
        b"<a>" * 40 + b"</a>" * 40,
        entry().replace("16384", "much").encode(),
        entry().replace("16384", "9" * 5000).encode(),
    ],
)
def test_a_document_that_is_no_answer_is_told_and_not_guessed_at(document: bytes) -> None:
    with pytest.raises(AtomError):
        read_entity(QUEUE, document)


def test_a_text_that_spells_a_document_type_is_a_text() -> None:
    """ADR 0006: looking for it in the bytes would refuse it here, and miss it in UTF-16."""
    detail = b"<Error><Detail><![CDATA[no queue <!DOCTYPE]]></Detail></Error>"

    assert read_error(detail) == "no queue <!DOCTYPE"


def test_a_page_of_a_hundred_entities_is_read() -> None:
    described = entry().replace("<AuthorizationRules/>", "<AuthorizationRule/>" * 60)
    page = f"""<feed xmlns="{ATOM}">{described * 100}</feed>""".encode()

    assert len(read_entities(QUEUE, page)) == 100
