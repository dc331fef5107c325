"""One column of a CSV file: the cells as text, with fast conversion to numbers or names for columns that allow it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt


class CsvColumn(Sequence[str]):
    """Text cells as read by pyarrow. Conversion is vectorized: a column may hold a million cells."""

    def __init__(self, cells: Any) -> None:
        """Args: `cells`: a pyarrow array of strings without nulls."""
        self._cells = cells

    def __len__(self) -> int:
        return len(self._cells)

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...
    def __getitem__(self, place: int | slice) -> str | list[str]:
        cells = self._cells[place]
        found: str | list[str] = cells.to_pylist() if isinstance(place, slice) else cells.as_py()
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._cells.to_pylist())

    def floats(self) -> npt.NDArray[np.float64] | None:
        """float64, NaN for blank cells; None if any cell is not a number, so that the caller parses cell by cell."""
        import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
        import pyarrow.compute as pc  # type: ignore[import-untyped]  # it ships no types

        cells = pc.if_else(pc.equal(self._cells, ""), None, self._cells)
        try:
            numbers = cells.cast(pa.float64())
        except pa.ArrowInvalid:
            return None
        return np.asarray(numbers.to_numpy(zero_copy_only=False) if len(numbers) else [], dtype=np.float64)

    def each(self, read: Callable[[str], Any]) -> list[Any]:
        """Apply `read` to every cell; called once per distinct text."""
        coded = self._cells.dictionary_encode()
        made = np.array([read(text) for text in coded.dictionary.to_pylist()] or [None], dtype=object)
        found: list[Any] = made[coded.indices.to_numpy(zero_copy_only=False)].tolist() if len(coded) else []
        return found
