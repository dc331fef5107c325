"""The published JSON Schema of a document, made of the records themselves. Kept in `schemas/`, and true, by a test."""

from __future__ import annotations

from typing import Any

import msgspec

from preflight.results import DOCUMENT_VERSION, Document

DIALECT = "https://json-schema.org/draft/2020-12/schema"
FILE_NAME = f"preflight-{DOCUMENT_VERSION}.json"


def schema() -> dict[str, Any]:
    """What every document of this version is: the schema takes what our reader takes, and nothing else.

    Unknown members are allowed, as readers ignore them: a later release of the same version may say more.
    """
    (reference,), components = msgspec.json.schema_components((Document,), ref_template="#/$defs/{name}")
    components["Document"]["properties"]["version"] = {"const": DOCUMENT_VERSION}
    for each in components.values():
        each["description"] = " ".join(each["description"].split())
    return {"$schema": DIALECT, "title": "gpu-healthd preflight document", **reference, "$defs": components}


def schema_text() -> str:
    """The schema as JSON text, as it is published."""
    return msgspec.json.format(msgspec.json.encode(schema()), indent=2).decode() + "\n"
