"""Reads documents from files, including those of earlier versions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from preflight.group.group_records import GroupDocument
from preflight.results import DOCUMENT_VERSION, Document

BYTES_MAX = 64 << 20  # eight GPUs after a burn-in make a few hundred kilobytes


class DocumentError(ValueError):
    """An unreadable document. The message says why and what to do."""


def parse_document(said: bytes) -> Document:
    """The document in these bytes of JSON.

    Raises:
        DocumentError: it is no JSON, no document, or of a version that is not known here.
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
    try:
        return msgspec.convert(_upgrade_document(plain), Document)
    except (msgspec.ValidationError, RecursionError) as error:
        raise DocumentError(f"not a preflight document, although its version is {plain['version']}: {error}") from None


def parse_group_document(said: bytes) -> GroupDocument | None:
    """The group document in these bytes; None if it is another kind of document."""
    try:
        return msgspec.json.decode(said, type=GroupDocument)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _upgrade_document(plain: dict[str, Any]) -> dict[str, Any]:
    version = plain["version"]
    if version > DOCUMENT_VERSION:
        raise DocumentError(
            f"version {version} is newer than this program supports ({DOCUMENT_VERSION}); upgrade gpu-healthd"
        )
    while version < DOCUMENT_VERSION:
        if version not in _STEPS:
            raise DocumentError(f"version {version} does not exist; the first is 1")
        plain = _STEPS[version](plain)
        version += 1
    return {**plain, "version": DOCUMENT_VERSION}


def _from_1(plain: dict[str, Any]) -> dict[str, Any]:
    """`evidence` was called `data`; devices and software were not named."""
    results = plain.get("results")
    if not isinstance(results, list):
        return plain
    results = [_result_from_1(each) if isinstance(each, dict) else each for each in results]
    return {"devices": [], "software": {}, **plain, "results": results}


def _result_from_1(result: dict[str, Any]) -> dict[str, Any]:
    return {("evidence" if name == "data" else name): value for name, value in result.items()}


_STEPS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {1: _from_1}
