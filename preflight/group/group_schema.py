"""The published JSON Schema of a group's document. Kept in `preflight/schemas`, and true, by a test."""

from __future__ import annotations

from preflight.document_schema import build_record_schema, format_schema
from preflight.group.group_records import GROUP_VERSION, GroupDocument

FILE_NAME = f"preflight-group-{GROUP_VERSION}.json"


def schema_text() -> str:
    """What every document of this version is, as JSON text, as it is published."""
    return format_schema(build_record_schema(GroupDocument, GROUP_VERSION, "gpu-healthd preflight document of a group"))
