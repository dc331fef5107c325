"""A bound and where it comes from, as the sources hand it to the rule that weighs them. Pure."""

from __future__ import annotations

import enum

import msgspec

from preflight.expectations.measurement_keys import BetterDirection, find_better_direction, format_value
from preflight.results import Expectation, Figure, Source

SHARE_MAX = 0.75  # however far good machines scatter, under a quarter of the usual is worth a word


class SourceWeight(enum.Enum):
    """What a source's word is worth when its bound is missed."""

    DECIDES = "decides"  # alone
    WITNESS = "witness"  # together with another; alone there is no conclusion
    HINT = "hint"  # together with a witness; alone it is a remark


class SourceBound(msgspec.Struct, frozen=True, kw_only=True):
    """One source's word on one figure. `usual` is what it says the figure is on a good machine, in the figure's unit.

    `witnesses` is on how many others the word rests: devices for siblings, nodes for the fleet, runs for the history. `doubt`
    says why it doesn't decide, where that is worth saying.
    """

    expectation: Expectation
    usual: float
    witnesses: int = 0
    word: SourceWeight = SourceWeight.WITNESS
    doubt: str = ""


def build_expectation(figure: Figure, source: Source, usual: float, share: float, words: str) -> Expectation | None:
    """The expectation that `figure` be no more than `share` worse than `usual`; None where no way is better."""
    way = find_better_direction(figure.unit)
    if way is BetterDirection.NEITHER or not 0 <= share < 1:
        return None
    if way is BetterDirection.MORE:
        return Expectation(source=source, at_least=usual * (1 - share), words=words)
    return Expectation(source=source, at_most=usual / (1 - share), words=words)


def compute_shortfall(figure: Figure, usual: float) -> float:
    """By which share the figure is worse than `usual`; below zero: better, and zero where no way is better."""
    way = find_better_direction(figure.unit)
    if way is BetterDirection.NEITHER or usual <= 0:
        return 0.0
    return 1 - figure.value / usual if way is BetterDirection.MORE else 1 - usual / figure.value


def misses_bound(value: float, expectation: Expectation) -> bool:
    """Whether `value` lies beyond a bound. Nothing that cannot be compared meets one."""
    low = expectation.at_least is not None and not value >= expectation.at_least
    return low or (expectation.at_most is not None and not value <= expectation.at_most)


def misses_grossly(value: float, expectation: Expectation, share: float) -> bool:
    """Whether `value` is under `share` of what it should be at least, or as far beyond what it may be."""
    low = expectation.at_least is not None and not value >= share * expectation.at_least
    return low or (expectation.at_most is not None and not share * value <= expectation.at_most)


def compute_margin(value: float, expectation: Expectation) -> float:
    """How far inside its tightest bound `value` is, as a share of the bound; below zero exactly if it is missed."""
    inside = []
    if expectation.at_least is not None:
        inside.append((value - expectation.at_least) / (abs(expectation.at_least) or 1.0))
    if expectation.at_most is not None:
        inside.append((expectation.at_most - value) / (abs(expectation.at_most) or 1.0))
    return min(inside, default=0.0)


def describe_figure(figure: Figure) -> str:
    """The figure and its value, for a person."""
    setting = f" ({figure.setting})" if figure.setting else ""
    return f"{figure.name}{setting} is {format_value(figure.value)} {figure.unit}".rstrip()


def describe_missed_bound(figure: Figure, expectation: Expectation) -> str:
    """Which bound is missed, and whose it is."""
    low = expectation.at_least is not None and not figure.value >= expectation.at_least
    limit = expectation.at_least if low else expectation.at_most
    words = f" ({expectation.words})" if expectation.words else ""
    return f"{'under' if low else 'over'} {format_value(limit or 0.0)}, the bound of {NAMES[expectation.source]}{words}"


NAMES = {
    Source.EXACT: "the rule",
    Source.PHYSICAL: "the hardware's own limit",
    Source.SKU: "the static table",
    Source.SIBLINGS: "its siblings",
    Source.FLEET: "the fleet",
    Source.HISTORY: "its own history",
}
