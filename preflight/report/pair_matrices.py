"""Rates between pairs of devices as a matrix: sender down, receiver across. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from preflight.report.result_tables import FigureGroup, order_device_names
from preflight.report.value_format import list_missed_bounds
from preflight.results import Figure, Result

PAIR_FIGURE = "pair_rate"
NAMES_MAX = 64  # a larger matrix is unreadable, and takes minutes to draw


class PairMatrix(msgspec.Struct, frozen=True):
    """All pairs of one setting."""

    test: str
    setting: str
    unit: str
    names: tuple[str, ...]
    cells: dict[tuple[str, str], Figure]

    def value(self, one: str, other: str) -> float | None:
        """From one to the other; None if it was not measured."""
        found = self.cells.get((one, other))
        return None if found is None else found.value

    def missed(self, one: str, other: str) -> bool:
        """This pair is out of a bound."""
        found = self.cells.get((one, other))
        return found is not None and bool(list_missed_bounds(found))

    @property
    def best(self) -> float:
        """The fastest pair's rate."""
        return max((figure.value for figure in self.cells.values()), default=0.0)

    @property
    def least(self) -> float:
        """The slowest pair's rate."""
        return min((figure.value for figure in self.cells.values()), default=0.0)


def build_pair_matrices(results: Iterable[Result]) -> tuple[PairMatrix, ...]:
    """Every matrix there is, in the order of the run. A rate that names no peer, or is one of too many, stays with the other figures."""
    found: dict[tuple[str, str, str], dict[tuple[str, str], Figure]] = {}
    for result in results:
        for figure in result.figures:
            if figure.name != PAIR_FIGURE:
                continue
            one, other, setting = _parse_pair_ends(result, figure)
            if other:
                found.setdefault((result.test, setting, figure.unit), {})[one, other] = figure
    named = ((key, cells, {name for ends in cells for name in ends}) for key, cells in found.items())
    return tuple(
        PairMatrix(*key, order_device_names(sorted(names)), cells)
        for key, cells, names in named
        if len(names) <= NAMES_MAX
    )


def exclude_pair_figures(found: Iterable[FigureGroup], matrices: Iterable[PairMatrix]) -> tuple[FigureGroup, ...]:
    """The figures that stand in no matrix."""
    placed = {id(figure) for matrix in matrices for figure in matrix.cells.values()}
    return tuple(group for group in found if not all(id(reading.figure) in placed for reading in group.readings))


def _parse_pair_ends(result: Result, figure: Figure) -> tuple[str, str, str]:
    """Sender, receiver, and the setting without them: ``nvlink, cuda:0 to cuda:3`` in any order; "" where none is named."""
    words = [word.strip() for word in figure.setting.split(",")]
    for number, word in enumerate(words):
        one, arrow, other = word.rpartition("to ")
        if arrow and other and " " not in other:
            return one.strip() or result.device, other, ", ".join(words[:number] + words[number + 1 :])
    return "", "", figure.setting
