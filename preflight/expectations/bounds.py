"""A bound and its source, as input for the rule that weighs sources. Pure."""

from __future__ import annotations

import enum

import msgspec

from preflight.expectations.measurement_keys import BetterDirection, find_better_direction, format_value
from preflight.results import Expectation, Figure, Source

SHARE_MAX = 0.75  # however large the spread, less than a quarter of the usual value is reported


class SourceWeight(enum.Enum):
    """The weight of a source whose bound is missed."""

    DECIDES = "decides"  # alone
    WITNESS = "witness"  # together with another; alone it is inconclusive
    HINT = "hint"  # together with a witness; alone it is a remark


class SourceBound(msgspec.Struct, frozen=True, kw_only=True):
    """One source's bound for one figure. `usual` is its value on a healthy machine, in the figure's unit.

    `witnesses` is the number of others behind it: devices for siblings, nodes for the fleet, runs for the history. `doubt`
    is the reason why it does not decide, if relevant.
    """

    expectation: Expectation
    usual: float
    witnesses: int = 0
    word: SourceWeight = SourceWeight.WITNESS
    doubt: str = ""


def build_expectation(figure: Figure, source: Source, usual: float, share: float, words: str) -> Expectation | None:
    """The expectation that `figure` is at most `share` worse than `usual`; None if neither direction is better."""
    way = find_better_direction(figure.unit)
    if way is BetterDirection.NEITHER or not 0 <= share < 1:
        return None
    if way is BetterDirection.MORE:
        return Expectation(source=source, at_least=usual * (1 - share), words=words)
    return Expectation(source=source, at_most=usual / (1 - share), words=words)


def compute_shortfall(figure: Figure, usual: float) -> float:
    """The share by which the figure is worse than `usual`; negative: better; zero if neither direction is better."""
    way = find_better_direction(figure.unit)
    if way is BetterDirection.NEITHER or usual <= 0:
        return 0.0
    return 1 - figure.value / usual if way is BetterDirection.MORE else 1 - usual / figure.value


def misses_bound(value: float, expectation: Expectation) -> bool:
    """Whether `value` violates a bound. Incomparable values violate it."""
    low = expectation.at_least is not None and not value >= expectation.at_least
    return low or (expectation.at_most is not None and not value <= expectation.at_most)


def misses_grossly(value: float, expectation: Expectation, share: float) -> bool:
    """Whether `value` is under `share` of its minimum, or as far above its maximum."""
    low = expectation.at_least is not None and not value >= share * expectation.at_least
    return low or (expectation.at_most is not None and not share * value <= expectation.at_most)


def compute_margin(value: float, expectation: Expectation) -> float:
    """The distance of `value` to its tightest bound, as a share of the bound; negative if violated."""
    inside = []
    if expectation.at_least is not None:
        inside.append((value - expectation.at_least) / (abs(expectation.at_least) or 1.0))
    if expectation.at_most is not None:
        inside.append((expectation.at_most - value) / (abs(expectation.at_most) or 1.0))
    return min(inside, default=0.0)


def describe_figure(figure: Figure) -> str:
    """The figure and its value, for people."""
    setting = f" ({figure.setting})" if figure.setting else ""
    return f"{figure.name}{setting} is {format_value(figure.value)} {figure.unit}".rstrip()


def describe_missed_bound(figure: Figure, expectation: Expectation) -> str:
    """The violated bound and its source."""
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
