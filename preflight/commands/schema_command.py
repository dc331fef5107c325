"""``schema``: the JSON Schema of documents."""

from __future__ import annotations

import importlib

import click

# Document → the module with its schema, imported on demand.
KINDS = {
    "node": "preflight.document_schema",
    "group": "preflight.group.group_schema",
    "day": "preflight.platform_measurement.day_records",
}


@click.command(epilog="Example: healthctl preflight schema > preflight.schema.json")
@click.argument("what", type=click.Choice(list(KINDS)), default="node")
def schema(what: str) -> None:
    """Print the JSON Schema (draft 2020-12) of the document of one node, of a group of nodes, or of `day`."""
    click.echo(importlib.import_module(KINDS[what]).schema_text(), nl=False)
