"""The protocol buffer that a launcher sends over a socket that everybody may write to."""

from __future__ import annotations

from healthctl.nvhcd.protobuf_messages import MessageError, decode_arguments
from tests.fuzz.target import Target


def judge(data: bytes) -> None:
    """Arguments, never longer than what came, or the declared error."""
    try:
        arguments = decode_arguments(data)
    except MessageError:
        return
    if sum(map(len, arguments)) > len(data):
        raise AssertionError("more came out than went in")


TARGET = Target(
    judge, (b"\n\x03abc\n\x00", b"\x10\x01\x0a\x02hi", b"\xff" * 12, b"\x0d\x01\x02\x03\x04"), bytes_max=256
)
