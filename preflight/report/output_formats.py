"""The output formats of documents, and writing them to standard output or a file."""

from __future__ import annotations

import enum
import errno
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import click
import msgspec

from preflight.exit_codes import NO_ANSWER, UNWRITABLE
from preflight.report.text_report import WIDTH, render_text
from preflight.report.value_format import escape_text
from preflight.results import Document
from vocabulary.atomic_file import replace_file


class OutputFormat(str, enum.Enum):
    """What a document can be shown as."""

    TEXT = "text"
    JSON = "json"
    JUNIT = "junit"
    HTML = "html"


class CommandError(click.ClickException):
    """An error for people, in one line. Exits with 3: unknown."""

    exit_code = NO_ANSWER

    def show(self, file: IO[Any] | None = None) -> None:
        """Print it on standard error, escaped for a terminal."""
        click.echo(f"preflight: {escape_text(self.message)}", file=file, err=True)


form_option = click.option(
    "-o",
    "--output",
    type=click.Choice([form.value for form in OutputFormat]),
    default=OutputFormat.TEXT.value,
    show_default=True,
    help="Output format: text, JSON, JUnit XML or HTML.",
)
FILE_OR_DASH = click.Path(
    allow_dash=True, readable=False
)  # completion does not validate; the reader of the file reports errors
file_option = click.option(
    "-f", "--file", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file, atomically."
)


def render_documents(
    documents: Sequence[Document], form: OutputFormat, *, colour: bool = False, width: int = WIDTH
) -> str:
    """The documents in a format, with a final newline. Several as JSON: one per line."""
    if form is OutputFormat.TEXT:
        return "\n\n\n".join(render_text(document, colour=colour, width=width) for document in documents) + "\n"
    if form is OutputFormat.JSON:
        if len(documents) == 1:
            return msgspec.json.format(msgspec.json.encode(documents[0]), indent=2).decode() + "\n"
        return "".join(msgspec.json.encode(document).decode() + "\n" for document in documents)
    if form is OutputFormat.JUNIT:
        from preflight.report.junit_report import render_junit  # noqa: PLC0415 - only this form needs it

        return render_junit(documents)
    try:
        from preflight.report.html_report import render_html  # noqa: PLC0415 - only this form needs a library of templates
    except ModuleNotFoundError as error:
        raise CommandError(
            f"HTML needs the module {error.name}; install it: pip install 'gpu-healthd[preflight]'"
        ) from error
    return render_html(documents)


def output_documents(documents: Sequence[Document], form: OutputFormat, file: Path | None = None) -> None:
    """Print the documents, or write them to a file.

    Raises:
        Trouble: the file, or standard output, cannot be written.
    """
    if file is None:
        _print_documents(documents, form)
        return
    try:
        write_report(file, render_documents(documents, form))
    except OSError as error:
        raise CommandError(
            f"{file}: cannot be written: {error.strerror or error}; free space, or choose another file"
        ) from None


def _print_documents(documents: Sequence[Document], form: OutputFormat) -> None:
    if sys.stdout is None:
        raise CommandError("standard output is closed; open it, or use --file")
    terminal = sys.stdout.isatty()
    width = min(shutil.get_terminal_size().columns, WIDTH) if terminal else WIDTH
    colour = terminal and not os.environ.get("NO_COLOR")
    text = render_documents(documents, form, colour=colour, width=width)
    said = text if form is OutputFormat.TEXT else text.encode()  # programs read UTF-8, whatever this terminal uses
    try:
        click.echo(said, nl=False, color=colour)
    except UnicodeEncodeError:
        click.echo(text.encode(sys.stdout.encoding, "backslashreplace"), nl=False, color=colour)
    except UNWRITABLE as error:
        raise CommandError(
            f"standard output cannot be written: {error}; free disk space, or keep the reader of the pipe open"
        ) from None


def check_writable(path: Path) -> None:
    """Check before hours of tests whether a report can be written.

    Raises:
        Trouble: it could not.
    """
    try:
        if _is_stream_path(path):
            if not os.access(path, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            return
        path = path.resolve()
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        os.close(descriptor)
        Path(name).unlink()
    except OSError as error:
        raise CommandError(
            f"{path}: cannot be written: {error.strerror or error}; choose another file, or fix the folder's permissions"
        ) from None


def _is_stream_path(path: Path) -> bool:
    """Whether it leads to a stream such as /dev/stdout, which must be written to, not replaced by a file."""
    return (
        (path.exists() and not path.is_file())
        or path.absolute().is_relative_to("/dev")
        or path.absolute().is_relative_to("/proc")
    )


def write_report(path: Path, text: str) -> None:
    """Replace the file atomically. Anything but a regular file is written to. Raises OSError."""
    if _is_stream_path(path):
        path.write_text(text, encoding="utf-8")
        return
    replace_file(path.resolve(), text.encode(), mode=0o644)  # replace the target of a link and keep the link
