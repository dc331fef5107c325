"""A job's ranks as people can look at them, be they eight or a hundred thousand: who needs longer than its peers. Pure.

A rank's *own* time is its step without communication: in lockstep all steps take equally long, and the slow rank is the one that
does not wait. It is compared within its pipeline stage.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median, median_low

import msgspec

from remediator.web.heat import counting
from vocabulary.wire import RankStatus

RANK_CELLS_MAX, CELLS_MAX = 1024, 1600
COLUMNS = 64
LEVELS = (0.02, 0.05, 0.1, 0.2)  # share above the stage's median at which the next colour begins
NOT_TOLD, NOT_ALIVE = "u", "d"
SLOWEST_SHOWN = 20
SAMPLE = 512  # ranks whose windows are drawn
WINDOWS_SHOWN = 12


Seat = tuple[str, RankStatus]  # a node, and a rank there
_Told = tuple[float, str, RankStatus]  # seconds a step without communication, node, rank
_UNTOLD = -1.0


class Cell(msgspec.Struct, frozen=True, gc=False):
    """One square: what it stands for, in words, and its colour."""

    label: str
    column: int
    line: int
    level: str


class Stage(msgspec.Struct, frozen=True):
    """One pipeline stage (-1: the job tells none) in words and squares. Times are seconds, None where nobody tells."""

    number: int
    ranks: int
    dead: int
    nodes: int
    own: float | None
    slowest: float | None
    slowest_rank: int | None
    slowest_node: str
    cells: tuple[Cell, ...]
    lines: int


class Slow(msgspec.Struct, frozen=True):
    """One rank that needs longer than its stage's median."""

    rank: int
    node: str
    stage: int
    own: float
    excess: float
    step: int
    phase: str
    at: float  # UTC s


class Picture(msgspec.Struct, frozen=True):
    """All of it. `unit` says what a square is."""

    unit: str
    stages: tuple[Stage, ...]
    slowest: tuple[Slow, ...]


class Window(msgspec.Struct, frozen=True):
    """Steps `first` to `last` over the ranks that told of them; seconds."""

    first: int
    last: int
    ranks: int
    step: float
    slowest: float
    own: float


def picture(ranks: Sequence[Seat]) -> Picture:
    """The squares and the words. Few words of Python for each rank: there are a hundred thousand."""
    by_stage: dict[int, list[_Told]] = {}
    for node, rank in ranks:
        step = rank.step_median or rank.step_seconds
        own = step - rank.sections_median.get("communication", 0.0) if step > 0 and rank.alive else _UNTOLD
        told = (own, node, rank)
        stage = by_stage.get(rank.pipeline_stage)
        if stage is None:
            by_stage[rank.pipeline_stage] = [told]
        else:
            stage.append(told)
    pairs = sum(len({node for _, node, _ in here}) for here in by_stage.values())
    per_cell = 0 if len(ranks) <= RANK_CELLS_MAX else -(-pairs // CELLS_MAX)
    nodes = sorted({node for node, _ in ranks}, key=counting) if per_cell else []
    place = {name: n // per_cell for n, name in enumerate(nodes)} if per_cell else {}
    slow: list[Slow] = []
    stages = [_stage(number, by_stage[number], place, slow) for number in sorted(by_stage)]
    slow.sort(key=lambda each: (-each.excess, each.rank))
    unit = "a rank" if not per_cell else "a node" if per_cell == 1 else f"{per_cell} nodes"
    return Picture(unit, tuple(stages), tuple(slow[:SLOWEST_SHOWN]))


def windows(ranks: Sequence[Seat]) -> list[Window]:
    """The newest windows of steps, oldest first, over a sample of the ranks."""
    told: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for _, rank in ranks[:: max(1, -(-len(ranks) // SAMPLE))]:
        for window in rank.windows:
            own = window.step_s - (window.communication_s or 0.0)
            told.setdefault((window.first, window.size), []).append((window.step_s, max(0.0, own)))
    newest = sorted(told)[-WINDOWS_SHOWN:]
    return [
        Window(
            first,
            first + size - 1,
            len(told[first, size]),
            median(step for step, _ in told[first, size]),
            max(step for step, _ in told[first, size]),
            median(own for _, own in told[first, size]),
        )
        for first, size in newest
    ]


def level(excess: float) -> str:
    """The colour's number, 0 for as fast as the others.

    >>> [level(e) for e in (-0.5, 0.0, 0.03, 0.07, 0.15, 3.0)]
    ['0', '0', '1', '2', '3', '4']
    """
    return str(sum(excess >= edge for edge in LEVELS))


def _stage(number: int, here: list[_Told], place: dict[str, int], slow: list[Slow]) -> Stage:
    told = [own for own, _, _ in here if own > _UNTOLD]
    middle = median_low(told) if told else None
    worst = max(here, key=lambda each: each[0])
    if middle and middle > 0:
        limit = middle * (1 + LEVELS[0])
        slow += sorted([_slow(each, middle) for each in here if each[0] >= limit], key=lambda each: -each.excess)[
            :SLOWEST_SHOWN
        ]
    groups: dict[int, list[_Told]] = {}
    for each in here:
        key = place[each[1]] if place else each[2].rank
        group = groups.get(key)
        if group is None:
            groups[key] = [each]
        else:
            group.append(each)
    cells = [_cell(n, groups[key], middle) for n, key in enumerate(sorted(groups))]
    return Stage(
        number=number,
        ranks=len(here),
        dead=sum(not rank.alive for _, _, rank in here),
        nodes=len({node for _, node, _ in here}),
        own=middle,
        slowest=worst[0] if told else None,
        slowest_rank=worst[2].rank if told else None,
        slowest_node=worst[1] if told else "",
        cells=tuple(cells),
        lines=-(-len(cells) // COLUMNS),
    )


def _slow(told: _Told, middle: float) -> Slow:
    own, node, rank = told
    return Slow(rank.rank, node, rank.pipeline_stage, own, own / middle - 1, rank.step, rank.phase, rank.at)


def _cell(n: int, group: list[_Told], middle: float | None) -> Cell:
    own = max([own for own, _, _ in group])
    dead = sum([not rank.alive for _, _, rank in group])
    excess = own / middle - 1 if own > _UNTOLD and middle else None
    shown = NOT_ALIVE if dead else NOT_TOLD if excess is None else level(excess)
    words = _label(group, dead)
    if own > _UNTOLD:
        words += f": {own:.3g} s" + (f", {excess:+.0%}" if excess is not None else "")
    return Cell(words, n % COLUMNS, n // COLUMNS, shown)


def _label(group: list[_Told], dead: int) -> str:
    first, last = group[0][1], group[-1][1]
    who = first if first == last else f"{first} to {last}"
    what = f"rank {group[0][2].rank} on {who}" if len(group) == 1 else f"{who}, {len(group)} ranks"
    return f"{what}, {dead} not alive" if dead else what


def curve(points: Iterable[float], low: float, high: float, width: float, height: float) -> str:
    """An SVG path through values that stand equally far apart.

    >>> curve([1.0, 2.0], 1.0, 2.0, 100, 10)
    'M0.0 10.0L100.0 0.0'
    """
    values = list(points)
    apart, room = width / max(1, len(values) - 1), high - low or 1.0
    spots = [f"{n * apart:.1f} {height - (value - low) / room * height:.1f}" for n, value in enumerate(values)]
    return "M" + "L".join(spots) if spots else ""
