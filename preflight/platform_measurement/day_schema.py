"""The published JSON Schema of a day's file. A test keeps the file in `preflight/schemas` up to date."""

from __future__ import annotations

from preflight.document_schema import build_record_schema, format_schema
from preflight.platform_measurement.day_records import DAY_VERSION, DayDocument

FILE_NAME = f"preflight-day-{DAY_VERSION}.json"


def schema_text() -> str:
    """The schema of every file of this version, as published JSON text."""
    return format_schema(build_record_schema(DayDocument, DAY_VERSION, "gpu-healthd measurements of a platform"))
