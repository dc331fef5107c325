"""What a terminal gets to see: aligned tables, JSON, times; nothing from outside may carry control characters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timezone
from typing import Any, TypeVar

import click
import msgspec

F = TypeVar("F", bound=Callable[..., Any])

output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="For people, or for programs.",
)


def clean(text: str) -> str:
    r"""`text` with everything a terminal could act upon written out: escapes, line breaks, direction marks.

    >>> clean("bad\x1b[2J name")
    'bad\\x1b[2J name'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Left-aligned columns, two spaces apart, no trailing blanks, every cell cleaned."""
    lines = [tuple(header), *(tuple(clean(cell) for cell in row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """One `name  value` line for each pair whose value is not empty."""
    kept = [(name, clean(value)) for name, value in pairs if value]
    width = max((len(name) for name, _ in kept), default=0)
    return "\n".join(f"{name.ljust(width)}  {value}" for name, value in kept)


def json_text(value: Any) -> str:
    """Indented JSON of a Struct or plain data."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def json_line(value: Any) -> str:
    """The same on one line, for streams."""
    return msgspec.json.encode(value).decode()


def moment(at: float | None) -> str:
    """UTC, to the second; '-' for never, the number itself if it is no time at all."""
    if at is None:
        return "-"
    try:
        return datetime.fromtimestamp(at, tz=timezone.utc).strftime("%Y-%m-%d %H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return str(at)
