"""``report``: converts saved documents to any output format."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from preflight.group.group_text import render_group_text
from preflight.report.document_reader import BYTES_MAX, DocumentError, parse_document, parse_group_document
from preflight.report.output_formats import (
    FILE_OR_DASH,
    CommandError,
    OutputFormat,
    file_option,
    form_option,
    output_documents,
)
from preflight.report.value_format import escape_text
from preflight.results import Document


@click.command(epilog="Example: healthctl preflight report before.json after.json")
@click.argument("files", nargs=-1, required=True, metavar="FILE...|-", type=FILE_OR_DASH)
@form_option
@file_option
def report(files: tuple[str, ...], output: str, file: Path | None) -> None:
    """Show documents printed by `run -o json` and by `group -o json`, as text.

    '-' is standard input. Exits with 0 if all files could be read, whatever their verdict, else with 3.
    """
    said = [(name, read_bytes(name)) for name in files]
    groups = [found for _, each in said if (found := parse_group_document(each)) is not None]
    if not groups:
        output_documents([_parse_document(name, each) for name, each in said], OutputFormat(output), file)
    elif len(groups) < len(said) or OutputFormat(output) is not OutputFormat.TEXT or file is not None:
        raise CommandError(
            "a group document can only be shown as text, and not together with documents of single nodes"
        )
    else:
        click.echo("\n".join(escape_text(line) for group in groups for line in render_group_text(group).splitlines()))


def read_documents(files: Sequence[str]) -> list[Document]:
    """The documents in these files, "-" for standard input.

    Raises:
        CommandError: a file cannot be read or contains no document. The message names it.
    """
    return [_parse_document(name, read_bytes(name)) for name in files]


def read_bytes(name: str) -> bytes:
    """The content of a file, "-" for standard input.

    Raises:
        CommandError: it cannot be read.
    """
    try:
        if name == "-":
            return sys.stdin.buffer.read(BYTES_MAX + 1)
        with Path(name).open("rb") as stream:
            return stream.read(BYTES_MAX + 1)
    except OSError as error:
        raise CommandError(f"{name}: cannot be read: {error.strerror or error}") from None


def _parse_document(name: str, said: bytes) -> Document:
    try:
        return parse_document(said)
    except DocumentError as error:
        raise CommandError(f"{name}: {error}") from None
