from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthctl.analysis.csv_column import CsvColumn
from healthctl.analysis.event_table import cell_number, cell_text, read_table

pa = pytest.importorskip("pyarrow")

CELLS = st.one_of(
    st.floats().map(repr),
    st.integers().map(str),
    st.sampled_from([
        "", " ", "nan", "NaN", "-", "null", "inf", "-Infinity", "1_000", "0x10", "+1", ".5", "5.", " 7", "7 ", "1e400", "1e-400", "true",
        "x", "1,5", "٣", "007", "1d5", "1f", "0x1p3", "1e", "--1", "\t2", "-nan", "1.5.2",
    ]),
)  # fmt: skip


def slowly(cells: list[str]) -> list[float] | None:
    try:
        return [cell_number(cell) for cell in cells]
    except ValueError:
        return None


@given(st.lists(CELLS, max_size=4))
def test_what_is_read_quickly_is_what_is_read_cell_by_cell(cells: list[str]) -> None:
    column = CsvColumn(pa.array(cells, pa.string()))
    quickly = column.floats()
    assert quickly is None or np.array_equal(quickly, np.array(slowly(cells), dtype=float), equal_nan=True)
    assert column.each(cell_text) == [cell_text(cell) for cell in cells]
    assert list(column) == cells
    assert [column[place] for place in range(len(cells))] == cells


def test_plain_numbers_and_blanks_are_read_quickly(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("rank,compute_s,node\n007,1.5,007\n8,,n1\n")
    table = read_table(tmp_path / "a.csv")
    column = table.raw("compute_s")
    assert isinstance(column, CsvColumn)
    assert np.array_equal(np.asarray(column.floats()), [1.5, np.nan], equal_nan=True)
    assert (table.texts("node"), table.numbers("rank").tolist()) == (["007", "n1"], [7.0, 8.0])
