"""Stuck processes of the host: waiting in the kernel (state D), or zombies (state Z)."""

from __future__ import annotations

from typing import NamedTuple

from healthd.samples.metric_declaration import Family, Metric


class StuckProcess(NamedTuple):
    """One process in state D or Z. `started` (ticks since boot) distinguishes reused pids."""

    pid: int
    started: int
    name: str
    state: str


class ProcessesSample(NamedTuple):
    """The number of processes, and the stuck ones (the first hundred)."""

    total: int
    waiting: int  # state D
    zombies: int
    stuck: tuple[StuckProcess, ...]


METRICS = (
    Family(
        rows="",
        labels=(),
        metrics=(
            Metric("healthd_host_processes", "Processes and kernel threads.", "total"),
            Metric("healthd_host_processes_waiting", "Processes stuck in the kernel (state D).", "waiting"),
            Metric("healthd_host_processes_zombie", "Zombie processes (state Z).", "zombies"),
        ),
    ),
)
