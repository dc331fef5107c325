"""Reads preflight documents."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from preflight.group.group_records import GroupDocument
from preflight.platform_measurement.day_records import DAY_VERSION, DayDocument
from preflight.results import DOCUMENT_VERSION, Document

Kind = TypeVar("Kind", Document, DayDocument)
BYTES_MAX = 64 << 20  # eight GPUs after a burn-in make a few hundred kilobytes


class DocumentError(ValueError):
    """An unreadable document. The message says why and what to do."""


def parse_document(said: bytes) -> Document:
    """The document in these bytes of JSON: that of a run, or the last passed gate in the file of `preflight day`.

    Raises:
        DocumentError: it is no JSON, no document, or of another version.
    """
    plain = _parse_versioned(said)
    if "stages" in plain:
        gate = plain.get("gate")
        if not isinstance(gate, dict):
            raise DocumentError("no gate passed on this day, so its file contains no document to use")
        plain = gate
    if "culprits" in plain:
        raise DocumentError("this is the document of a group of nodes; pass documents of single nodes")
    return _convert(plain, Document, DOCUMENT_VERSION)


def parse_day_document(said: bytes) -> DayDocument:
    """The file of `preflight day` in these bytes of JSON.

    Raises:
        DocumentError: it is no JSON, no such file, or of another version.
    """
    plain = _parse_versioned(said)
    if "stages" not in plain:
        raise DocumentError("not a file of 'preflight day'; show other documents with 'preflight report'")
    return _convert(plain, DayDocument, DAY_VERSION)


def _parse_versioned(said: bytes) -> dict[str, Any]:
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
    return plain


def _convert(plain: dict[str, Any], kind: type[Kind], version: int) -> Kind:
    if plain.get("version") != version:
        raise DocumentError(
            f"version {plain.get('version')} cannot be read, only version {version}; use the release of gpu-healthd that wrote it"
        )
    try:
        return msgspec.convert(plain, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise DocumentError(f"not a preflight document, although its version is {version}: {error}") from None


def parse_group_document(said: bytes) -> GroupDocument | None:
    """The group document in these bytes; None if it is another kind of document."""
    try:
        return msgspec.json.decode(said, type=GroupDocument)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
