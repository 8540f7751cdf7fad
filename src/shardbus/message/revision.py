"""A message with other properties than its sender gave it; the body is unchanged."""

from typing import final

from shardbus.codec import codes
from shardbus.codec.decoder import ValueReader
from shardbus.codec.encoder import NULL, compound, encode_symbol
from shardbus.message.delivery import overlaid, with_field
from shardbus.message.scan import MessageHead, enter_map, section_code


@final
class Revision:
    """What to write into a message: encoded values, where a null removes the present value.

    `header` and `properties` are keyed by the place of the field, `annotations` by name.
    `application` has application properties by name, where an empty value removes one.
    """

    def __init__(self) -> None:
        self.header: dict[int, bytes] = {}
        self.properties: dict[int, bytes] = {}
        self.annotations: dict[str, bytes] = {}
        self.application: dict[str, bytes] = {}


def revise(payload: bytes, head: MessageHead, revision: Revision) -> bytes:
    """The message with these values; `head` must be its scan. Delivery annotations are dropped."""
    header = _section(payload, head.header_offset, head.header_length)
    annotations = _section(
        payload, head.message_annotations_offset, head.message_annotations_length
    )
    properties = _section(payload, head.properties_offset, head.properties_length)
    for field, value in revision.header.items():
        header = with_field(header, codes.HEADER, field, value)
    for field, value in revision.properties.items():
        properties = with_field(properties, codes.PROPERTIES, field, value)
    if revision.annotations:
        annotations = _annotated(annotations, revision.annotations)
    application = _section(
        payload, head.application_properties_offset, head.application_properties_length
    )
    if revision.application:
        application = overlaid(application, revision.application)
    return b"".join(
        [
            header,
            annotations,
            properties,
            application,
            _section(payload, head.body_offset, head.body_length),
            _section(payload, head.footer_offset, head.footer_length),
        ]
    )


def _section(payload: bytes, offset: int, length: int) -> bytes:
    return payload[offset : offset + length]


def _annotated(section: bytes, values: dict[str, bytes]) -> bytes:
    parts: list[bytes] = []
    changed = {encode_symbol(name): value for name, value in values.items()}
    if section:
        reader = ValueReader(section, 0, len(section))
        section_code(reader)
        for _ in range(enter_map(reader) >> 1):
            key = reader.raw()
            value = reader.raw()
            if key not in changed:
                parts.append(key)
                parts.append(value)
    for key, value in changed.items():
        if value != NULL:
            parts.append(key)
            parts.append(value)
    return b"\x00\x53\x72" + compound(codes.MAP8, parts) if parts else b""
