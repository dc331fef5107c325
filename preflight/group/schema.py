"""The published JSON Schema of a group's document, made of the records themselves. Kept in `preflight/schemas`, and true, by a test."""

from __future__ import annotations

from typing import Any

import msgspec

from preflight.group.records import GROUP_VERSION, GroupDocument

DIALECT = "https://json-schema.org/draft/2020-12/schema"
FILE_NAME = f"preflight-group-{GROUP_VERSION}.json"


def schema() -> dict[str, Any]:
    """What every document of this version is. Unknown members are allowed: a later release of the same version may say more."""
    (reference,), components = msgspec.json.schema_components((GroupDocument,), ref_template="#/$defs/{name}")
    components["GroupDocument"]["properties"]["version"] = {"const": GROUP_VERSION}
    for each in components.values():
        each["description"] = " ".join(each.get("description", "").split())
    return {"$schema": DIALECT, "title": "gpu-healthd preflight document of a group", **reference, "$defs": components}


def schema_text() -> str:
    """The schema as JSON text, as it is published."""
    return msgspec.json.format(msgspec.json.encode(schema()), indent=2).decode() + "\n"
