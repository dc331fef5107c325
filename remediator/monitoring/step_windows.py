"""The step windows of a job's ranks as a matrix: a row is a fixed number of steps, a column a rank. Pure, bounded.

Windows that come late, twice or with another size are put in their place. False reports stay out of other cells: a rank
belongs to the node that reported it first, the ranks of a node are limited, and two fifths of all reported ranks must
agree on the job's current step and on the size of the rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from msgspec.structs import astuple

from remediator.detection.stragglers.step_trace import MAY_BE_ZERO, UNKNOWN, StepTrace, as_slice
from remediator.monitoring.heartbeat_table import MEASURED_MAX, SIZE_MAX, HeartbeatTable, Ints, WindowCells
from vocabulary.messages.wire import RankStatus, StepWindow

Number = TypeVar("Number", np.float32, np.uint16)
Singles = npt.NDArray[np.float32]

ROWS = 64  # kept: those of the next pass, and room for late ones
AHEAD = 16  # rows that a rank may be before most others; more is an error or a false report
AGREE = 0.4  # of the ranks: one node of three cannot move the others
RANKS_PER_NODE = 64
STEP_MAX, WORLD_MAX = 2**52, 1 << 20
GROUP_MAX = 2**31  # number of a group or a stage; a beacon may hold any value
GROWTH = 4  # more columns at a time, as a share of those in use: unused ones cost as much
LEFT_S = 120.0  # a rank that its node has not reported for so long has left the job
PAUSE_S = 30.0  # most that counts of a gap in windows: a longer one is the fault of controller or network
WARM_UP_STEPS = 16
SHORTER = 4  # times, and the rows are rebuilt
CELLS = ("step_s", "forward_s", "backward_s", "comm_s", "data_s", "tokens")  # the detectors' names, as in a window


class RankPlacement(NamedTuple):
    """Where a rank runs and who its peers are. `gpu` is a UUID, empty if it was not reported; numbers are then -1."""

    node: str
    gpu: str = ""
    role: str = ""
    stage: int = -1
    tensor_group: int = -1
    data_group: int = -1


class NodeRankReport(NamedTuple):
    """A node's report of its ranks of one attempt: received (UTC s, our clock) and sent (the node's clock)."""

    node: str
    ranks: Sequence[RankStatus]
    at: float
    sent_at: float = 0.0


def is_possible_rank(rank: RankStatus) -> bool:
    """Return whether the rank and world size are possible. Others fit neither the matrix nor a database column."""
    return (
        abs(rank.attempt) < STEP_MAX
        and abs(rank.rank) < STEP_MAX
        and abs(rank.world) < STEP_MAX
        and abs(rank.step) < STEP_MAX
    )


class _NewWindows(NamedTuple):
    """Consecutive windows of the rank in this column."""

    column: int
    windows: Sequence[StepWindow]


class StepWindowMatrix:
    """One attempt of a job. `seats` are its ranks; `frontier` is the newest row that enough of them have reached."""

    def __init__(self) -> None:
        self.seats: dict[int, RankPlacement] = {}
        self.grid = 0  # steps per row; 0: unknown yet
        self.frontier = -1
        self._column: dict[int, int] = {}
        self._sorted: tuple[Ints, Ints] | None = None  # the same as arrays, in the order of ranks
        self._whole: set[str] = set()  # nodes of which every living rank has its seat
        self._held: Counter[str] = Counter()  # ranks by node
        self._heard_at, self._clock = 0.0, 0.0  # UTC s; seconds in which any node reported the job
        self._free: list[int] = []  # free columns
        self._rank = np.zeros(0, dtype=np.int64)  # by column: the rank, -1 if unused
        self._told = np.zeros(0)  # by column: `_clock` at its node's last report
        self._taken = np.zeros(0, dtype=np.int64)  # by column: the first step that the next window may begin at
        self._head = np.zeros(0, dtype=np.int64)  # by column: the step before which it has reported everything
        self._size = np.zeros(0, dtype=np.int64)
        self._row_at = np.full(ROWS, -1, dtype=np.int64)
        self._weight = np.zeros((ROWS, 0), dtype=np.uint16)  # measured steps of a cell, at most `SIZE_MAX`
        self._sums: dict[str, Singles] = {}

    def take(self, heard: Iterable[NodeRankReport], at: float = 0.0, heartbeats: HeartbeatTable | None = None) -> None:
        """Take in the nodes' reports; `at` is when any node last reported the job, perhaps other ranks of it (UTC s).

        `heartbeats` are of other nodes, which `holds_all_of`.
        """
        self._pass(at)
        begins: dict[int, int] = {}
        news = [each for word in heard for each in self._news(word, begins)]
        cells = [_window_cells(news)] if news else []
        if heartbeats is not None:
            cells.append(self._read(heartbeats))
        for column in np.flatnonzero((self._rank >= 0) & (self._clock - self._told >= LEFT_S)).tolist():
            self._leave(column)
        told = np.flatnonzero(self._size > 0)
        if told.size == 0:
            return
        self._cut(_quorum_value(self._size[told]))
        frontier = int(_quorum_value(self._head[told] // self.grid)) - 1
        if frontier < self.frontier - AHEAD:  # the job went back to an earlier step; its windows from there are new
            self._forget()
            self._taken[:] = 0
        self.frontier = frontier
        for each in cells:
            self._put(each)

    def leave(self, node: str) -> None:
        """Remove the node's ranks."""
        for rank in [rank for rank, seat in self.seats.items() if seat.node == node]:
            self._leave(self._column[rank])

    def holds_all_of(self, node: str) -> bool:
        """Return whether every living rank of the node's last report has its seat: then heartbeats are enough."""
        return node in self._whole

    @property
    def oldest(self) -> int:
        """Return the first row that is still kept whole."""
        return max(0, self.frontier + AHEAD - ROWS + 1)

    def arrived(self, row: int) -> float:
        """Return the share of ranks that have reported everything up to the end of a row."""
        used = self._rank >= 0
        return float(np.mean(self._head[used] >= (row + 1) * max(self.grid, 1))) if used.any() else 0.0

    def trace(self, first: int, last: int) -> StepTrace:
        """Return the rows from `first` up to `last` (exclusive), in the detectors' form."""
        ranks = np.array(sorted(self._column), dtype=np.int64)
        columns = np.array([self._column[rank] for rank in ranks.tolist()], dtype=np.int64)
        rows = np.arange(first, last)
        slots = rows % ROWS
        place = as_slice(columns)
        weight = self._weight[slots][:, place]
        known = (self._row_at[slots] == rows)[:, None] & (weight > 0)
        weight = np.where(known, weight, 1)
        cells = {}
        for name, sums in self._sums.items():
            mean = np.divide(sums[slots][:, place], weight, dtype=np.float64)
            good = known & np.isfinite(mean) & ((mean >= 0) if name in MAY_BE_ZERO else (mean > 0))
            if good.any():
                np.copyto(mean, np.nan, where=~good)
                cells[name] = mean
        seats = [self.seats[rank] for rank in ranks.tolist()]
        tensor = np.array([seat.tensor_group for seat in seats], dtype=np.int64)
        data = np.array([seat.data_group for seat in seats], dtype=np.int64)
        stage = np.array([seat.stage for seat in seats], dtype=np.int64)
        coded = {
            "stage": _encode_labels([str(seat.stage) if seat.stage >= 0 else "" for seat in seats]),
            "role": _encode_labels([seat.role for seat in seats]),
            "node": _encode_labels([seat.node for seat in seats]),
        }
        return StepTrace(
            steps=rows * self.grid,
            ranks=ranks,
            cells=cells,
            places={"dp_rank": _group_positions(data), "pp_rank": stage, "tp_rank": _group_positions(tensor)},
            codes={name: codes for name, (codes, _) in coded.items()},
            names={name: names for name, (_, names) in coded.items()},
            began=np.zeros(rows.size, dtype=np.bool_),
        )

    def _news(self, word: NodeRankReport, begins: dict[int, int]) -> Iterator[_NewWindows]:
        """Place the living ranks and return their new windows, from the step that `begins` gives for a column."""
        self._pass(word.at)
        living = [rank for rank in word.ranks if rank.alive]
        self._whole.discard(word.node)
        for number in {rank.rank for rank in word.ranks} - {rank.rank for rank in living}:
            if number in self.seats and self.seats[number].node == word.node:
                self._leave(self._column[number])
        for rank in living[:RANKS_PER_NODE]:
            if not (0 <= rank.rank < min(rank.world, WORLD_MAX)) or not self._seat(word.node, rank):
                continue
            column = self._column[rank.rank]
            if rank.windows and _is_believable(rank.windows[-1]):
                last = rank.windows[-1]
                self._size[column], self._head[column] = last.size, last.first + last.size
                run = _newest_window_run(rank.windows, begins.get(column) or int(self._taken[column]))
                if run:
                    begins[column] = last.first + last.size
                    yield _NewWindows(column, run)
        if living and all(rank.rank in self.seats and self.seats[rank.rank].node == word.node for rank in living):
            self._whole.add(word.node)

    def _read(self, told: HeartbeatTable) -> WindowCells:
        """Note what the ranks of these nodes say of their steps, and return their new windows."""
        self._pass(told.at)
        column = self._columns_of(told.number)
        self._told[column[column >= 0]] = self._clock
        newest = told.last[(told.windows > 0) & (column >= 0)]
        which = column[(told.windows > 0) & (column >= 0)][told.believable[newest]]
        newest = newest[told.believable[newest]]
        self._size[which], self._head[which] = told.size[newest], told.first[newest] + told.size[newest]
        return told.newest_runs(column, np.where(column >= 0, self._taken[column], 0))

    def _columns_of(self, numbers: Ints) -> Ints:
        """Return the columns of these ranks; -1 without one."""
        if self._sorted is None:
            known = np.array(sorted(self._column), dtype=np.int64)
            self._sorted = known, np.array([self._column[rank] for rank in known.tolist()], dtype=np.int64)
        known, columns = self._sorted
        if not known.size:
            return np.full(numbers.size, UNKNOWN, dtype=np.int64)
        place = np.minimum(np.searchsorted(known, numbers), known.size - 1)
        return np.where(known[place] == numbers, columns[place], UNKNOWN)

    def _pass(self, at: float) -> None:
        self._clock += min(max(0.0, at - self._heard_at), PAUSE_S)
        self._heard_at = max(self._heard_at, at)

    def _seat(self, node: str, rank: RankStatus) -> bool:
        """Return whether the rank is this node's: it reported it first, or the earlier owner has been silent too long."""
        before = self.seats.get(rank.rank)
        if before is not None and before.node != node:
            if self._clock - self._told[self._column[rank.rank]] < LEFT_S:
                return False
            self._leave(self._column[rank.rank])
        if rank.rank not in self._column:
            if self._held[node] >= RANKS_PER_NODE:
                return False
            self._held[node] += 1
            self._come(rank.rank)
        self._told[self._column[rank.rank]] = self._clock
        stage, tensor, data = (
            _bounded_group_number(rank.pipeline_stage),
            _bounded_group_number(rank.tensor_group),
            _bounded_group_number(rank.data_group),
        )
        seat = RankPlacement(node, rank.gpu, rank.role, stage, tensor, data)
        if seat != before:
            self.seats[rank.rank] = seat
        return True

    def _come(self, rank: int) -> None:
        if not self._free:
            more = max(8, self._rank.size // GROWTH)
            self._free = list(range(self._rank.size + more - 1, self._rank.size - 1, -1))
            self._rank = np.concatenate([self._rank, np.full(more, -1, dtype=np.int64)])
            self._told = np.concatenate([self._told, np.zeros(more)])
            self._taken, self._head, self._size = (
                np.concatenate([each, np.zeros(more, dtype=np.int64)]) for each in (self._taken, self._head, self._size)
            )
            self._weight = _widen_matrix(self._weight, more)
            self._sums = {name: _widen_matrix(sums, more) for name, sums in self._sums.items()}
        column = self._column[rank] = self._free.pop()
        self._rank[column] = rank
        self._sorted = None

    def _leave(self, column: int) -> None:
        """Free the column."""
        rank = int(self._rank[column])
        seat = self.seats.pop(rank)
        del self._column[rank]
        self._held[seat.node] -= 1
        if not self._held[seat.node]:
            del self._held[seat.node]
        self._whole.discard(seat.node)
        self._rank[column] = -1
        self._sorted = None
        self._taken[column] = self._head[column] = self._size[column] = 0
        self._weight[:, column] = 0
        self._free.append(column)

    def _cut(self, size: int) -> None:
        """Set the number of steps per row from now on.

        Longer rows drop what is known. Shorter rows are merged, unless a row would then take minutes: a job's first
        steps may be fast ones.
        """
        if size > self.grid or size * SHORTER <= self.grid:
            self.grid = size
            self._forget()

    def _forget(self) -> None:
        self._row_at[:] = -1
        self.frontier = -1

    def _put(self, told: WindowCells) -> None:
        """Write all cells at once.

        A fleet sends 20 000 windows a second, and numpy writes one cell almost as slowly as a hundred.
        """
        row = told.first // self.grid
        good = (self._rank[told.column] >= 0) & (told.first >= self._taken[told.column]) & (told.size <= self.grid)
        good &= (self.oldest <= row) & (row <= self.frontier + AHEAD)
        column, first, size, steps = told.column[good], told.first[good], told.size[good], told.steps[good]
        row, values = row[good], told.values[good]
        np.maximum.at(self._taken, column, first + size)
        self._begin_rows(np.unique(row))
        cells, cell = np.unique(row % ROWS * self._rank.size + column, return_inverse=True)
        weight = self._weight.reshape(-1)
        fresh = weight[cells] == 0
        weight[cells] = weight[cells] + np.bincount(cell, steps, cells.size)
        for field, name in enumerate(CELLS):
            value = values[:, field]
            if name not in self._sums:
                if np.isnan(value).all():
                    continue
                self._sums[name] = np.full(self._weight.shape, np.nan, dtype=np.float32)
            sums = self._sums[name].reshape(-1)
            sums[cells] = np.where(fresh, 0, sums[cells]) + np.bincount(cell, value * steps, cells.size)

    def _begin_rows(self, rows: Ints) -> None:
        """Clear the places of rows that are reused."""
        slots = rows % ROWS
        new = slots[self._row_at[slots] != rows]
        self._row_at[slots] = rows
        self._weight[new] = 0


def _window_cells(news: Sequence[_NewWindows]) -> WindowCells:
    told = np.array([astuple(window) for each in news for window in each.windows], dtype=np.float64)  # None: NaN
    column = np.repeat([each.column for each in news], [len(each.windows) for each in news])
    first, size, steps = told[:, :3].astype(np.int64).T
    return WindowCells(column, first, size, steps, told[:, 3:])


def _bounded_group_number(of_group: int) -> int:
    return of_group if 0 <= of_group < GROUP_MAX else UNKNOWN


def _quorum_value(values: Ints) -> int:
    """Return the largest value that enough of all reach."""
    place = values.size - int(np.ceil(AGREE * values.size))
    return int(np.partition(values, place)[place])


def _newest_window_run(windows: Sequence[StepWindow], taken: int) -> list[StepWindow]:
    """Return the newest consecutive windows from step `taken` on; before them the job was ahead and went back."""
    run: list[StepWindow] = []
    for window in reversed(windows):  # the newest is known to be plausible
        if window.first < taken or (
            run and not (window.first + window.size <= run[-1].first and _is_believable(window))
        ):
            break
        run.append(window)
    return run[::-1]


def _is_believable(window: StepWindow) -> bool:
    size, first = window.size, window.first
    if not (0 < size <= SIZE_MAX and size & (size - 1) == 0 and 0 <= first < STEP_MAX and first % size == 0):
        return False
    if not 0 < window.steps <= size:
        return False
    measured = window.step_s, window.forward_s, window.backward_s, window.communication_s, window.data_s, window.tokens
    for value in measured:  # noqa: SIM110 - a generator costs twice as much, and there are 20 000 windows a second
        if value is not None and not 0 <= value < MEASURED_MAX:
            return False
    return True


def _widen_matrix(matrix: npt.NDArray[Number], more: int) -> npt.NDArray[Number]:
    return np.concatenate([matrix, np.zeros((matrix.shape[0], more), dtype=matrix.dtype)], axis=1)


def _group_positions(groups: Ints) -> Ints:
    """Return each rank's place within its group, in rank order; -1 without a group."""
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    begins = np.r_[True, ordered[1:] != ordered[:-1]][: ordered.size]
    since = np.maximum.accumulate(np.where(begins, np.arange(ordered.size), 0))
    place = np.empty_like(groups)
    place[order] = np.arange(ordered.size) - since
    return np.where(groups >= 0, place, UNKNOWN)


def _encode_labels(words: Sequence[str]) -> tuple[Ints, tuple[str, ...]]:
    """Return indices into the sorted names, -1 for an empty name."""
    names = tuple(sorted({word for word in words if word}))
    index = {name: number for number, name in enumerate(names)}
    return np.array([index.get(word, UNKNOWN) for word in words], dtype=np.int64), names
