"""Reads preflight documents."""

from __future__ import annotations

import msgspec

from preflight.group.group_records import GroupDocument
from preflight.results import DOCUMENT_VERSION, Document

BYTES_MAX = 64 << 20  # eight GPUs after a burn-in make a few hundred kilobytes


class DocumentError(ValueError):
    """An unreadable document. The message says why and what to do."""


def parse_document(said: bytes) -> Document:
    """The document in these bytes of JSON.

    Raises:
        DocumentError: it is no JSON, no document, or of another version.
    """
    if len(said) > BYTES_MAX:
        raise DocumentError(
            f"{len(said)} bytes are too large for a preflight document, which has a few hundred kilobytes"
        )
    try:
        plain = msgspec.json.decode(said)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DocumentError(f"not JSON: {error}; pass the output of 'preflight run -o json'") from None
    if not isinstance(plain, dict) or not isinstance(plain.get("version"), int):
        raise DocumentError("not a preflight document: it has no version; pass the output of 'preflight run -o json'")
    if "culprits" in plain:
        raise DocumentError("this is the document of a group of nodes; pass documents of single nodes")
    if plain["version"] != DOCUMENT_VERSION:
        raise DocumentError(
            f"version {plain['version']} cannot be read, only version {DOCUMENT_VERSION}; use the release of gpu-healthd that wrote it"
        )
    try:
        return msgspec.convert(plain, Document)
    except (msgspec.ValidationError, RecursionError) as error:
        raise DocumentError(f"not a preflight document, although its version is {DOCUMENT_VERSION}: {error}") from None


def parse_group_document(said: bytes) -> GroupDocument | None:
    """The group document in these bytes; None if it is another kind of document."""
    try:
        return msgspec.json.decode(said, type=GroupDocument)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
