"""Parses times in files: epoch s, ms, µs or ns, or ISO 8601; times without an offset are UTC."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, datetime, timezone
from typing import Any

import numpy as np
import numpy.typing as npt

_FRACTION = re.compile(r"([.,])(\d+)")
_SHORT_OFFSET = re.compile(r"([+-]\d\d)(\d\d)?$")
_NAMED_UTC = re.compile(r"\s*(?:z|utc|gmt)$", re.IGNORECASE)
# A larger number (year 5138) must be in a finer unit than seconds.
_UNITS = ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3))


def parse_timestamps(cells: Sequence[Any]) -> npt.NDArray[np.float64]:
    """UTC seconds of each cell, NaN for None. A column has one unit, inferred from its median.

    Raises:
        ValueError: a cell is not a time.
        TypeError: a cell is a list or a record.
    """
    found = np.full(len(cells), np.nan)
    numeric = np.zeros(len(cells), dtype=bool)
    seen: dict[str, float] = {}
    for index, cell in enumerate(cells):
        if cell is None:
            continue
        if isinstance(cell, str):
            number = _parse_epoch_number(cell)
            if number is None:
                if cell not in seen:
                    seen[cell] = parse_iso_timestamp(cell)
                found[index] = seen[cell]
                continue
            found[index] = number
        elif isinstance(cell, datetime):
            aware = cell if cell.tzinfo is not None else cell.replace(tzinfo=timezone.utc)
            found[index] = aware.timestamp()
            continue
        elif isinstance(cell, date):
            found[index] = datetime(cell.year, cell.month, cell.day, tzinfo=timezone.utc).timestamp()
            continue
        elif isinstance(cell, (int, float)):
            found[index] = float(cell)
        else:
            raise TypeError(f"{type(cell).__name__} is not a time")
        numeric[index] = True
    found[np.isinf(found)] = np.nan
    sized = np.abs(found[numeric & np.isfinite(found)])
    middle = float(np.median(sized)) if sized.size else 0.0
    found[numeric] /= next((unit for least, unit in _UNITS if middle >= least), 1.0)
    return found


def parse_iso_timestamp(text: str) -> float:
    """UTC seconds of an ISO 8601 time; without an offset it is UTC.

    >>> parse_iso_timestamp("2026-01-02T03:04:05Z")
    1767323045.0

    Raises:
        ValueError: it is none.
    """
    plain = _NAMED_UTC.sub("+00:00", text.strip())
    if len(plain) > 10:  # only a time of day can have an offset
        plain = _FRACTION.sub(lambda found: "." + found[2][:6].ljust(6, "0"), plain, count=1)
        plain = _SHORT_OFFSET.sub(lambda found: f"{found[1]}:{found[2] or '00'}", plain)
    moment = datetime.fromisoformat(plain)
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)).timestamp()


def _parse_epoch_number(text: str) -> float | None:
    """Parse a number as text; eight digits are a date (20260101), never epoch seconds."""
    stripped = text.strip()
    if len(stripped) == 8 and stripped.isdigit() and stripped.startswith("20"):
        return None
    try:
        return float(stripped)
    except ValueError:
        return None
