"""One job's measurements as matrices of steps × ranks. Invalid measurements become holes (NaN). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

SECONDS = ("compute_s", "forward_s", "backward_s", "comm_s", "data_s", "step_s")
MAY_BE_ZERO = {"data_s"}  # batches may be ready; but no computation and no communication takes zero time
LENGTHS = ("tokens", "tokens_squared")
PLACES = ("dp_rank", "pp_rank", "tp_rank")
NAMES = ("stage", "role", "node")
RESTART_STEPS = 20.0  # a longer pause, in step times, was a restart
UNKNOWN = -1


@dataclass(frozen=True)
class StepTrace:
    """What the ranks of one job reported.

    Attributes:
        steps: (S,) step numbers, ascending.
        ranks: (R,) rank numbers, ascending.
        cells: name of a column → (S, R) seconds or tokens; NaN where nothing usable was reported.
        places: dp_rank, pp_rank, tp_rank → (R,) numbers, -1 where unknown.
        codes: stage, role, node → (R,) indices into `names`, -1 where unknown.
        names: stage, role, node → the names themselves.
        began: (S,) true where the job has just started or restarted.
    """

    steps: Ints
    ranks: Ints
    cells: Mapping[str, Floats]
    places: Mapping[str, Ints]
    codes: Mapping[str, Ints]
    names: Mapping[str, tuple[str, ...]]
    began: Bools

    def until(self, step: int) -> StepTrace:
        """Return the trace as known when `step` had ended."""
        kept = self.steps <= step
        cells = {name: values[kept] for name, values in self.cells.items()}
        return replace(self, steps=self.steps[kept], cells=cells, began=self.began[kept])

    def node_of(self, column: int) -> str | None:
        """Return the node of this column's rank, if known."""
        code = int(self.codes["node"][column])
        return None if code == UNKNOWN else self.names["node"][code]

    def compute(self) -> Floats | None:
        """Return (S, R) seconds of own work; None if the reported columns do not give it.

        If not measured itself, it is forward plus backward, or the step without communication. The step's own time is
        never used: in a synchronous job all ranks share it.
        """
        cells = self.cells
        if "compute_s" in cells:
            return cells["compute_s"]
        if "forward_s" in cells and "backward_s" in cells:
            return cells["forward_s"] + cells["backward_s"]
        if "step_s" in cells and "comm_s" in cells:
            rest = cells["step_s"] - cells["comm_s"] - np.nan_to_num(cells.get("data_s", np.zeros(1)))
            return np.where(rest > 0, rest, np.nan)
        return None


def as_slice(columns: Ints) -> slice | Ints:
    """Return evenly spaced columns as a slice: its cells are a view, the cells of an index a copy."""
    if columns.size < 2:
        return columns
    first, step = int(columns[0]), int(columns[1] - columns[0])
    even = step > 0 and bool((np.diff(columns) == step).all())
    return slice(first, int(columns[-1]) + 1, step) if even else columns


def build_step_trace(columns: Mapping[str, npt.NDArray[np.generic]]) -> StepTrace:
    """Build matrices from one job's rows, in any order.

    Args:
        columns: `step` and `rank`, and any of SECONDS, LENGTHS, PLACES, NAMES and `time` (UTC seconds), one value a
            row.
            Numbers that are NaN, infinite or negative are holes; rows without a step or a rank are dropped.

    If a step and rank were reported twice, the row with the least own time counts: a repeated report must not make a
    rank slow.
    """
    step, rank = _to_floats(columns["step"]), _to_floats(columns["rank"])
    whole = (step >= 0) & (rank >= 0) & (step == np.floor(step)) & (rank == np.floor(rank))
    kept = np.flatnonzero(whole & (step < 2.0**62) & (rank < 2.0**62))
    cleaned = {name: _measured_values(name, columns[name])[kept] for name in (*SECONDS, *LENGTHS) if name in columns}
    least = next((cleaned[name] for name in SECONDS if name in cleaned), np.zeros(kept.size))
    steps, s = np.unique(step[kept].astype(np.int64), return_inverse=True)
    ranks, r = np.unique(rank[kept].astype(np.int64), return_inverse=True)
    order = np.lexsort((np.nan_to_num(least, nan=np.inf), r, s))
    s, r, row = s[order], r[order], kept[order]
    first = np.ones(order.size, dtype=bool)
    first[1:] = (s[1:] != s[:-1]) | (r[1:] != r[:-1])
    s, r, row, order = s[first], r[first], row[first], order[first]
    cells: dict[str, Floats] = {}
    for name, values in cleaned.items():
        matrix = np.full((steps.size, ranks.size), np.nan)
        matrix[s, r] = values[order]
        if np.isfinite(matrix).any():
            cells[name] = matrix
    places = {name: _location_codes(columns.get(name), row, r, ranks.size) for name in PLACES}
    coded = {name: _label_codes(columns.get(name), row, r, ranks.size) for name in NAMES}
    return StepTrace(
        steps=steps,
        ranks=ranks,
        cells=cells,
        places=places,
        codes={name: code for name, (code, _) in coded.items()},
        names={name: words for name, (_, words) in coded.items()},
        began=_trace_starts(columns.get("time"), row, s, steps.size),
    )


def _to_floats(values: npt.NDArray[np.generic]) -> Floats:
    """Convert to floats; anything else is NaN."""
    if values.dtype.kind in "fiub":
        return values.astype(np.float64)
    numbers = np.full(values.size, np.nan)
    for place, value in enumerate(values.tolist()):
        try:
            numbers[place] = float(value)
        except (TypeError, ValueError, OverflowError):
            continue
    return numbers


def _measured_values(name: str, values: npt.NDArray[np.generic]) -> Floats:
    numbers = _to_floats(values)
    good = np.isfinite(numbers) & ((numbers >= 0) if name in MAY_BE_ZERO else (numbers > 0))
    return np.where(good, numbers, np.nan)


def _location_codes(values: npt.NDArray[np.generic] | None, row: Ints, r: Ints, ranks: int) -> Ints:
    """Return, per rank, the value of its newest row that has one."""
    found = np.full(ranks, UNKNOWN, dtype=np.int64)
    if values is not None:
        numbers = _to_floats(values)[row]
        good = np.isfinite(numbers) & (numbers >= 0) & (numbers < 2.0**62)
        found[r[good]] = numbers[good].astype(np.int64)
    return found


def _label_codes(
    values: npt.NDArray[np.generic] | None, row: Ints, r: Ints, ranks: int
) -> tuple[Ints, tuple[str, ...]]:
    found = np.full(ranks, UNKNOWN, dtype=np.int64)
    if values is None:
        return found, ()
    newest = _newest_values(values, row, r, ranks)
    names = sorted({_format_label(value) for value in newest.values()})
    index = {name: number for number, name in enumerate(names)}
    for rank, value in newest.items():
        found[rank] = index[_format_label(value)]
    return found, tuple(names)


def _newest_values(values: npt.NDArray[np.generic], row: Ints, r: Ints, ranks: int) -> dict[int, object]:
    """Return, per rank, its newest non-blank value: usually in its last row, which saves a scan of all."""
    last = np.zeros(ranks, dtype=np.int64)
    last[r] = row
    newest = dict(enumerate(values[last].tolist())) if row.size else {}
    blank = {rank for rank, value in newest.items() if _is_blank(value)}
    if blank:
        rows = np.isin(r, np.array(sorted(blank)))
        again = zip(r[rows].tolist(), values[row[rows]].tolist(), strict=True)
        newest.update({rank: value for rank, value in again if not _is_blank(value)})
    return {rank: value for rank, value in newest.items() if not _is_blank(value)}


def _is_blank(value: object) -> bool:
    return value is None or value == "" or value != value  # noqa: PLR0124 - a NaN differs from itself


def _format_label(value: object) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _trace_starts(times: npt.NDArray[np.generic] | None, row: Ints, s: Ints, steps: int) -> Bools:
    """Return the first step, and each that begins long after the one before it."""
    began = np.zeros(steps, dtype=bool)
    began[:1] = True
    if times is None or steps < 3:
        return began
    numbers = _to_floats(times)[row]
    good = np.flatnonzero(np.isfinite(numbers))
    order = good[np.lexsort((numbers[good], s[good]))]
    known, first, count = np.unique(s[order], return_index=True, return_counts=True)
    pauses = np.diff(numbers[order][first + count // 2])  # of the middle rank: single clocks may be wrong
    if pauses.size and np.any(pauses > 0):
        usual = float(np.median(pauses[pauses > 0]))
        began[known[1:][pauses > RESTART_STEPS * usual]] = True
    return began
