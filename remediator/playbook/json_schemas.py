"""The published JSON Schemas of playbooks and scenarios. A test keeps the files in the tree current."""

from __future__ import annotations

import msgspec

from remediator.playbook.playbook_document import PlaybookDocument
from remediator.playbook.scenario_document import ScenarioDocument

_KINDS = {"playbook": PlaybookDocument, "scenarios": ScenarioDocument}


def json_schema_text(what: str) -> str:
    """Return the schema of a ``playbook`` or of ``scenarios``, as JSON text (draft 2020-12)."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"gpu-healthd {what}",
        **msgspec.json.schema(_KINDS[what]),
    }
    return msgspec.json.format(msgspec.json.encode(schema), indent=2).decode() + "\n"
