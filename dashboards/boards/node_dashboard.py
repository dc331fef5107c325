"""One node: health, GPUs side by side, host, healthd."""

from __future__ import annotations

from dashboards.board_layout import NODE, Board, Section, query_new_xids
from dashboards.panels import (
    GREEN,
    HALF,
    RED,
    THIRD,
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
            "Health", "Self-reported health.", "", Query(f"healthd_node_health{{{NODE}}} == 1", "{{health}}")
        ),
        build_stat_panel(
            "Takes work",
            "Whether the agent allows new work on this node. Prologs check this.",
            "",
            Query(f"min(healthd_node_fit{{{NODE}}})"),
            words={0.0: ("NO", RED), 1.0: ("yes", GREEN)},
        ),
        build_stat_panel(
            "Condemned",
            "From the order for this node until a preflight passes.",
            "",
            Query(f"max(healthd_node_condemned{{{NODE}}})"),
            words={0.0: ("no", GREEN), 1.0: ("YES", RED)},
        ),
        build_stat_panel(
            "GPUs lost",
            "GPUs that the driver can no longer reach.",
            "short",
            Query(f"sum(healthd_gpu_lost{{{NODE}}})"),
            (None, GREEN),
            (1, RED),
        ),
        build_stat_panel(
            "Trainer ranks",
            "Running ranks that have a beacon page.",
            "short",
            Query(f"sum(healthd_trainer_ranks{{{NODE}}})"),
        ),
        build_stat_panel(
            "Power", "Total draw of all GPUs.", "watt", Query(f"sum(node:healthd_gpu_power_watts:sum{{{NODE}}})")
        ),
        build_table_panel(
            "Active findings",
            "Active findings of the agent on this node.",
            f"healthd_findings_active{{{NODE}}}",
            Column("Value", "Findings", "short"),
            Column("node", "Node"),
            Column("check", "Check"),
            Column("code", "Code"),
            Column("severity", "Severity"),
            Column("component", "Component"),
            Column("gpu", "GPU"),
            Column("injected", "Drill"),
        ),
    ),
)

GPUS = Section(
    "GPUs",
    (
        build_time_series(
            "Temperature",
            "Core temperature.",
            "celsius",
            Query(f"healthd_gpu_temperature_celsius{{{NODE}}}", "GPU {{gpu}}"),
        ),
        build_time_series("Power", "Power drawn.", "watt", Query(f"healthd_gpu_power_watts{{{NODE}}}", "GPU {{gpu}}")),
        build_time_series(
            "Utilisation",
            "Share of time in which a kernel ran. Investigate a GPU far below its siblings.",
            "percentunit",
            Query(f"healthd_gpu_utilization_ratio{{{NODE}}}", "GPU {{gpu}}"),
        ),
        build_time_series(
            "Clock",
            "Streaming multiprocessor clock.",
            "hertz",
            Query(f"healthd_gpu_sm_clock_hertz{{{NODE}}}", "GPU {{gpu}}"),
        ),
        build_time_series(
            "Throttled",
            "GPUs with reduced clocks, by reason; excludes idle and application clocks.",
            "short",
            Query(
                f'sum by (reason) (healthd_gpu_throttled{{{NODE},reason!~"gpu_idle|applications_clocks"}})',
                "{{reason}}",
            ),
            span=THIRD,
        ),
        build_time_series(
            "Memory in use",
            "Per GPU.",
            "bytes",
            Query(f"healthd_gpu_memory_used_bytes{{{NODE}}}", "GPU {{gpu}}"),
            span=THIRD,
        ),
        build_time_series(
            "Xids within the last hour",
            "By GPU and code, and in total per GPU. Includes drills.",
            "short",
            Query(f"sum by (gpu) (increase(healthd_gpu_xids_total{{{NODE}}}[1h]))", "GPU {{gpu}} all"),
            Query(query_new_xids("gpu, code", NODE), "GPU {{gpu}} Xid {{code}}"),
            span=THIRD,
        ),
    ),
)

HOST = Section(
    "Host",
    (
        build_time_series(
            "Pressure",
            "Share of time in which at least one task waited for the resource.",
            "percentunit",
            Query(f"rate(healthd_host_pressure_some_seconds_total{{{NODE}}}[5m])", "{{resource}}"),
            span=THIRD,
        ),
        build_time_series(
            "Free disk space",
            "Per file system, available to unprivileged users.",
            "percentunit",
            Query(f"healthd_host_disk_free_bytes{{{NODE}}} / healthd_host_disk_size_bytes{{{NODE}}}", "{{mount}}"),
            span=THIRD,
        ),
        build_time_series(
            "Tasks in uninterruptible sleep",
            "State D. Often caused by a file server or a driver that does not answer.",
            "short",
            Query(f"healthd_host_processes_waiting{{{NODE}}}", "{{node}}"),
            span=THIRD,
        ),
        build_time_series(
            "Host memory errors",
            "EDAC counters within the last hour.",
            "short",
            Query(f"sum by (kind) (increase(healthd_host_memory_errors_total{{{NODE}}}[1h]))", "{{kind}}"),
            span=THIRD,
        ),
        build_time_series(
            "Sources",
            "1: the agent can read the source. 0: the source is expected but cannot be read.",
            "short",
            Query(f"healthd_source_up{{{NODE}}}", "{{source}}"),
            span=THIRD,
        ),
        build_time_series(
            "Reports waiting",
            "Changes that the controller has not acknowledged. They survive a restart of the node.",
            "short",
            Query(f"healthd_outbox_waiting_changes{{{NODE}}}", "{{node}}"),
            span=THIRD,
        ),
        build_time_series(
            "NVML sweep",
            "Duration of one sweep over all GPUs. A failing driver slows down first.",
            "s",
            Query(f"healthd_nvml_sweep_seconds{{{NODE}}}", "{{node}}"),
            span=HALF,
        ),
        build_table_panel(
            "Running jobs",
            "Jobs with running ranks.",
            f"healthd_job_info{{{NODE}}}",
            Column("exported_job", "Job"),
            Column("attempt", "Attempt"),
            Column("world", "World size"),
            Column("node", "Node"),
            span=HALF,
        ),
    ),
)

BOARD = Board(
    "node",
    "Node",
    "One node: self-reported health, GPUs side by side, host and agent.",
    (NOW, GPUS, HOST),
    levels=("node",),
    links=(("Page of this node", "${web}/nodes/${node:percentencode}"),),
)
