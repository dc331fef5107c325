"""The networks between GPUs: NVLink, InfiniBand and RoCE, Ethernet, PCIe paths."""

from __future__ import annotations

from dashboards.frame import NODE, NODE_BOARD, Board, Section
from dashboards.panels import GREEN, HALF, RED, Column, Query, number, rows, series

PORT = "{{node}} {{device}}/{{port}}"

NOW = Section(
    "Now",
    (
        number(
            "NVLinks down",
            "Links of GPUs that are not up. Some products leave links unused.",
            "short",
            Query(f"sum(healthd_nvlink_active{{{NODE}}} == bool 0)"),
            (None, GREEN),
            (1, RED),
        ),
        number(
            "GPUs not in the fabric",
            "GPUs whose NVLink registration is not completed, where there are NVSwitches.",
            "short",
            Query(f"sum(healthd_gpu_fabric_state{{{NODE}}} != bool 3)"),
            (None, GREEN),
            (1, RED),
        ),
        number(
            "Ports that are not active",
            "InfiniBand and RoCE ports whose state is another than active.",
            "short",
            Query(
                f"count(healthd_infiniband_port_info{{{NODE}}}) - "
                f'(count(healthd_infiniband_port_info{{{NODE},state=~"(?i).*active"}}) or '
                f"0 * count(healthd_infiniband_port_info{{{NODE}}}))"
            ),
            (None, GREEN),
            (1, RED),
        ),
        number(
            "Ports",
            "InfiniBand and RoCE ports that are looked at.",
            "short",
            Query(f"count(healthd_infiniband_port_info{{{NODE}}})"),
        ),
        number(
            "Ethernet down",
            "Interfaces that carry no traffic.",
            "short",
            Query(f"sum(healthd_ethernet_up{{{NODE}}} == bool 0)"),
            (None, GREEN),
            (1, RED),
        ),
        number(
            "Narrow PCIe links",
            "Links of GPUs and adapters with fewer lanes than they have.",
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
        series(
            "Symbol errors",
            "A second; a cable or transceiver that goes bad.",
            "short",
            Query(f"rate(healthd_infiniband_symbol_errors_total{{{NODE}}}[5m])", PORT),
        ),
        series(
            "Link flaps within the last hour",
            "How often a link went down.",
            "short",
            Query(f"increase(healthd_infiniband_link_downed_total{{{NODE}}}[1h])", PORT),
        ),
        series(
            "Waiting to send",
            "Ticks a second in which a port had data and no credit: congestion ahead.",
            "short",
            Query(f"rate(healthd_infiniband_transmit_wait_ticks_total{{{NODE}}}[5m])", PORT),
        ),
        series(
            "Errors and packets given up",
            "A second.",
            "short",
            Query(f"rate(healthd_infiniband_receive_errors_total{{{NODE}}}[5m])", f"{PORT} errors"),
            Query(f"rate(healthd_infiniband_transmit_discards_total{{{NODE}}}[5m])", f"{PORT} given up"),
        ),
        rows(
            "Ports",
            "What each port is and how it stands.",
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
        series(
            "NVLink errors",
            "A second over all links of a GPU; the ten worst.",
            "short",
            Query(
                f"topk(10, sum by (node, gpu) (rate(healthd_nvlink_errors_total{{{NODE}}}[5m])))",
                "{{node}} GPU {{gpu}}",
            ),
        ),
        series(
            "NVLink traffic",
            "All GPUs of a node, both directions.",
            "Bps",
            Query(f"sum by (node) (rate(healthd_nvlink_bytes_total{{{NODE}}}[5m]))", "{{node}}"),
        ),
        series(
            "PCIe errors within the last hour",
            "By severity, as the kernel counts them.",
            "short",
            Query(
                f"sum by (node, severity) (increase(healthd_pcie_errors_total{{{NODE}}}[1h]))", "{{node}} {{severity}}"
            ),
        ),
        series(
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
    "NVLink, InfiniBand and RoCE, PCIe and Ethernet, of some nodes or all.",
    (NOW, PORTS, LINKS),
    levels=("node",),
)
