"""Bundles of evidence: what a node hands in, and the names under which a node keeps them."""

from __future__ import annotations

import contextlib
import gzip
from pathlib import Path

from healthd.orders.evidence_files import EvidenceFiles
from remediator.api.evidence_handlers import decompress_bounded
from remediator.api.token_handlers import Refusal
from tests.fuzz.target import Target, text
from vocabulary.messages.evidence_bundle import EvidenceBundle
from vocabulary.messages.wire import WireError, decode_message

FOLDER = Path("/nowhere/evidence")
BYTES_MAX = 1 << 16


def judge(data: bytes) -> None:
    """Refused or read, never larger than the bound; no id of an order leads out of the folder."""
    try:
        whole = decompress_bounded(data, BYTES_MAX)
    except Refusal:
        whole = data
    if len(whole) > max(BYTES_MAX, len(data)):
        raise AssertionError("more came out than was allowed")
    with contextlib.suppress(WireError):
        decode_message(whole, EvidenceBundle)
    path = EvidenceFiles(FOLDER).path(text(data))
    if path.parent != FOLDER or len(path.name) > 100:
        raise AssertionError(f"{path} is not in the folder")


_BUNDLE = b'{"version":1,"node":"n1","order":"o1","made_at":1.0,"reason":"r","series":[],"kernel":[],"ranks":[]}'
TARGET = Target(
    judge,
    (
        gzip.compress(_BUNDLE, mtime=0),
        _BUNDLE,
        gzip.compress(bytes(1 << 20), mtime=0),
        gzip.compress(b"{}", mtime=0) * 2,
        b"../../etc/passwd\0",
    ),
)
