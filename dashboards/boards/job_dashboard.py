"""One job: step time, stragglers, time by phase."""

from __future__ import annotations

from dashboards.board_layout import CLUSTER, JOB, JOB_PAGE, NODE_BOARD, Board, Section
from dashboards.panels import (
    GREEN,
    HALF,
    ORANGE,
    THIRD,
    WHOLE,
    Column,
    Query,
    build_stat_panel,
    build_table_panel,
    build_time_series,
)

NOW = Section(
    "Now",
    (
        build_stat_panel(
            "Ranks",
            "Running ranks that report a step time.",
            "short",
            Query(f"count(healthd_rank_step_seconds{{{JOB}}})"),
        ),
        build_stat_panel(
            "Step",
            "The step of the slowest rank.",
            "short",
            Query(f"min(healthd_job_step{{{JOB}}})"),
        ),
        build_stat_panel(
            "Step time",
            "Median over ranks of their median over the last 64 steps.",
            "s",
            Query(f"quantile(0.5, healthd_rank_step_seconds{{{JOB}}})"),
        ),
        build_stat_panel(
            "Slowest rank's compute time",
            "Forward and backward time relative to the median of its pipeline stage. Investigate from 10 % above.",
            "percentunit",
            Query(f"max(job_rank:healthd_compute_excess:ratio{{{JOB}}})"),
            (None, GREEN),
            (0.1, ORANGE),
        ),
        build_stat_panel(
            "Stragglers",
            "Ranks that the controller reports as stragglers.",
            "short",
            Query(f"count(remediator_straggler_slowdown_ratio{{{JOB}}})"),
            (None, GREEN),
            (1, ORANGE),
        ),
        build_stat_panel(
            "GPU use",
            "Share of time in which a kernel ran, over the job's GPUs. A job that hangs in a collective shows full utilization.",
            "percentunit",
            Query(f"avg(job_gpu:healthd_gpu_utilization:ratio{{{JOB}}})"),
        ),
    ),
)

SLOW = Section(
    "Stragglers",
    (
        build_table_panel(
            "Reported stragglers",
            "How much slower the rank is than its peers. The controller acts only with a second, independent signal.",
            f"remediator_straggler_slowdown_ratio{{{JOB}}}",
            Column("Value", "Slower by", "percentunit"),
            Column("exported_job", "Job", link=JOB_PAGE),
            Column("node", "Node", link=NODE_BOARD),
            Column("component", "Component"),
            Column("kind", "Kind"),
            Column("confirmed", "Second signal"),
            span=HALF,
        ),
        build_time_series(
            "Ranks with the longest compute time",
            "Forward and backward time relative to the median of the pipeline stage; top ten.",
            "percentunit",
            Query(
                f"topk(10, job_rank:healthd_compute_excess:ratio{{{JOB}}})",
                "{{exported_job}} rank {{rank}} on {{node}}",
            ),
            bad=0.1,
        ),
        build_time_series(
            "Step time",
            "Median and slowest rank. All ranks of a job wait for each other, so both move together.",
            "s",
            Query(f"job:healthd_rank_step_seconds:median{{{JOB}}}", "{{exported_job}} median"),
            Query(f"max by (exported_job) (healthd_rank_step_seconds{{{JOB}}})", "{{exported_job}} slowest"),
        ),
        build_time_series(
            "Time per section",
            "Mean over ranks of the time in each section of a step.",
            "s",
            Query(
                f"avg by (exported_job, section) (healthd_rank_section_seconds{{{JOB}}})",
                "{{exported_job}} {{section}}",
            ),
            stacked=True,
        ),
    ),
)

COURSE = Section(
    "Course",
    (
        build_time_series(
            "Step",
            "Progress of the job. The line falls when the job restarts from a checkpoint.",
            "short",
            Query(f"min by (exported_job) (healthd_job_step{{{JOB}}})", "{{exported_job}}"),
            span=THIRD,
        ),
        build_time_series(
            "Steps per second",
            "A job that stays at 0 hangs.",
            "short",
            Query(f"clamp_min(deriv(job:healthd_job_step:min{{{JOB}}}[5m]), 0)", "{{exported_job}}"),
            span=THIRD,
        ),
        build_time_series(
            "Nodes",
            "Nodes with running ranks.",
            "short",
            Query(f"count by (exported_job) (healthd_job_info{{{JOB}}})", "{{exported_job}}"),
            span=THIRD,
        ),
        build_table_panel(
            "Findings about jobs and ranks",
            "Active findings of the nodes' watchdogs and of the controller, for all jobs.",
            f'remediator_findings_active{{{CLUSTER},check=~"straggler|hang|training|beacon|job"}}',
            Column("Value", "Findings", "short"),
            Column("check", "Check"),
            Column("code", "Code"),
            Column("severity", "Severity"),
            Column("drill", "Drill"),
            span=WHOLE,
        ),
    ),
)

BOARD = Board(
    "job",
    "Job and stragglers",
    "Step rate of a job, stragglers, and time per section.",
    (NOW, SLOW, COURSE),
    levels=("job",),
    since="now-1h",
    links=(("Page of this job", "${web}/jobs/${job:percentencode}"),),
)
