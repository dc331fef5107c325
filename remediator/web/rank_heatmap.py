"""The heat map of a job's ranks, from eight to a hundred thousand: which ranks are slower than their peers. Pure.

A rank's *own* time is its step without communication: in a synchronous job all steps take equally long, and the slow rank is
the one that does not wait. Ranks are compared within their pipeline stage.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate, chain
from statistics import median
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from remediator.fleet.report_registry import ReportEntry
from remediator.model.job_share import UNTOLD, JobShare, RankProgress
from remediator.model.journal_records import JobRef
from vocabulary.messages.wire import RankStatus

RANK_CELLS_MAX, CELLS_MAX = 1024, 1600
COLUMNS = 64
LEVELS = (0.02, 0.05, 0.1, 0.2)  # excess over the stage's median at which the next colour starts
NOT_TOLD, NOT_ALIVE = "u", "d"
SLOWEST_SHOWN = 20
SAMPLE = 512  # number of ranks whose windows are plotted
WINDOWS_SHOWN = 12


Crew = Sequence[tuple[str, JobShare]]  # node names with their share of the job
_Seat = tuple[str, RankStatus]
_Numbers = npt.NDArray[Any]


class _RankTable(NamedTuple):
    """All ranks, and the indices (`here`) of those of one stage. `own` is seconds per step without communication."""

    crew: Crew
    begins: Sequence[int]  # index of each share's first rank
    here: _Numbers
    own: _Numbers
    alive: _Numbers
    place: _Numbers  # index of the node
    key: _Numbers  # number of the square

    def seat(self, n: int) -> _Seat:
        """The rank with index `n`, and its node."""
        which = bisect_right(self.begins, n) - 1
        node, share = self.crew[which]
        return node, share.ranks[n - self.begins[which]]

    def progress(self, n: int) -> RankProgress:
        """What the rank with index `n` does now."""
        which = bisect_right(self.begins, n) - 1
        return self.crew[which][1].progress_of(n - self.begins[which])


class RankCell(msgspec.Struct, frozen=True, gc=False):
    """One square: its label, position and colour level."""

    label: str
    column: int
    line: int
    level: str


class StageRow(msgspec.Struct, frozen=True):
    """One pipeline stage (-1: not reported) as numbers and squares. Times are seconds, None if not reported."""

    number: int
    ranks: int
    dead: int
    nodes: int
    own: float | None
    slowest: float | None
    slowest_rank: int | None
    slowest_node: str
    cells: tuple[RankCell, ...]
    lines: int


class SlowRanks(msgspec.Struct, frozen=True):
    """Ranks of one node that are slower than their stage's median; other fields are those of the slowest rank."""

    ranks: tuple[int, ...]
    node: str
    stage: int
    own: float
    excess: float
    step: int
    phase: str
    at: float  # UTC s


class RankPicture(msgspec.Struct, frozen=True):
    """The whole heat map. `unit` describes what one square is."""

    unit: str
    stages: tuple[StageRow, ...]
    slowest: tuple[SlowRanks, ...]


class StepWindowSummary(msgspec.Struct, frozen=True):
    """Steps `first` to `last` over the ranks that reported them; times in seconds."""

    first: int
    last: int
    ranks: int
    step: float
    slowest: float
    own: float


def build_rank_picture(crew: Crew) -> RankPicture:
    """Build the heat map; nodes keep their order. Works on arrays and per node, because ranks are many."""
    if not crew:
        return RankPicture("a rank", (), ())
    sizes = [len(share.ranks) for _, share in crew]
    begins = [0, *accumulate(sizes[:-1])]
    own = np.array(list(chain.from_iterable([share.own_s for _, share in crew])))
    number, stage = _distinct_numbers(list(chain.from_iterable([share.stages for _, share in crew])))
    nodes = list(dict.fromkeys([node for node, _ in crew]))
    places = {name: place for place, name in enumerate(nodes)}
    place = np.repeat([places[node] for node, _ in crew], sizes)
    alive = np.ones(len(own), bool)
    for begin, (_, share) in zip(begins, crew, strict=True):
        if share.living != len(share.ranks):
            alive[begin : begin + len(share.ranks)] = [rank.alive for rank in share.ranks]
    pairs = _count_distinct(stage * len(places) + place)
    per_cell = 0 if len(own) <= RANK_CELLS_MAX else -(-pairs // CELLS_MAX)
    key = place // per_cell if per_cell else _distinct_numbers([rank.rank for rank in crew_ranks(crew)])[1]
    slow: list[SlowRanks] = []
    order = np.argsort(stage, kind="stable")
    parts = np.split(order, np.searchsorted(stage[order], np.arange(1, len(number))))
    stages = [
        _build_stage(each, _RankTable(crew, begins, here, own, alive, place, key), slow)
        for each, here in zip(number, parts, strict=True)
    ]
    slow.sort(key=lambda each: (-each.excess, each.ranks))
    unit = "a rank" if not per_cell else "a node" if per_cell == 1 else f"{per_cell} nodes"
    return RankPicture(unit, tuple(stages), _merge_slow_by_node(slow[:SLOWEST_SHOWN]))


def crew_ranks(crew: Crew) -> list[RankStatus]:
    """All ranks, node by node."""
    return list(chain.from_iterable([share.ranks for _, share in crew]))


def sample_ranks_with_windows(heard: Sequence[ReportEntry], ref: JobRef) -> list[RankStatus]:
    """An even sample of a job's ranks with their windows; unpacking all ranks of a large job takes half a second.

    Args:
        heard: the last reports of its nodes.
        ref: the job.
    """
    some = heard[:: max(1, -(-len(heard) // SAMPLE))]
    found: list[RankStatus] = []
    for turn, entry in enumerate(some):
        own = entry.ranks_of(ref)
        step = max(1, -(-len(own) * len(some) // SAMPLE))
        found += own[turn % step :: step]
    return found


def summarize_step_windows(ranks: Sequence[RankStatus]) -> list[StepWindowSummary]:
    """Summarize the newest step windows of these ranks, oldest first."""
    told: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for rank in ranks:
        for window in rank.windows:
            own = window.step_s - (window.communication_s or 0.0)
            told.setdefault((window.first, window.size), []).append((window.step_s, max(0.0, own)))
    newest = sorted(told)[-WINDOWS_SHOWN:]
    return [
        StepWindowSummary(
            first,
            first + size - 1,
            len(told[first, size]),
            median(step for step, _ in told[first, size]),
            max(step for step, _ in told[first, size]),
            median(own for _, own in told[first, size]),
        )
        for first, size in newest
    ]


def excess_level(excess: float) -> str:
    """The colour level for an excess over the median; 0 is as fast as the others.

    >>> [excess_level(e) for e in (-0.5, 0.0, 0.03, 0.07, 0.15, 3.0)]
    ['0', '0', '1', '2', '3', '4']
    """
    return str(sum(excess >= edge for edge in LEVELS))


def _distinct_numbers(numbers: list[int]) -> tuple[list[int], _Numbers]:
    """The distinct numbers in order, and each number's index among them; nodes may report any number."""
    different = sorted(set(numbers))
    return different, np.searchsorted(different, np.array(numbers))


def _count_distinct(numbers: _Numbers) -> int:
    """How many different numbers there are; faster than `numpy.unique` where they are nearly in order."""
    ordered = np.sort(numbers, kind="stable")
    return int(np.count_nonzero(ordered[1:] != ordered[:-1])) + min(1, len(ordered))


def _build_stage(number: int, told: _RankTable, slow: list[SlowRanks]) -> StageRow:
    own = told.own[told.here]
    known = np.sort(own[own > UNTOLD])
    middle = float(known[(len(known) - 1) // 2]) if len(known) else None
    worst = int(told.here[np.argmax(own)])
    if middle:
        most = np.argsort(-own, kind="stable")[:SLOWEST_SHOWN]
        slow += [_build_slow_ranks(told, int(told.here[n]), middle) for n in most if own[n] >= middle * (1 + LEVELS[0])]
    cells = _build_cells(told, middle)
    return StageRow(
        number=number,
        ranks=len(own),
        dead=int(np.count_nonzero(~told.alive[told.here])),
        nodes=_count_distinct(told.place[told.here]),
        own=middle,
        slowest=float(told.own[worst]) if len(known) else None,
        slowest_rank=told.seat(worst)[1].rank if len(known) else None,
        slowest_node=told.seat(worst)[0] if len(known) else "",
        cells=cells,
        lines=-(-len(cells) // COLUMNS),
    )


def _build_slow_ranks(told: _RankTable, n: int, middle: float) -> SlowRanks:
    (node, rank), own, now = told.seat(n), float(told.own[n]), told.progress(n)
    return SlowRanks((rank.rank,), node, rank.pipeline_stage, own, own / middle - 1, now.step, now.phase, now.at)


def _merge_slow_by_node(slow: list[SlowRanks]) -> tuple[SlowRanks, ...]:
    found: dict[tuple[str, int], list[SlowRanks]] = {}
    for each in slow:
        found.setdefault((each.node, each.stage), []).append(each)
    ranks = [tuple(sorted(chain.from_iterable(each.ranks for each in those))) for those in found.values()]
    return tuple(replace(those[0], ranks=its) for those, its in zip(found.values(), ranks, strict=True))


def _build_cells(told: _RankTable, middle: float | None) -> tuple[RankCell, ...]:
    order = told.here[np.argsort(told.key[told.here], kind="stable")]
    keys = told.key[order]
    begins = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
    ends = np.concatenate((begins[1:], [len(keys)]))
    most = np.maximum.reduceat(told.own[order], begins)
    dead = np.add.reduceat((~told.alive[order]).astype(int), begins)
    return tuple(
        _build_cell(
            n, (told.seat(order[begin]), told.seat(order[end - 1]), int(end - begin)), float(own), int(gone), middle
        )
        for n, (begin, end, own, gone) in enumerate(zip(begins, ends, most, dead, strict=True))
    )


def _build_cell(n: int, group: tuple[_Seat, _Seat, int], own: float, dead: int, middle: float | None) -> RankCell:
    (first, rank), (last, _), count = group
    who = first if first == last else f"{first} to {last}"
    words = f"rank {rank.rank} on {who}" if count == 1 else f"{who}, {count} ranks"
    excess = own / middle - 1 if own > UNTOLD and middle else None
    if dead:
        words += f", {dead} not alive"
    if own > UNTOLD:
        words += f": {own:.3g} s" + (f", {excess:+.0%}" if excess is not None else "")
    shown = NOT_ALIVE if dead else NOT_TOLD if excess is None else excess_level(excess)
    return RankCell(words, n % COLUMNS, n // COLUMNS, shown)


def svg_curve_path(points: Iterable[float], low: float, high: float, width: float, height: float) -> str:
    """An SVG path through equidistant values.

    >>> svg_curve_path([1.0, 2.0], 1.0, 2.0, 100, 10)
    'M0.0 10.0L100.0 0.0'
    """
    values = list(points)
    apart, room = width / max(1, len(values) - 1), high - low or 1.0
    spots = [f"{n * apart:.1f} {height - (value - low) / room * height:.1f}" for n, value in enumerate(values)]
    return "M" + "L".join(spots) if spots else ""
