"""The two messages in the Protocol Buffers wire format: for four fields no compiler or second library is needed. Pure."""

from __future__ import annotations

from typing import NamedTuple

_VARINT, _BYTES = 0, 2  # wire types (protobuf.dev/programming-guides/encoding)
_FIXED = {1: 8, 5: 4}
VARINT_BYTES_MAX = 10


class MessageError(ValueError):
    """Bytes that are not a valid message."""


class HealthCheckResponse(NamedTuple):
    """HealthCheckResponse."""

    success: bool
    exit_code: int
    output: str
    error: str


def encode_response(response: HealthCheckResponse) -> bytes:
    """Fields 1 to 4; zero values are omitted, as proto3 requires."""
    return b"".join(
        (
            _encode_varint_field(1, int(response.success)),
            _encode_varint_field(2, response.exit_code & 0xFFFF_FFFF_FFFF_FFFF),  # a negative int32 takes ten bytes
            _encode_text_field(3, response.output),
            _encode_text_field(4, response.error),
        )
    )


def decode_arguments(data: bytes) -> tuple[str, ...]:
    """HealthCheckRequest: field 1, repeated; unknown fields are skipped.

    Raises:
        MessageError: the bytes are truncated or invalid.
    """
    found = []
    at = 0
    while at < len(data):
        key, at = _decode_varint(data, at)
        field, kind = key >> 3, key & 7
        if kind == _VARINT:
            _, at = _decode_varint(data, at)
            continue
        if kind == _BYTES:
            size, at = _decode_varint(data, at)
        elif kind in _FIXED:
            size = _FIXED[kind]
        else:
            raise MessageError(f"wire type {kind} at byte {at}")
        if at + size > len(data):
            raise MessageError(f"a field of {size} bytes at byte {at} of {len(data)}")
        if field == 1 and kind == _BYTES:
            found.append(data[at : at + size].decode(errors="replace"))
        at += size
    return tuple(found)


def _encode_varint_field(field: int, value: int) -> bytes:
    return _encode_varint(field << 3 | _VARINT) + _encode_varint(value) if value else b""


def _encode_text_field(field: int, text: str) -> bytes:
    data = text.encode(errors="replace")
    return _encode_varint(field << 3 | _BYTES) + _encode_varint(len(data)) + data if data else b""


def _encode_varint(value: int) -> bytes:
    packed = bytearray()
    while value > 0x7F:
        packed.append(value & 0x7F | 0x80)
        value >>= 7
    packed.append(value)
    return bytes(packed)


def _decode_varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for count, byte in enumerate(data[at : at + VARINT_BYTES_MAX]):
        value |= (byte & 0x7F) << 7 * count
        if byte < 0x80:
            return value, at + count + 1
    raise MessageError(f"an unterminated number at byte {at}")
