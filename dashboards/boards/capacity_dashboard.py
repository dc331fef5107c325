"""Capacity: GPUs in and out of service, utilization, energy, cost of faults."""

from __future__ import annotations

from dashboards.board_layout import CLUSTER, Board, Section
from dashboards.panels import GREEN, HALF, ORANGE, RED, THIRD, Query, build_stat_panel, build_time_series

NOW = Section(
    "Now",
    (
        build_stat_panel(
            "GPUs", "All GPUs that nodes report.", "short", Query(f"sum(cluster:remediator_gpus:sum{{{CLUSTER}}})")
        ),
        build_stat_panel(
            "In service",
            "Share of GPUs whose node accepts work: healthy, suspect or on probation.",
            "percentunit",
            Query(
                f"sum(cluster:remediator_gpus_in_service:sum{{{CLUSTER}}}) / sum(cluster:remediator_gpus:sum{{{CLUSTER}}})"
            ),
            (None, RED),
            (0.95, ORANGE),
            (0.98, GREEN),
        ),
        build_stat_panel(
            "Idle nodes",
            "Nodes that accept work and have no known running rank.",
            "short",
            Query(
                f"count(healthd_trainer_ranks{{{CLUSTER}}} == 0 and on (cluster, node) healthd_node_fit == 1) or vector(0)"
            ),
        ),
        build_stat_panel(
            "GPU use",
            "Mean over all GPUs.",
            "percentunit",
            Query(f"avg(cluster:healthd_gpu_utilization_ratio:avg{{{CLUSTER}}})"),
        ),
        build_stat_panel(
            "Power", "Total over all GPUs.", "watt", Query(f"sum(cluster:healthd_gpu_power_watts:sum{{{CLUSTER}}})")
        ),
        build_stat_panel(
            "Cost per day at the current rate",
            "GPUs out of service times 24 times the price of a GPU-hour (variable Price).",
            "short",
            Query(f"sum(cluster:remediator_gpus_out:sum{{{CLUSTER}}}) * 24 * $price"),
        ),
    ),
)

COURSE = Section(
    "Course",
    (
        build_time_series(
            "GPUs by the state of their node",
            "Usable capacity, and the states of the remaining nodes.",
            "short",
            Query(f"sum by (state) (remediator_gpus{{{CLUSTER}}}) > 0", "{{state}}"),
            stacked=True,
        ),
        build_time_series(
            "GPU-hours lost per day",
            "GPUs out of service, averaged over the last day, times 24 h.",
            "h",
            Query(
                f"sum by (cluster) (avg_over_time(cluster:remediator_gpus_out:sum{{{CLUSTER}}}[1d])) * 24",
                "{{cluster}}",
            ),
        ),
        build_time_series(
            "Cost of lost GPU-hours per day",
            "GPU-hours lost times the price of one. Excludes work lost since a job's last checkpoint.",
            "short",
            Query(
                f"sum by (cluster) (avg_over_time(cluster:remediator_gpus_out:sum{{{CLUSTER}}}[1d])) * 24 * $price",
                "{{cluster}}",
            ),
            span=THIRD,
        ),
        build_time_series(
            "Energy per day",
            "Total over all GPUs, in kilowatt-hours.",
            "kwatth",
            Query(
                f"sum by (cluster) (increase(healthd_gpu_energy_joules_total{{{CLUSTER}}}[1d])) / 3.6e6", "{{cluster}}"
            ),
            span=THIRD,
        ),
        build_time_series(
            "Incidents per day",
            "Incidents opened within a day, excluding drills.",
            "short",
            Query(
                f'sum by (cluster) (increase(remediator_audit_events_total{{{CLUSTER},kind="incident_opened",drill="false"}}[1d]))',
                "{{cluster}}",
            ),
            span=THIRD,
        ),
        build_time_series(
            "GPU use",
            "Mean over all GPUs.",
            "percentunit",
            Query(f"cluster:healthd_gpu_utilization_ratio:avg{{{CLUSTER}}}", "{{cluster}}"),
            span=HALF,
        ),
        build_time_series(
            "Returns that failed again",
            "Nodes returned to service in the last eight weeks and observed for the whole window: how many failed within it.",
            "short",
            Query(f"sum by (window) (remediator_returns_failed_again{{{CLUSTER}}})", "failed within {{window}}"),
            Query(f"sum by (window) (remediator_returns{{{CLUSTER}}})", "observed for {{window}}"),
            span=HALF,
        ),
    ),
)

BOARD = Board(
    "capacity",
    "Capacity and cost",
    "Capacity in service, and the cost of faults.",
    (NOW, COURSE),
    since="now-7d",
)
