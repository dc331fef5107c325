"""What was sent against what is stored: is every finding there, once, and as it was told last? Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bench.fleet.outcome import Sent


class Key(NamedTuple):
    """What things that happened are counted by."""

    node: str
    kind: str
    component: str


class Stored(NamedTuple):
    """A finding as the database has it."""

    node: str
    kind: str
    active: bool


class Accounts(NamedTuple):
    """Ids, or keys. All empty: nothing was lost, nothing was counted twice."""

    not_taken: tuple[str, ...]  # not acknowledged, however often it was told
    lost: tuple[str, ...]  # acknowledged, and not there
    other: tuple[str, ...]  # there, and not as it was told last and acknowledged
    never_sent: tuple[str, ...]  # there as a node's word, and nobody sent it
    miscounted: tuple[Key, ...]  # counted more or less often than it happened

    @property
    def good(self) -> bool:
        """Whether every finding is there exactly once."""
        return not any(self)

    @property
    def words(self) -> str:
        """How many of each."""
        return (
            f"{len(self.lost)} lost, {len(self.miscounted)} miscounted, {len(self.other)} not as told last, "
            f"{len(self.never_sent)} never sent, {len(self.not_taken)} not acknowledged at the end"
        )


def compare_findings(sent: Mapping[str, Sent], stored: Mapping[str, Stored], counted: Mapping[Key, int]) -> Accounts:
    """Hold one against the other. What the controller itself concludes is of kinds that no node sent."""
    kinds = {each.kind for each in sent.values()}
    happened = Counter(Key(each.node, each.kind, each.component) for each in sent.values() if each.acknowledged)
    return Accounts(
        not_taken=tuple(name for name, each in sent.items() if not each.acknowledged),
        lost=tuple(name for name, each in sent.items() if each.acknowledged and name not in stored),
        other=tuple(name for name, each in sent.items() if name in stored and _differs(each, stored[name])),
        never_sent=tuple(name for name, each in stored.items() if each.kind in kinds and name not in sent),
        miscounted=tuple(key for key, count in happened.items() if counted.get(key, 0) != count),
    )


def _differs(sent: Sent, stored: Stored) -> bool:
    if (sent.node, sent.kind) != (stored.node, stored.kind):
        return True
    return sent.acknowledged and sent.active != stored.active


def compute_quantiles(values: Sequence[float], shares: Sequence[float] = (0.5, 0.99, 1.0)) -> tuple[float, ...]:
    """Of seconds, in milliseconds; not a number where there is none."""
    ordered = sorted(values)
    if not ordered:
        return tuple(float("nan") for _ in shares)
    return tuple(1000 * ordered[min(int(share * len(ordered)), len(ordered) - 1)] for share in shares)


def fit_slope(points: Sequence[tuple[float, float]]) -> float:
    """Of a straight line through them, by least squares: per unit of the first; 0 with less than two."""
    if len({x for x, _ in points}) < 2:
        return 0.0
    mean_x, mean_y = (sum(values) / len(points) for values in zip(*points, strict=True))
    spread: float = sum((x - mean_x) * (x - mean_x) for x, _ in points)
    steepness: float = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread
    return steepness
