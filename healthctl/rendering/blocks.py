"""What people and programs get to see: blocks of tables and facts, JSON, YAML, times; nothing from outside may steer a terminal.

A command describes its page once, in blocks; `render_plain` writes them for pipes and files, `healthctl.rendering.terminal` for a terminal.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Generic, NamedTuple, TypeVar

import click
import msgspec

T = TypeVar("T")

# For commands that ask nobody; those that show a view of the centre take `healthctl.cli.screen.view_options`.
output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="For people, or for programs.",
)


class Tone(enum.Enum):
    """How a word is to be taken; on a terminal a symbol and a colour beside it."""

    GOOD = "good"
    WARN = "warn"
    BAD = "bad"
    UNKNOWN = "unknown"


class Cell(NamedTuple):
    """A word with its tone."""

    text: str
    tone: Tone


Value = str | Cell

_TONES = {
    Tone.GOOD: "healthy ok succeeded done closed act active yes acknowledged info sent delivered",
    Tone.WARN: "degraded suspect draining testing probation waiting running planned open acting warning recommend approve "
    "held observe operator-held resetting due pending",
    Tone.BAD: "unhealthy quarantined failed error fatal breaker refused replace lost",
    Tone.UNKNOWN: "unknown ? silent superseded cancelled",
}
_TONE_OF = {word: tone for tone, words in _TONES.items() for word in words.split()}


def state_cell(word: str) -> Value:
    """`word` in its tone, if it is one of those that have one."""
    tone = _TONE_OF.get(word)
    return Cell(word, tone) if tone else word


@dataclass(frozen=True)
class Column(Generic[T]):
    """One column of a table. `wide` ones are shown with ``-o wide``; `prose` is what gives way on a narrow terminal."""

    title: str
    value: Callable[[T], Value]
    wide: bool = False
    prose: bool = False


@dataclass(frozen=True)
class Rows(Generic[T]):
    """A table; `empty` is said where there is nothing to list."""

    items: Sequence[T]
    columns: Sequence[Column[T]]
    empty: str = ""

    def shown(self, *, wide: bool) -> list[Column[T]]:
        """The columns that are asked for."""
        return [column for column in self.columns if wide or not column.wide]


@dataclass(frozen=True)
class Facts:
    """One `name  value` line for each pair whose value is not empty."""

    pairs: Sequence[tuple[str, Value]]


@dataclass(frozen=True)
class Line:
    """A sentence of its own; `indent` in columns."""

    value: Value
    indent: int = 0


Block = Rows[Any] | Facts | Line


def escape_control_chars(text: str) -> str:
    r"""`text` with everything a terminal could act upon written out: escapes, line breaks, direction marks.

    >>> escape_control_chars("bad\x1b[2J name")
    'bad\\x1b[2J name'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def escape_page(page: str) -> str:
    """A page of many lines, each cleaned."""
    return "\n".join(map(escape_control_chars, page.split("\n")))


def value_text(value: Value) -> str:
    """What a value says, cleaned; without its tone."""
    return escape_control_chars(value.text if isinstance(value, Cell) else value)


def render_plain(blocks: Iterable[Block], *, wide: bool = False) -> str:
    """Blocks as text without colours, a line for each row however long: for pipes, files and terminals that can no more.

    Lines that follow each other stand together; anything else has an empty line before it.
    """
    shown: list[str] = []
    before: Block | None = None
    for block in blocks:
        text = _render_plain_block(block, wide)
        if text:
            together = isinstance(block, Line) and isinstance(before, Line)
            shown += [text] if together or before is None else ["", text]
            before = block
    return "\n".join(shown)


def _render_plain_block(block: Block, wide: bool) -> str:  # noqa: FBT001 - what `render_plain` was told
    if isinstance(block, Facts):
        return format_facts((name, value_text(value)) for name, value in block.pairs)
    if isinstance(block, Line):
        return " " * block.indent + value_text(block.value)
    columns = block.shown(wide=wide)
    rows = [[value_text(column.value(item)) or "-" for column in columns] for item in block.items]
    return format_table([column.title for column in columns], rows) if rows else escape_control_chars(block.empty)


def format_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Left-aligned columns, two spaces apart, no trailing blanks, every cell cleaned."""
    lines = [tuple(header), *(tuple(escape_control_chars(cell) for cell in row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def format_facts(pairs: Iterable[tuple[str, str]]) -> str:
    """One `name  value` line for each pair whose value is not empty."""
    kept = [(name, escape_control_chars(value)) for name, value in pairs if value]
    width = max((len(name) for name, _ in kept), default=0)
    return "\n".join(f"{name.ljust(width)}  {value}" for name, value in kept)


# What Python may not print: controls, formats such as direction marks, separators. In JSON they stand only in strings.
_UNPRINTABLE = re.compile(r"[^\n\x20-\x7e]")


def format_json(value: Any) -> str:
    r"""Indented JSON of a Struct or plain data; what could steer a terminal stands as ``\uXXXX``, which says the same."""
    return escape_json(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def format_json_line(value: Any) -> str:
    """The same on one line, for streams."""
    return escape_json(msgspec.json.encode(value).decode())


def escape_json(document: str) -> str:
    """JSON that says the same in printable characters."""
    return _UNPRINTABLE.sub(lambda found: found[0] if found[0].isprintable() else _escape_char(found[0]), document)


def _escape_char(char: str) -> str:
    units = char.encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def format_yaml(value: Any) -> str:
    """The same document as YAML, in ASCII, whatever is in it."""
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # where libyaml is there, ten times as fast
    document = msgspec.json.decode(msgspec.json.encode(value))
    text: str = yaml.dump(document, Dumper=dumper, sort_keys=False, width=1 << 20)
    return text.removesuffix("\n")


def format_timestamp(at: float | None) -> str:
    """UTC, to the second; '-' for never, the number itself if it is no time at all."""
    if at is None:
        return "-"
    try:
        return datetime.fromtimestamp(at, tz=timezone.utc).strftime("%Y-%m-%d %H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return str(at)
