"""An ExportTraceServiceRequest of vLLM's as it goes on: described by the pod, named by the conventions.

As a parsed message, 4 MiB of garbage take hundreds of MiB; as bytes, nobody looks at more than the outer two
of its levels, and one span at a time is parsed, if it is of a size that vLLM's have. What cannot be read
there goes on as it came: the collector judges it.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from google.protobuf.message import DecodeError
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from guided_sidecar.telemetry import conventions

# An SDK sends 512 spans in one group. Fields: of a request, its groups and their scopes, so mostly spans.
MOST_GROUPS: Final = 64
MOST_FIELDS: Final = 32_768
MOST_RESOURCE_BYTES: Final = 64 << 10
MOST_SPAN_BYTES: Final = 64 << 10
_UNNAMED: Final = "unknown_service"  # what the SDK calls a service that got no name
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types
_LONGEST_VARINT: Final = 10
# Of the messages: request.resource_spans, ResourceSpans.resource and .scope_spans, ScopeSpans.spans.
_GROUPS, _RESOURCE, _SCOPES, _SPANS = 1, 1, 2, 2
_Field = tuple[int, memoryview, memoryview]  # number, the whole field, what it holds (of _BYTES alone)


class UnreadableError(Exception):
    """No ExportTraceServiceRequest, or one of more groups or spans than any SDK sends."""


def described(body: bytes, attributes: Mapping[str, str]) -> tuple[bytes, int]:
    """Return a serialised request with what its resources lacked, and its number of spans.

    Raises
    ------
    UnreadableError
        The body is not an ExportTraceServiceRequest, or has too many resources or spans.
    """
    return _Reader(attributes).request(memoryview(body))


class _Reader:
    """Reads one request."""

    def __init__(self, attributes: Mapping[str, str]) -> None:
        self._attributes = attributes
        self._fields_left = MOST_FIELDS

    def request(self, body: memoryview) -> tuple[bytes, int]:
        groups: list[bytes] = []
        spans = 0
        for number, _, content in self._fields(body):
            if number != _GROUPS:
                continue
            if len(groups) >= MOST_GROUPS:
                raise UnreadableError(f"more than {MOST_GROUPS} resources")
            group, count = self._group(content)
            groups.append(_field(_GROUPS, group))
            spans += count
        return b"".join(groups), spans

    def _group(self, content: memoryview) -> tuple[bytes, int]:
        resource, spans = bytearray(), 0
        rest: list[bytes | memoryview] = []
        for number, whole, inner in self._fields(content):
            if number == _RESOURCE:
                resource += inner  # several are one, as protobuf merges them
                continue
            if number != _SCOPES:
                rest.append(whole)
                continue
            scope, count = self._scope(inner)
            rest.append(_field(_SCOPES, scope))
            spans += count
        return b"".join([_field(_RESOURCE, _described(bytes(resource), self._attributes)), *rest]), spans

    def _scope(self, content: memoryview) -> tuple[bytes, int]:
        fields = [
            (number, _field(_SPANS, _renamed(bytes(inner))) if number == _SPANS else whole)
            for number, whole, inner in self._fields(content)
        ]
        return b"".join(whole for _, whole in fields), sum(number == _SPANS for number, _ in fields)

    def _fields(self, data: memoryview) -> Iterator[_Field]:
        """Yield the fields of one level of a serialised message."""
        at = 0
        while at < len(data):
            self._fields_left -= 1
            if self._fields_left < 0:
                raise UnreadableError(f"more than {MOST_FIELDS} spans and other fields")
            start = at
            tag, at = _varint(data, at)
            number, kind = tag >> 3, tag & 7
            begin = at
            if kind == _VARINT:
                _, at = _varint(data, at)
            elif kind == _FIXED64:
                at += 8
            elif kind == _FIXED32:
                at += 4
            elif kind == _BYTES:
                length, begin = _varint(data, at)
                at = begin + length
            else:
                raise UnreadableError("no protobuf")
            if not number or at > len(data):
                raise UnreadableError("no protobuf")
            yield (number if kind == _BYTES else 0), data[start:at], data[begin:at]


def _described(resource: bytes, attributes: Mapping[str, str]) -> bytes:
    if len(resource) > MOST_RESOURCE_BYTES:
        raise UnreadableError(f"a resource of more than {MOST_RESOURCE_BYTES} bytes")
    try:
        known = Resource.FromString(resource)
    except DecodeError as error:
        raise UnreadableError("no resource") from error
    _describe(known, attributes)
    return known.SerializeToString()


def _describe(resource: Resource, attributes: Mapping[str, str]) -> None:
    """Add what a resource lacks; the SDK's stand-in for a service's name counts as lacking."""
    kept = [
        item
        for item in resource.attributes
        if not (item.key == conventions.SERVICE_NAME and item.value.string_value.startswith(_UNNAMED))
    ]
    known = {item.key for item in kept}
    added = [
        KeyValue(key=key, value=AnyValue(string_value=value))
        for key, value in attributes.items()
        if key not in known
    ]
    del resource.attributes[:]
    resource.attributes.extend(kept + added)


def _renamed(span: bytes) -> bytes:
    """Return a span of vLLM's as one inside our HTTP span, which alone is of kind SERVER."""
    if len(span) > MOST_SPAN_BYTES:
        return span
    try:
        known = Span.FromString(span)
    except DecodeError:
        return span
    if known.kind == Span.SPAN_KIND_SERVER:
        known.kind = Span.SPAN_KIND_INTERNAL
    names = {item.key for item in known.attributes}
    for item in known.attributes:
        name = conventions.RENAMED.get(item.key, item.key)
        if name not in names:
            item.key = name
    return known.SerializeToString()


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(_LONGEST_VARINT):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return value, at
    raise UnreadableError("no protobuf")


def _field(number: int, content: bytes) -> bytes:
    length, head = len(content), bytearray([number << 3 | _BYTES])
    while length > 0x7F:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    head.append(length)
    return bytes(head) + content
