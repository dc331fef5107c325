"""One GPU in depth: memory errors, spare rows, throttling, links, processes."""

from __future__ import annotations

from dashboards.board_layout import GPU, Board, Section
from dashboards.panels import (
    GREEN,
    HALF,
    ORANGE,
    RED,
    THIRD,
    Column,
    Query,
    build_stat_panel,
    build_table_panel,
    build_time_series,
)

NAME = "{{node}} GPU {{gpu}}"

NOW = Section(
    "Now",
    (
        build_stat_panel(
            "Slowdown margin",
            "Degrees below the temperature at which the driver slows the GPU down.",
            "celsius",
            Query(f"min(healthd_gpu_slowdown_margin_celsius{{{GPU}}})"),
            (None, RED),
            (1, ORANGE),
            (8, GREEN),
        ),
        build_stat_panel(
            "Row remap failed",
            "A memory row could not be remapped: replace the GPU.",
            "short",
            Query(f"sum(healthd_gpu_row_remap_failed{{{GPU}}})"),
            (None, GREEN),
            (1, RED),
        ),
        build_stat_panel(
            "Row remap pending",
            "A row remap takes effect with the next GPU reset.",
            "short",
            Query(f"sum(healthd_gpu_row_remap_pending{{{GPU}}})"),
            (None, GREEN),
            (1, ORANGE),
        ),
        build_stat_panel(
            "Uncorrected errors",
            "ECC errors since the driver was loaded.",
            "short",
            Query(f'sum(healthd_gpu_ecc_errors_total{{{GPU},kind="uncorrected",scope="volatile"}})'),
            (None, GREEN),
            (1, RED),
        ),
        build_stat_panel(
            "Recovery action requested",
            "Recovery action that the driver requests; 0 means none.",
            "short",
            Query(f"max(healthd_gpu_recovery_action{{{GPU}}})"),
            (None, GREEN),
            (1, ORANGE),
        ),
        build_stat_panel(
            "Narrowest PCIe link",
            "Lanes in use as a share of the supported lanes.",
            "percentunit",
            Query(f"min(healthd_gpu_pcie_width_lanes{{{GPU}}} / healthd_gpu_pcie_width_max_lanes{{{GPU}}})"),
            (None, RED),
            (1, GREEN),
        ),
        build_table_panel(
            "Identity",
            "Identifiers of the GPU. Order a replacement by serial number.",
            f"healthd_gpu_info{{{GPU}}}",
            Column("node", "Node"),
            Column("gpu", "GPU"),
            Column("name", "Product"),
            Column("serial", "Serial number"),
            Column("uuid", "UUID"),
            Column("pci", "PCI address"),
            Column("vbios", "VBIOS"),
            span=HALF,
        ),
        build_table_panel(
            "Users",
            "The rank that uses the GPU.",
            f"healthd_gpu_job_info{{{GPU}}}",
            Column("node", "Node"),
            Column("gpu", "GPU"),
            Column("exported_job", "Job"),
            Column("rank", "Rank"),
            span=HALF,
        ),
    ),
)

WORK = Section(
    "Work",
    (
        build_time_series(
            "Temperatures",
            "Core and memory.",
            "celsius",
            Query(f"healthd_gpu_temperature_celsius{{{GPU}}}", f"{NAME} core"),
            Query(f"healthd_gpu_memory_temperature_celsius{{{GPU}}}", f"{NAME} memory"),
        ),
        build_time_series(
            "Power",
            "Power draw and power limit.",
            "watt",
            Query(f"healthd_gpu_power_watts{{{GPU}}}", NAME),
            Query(f"healthd_gpu_power_limit_watts{{{GPU}}}", f"{NAME} limit"),
        ),
        build_time_series(
            "Clocks",
            "Multiprocessors and memory.",
            "hertz",
            Query(f"healthd_gpu_sm_clock_hertz{{{GPU}}}", f"{NAME} SM"),
            Query(f"healthd_gpu_memory_clock_hertz{{{GPU}}}", f"{NAME} memory"),
        ),
        build_time_series(
            "Time with reduced clocks",
            "Share of time by throttle reason, from the driver's counters.",
            "percentunit",
            Query(f"rate(healthd_gpu_throttled_seconds_total{{{GPU}}}[5m])", f"{NAME} {{{{reason}}}}"),
        ),
        build_time_series(
            "SM utilization",
            "Share of time in which a kernel ran; share of multiprocessors with a warp; share of tensor cycles.",
            "percentunit",
            Query(f"healthd_gpu_utilization_ratio{{{GPU}}}", f"{NAME} any kernel"),
            Query(f"healthd_gpu_sm_active_ratio{{{GPU}}}", f"{NAME} SM active"),
            Query(f"healthd_gpu_tensor_active_ratio{{{GPU}}}", f"{NAME} tensor"),
        ),
        build_time_series(
            "Memory utilization",
            "Share of memory cycles in use, and share of memory allocated.",
            "percentunit",
            Query(f"healthd_gpu_dram_active_ratio{{{GPU}}}", f"{NAME} bandwidth"),
            Query(f"healthd_gpu_memory_used_bytes{{{GPU}}} / healthd_gpu_memory_size_bytes{{{GPU}}}", f"{NAME} taken"),
        ),
    ),
)

WEAR = Section(
    "Errors and wear",
    (
        build_time_series(
            "ECC errors within the last hour",
            "Corrected errors indicate wear. Uncorrected errors end jobs.",
            "short",
            Query(f'increase(healthd_gpu_ecc_errors_total{{{GPU},scope="volatile"}}[1h])', f"{NAME} {{{{kind}}}}"),
            span=THIRD,
        ),
        build_time_series(
            "Remapped memory rows",
            "Over the GPU's lifetime.",
            "short",
            Query(f"healthd_gpu_remapped_rows{{{GPU}}}", f"{NAME} {{{{kind}}}}"),
            span=THIRD,
        ),
        build_time_series(
            "Banks with few spare rows left",
            "Memory banks whose spare rows are partially, mostly or fully used.",
            "short",
            Query(f'healthd_gpu_memory_banks{{{GPU},spare_rows=~"partial|low|none"}}', f"{NAME} {{{{spare_rows}}}}"),
            span=THIRD,
        ),
        build_time_series(
            "PCIe replays",
            "Replays per second. Suggests a bad riser, slot or cable.",
            "short",
            Query(f"rate(healthd_gpu_pcie_replays_total{{{GPU}}}[5m])", NAME),
        ),
        build_time_series(
            "NVLink errors",
            "Errors per second over all links of the GPU, by kind.",
            "short",
            Query(f"sum by (node, gpu, kind) (rate(healthd_nvlink_errors_total{{{GPU}}}[5m]))", f"{NAME} {{{{kind}}}}"),
        ),
    ),
)

BOARD = Board(
    "gpu",
    "GPU",
    "One GPU in detail: load, errors, wear and links. Select one node and one GPU.",
    (NOW, WORK, WEAR),
    levels=("node", "gpu"),
    links=(("Page of this node", "${web}/nodes/${node:percentencode}"),),
)
