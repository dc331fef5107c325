"""The published JSON Schema of a group's document. Kept in `preflight/schemas`, and true, by a test."""

from __future__ import annotations

from preflight.group.records import GROUP_VERSION, GroupDocument
from preflight.schema import schema_of, text_of

FILE_NAME = f"preflight-group-{GROUP_VERSION}.json"


def schema_text() -> str:
    """What every document of this version is, as JSON text, as it is published."""
    return text_of(schema_of(GroupDocument, GROUP_VERSION, "gpu-healthd preflight document of a group"))
