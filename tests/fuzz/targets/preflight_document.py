"""A preflight's document, from whoever says there was one."""

from __future__ import annotations

from preflight.report.reading import DocumentError, group_in, read
from tests.fuzz.target import Target


def judge(data: bytes) -> None:
    """A document or its own error."""
    group_in(data)
    try:
        read(data)
    except DocumentError:
        return


TARGET = Target(
    judge,
    (
        (
            b'{"version":2,"level":"gate","complete":true,"node":"n1","verdict":"pass","reason":"","reasons":[],"injected":[],'
            b'"devices":[],"software":{},"results":[]}'
        ),
        b'{"version":1,"verdict":"fail"}',
        b'{"version":99999999999999999999}',
        b'{"version":true,"culprits":[]}',
    ),
)
