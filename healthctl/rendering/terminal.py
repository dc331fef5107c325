"""Renders blocks for a terminal: fitted to its width, each tone with symbol, word and colour. Text is never parsed as markup."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from healthctl.rendering.blocks import (
    Block,
    Cell,
    Column,
    Facts,
    Line,
    Rows,
    Tone,
    Value,
    escape_control_chars,
    render_plain,
    value_text,
)

# Distinguishable without red against green, and without colour by the symbol.
STYLES = {Tone.GOOD: "cyan", Tone.WARN: "yellow", Tone.BAD: "bold red", Tone.UNKNOWN: "magenta"}
SYMBOLS = {Tone.GOOD: "✓", Tone.WARN: "!", Tone.BAD: "✗", Tone.UNKNOWN: "?"}
SYMBOLS_ASCII = {Tone.GOOD: "+", Tone.WARN: "!", Tone.BAD: "x", Tone.UNKNOWN: "?"}
NAME_COLUMNS_MIN = 8
PROSE_COLUMNS_MIN = 36  # narrower columns are unreadable: the sentence gets its own lines
PROSE_INDENT = 4
ROWS_FITTED_MAX = 500  # this many take 0.4 s; with more rows, each row is one line of any length


def render_terminal(
    blocks: Iterable[Block], *, wide: bool = False, color: bool = True, width: int | None = None
) -> str:
    """The page as text with escape sequences. `width` in columns; None: the terminal's width."""
    console = Console(
        width=width,
        no_color=not color,
        force_terminal=True,
        markup=False,
        highlight=False,
        emoji=False,
        soft_wrap=False,
    )
    symbols = SYMBOLS if console.encoding.startswith("utf") else SYMBOLS_ASCII
    before: Block | None = None
    with console.capture() as page:
        for block in blocks:
            if isinstance(block, Rows) and not block.items and not block.empty:
                continue  # as in a pipe: empty blocks take no lines
            if before is not None and not (isinstance(block, Line) and isinstance(before, Line)):
                console.print()
            if isinstance(block, Rows) and len(block.items) > ROWS_FITTED_MAX:
                console.out(render_plain([block], wide=wide), highlight=False)
            elif isinstance(block, Rows):
                console.print(
                    _render_table(block, symbols, console.width, wide=wide)
                    if block.items
                    else escape_control_chars(block.empty)
                )
            elif isinstance(block, Facts):
                console.print(_render_facts(block, symbols))
            else:
                console.print(Padding(_styled_text(block.value, symbols), (0, 0, 0, block.indent)))
            before = block
    return "\n".join(line.rstrip() for line in page.get().splitlines())


def _styled_text(value: Value, symbols: dict[Tone, str]) -> Text:
    if isinstance(value, Cell):
        return Text(f"{symbols[value.tone]} {value_text(value)}", style=STYLES[value.tone])
    return Text(escape_control_chars(value))


def _render_table(rows: Rows[object], symbols: dict[Tone, str], width: int, *, wide: bool) -> Table | Group:
    """Prose columns shrink first, then move below the row; names and states fold only if they alone are too wide. Nothing is cut off."""
    columns = rows.shown(wide=wide)
    cells = [[_styled_text(column.value(item) or "-", symbols) for column in columns] for item in rows.items]
    widths = [max(len(column.title), *(row[number].cell_len for row in cells)) for number, column in enumerate(columns)]
    fixed = sum(room + 2 for room, column in zip(widths, columns, strict=True) if not column.prose)
    prose = sum(room + 2 for room, column in zip(widths, columns, strict=True) if column.prose)
    fits = fixed - 2 <= width
    if fits and width - fixed < min(prose - 2, PROSE_COLUMNS_MIN):
        return _render_stacked_rows(columns, cells, widths)
    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        shown.add_column(column.title, overflow="fold", no_wrap=fits and not column.prose)
    for row in cells:
        shown.add_row(*row)
    return shown


def _render_stacked_rows(
    columns: Sequence[Column[Any]], cells: Sequence[Sequence[Text]], widths: Sequence[int]
) -> Group:
    """Names and states on one line, each sentence below them."""
    lines: list[Text | Padding] = []
    for row in [[Text(column.title, style="bold") for column in columns], *cells]:
        line = Text(no_wrap=True, overflow="ignore")
        for cell, column, room in zip(row, columns, widths, strict=True):
            if not column.prose:
                line.append_text(cell).append(" " * (2 + room - cell.cell_len))
        lines.append(line)
        lines += [
            Padding(cell, (0, 0, 0, PROSE_INDENT))
            for cell, column in zip(row, columns, strict=True)
            if column.prose and cell.plain != "-"
        ]
    return Group(*lines)


def _render_facts(block: Facts, symbols: dict[Tone, str]) -> Table:
    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    shown.add_column(no_wrap=True, style="bold", min_width=NAME_COLUMNS_MIN)
    shown.add_column(overflow="fold")
    for name, value in block.pairs:
        if value_text(value):
            shown.add_row(name, _styled_text(value, symbols))
    return shown
