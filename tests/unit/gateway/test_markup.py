"""XML that arrives from anybody: bounded, without entities, never an unexpected exception."""

import pytest

from shardbus.core.errors import INVALID_ARGUMENT, Refused
from shardbus.gateway.http.atom.markup import (
    ATTRIBUTES_MAX,
    DEPTH_MAX,
    ELEMENTS_MAX,
    INSTANCE,
    NAME_CHARACTERS_MAX,
    NAMESPACE_CHARACTERS_MAX,
    escaped,
    parse,
    tag,
)
from tests.support.refusals import refusal_of

LAUGHS = b"""<!DOCTYPE lolz [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]><a>&b;</a>"""
EXTERNAL = b"""<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/hostname">]><a>&x;</a>"""


def test_elements_are_read_by_namespace_whatever_their_prefix() -> None:
    plain = parse(b'<entry xmlns="urn:a"><b xmlns="urn:b" i:t="x" xmlns:i="urn:i"> 1 </b></entry>')
    prefixed = parse(b'<q:entry xmlns:q="urn:a" xmlns:r="urn:b"><r:b> 1 </r:b></q:entry>')

    for root in (plain, prefixed):
        child = root.child("urn:b", "b")
        assert (root.namespace, root.name) == ("urn:a", "entry")
        assert child is not None
        assert child.text == " 1 "
    child = plain.child("urn:b", "b")
    assert child is not None
    assert child.attributes == {("urn:i", "t"): "x"}
    assert plain.child("urn:a", "b") is None


def test_escapes_and_cdata_are_text() -> None:
    assert parse(b"<a>&lt;&#228;<![CDATA[<b>]]></a>").text == "<ä<b>"


REFUSED = [
    (LAUGHS, "document type"),
    (EXTERNAL, "document type"),
    (b"<!DOCTYPE a><a/>", "document type"),
    (b"", "not well formed"),
    (b"<a>", "not well formed"),
    (b"<a/><b/>", "not well formed"),
    (b"<a>&nbsp;</a>", "not well formed"),
    (b"<a>\xff</a>", "not well formed"),
    (b"<x:a/>", "not well formed"),
    (b"\x00", "not well formed"),
    (b"<a>" * (DEPTH_MAX + 1), f"more than {DEPTH_MAX} deep"),
    (b"<a>" + b"<b/>" * ELEMENTS_MAX + b"</a>", f"more than {ELEMENTS_MAX} elements"),
    (
        b"<a " + b" ".join(b'a%d=""' % n for n in range(ATTRIBUTES_MAX + 1)) + b"/>",
        f"more than {ATTRIBUTES_MAX} attributes",
    ),
    (
        b'<a xmlns="' + b"u" * 900_000 + b'">' + b"<b/>" * (ELEMENTS_MAX - 1) + b"</a>",
        f"more than {NAMESPACE_CHARACTERS_MAX} characters",
    ),
    (
        b'<a xmlns:p="' + b"u" * 300 + b'">' + b'<b p:c=""/>' * 10 + b"</a>",
        f"more than {NAMESPACE_CHARACTERS_MAX} characters",
    ),
    (b"<" + b"a" * (NAME_CHARACTERS_MAX + 1) + b"/>", "a name has more than"),
]


@pytest.mark.parametrize(("document", "reason"), REFUSED)
def test_a_document_that_is_broken_or_asks_for_too_much_is_refused(
    document: bytes, reason: str
) -> None:
    with pytest.raises(Refused) as refusal:
        parse(document)

    assert refusal.value.kind is INVALID_ARGUMENT
    assert reason in refusal.value.message


def test_a_declared_encoding_does_not_choose_a_decoder() -> None:
    assert parse('<?xml version="1.0" encoding="utf-16"?><a>ä</a>'.encode()).text == "ä"


@pytest.mark.parametrize("encoding", ["iso-8859-1", "windows-1252", "utf-7"])
def test_what_is_declared_to_be_in_another_encoding_is_refused_not_misread(encoding: str) -> None:
    """The two bytes are one letter in UTF-8 and two in the others: nobody can tell."""
    head = f'<?xml version="1.0" encoding="{encoding}"?>'.encode()

    with refusal_of(INVALID_ARGUMENT, f"'{encoding}'"):
        parse(head + b"<a>\xc3\xa4</a>")

    assert parse(head + b"<a>plain</a>").text == "plain"


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_a_byte_order_mark_is_no_part_of_the_document(encoding: str) -> None:
    text = "\ufeff<a>ä</a>" if encoding in ("utf-16-le", "utf-16-be") else "<a>ä</a>"

    assert parse(text.encode(encoding)).text == "ä"


def test_written_text_is_read_back() -> None:
    text = """<a href="x">'&amp;'</a> ä \U0001f600"""

    assert parse(tag("t", text).encode()).text == text
    assert parse(f'<t a="{escaped(text)}"/>'.encode()).attributes[("", "a")] == text


def test_no_character_is_written_as_a_number() -> None:
    """The JavaScript SDK reads such a reference as the letters that it is made of."""
    written = escaped("".join(map(chr, range(0x300))) + "\u2028\U0001f600")

    assert "&#" not in written.replace("&amp;", "")
    assert parse(tag("t", "one\r\ntwo").encode()).text == "one\ntwo"


@pytest.mark.parametrize(("word", "is_nil"), [("true", True), ("1", True), ("false", False)])
def test_an_element_may_say_in_two_ways_that_it_is_nil(word: str, is_nil: bool) -> None:
    assert parse(f'<a xmlns:i="{INSTANCE}" i:nil="{word}"/>'.encode()).is_nil() == is_nil


def test_what_xml_cannot_say_is_replaced() -> None:
    assert parse(tag("t", "a\x00b\x0bc\ufffe").encode()).text == "a\ufffdb\ufffdc\ufffd"
