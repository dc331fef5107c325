"""Parameters of a simulated fleet, with published figures as defaults (sources: docs/internals/simulator.md)."""

from __future__ import annotations

import math
from typing import Annotated

import msgspec

from remediator.decisions.isolation_budget import IsolationBudget

Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Below = Annotated[float, msgspec.Meta(ge=0, lt=1)]
Positive = Annotated[float, msgspec.Meta(gt=0)]
NotNegative = Annotated[float, msgspec.Meta(ge=0)]
Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]

NODES_MAX, DAYS_MAX = 100_000, 3650
SPARES_OF = 1024


class SimulationParameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All parameters. Each number's unit is in its name; shares are of 1.

    Raises:
        ValueError: values that contradict each other.
    """

    nodes: Annotated[int, msgspec.Meta(ge=1, le=NODES_MAX)] = 1000
    days: Annotated[float, msgspec.Meta(gt=0, le=DAYS_MAX)] = 30.0

    failures_per_1000_node_days: Annotated[float, msgspec.Meta(ge=0, le=1000)] = (
        6.5  # all faults, including lemons' and repetitions
    )
    lemon_share: Below = 0.012
    lemon_times: Annotated[float, msgspec.Meta(ge=1, le=1000)] = 20.0
    lasting_share: Share = 0.4  # of faults: only a repair ends them
    silent_share: Share = 0.15  # of faults without a finding
    lemon_silent_share: Share = 0.5
    lemon_healed_share: Share = 0.58  # by one repair
    refail_day_share: Below = 0.22
    refail_month_share: Below = 0.42  # within 28 days, including the first day

    straggler_share: Share = 0.005  # of nodes, over the whole time
    straggler_slowdown: Below = 0.2

    repair_log_normal: bool = False
    repair_median_h: Positive = 20.0
    repair_sigma: NotNegative = 2.1
    repair_max_h: Positive = 720.0
    repair_slow_share: Share = 0.1  # of automatic repairs: one to three days instead of one to three hours
    people_find_h: NotNegative = 1.0  # how long a broken node stays in service without automation
    people_find_slow_h: NotNegative = 24.0

    job_nodes: tuple[Count, ...] = ()  # sizes of concurrent jobs; empty: the published mix
    big_share: Share = 0.66  # of nodes: in jobs of 32 nodes and more
    big_job_h: Annotated[float, msgspec.Meta(ge=0.1)] = 96.0
    small_job_h: Annotated[float, msgspec.Meta(ge=0.1)] = 24.0
    user_fault_share: Share = 0.24
    utilisation: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.83
    spares_per_1024: NotNegative = 4.0

    restart_min_minutes: NotNegative = 2.0
    restart_max_minutes: Annotated[float, msgspec.Meta(ge=0.1)] = 20.0
    checkpoint_interval_minutes: Positive = 30.0
    checkpoint_pause_s: NotNegative = 30.0
    notice_minutes: NotNegative = 10.0  # between a finding that leaves time and the end of the job

    detect_s: NotNegative = 5.0
    detect_slow_minutes: NotNegative = 10.0
    reboot_minutes: NotNegative = 10.0
    test_minutes: NotNegative = 20.0
    test_finds_share: Share = 0.85
    test_false_share: Share = 0.01
    lemons_every_h: Annotated[float, msgspec.Meta(ge=1)] = 24.0
    budget: IsolationBudget = IsolationBudget()

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"{name} is {value}; it must be a number")
        if self.restart_min_minutes > self.restart_max_minutes:
            raise ValueError("restart_min_minutes is above restart_max_minutes")
        if self.refail_day_share > self.refail_month_share:
            raise ValueError("refail_day_share is above refail_month_share, which includes it")
        if sum(self.job_nodes) + self.spares > self.nodes:
            raise ValueError(
                f"job_nodes and spares take {sum(self.job_nodes) + self.spares} nodes, but the fleet has {self.nodes}"
            )
        if self.spares >= self.nodes:
            raise ValueError(f"{self.spares} spares of {self.nodes} nodes leave none for a job")

    @property
    def spares(self) -> int:
        """Nodes without a job at the start."""
        return round(self.nodes * self.spares_per_1024 / SPARES_OF)

    @property
    def first_rate_per_day(self) -> float:
        """Faults of a usual node, without repetitions; the whole fleet then fails as often as published."""
        lemons = 1 + self.lemon_share * (self.lemon_times - 1)
        return self.failures_per_1000_node_days / 1000 * (1 - self.refail_month_share) / lemons
