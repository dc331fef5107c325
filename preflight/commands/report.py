"""``report``: documents kept in files, shown again in any form."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from preflight.report.forms import Form, Trouble, file_option, form_option, say
from preflight.report.reading import BYTES_MAX, DocumentError, read
from preflight.results import Document


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...|-")
@form_option
@file_option
def report(files: tuple[str, ...], output: str, file: Path | None) -> None:
    """Show documents that `run -o json` printed, also those of earlier versions.

    '-' is standard input. Ends with 0 if they could be read, whatever they say, else with 3.
    """
    say(documents(files), Form(output), file)


def documents(files: Sequence[str]) -> list[Document]:
    """The documents in these files, "-" for standard input.

    Raises:
        Trouble: a file that cannot be read or holds none. The text names it.
    """
    return [_document(name) for name in files]


def _document(name: str) -> Document:
    try:
        if name == "-":
            said = sys.stdin.buffer.read(BYTES_MAX + 1)
        else:
            with Path(name).open("rb") as stream:
                said = stream.read(BYTES_MAX + 1)
        return read(said)
    except OSError as error:
        raise Trouble(f"{name}: cannot be read: {error.strerror or error}") from None
    except DocumentError as error:
        raise Trouble(f"{name}: {error}") from None
