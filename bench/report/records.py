"""What a budget is, and what measuring it gives. Values have the unit of their figure."""

from __future__ import annotations

import enum
import statistics
from collections.abc import Callable, Iterable, Sequence

import msgspec


class Statistic(enum.Enum):
    """Which number of a figure a limit is about."""

    MEDIAN = "p50"
    P99 = "p99"
    MOST = "most"


class Limit(msgspec.Struct, frozen=True):
    """At most `bound`; for a `floor` at least."""

    of: Statistic
    bound: float
    floor: bool = False

    def holds(self, value: float) -> bool:
        """Whether the value keeps to it."""
        return value >= self.bound if self.floor else value <= self.bound


class Repeat(msgspec.Struct, frozen=True):
    """One repetition of a measurement: how many values, and what they were."""

    n: int
    median: float
    p99: float
    most: float


class Beside(msgspec.Struct, frozen=True):
    """The least that anything of this kind costs here, measured in the same run: its name, and its median."""

    name: str
    median: float


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One measured quantity. `named` tells several of one budget apart."""

    named: str
    unit: str
    repeats: tuple[Repeat, ...]
    limits: tuple[Limit, ...] = ()
    beside: Beside | None = None

    def value(self, of: Statistic) -> float:
        """The median over the repeats: one disturbed repeat does not decide."""
        return statistics.median(_of(each, of) for each in self.repeats)

    @property
    def spread(self) -> tuple[float, float]:
        """The least and the greatest median of a repeat."""
        medians = [each.median for each in self.repeats]
        return min(medians), max(medians)

    @property
    def met(self) -> bool | None:
        """Whether it keeps to every limit; None if it has none."""
        return all(limit.holds(self.value(limit.of)) for limit in self.limits) if self.limits else None


class Measured(msgspec.Struct, frozen=True, kw_only=True, tag="measured"):
    """What came of measuring a budget.

    `how`: what was done, in one or two sentences. `because` and `moves`: why a limit is missed, as far as known, and what would change it; shown
    only if one is missed.
    """

    figures: tuple[Figure, ...]
    how: str
    because: str = ""
    moves: str = ""


class Unmeasured(msgspec.Struct, frozen=True, tag="unmeasured"):
    """This machine cannot tell. `last`: the last real figure and where it is from, or that there is none. `figures`: what could be seen here instead."""

    why: str
    last: str
    figures: tuple[Figure, ...] = ()


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The measurement itself broke."""

    why: str


Answer = Measured | Unmeasured | Failed


class Effort(msgspec.Struct, frozen=True):
    """How much time may be taken. `gcm`: another monitor's program to measure beside ours, where somebody installed it."""

    quick: bool
    gcm: str = ""

    @property
    def repeats(self) -> int:
        """How often a measurement is repeated."""
        return 1 if self.quick else 3

    def either(self, quick: int, whole: int) -> int:
        """The number that fits."""
        return quick if self.quick else whole


class Budget(msgspec.Struct, frozen=True):
    """A row of the design's table. `name` is what `--only` takes; `target` is what the design says, word for word."""

    name: str
    title: str
    target: str
    measure: Callable[[Effort], Answer]


class Outcome(enum.Enum):
    """What the report says of a budget."""

    MET = "met"
    MISSED = "missed"
    NOT_HERE = "not measurable here"
    FAILED = "measurement failed"


def summarise_outcome(answer: Answer) -> Outcome:
    """One word for it: a figure that misses makes the budget missed."""
    if isinstance(answer, Failed):
        return Outcome.FAILED
    if isinstance(answer, Unmeasured):
        return Outcome.NOT_HERE
    return Outcome.MISSED if any(figure.met is False for figure in answer.figures) else Outcome.MET


def summarise_values(values: Iterable[float], scale: float = 1.0) -> Repeat:
    """Of at least one value, each times `scale`. With fewer than 100 of them p99 is the greatest.

    Raises:
        ValueError: no value.
    """
    ordered = sorted(value * scale for value in values)
    if not ordered:
        raise ValueError("no values were measured")
    p99 = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    return Repeat(len(ordered), statistics.median(ordered), p99, ordered[-1])


def at_most(*, p50: float | None = None, p99: float | None = None, most: float | None = None) -> tuple[Limit, ...]:
    """Upper limits, those that are given."""
    given = ((Statistic.MEDIAN, p50), (Statistic.P99, p99), (Statistic.MOST, most))
    return tuple(Limit(of, value) for of, value in given if value is not None)


def split_into_repeats(values: Sequence[float], scale: float = 1.0) -> tuple[Repeat, ...]:
    """Of figures that one repetition gives one value of: a repeat each."""
    return tuple(summarise_values([value], scale) for value in values)


def _of(repeat: Repeat, of: Statistic) -> float:
    return {Statistic.MEDIAN: repeat.median, Statistic.P99: repeat.p99, Statistic.MOST: repeat.most}[of]
