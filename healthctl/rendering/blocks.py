"""Output for people and programs: tables, facts, JSON, YAML, times. External text is escaped, so that it cannot control a terminal.

A command describes its page once, in blocks; `render_plain` writes them for pipes and files, `healthctl.rendering.terminal` for a terminal.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timezone
from typing import Any, Generic, NamedTuple, TypeVar

import click
import msgspec

T = TypeVar("T")

# For commands that query no server; commands that show a view of the controller use
# `healthctl.cli.screen.view_options`.
output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="Output format: text for people, json or yaml for programs.",
)


class Tone(enum.Enum):
    """The meaning of a word; on a terminal shown as symbol and colour."""

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
    """`word` with its tone, if it has one."""
    tone = _TONE_OF.get(word)
    return Cell(word, tone) if tone else word


class Column(msgspec.Struct, Generic[T], frozen=True):  # a dataclass takes ten times as long to define
    """One column of a table. `wide` columns are shown with ``-o wide``; `prose` columns shrink on a narrow terminal."""

    title: str
    value: Callable[[T], Value]
    wide: bool = False
    prose: bool = False


class Rows(msgspec.Struct, Generic[T], frozen=True):
    """A table; `empty` is printed if there are no rows."""

    items: Sequence[T]
    columns: Sequence[Column[T]]
    empty: str = ""

    def shown(self, *, wide: bool) -> list[Column[T]]:
        """The columns to show."""
        return [column for column in self.columns if wide or not column.wide]


class Facts(msgspec.Struct, frozen=True):
    """One `name  value` line per pair with a non-empty value."""

    pairs: Sequence[tuple[str, Value]]


class Line(msgspec.Struct, frozen=True):
    """A single sentence; `indent` in columns."""

    value: Value
    indent: int = 0


Block = Rows[Any] | Facts | Line


def escape_control_chars(text: str) -> str:
    r"""Escape everything in `text` that a terminal could interpret: escapes, line breaks, direction marks.

    >>> escape_control_chars("bad\x1b[2J name")
    'bad\\x1b[2J name'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def escape_page(page: str) -> str:
    """A page of many lines, each escaped."""
    return "\n".join(map(escape_control_chars, page.split("\n")))


def value_text(value: Value) -> str:
    """The text of a value, escaped, without its tone."""
    return escape_control_chars(value.text if isinstance(value, Cell) else value)


def render_plain(blocks: Iterable[Block], *, wide: bool = False) -> str:
    """Blocks as text without colours, one line per row: for pipes, files and basic terminals.

    Consecutive lines stand together; other blocks are separated by an empty line.
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


def _render_plain_block(block: Block, wide: bool) -> str:  # noqa: FBT001 - as given to `render_plain`
    if isinstance(block, Facts):
        return format_facts((name, value_text(value)) for name, value in block.pairs)
    if isinstance(block, Line):
        return " " * block.indent + value_text(block.value)
    columns = block.shown(wide=wide)
    rows = [[value_text(column.value(item)) or "-" for column in columns] for item in block.items]
    return format_table([column.title for column in columns], rows) if rows else escape_control_chars(block.empty)


def format_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Left-aligned columns, two spaces apart, no trailing blanks, every cell escaped."""
    lines = [tuple(header), *(tuple(escape_control_chars(cell) for cell in row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def format_facts(pairs: Iterable[tuple[str, str]]) -> str:
    """One `name  value` line per pair with a non-empty value."""
    kept = [(name, escape_control_chars(value)) for name, value in pairs if value]
    width = max((len(name) for name, _ in kept), default=0)
    return "\n".join(f"{name.ljust(width)}  {value}" for name, value in kept)


# Characters that Python does not print: controls, formats such as direction marks, separators. In JSON they occur only
# in strings.
_UNPRINTABLE = re.compile(r"[^\n\x20-\x7e]")


def format_json(value: Any) -> str:
    r"""Indented JSON of a Struct or plain data; control characters become ``\uXXXX``."""
    return escape_json(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def format_json_line(value: Any) -> str:
    """The same on one line, for streams."""
    return escape_json(msgspec.json.encode(value).decode())


def escape_json(document: str) -> str:
    """Equivalent JSON in printable characters."""
    return _UNPRINTABLE.sub(lambda found: found[0] if found[0].isprintable() else _escape_char(found[0]), document)


def _escape_char(char: str) -> str:
    units = char.encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def format_yaml(value: Any) -> str:
    """The same document as YAML, in ASCII."""
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # with libyaml ten times as fast
    document = msgspec.json.decode(msgspec.json.encode(value))
    text: str = yaml.dump(document, Dumper=dumper, sort_keys=False, width=1 << 20)
    return text.removesuffix("\n")


def format_timestamp(at: float | None) -> str:
    """UTC, to the second; '-' for never, the number itself if out of range."""
    if at is None:
        return "-"
    try:
        return datetime.fromtimestamp(at, tz=timezone.utc).strftime("%Y-%m-%d %H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return str(at)
