"""``schema``: what a document is, for programs that read it."""

from __future__ import annotations

import click


@click.command()
def schema() -> None:
    """Print the JSON Schema (draft 2020-12) of the document that `run -o json` prints."""
    from preflight.schema import schema_text  # noqa: PLC0415 - only this command makes one

    click.echo(schema_text(), nl=False)
