"""One column of a CSV file: its texts as they stand there, and quickly read as numbers or as names where that is plain."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt


class CsvColumn(Sequence[str]):
    """Texts, kept as pyarrow has read them. A column of a million cells is mostly asked for all its numbers at once."""

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
        """float64, NaN for blank cells; None if a cell is anything else, which is then for somebody slower to judge."""
        import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
        import pyarrow.compute as pc  # type: ignore[import-untyped]  # it ships no types

        cells = pc.if_else(pc.equal(self._cells, ""), None, self._cells)
        try:
            numbers = cells.cast(pa.float64())
        except pa.ArrowInvalid:
            return None
        return np.asarray(numbers.to_numpy(zero_copy_only=False) if len(numbers) else [], dtype=np.float64)

    def each(self, read: Callable[[str], Any]) -> list[Any]:
        """What `read` makes of every cell; it is asked once for each text that occurs."""
        coded = self._cells.dictionary_encode()
        made = np.array([read(text) for text in coded.dictionary.to_pylist()] or [None], dtype=object)
        found: list[Any] = made[coded.indices.to_numpy(zero_copy_only=False)].tolist() if len(coded) else []
        return found
