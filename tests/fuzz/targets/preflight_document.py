"""A preflight's document, from whoever says there was one."""

from __future__ import annotations

from preflight.report.document_reader import DocumentError, parse_document, parse_group_document
from tests.fuzz.target import Target


def judge(data: bytes) -> None:
    """A document or its own error."""
    parse_group_document(data)
    try:
        parse_document(data)
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
