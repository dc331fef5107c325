"""The published JSON Schema of a group's document. A test keeps the file in `preflight/schemas` up to date."""

from __future__ import annotations

from preflight.document_schema import build_record_schema, format_schema
from preflight.group.group_records import GROUP_VERSION, GroupDocument

FILE_NAME = f"preflight-group-{GROUP_VERSION}.json"


def schema_text() -> str:
    """The schema of every document of this version, as published JSON text."""
    return format_schema(build_record_schema(GroupDocument, GROUP_VERSION, "gpu-healthd preflight document of a group"))
