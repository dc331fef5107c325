"""The heartbeats of many nodes of one job as arrays: a fleet sends a thousand a second, of eight ranks each. Pure.

Only ranks that a whole report has placed are read this way (`StepWindowMatrix.holds_all_of`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vocabulary.messages.heartbeat import EXPONENT_MAX, RANK, WINDOW, Heartbeat

Ints = npt.NDArray[np.int64]
Doubles = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

SIZE_MAX, MEASURED_MAX = 1024, 1e14
_RANK = np.dtype(
    [("step", "<i8"), ("at", "<f8"), ("times", "<f8", 2), ("words", "u1", 3), ("windows", "u1")]
)  # as `RANK`
_WINDOW = np.dtype([("number", "<u4"), ("steps", "<u2"), ("exponent", "u1"), ("zero", "u1"), ("values", "<f4", 6)])
assert (_RANK.itemsize, _WINDOW.itemsize) == (RANK.size, WINDOW.size)  # noqa: S101 - two descriptions of one record


class RankHeartbeat(NamedTuple):
    """A node's heartbeat, received at `at` (UTC s); `numbers`: by place in it, the rank's number, -1 if it has ended."""

    node: str
    at: float
    numbers: Ints
    heartbeat: Heartbeat


class WindowCells(NamedTuple):
    """Step windows as arrays: the column of each, its steps, and its means (a column for each field; NaN: not told)."""

    column: Ints
    first: Ints
    size: Ints
    steps: Ints
    values: Doubles


class HeartbeatTable(NamedTuple):
    """`number` and `windows` (how many) are by rank, `of_node` its node's index; the other arrays are by window."""

    at: float  # of the newest heartbeat, UTC s
    number: Ints
    of_node: Ints
    windows: Ints
    first: Ints
    size: Ints
    steps: Ints
    values: Doubles
    believable: Flags

    @property
    def last(self) -> Ints:
        """By rank: index of its last window; only valid where it has one."""
        return np.cumsum(self.windows) - 1

    def newest_step_times(self) -> list[float]:
        """Return, for each node with windows, the step time in the newest window of its first rank."""
        told = np.flatnonzero((self.windows > 0) & (self.number >= 0))
        _, first = np.unique(self.of_node[told], return_index=True)
        times = self.values[self.last[told[first]], 0]
        return times[(times > 0) & (times < MEASURED_MAX)].tolist()  # type: ignore[no-any-return]  # floats

    def newest_runs(self, column: Ints, taken: Ints) -> WindowCells:
        """Return the newest consecutive windows of each rank; before them the job was ahead and went back.

        Args:
            column: by rank, where its windows go; -1: nowhere.
            taken: by rank, the first step that a window may begin at.
        """
        rank = np.repeat(np.arange(self.windows.size), self.windows)
        end = self.first + self.size
        followed = np.r_[rank[1:] == rank[:-1], False][: rank.size]
        ends = ~self.believable | (self.first < taken[rank])
        ends |= followed & (end > np.r_[self.first[1:], 0][: rank.size])
        breaks = np.r_[np.cumsum(ends[::-1])[::-1], 0]  # from here to the end of the table
        run = (breaks[:-1] == breaks[self.last[rank] + 1]) & (column[rank] >= 0)
        return WindowCells(column[rank][run], self.first[run], self.size[run], self.steps[run], self.values[run])


def read_heartbeats(told: Sequence[RankHeartbeat]) -> HeartbeatTable:
    """Read the heartbeats of a job's nodes, one of each node, all their ranks being of this job."""
    ranks = np.frombuffer(b"".join([each.heartbeat.ranks for each in told]), _RANK)
    cells = np.frombuffer(b"".join([each.heartbeat.windows for each in told]), _WINDOW)
    size = np.left_shift(np.int64(1), np.minimum(cells["exponent"], EXPONENT_MAX).astype(np.int64))
    steps, values = cells["steps"].astype(np.int64), cells["values"].astype(np.float64)
    with np.errstate(invalid="ignore"):
        fine = np.isnan(values) | ((values >= 0) & (values < MEASURED_MAX))
    return HeartbeatTable(
        at=max((each.at for each in told), default=0.0),
        number=np.concatenate([each.numbers for each in told]) if told else np.zeros(0, dtype=np.int64),
        of_node=np.repeat(np.arange(len(told)), [each.numbers.size for each in told]),
        windows=ranks["windows"].astype(np.int64),
        first=cells["number"].astype(np.int64) * size,
        size=size,
        steps=steps,
        values=values,
        believable=fine.all(axis=1) & ~np.isnan(values[:, 0]) & (steps > 0) & (steps <= size) & (size <= SIZE_MAX),
    )
