"""Which job uses what, apart from the GPU values: join on `gpu` in a query, so that no series ends when a job does."""

from __future__ import annotations

from collections.abc import Iterator

from healthd.daemon_status import Status
from healthd.exporter.metric_families import GaugeMetricFamily, InfoMetricFamily, Metric
from vocabulary.messages.wire import RankStatus


def export_jobs(status: Status) -> Iterator[Metric]:
    """Return this node's jobs, each rank's GPU as NVML knows its holder, and each job's progress."""
    alive = [rank for rank in status.ranks if rank.alive]
    yield GaugeMetricFamily("healthd_trainer_ranks", "Living trainer ranks on this node.", value=len(alive))
    job = InfoMetricFamily("healthd_job", "A job with ranks on this node.", labels=["job"])
    step = GaugeMetricFamily("healthd_job_step", "Current step of its slowest rank here.", labels=["job"])
    for name in sorted({rank.job for rank in alive}):
        ranks = [rank for rank in alive if rank.job == name]
        job.add_metric([name], {"attempt": str(max(r.attempt for r in ranks)), "world": str(ranks[0].world)})
        step.add_metric([name], min(rank.step for rank in ranks))
    yield from (job, step)
    yield from _make_step_time_families(alive)
    by_pid = {rank.pid: rank for rank in alive}
    gpu_job = InfoMetricFamily("healthd_gpu_job", "The rank that holds the GPU.", labels=["gpu", "uuid"])
    for state in status.states:
        holders = [by_pid[process.pid] for process in state.latest.processes or () if process.pid in by_pid]
        for rank in holders[:1]:
            gpu_job.add_metric([str(state.gpu.index), state.gpu.uuid], {"job": rank.job, "rank": str(rank.rank)})
    yield gpu_job


def _make_step_time_families(ranks: list[RankStatus]) -> Iterator[Metric]:
    """Return medians of the last steps, to compare a slow rank with its peers on other nodes."""
    labels = ["job", "rank", "stage", "gpu_uuid"]
    step = GaugeMetricFamily("healthd_rank_step_seconds", "Median of the rank's last 64 steps.", labels=labels)
    section = GaugeMetricFamily(
        "healthd_rank_section_seconds", "The same of a section of its steps.", labels=[*labels, "section"]
    )
    newest: dict[tuple[str, str, str, str], RankStatus] = {}  # of several attempts of one job on a node
    for rank in sorted(ranks, key=lambda rank: rank.attempt):
        stage = str(rank.pipeline_stage) if rank.pipeline_stage >= 0 else ""
        newest[rank.job, str(rank.rank), stage, rank.gpu] = rank
    for names, rank in newest.items():
        if rank.step_median > 0:
            step.add_metric(names, rank.step_median)
        for name, seconds in sorted(rank.sections_median.items()):
            section.add_metric([*names, name], seconds)
    yield from (step, section)
