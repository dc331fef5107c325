"""Generates the published JSON Schemas from the record types. A test keeps the files in `schemas/` up to date."""

from __future__ import annotations

from typing import Any

import msgspec

from preflight.results import DOCUMENT_VERSION, Document

DIALECT = "https://json-schema.org/draft/2020-12/schema"
FILE_NAME = f"preflight-{DOCUMENT_VERSION}.json"


def build_record_schema(record: type[msgspec.Struct], version: int, title: str) -> dict[str, Any]:
    """The schema of this kind and version: it accepts exactly what our reader accepts.

    Unknown members are allowed, since readers ignore them: a later release of the same version may add some.
    """
    (reference,), components = msgspec.json.schema_components((record,), ref_template="#/$defs/{name}")
    components[record.__name__]["properties"]["version"] = {"const": version}
    for each in components.values():
        each["description"] = " ".join(each.get("description", "").split())
    return {"$schema": DIALECT, "title": title, **reference, "$defs": components}


def format_schema(schema: dict[str, Any]) -> str:
    """A schema as JSON text, as published."""
    return msgspec.json.format(msgspec.json.encode(schema), indent=2).decode() + "\n"


def build_document_schema() -> dict[str, Any]:
    """The schema of the document of one node."""
    return build_record_schema(Document, DOCUMENT_VERSION, "gpu-healthd preflight document")


def schema_text() -> str:
    """The same as published text."""
    return format_schema(build_document_schema())
