"""Columns from a CSV, JSON lines or Parquet file, chosen by the file name; errors name the file, line and column.

The caller chooses the type of a column: the same `17` is a node name in one column and a count in another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from healthctl.analysis.csv_column import CsvColumn
from healthctl.analysis.timestamps import parse_timestamps
from healthctl.exit_codes import Exit, Failure

Floats = npt.NDArray[np.float64]
Cells: TypeAlias = "Sequence[Any] | npt.NDArray[Any]"

ABSENT = frozenset({"", "nan", "null", "none", "na", "n/a", "nat", "<na>", "-"})


class Table:
    """Rows as columns. Names are lower case, stripped, with `_` for blanks and dashes; every column has `rows` cells."""

    def __init__(self, path: Path, columns: Mapping[str, Cells], lines: Sequence[int]) -> None:
        self.path = path
        self.rows = len(lines)
        self._columns = dict(columns)
        self._lines = lines

    @property
    def names(self) -> tuple[str, ...]:
        """The column names, in the file's order."""
        return tuple(self._columns)

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def first_of(self, *names: str) -> str | None:
        """The first of these names that exists as a column."""
        return next((name for name in names if name in self._columns), None)

    def need(self, *names: str) -> None:
        """Raise a Failure that lists the missing columns and the existing ones."""
        missing = [name for name in names if name not in self._columns]
        if missing:
            there = ", ".join(self.names) or "nothing"
            raise Failure(f"{self.path}: no column {', '.join(missing)}; columns: {there}", Exit.USAGE)

    def raw(self, name: str) -> Cells:
        """The cells as read: text, numbers, lists, None."""
        return self._columns[name]

    def texts(self, name: str) -> list[str | None]:
        """Stripped text; None for empty cells. Whole numbers lose their `.0`."""
        cells = self._columns[name]
        return cells.each(cell_text) if isinstance(cells, CsvColumn) else [cell_text(cell) for cell in cells]

    def numbers(self, name: str) -> Floats:
        """float64, NaN for empty cells; raises a Failure that names the first cell that is not a number."""
        cells = self._columns[name]
        if isinstance(cells, np.ndarray) and cells.dtype.kind in "iufb":
            return cells.astype(np.float64)
        if isinstance(cells, CsvColumn) and (quickly := cells.floats()) is not None:
            return quickly
        try:
            return np.array([cell_number(cell) for cell in cells], dtype=np.float64)
        except (ValueError, TypeError):
            raise self._first_bad(name, cell_number, "is not a number") from None

    def times(self, name: str) -> Floats:
        """UTC seconds, NaN for empty cells: epoch seconds (ms, µs, ns recognized by magnitude) or ISO 8601."""
        cells = self._columns[name]
        if isinstance(cells, np.ndarray) and cells.dtype.kind in "iuf":
            return parse_timestamps(cells.tolist())
        try:
            return parse_timestamps(
                cells.each(_cell_or_none) if isinstance(cells, CsvColumn) else [_cell_or_none(c) for c in cells]
            )
        except (ValueError, TypeError):
            raise self._first_bad(name, _timestamp_of, "is not a time: use epoch seconds or ISO 8601") from None

    def failure(self, row: int, name: str, what: str) -> Failure:
        """The error for one cell: file, line, column and content."""
        cell = str(self._columns[name][row])
        shown = cell if len(cell) <= 40 else cell[:37] + "..."
        return Failure(f"{self.path}:{self._lines[row]}: column '{name}': {shown!r} {what}", Exit.USAGE)

    def _first_bad(self, name: str, convert: Any, what: str) -> Failure:
        for row, cell in enumerate(self._columns[name]):
            try:
                convert(cell)
            except (ValueError, TypeError):
                return self.failure(row, name, what)
        return Failure(f"{self.path}: column '{name}': a cell {what}", Exit.USAGE)


def _cell_or_none(cell: Any) -> Any:
    return None if cell_text(cell) is None else cell


def _timestamp_of(cell: Any) -> float:
    return float(parse_timestamps([_cell_or_none(cell)])[0])


def cell_text(cell: Any) -> str | None:
    """Stripped text, None if empty."""
    if cell is None:
        return None
    if isinstance(cell, float):
        if np.isnan(cell):
            return None
        return str(int(cell)) if cell.is_integer() else repr(cell)
    text = str(cell).strip()
    return None if text.lower() in ABSENT else text


def cell_number(cell: Any) -> float:
    """A float, NaN if empty.

    Raises:
        ValueError: not a number.
        TypeError: a list or a record.
    """
    if isinstance(cell, (int, float)):
        return float(cell)
    if isinstance(cell, str):
        try:
            return float(cell)
        except ValueError:
            if cell_text(cell) is None:
                return float("nan")
            raise
    if cell is None:
        return float("nan")
    raise TypeError(type(cell).__name__)


def read_table(path: Path) -> Table:
    """Read the table in `path`; raises a Failure that names what cannot be read, and where.

    By the name, `.gz` and the like taken off: `.csv`, `.tsv`, `.txt`; `.jsonl`, `.ndjson`, `.json`; `.parquet`, `.pq`.
    """
    from healthctl.analysis.table_files import KINDS, TableFileError

    suffixes = [suffix.lower() for suffix in path.suffixes]
    kind = next((suffix for suffix in reversed(suffixes) if suffix in KINDS), None)
    if kind is None:
        raise Failure(f"{path}: unknown file type; the name must end in {', '.join(KINDS)}", Exit.USAGE)
    try:
        columns, lines = KINDS[kind](path)
    except TableFileError as error:
        raise Failure(f"{path}{error}", Exit.USAGE) from None
    except FileNotFoundError:
        raise Failure(f"{path}: no such file", Exit.USAGE) from None
    except (OSError, UnicodeDecodeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise Failure(f"{path}: cannot be read as {kind[1:]}: {reason[:200]}", Exit.USAGE) from None
    named: dict[str, Cells] = {}
    for name, cells in columns:
        plain = "_".join(name.replace("-", " ").split()).lower()
        if plain in named:
            raise Failure(f"{path}: two columns are called '{plain}'", Exit.USAGE)
        named[plain] = cells
    return Table(path, named, lines)
