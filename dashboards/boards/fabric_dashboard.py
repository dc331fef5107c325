"""The networks between GPUs: NVLink, InfiniBand and RoCE, Ethernet, PCIe paths."""

from __future__ import annotations

from dashboards.board_layout import NODE, NODE_BOARD, Board, Section
from dashboards.panels import GREEN, HALF, RED, Column, Query, build_stat_panel, build_table_panel, build_time_series

PORT = "{{node}} {{device}}/{{port}}"

NOW = Section(
    "Now",
    (
        build_stat_panel(
            "NVLinks down",
            "GPU links that are not up. Some products leave links unused.",
            "short",
            Query(f"sum(healthd_nvlink_active{{{NODE}}} == bool 0)"),
            (None, GREEN),
            (1, RED),
        ),
        build_stat_panel(
            "GPUs not in the fabric",
            "GPUs that have not completed NVLink fabric registration, on nodes with NVSwitches.",
            "short",
            Query(f"sum(healthd_gpu_fabric_state{{{NODE}}} != bool 3)"),
            (None, GREEN),
            (1, RED),
        ),
        build_stat_panel(
            "Ports that are not active",
            "InfiniBand and RoCE ports in any state other than active.",
            "short",
            Query(
                f"count(healthd_infiniband_port_info{{{NODE}}}) - "
                f'(count(healthd_infiniband_port_info{{{NODE},state=~"(?i).*active"}}) or '
                f"0 * count(healthd_infiniband_port_info{{{NODE}}}))"
            ),
            (None, GREEN),
            (1, RED),
        ),
        build_stat_panel(
            "Ports",
            "Monitored InfiniBand and RoCE ports.",
            "short",
            Query(f"count(healthd_infiniband_port_info{{{NODE}}})"),
        ),
        build_stat_panel(
            "Ethernet down",
            "Interfaces that carry no traffic.",
            "short",
            Query(f"sum(healthd_ethernet_up{{{NODE}}} == bool 0)"),
            (None, GREEN),
            (1, RED),
        ),
        build_stat_panel(
            "Narrow PCIe links",
            "GPU and adapter links that run with fewer lanes than they support.",
            "short",
            Query(f"sum(healthd_pcie_link_width_lanes{{{NODE}}} < bool healthd_pcie_link_width_max_lanes{{{NODE}}})"),
            (None, GREEN),
            (1, RED),
        ),
    ),
)

PORTS = Section(
    "InfiniBand and RoCE",
    (
        build_time_series(
            "Symbol errors",
            "Errors per second. Suggests a failing cable or transceiver.",
            "short",
            Query(f"rate(healthd_infiniband_symbol_errors_total{{{NODE}}}[5m])", PORT),
        ),
        build_time_series(
            "Link flaps within the last hour",
            "Number of times a link went down.",
            "short",
            Query(f"increase(healthd_infiniband_link_downed_total{{{NODE}}}[1h])", PORT),
        ),
        build_time_series(
            "Transmit wait",
            "Ticks per second in which a port had data to send but no credit: congestion downstream.",
            "short",
            Query(f"rate(healthd_infiniband_transmit_wait_ticks_total{{{NODE}}}[5m])", PORT),
        ),
        build_time_series(
            "Errors and discarded packets",
            "A second.",
            "short",
            Query(f"rate(healthd_infiniband_receive_errors_total{{{NODE}}}[5m])", f"{PORT} errors"),
            Query(f"rate(healthd_infiniband_transmit_discards_total{{{NODE}}}[5m])", f"{PORT} discarded"),
        ),
        build_table_panel(
            "Ports",
            "Device and state of each port.",
            f"healthd_infiniband_port_info{{{NODE}}}",
            Column("node", "Node", link=NODE_BOARD),
            Column("device", "Device"),
            Column("port", "Port"),
            Column("link_layer", "Kind"),
            Column("state", "State"),
            Column("physical", "Physical"),
            Column("firmware", "Firmware"),
        ),
    ),
)

LINKS = Section(
    "NVLink, PCIe, Ethernet",
    (
        build_time_series(
            "NVLink errors",
            "Errors per second over all links of a GPU; top ten.",
            "short",
            Query(
                f"topk(10, sum by (node, gpu) (rate(healthd_nvlink_errors_total{{{NODE}}}[5m])))",
                "{{node}} GPU {{gpu}}",
            ),
        ),
        build_time_series(
            "NVLink traffic",
            "Sum over all GPUs of a node, both directions.",
            "Bps",
            Query(f"sum by (node) (rate(healthd_nvlink_bytes_total{{{NODE}}}[5m]))", "{{node}}"),
        ),
        build_time_series(
            "PCIe errors within the last hour",
            "By severity, from the kernel's counters.",
            "short",
            Query(
                f"sum by (node, severity) (increase(healthd_pcie_errors_total{{{NODE}}}[1h]))", "{{node}} {{severity}}"
            ),
        ),
        build_time_series(
            "Ethernet errors and drops",
            "A second.",
            "short",
            Query(f"sum by (node) (rate(healthd_ethernet_errors_total{{{NODE}}}[5m]))", "{{node}} errors"),
            Query(f"sum by (node) (rate(healthd_ethernet_drops_total{{{NODE}}}[5m]))", "{{node}} drops"),
            span=HALF,
        ),
    ),
)

BOARD = Board(
    "fabric",
    "Fabric",
    "NVLink, InfiniBand and RoCE, PCIe and Ethernet, for selected nodes or all.",
    (NOW, PORTS, LINKS),
    levels=("node",),
)
