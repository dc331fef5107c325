"""Ports of InfiniBand and RoCE adapters."""

from __future__ import annotations

from typing import NamedTuple

from healthd.samples.metric_declaration import Family, Metric


class IbPort(NamedTuple):
    """One port. Counters run since the driver was loaded; None where this adapter has none."""

    device: str
    port: str
    link_layer: str  # InfiniBand or Ethernet
    state: str  # ACTIVE, INIT, DOWN, …
    physical: str  # LinkUp, Polling, Disabled, …
    rate_gbps: float | None
    firmware: str
    board: str
    pci: str
    symbol_errors: int | None
    link_downed: int | None
    link_recoveries: int | None
    receive_errors: int | None
    transmit_discards: int | None
    transmit_wait_ticks: int | None  # while data was pending without credit
    out_of_sequence: int | None
    retransmits: int | None
    congestion_sent: int | None  # RoCE congestion notifications
    congestion_handled: int | None


class InfinibandSample(NamedTuple):
    """All ports, and what the configuration expects: device → Gb/s."""

    ports: tuple[IbPort, ...]
    expected: dict[str, float]


METRICS = (
    Family(
        rows="ports",
        labels=("device", "port"),
        metrics=(
            Metric("healthd_infiniband_port_info", "The adapter, and its port's state.", "link_layer", "info"),
            Metric("healthd_infiniband_port_info", "", "state", "info"),
            Metric("healthd_infiniband_port_info", "", "physical", "info"),
            Metric("healthd_infiniband_port_info", "", "firmware", "info"),
            Metric("healthd_infiniband_port_info", "", "board", "info"),
            Metric("healthd_infiniband_port_info", "", "pci", "info"),
            Metric("healthd_infiniband_rate_bits_per_second", "Rate of the link.", "rate_gbps", factor=1e9),
            Metric("healthd_infiniband_symbol_errors_total", "Symbol errors.", "symbol_errors", "counter"),
            Metric("healthd_infiniband_link_downed_total", "How often the link went down.", "link_downed", "counter"),
            Metric("healthd_infiniband_link_recoveries_total", "Recoveries.", "link_recoveries", "counter"),
            Metric("healthd_infiniband_receive_errors_total", "Packets with errors.", "receive_errors", "counter"),
            Metric("healthd_infiniband_transmit_discards_total", "Packets dropped.", "transmit_discards", "counter"),
            Metric(
                "healthd_infiniband_transmit_wait_ticks_total",
                "Ticks with data but no credit to send it.",
                "transmit_wait_ticks",
                "counter",
            ),
            Metric("healthd_infiniband_out_of_sequence_total", "Packets out of order.", "out_of_sequence", "counter"),
            Metric("healthd_infiniband_retransmits_total", "RoCE retransmissions.", "retransmits", "counter"),
            Metric(
                "healthd_infiniband_congestion_notifications_total",
                "RoCE congestion notifications.",
                "congestion_sent",
                "counter",
                labels=(("direction", "sent"),),
            ),
            Metric(
                "healthd_infiniband_congestion_notifications_total",
                "",
                "congestion_handled",
                "counter",
                labels=(("direction", "handled"),),
            ),
        ),
    ),
)
