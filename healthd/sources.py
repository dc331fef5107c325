"""The explicit list of sources that the source child reads.

To add one, write its sample, collector, check and test, and name it here: `docs/adding-a-source.md` walks through it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from healthd.checks import pressure as pressure_check
from healthd.facts import Held, Moment
from healthd.samples import pressure
from healthd.samples.family import Family
from healthd.thresholds import Thresholds


class Check(Protocol):
    """Pure but for what it remembers: samples in, facts out."""

    def judge(self, sample: Any, now: Moment) -> list[Held]:
        """Everything that holds now. A level that is neither said again nor called unknown has ended."""
        ...


class CheckClass(Protocol):
    """A check is made from its section of the thresholds."""

    def __call__(self, limits: Any) -> Check:
        """Make it."""
        ...


class Source(NamedTuple):
    """One source. The collector is `healthd.collectors.NAME`, its check speaks as `check_name`."""

    name: str
    every_s: float
    sample: type
    metrics: tuple[Family, ...]
    check_name: str
    limits: type
    check: CheckClass
    reads: str
    cost: str
    when_absent: str
    options: Mapping[str, str] = {}

    def make_check(self, thresholds: Thresholds) -> Check:
        """Its check, with the numbers of this node.

        Raises:
            ThresholdsError: they do not fit.
        """
        return self.check(thresholds.section(self.check_name, self.limits))


SOURCES: tuple[Source, ...] = (
    Source(
        name="pressure",
        every_s=10.0,
        sample=pressure.PressureSample,
        metrics=pressure.METRICS,
        check_name=pressure_check.CHECK,
        limits=pressure_check.Limits,
        check=pressure_check.PressureCheck,
        reads="/proc/pressure/{cpu,io,memory}",
        cost="3 files, 0.1 ms",
        when_absent="the kernel is older than 4.20 or was started with psi=0: shortage of memory goes unseen until the OOM killer comes",
    ),
)


def by_name() -> dict[str, Source]:
    """All sources."""
    return {source.name: source for source in SOURCES}
