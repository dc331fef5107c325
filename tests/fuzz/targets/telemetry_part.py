"""The columns of numbers that a node adds to a report when a person looks."""

from __future__ import annotations

from math import isfinite

from tests.fuzz.target import Target
from vocabulary.messages.telemetry_messages import TelemetryError, read_part


def judge(data: bytes) -> None:
    """A part or its own error; every value is a number that can be drawn, or none."""
    try:
        part = read_part(data)
    except TelemetryError:
        return
    for block in part.blocks:
        for values in block.columns.values():
            if not all(value is None or isfinite(value) for value in values):
                raise AssertionError("a value that is no number came through")


TARGET = Target(
    judge,
    (
        (
            b'{"monotonic":100000.0,"blocks":[{"gpu":"0000:3b:00.0","first":3333,'
            b'"columns":{"temperature":[null,61.0],"power":[700.5,null]}}],"bucket_s":30.0}'
        ),
        b'{"monotonic":1e300,"blocks":[]}',
    ),
)
