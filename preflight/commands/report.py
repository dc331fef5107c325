"""``report``: documents kept in files, shown again in any form."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from preflight.group.page import page
from preflight.report.forms import FILE_OR_DASH, Form, Trouble, file_option, form_option, say
from preflight.report.reading import BYTES_MAX, DocumentError, group_in, read
from preflight.report.wording import clean
from preflight.results import Document


@click.command(epilog="Example: healthctl preflight report before.json after.json")
@click.argument("files", nargs=-1, required=True, metavar="FILE...|-", type=FILE_OR_DASH)
@form_option
@file_option
def report(files: tuple[str, ...], output: str, file: Path | None) -> None:
    """Show documents that `run -o json` printed, also those of earlier versions; and those of `group -o json`, as text.

    '-' is standard input. Ends with 0 if they could be read, whatever they say, else with 3.
    """
    said = [(name, _bytes(name)) for name in files]
    groups = [found for _, each in said if (found := group_in(each)) is not None]
    if not groups:
        say([_document(name, each) for name, each in said], Form(output), file)
    elif len(groups) < len(said) or Form(output) is not Form.TEXT or file is not None:
        raise Trouble("the document of a group is shown as text, and apart from those of single nodes")
    else:
        click.echo("\n".join(clean(line) for group in groups for line in page(group).splitlines()))


def documents(files: Sequence[str]) -> list[Document]:
    """The documents in these files, "-" for standard input.

    Raises:
        Trouble: a file that cannot be read or holds none. The text names it.
    """
    return [_document(name, _bytes(name)) for name in files]


def _bytes(name: str) -> bytes:
    try:
        if name == "-":
            return sys.stdin.buffer.read(BYTES_MAX + 1)
        with Path(name).open("rb") as stream:
            return stream.read(BYTES_MAX + 1)
    except OSError as error:
        raise Trouble(f"{name}: cannot be read: {error.strerror or error}") from None


def _document(name: str, said: bytes) -> Document:
    try:
        return read(said)
    except DocumentError as error:
        raise Trouble(f"{name}: {error}") from None
