"""Ethernet interfaces that belong to a device."""

from __future__ import annotations

from typing import NamedTuple

from healthd.samples.metric_declaration import Family, Metric


class EthernetInterface(NamedTuple):
    """One interface. Counters count since its driver was loaded."""

    name: str
    pci: str
    state: str  # up, down, dormant, unknown, …
    speed_mbps: int | None
    carrier_changes: int | None
    receive_errors: int | None
    transmit_errors: int | None
    crc_errors: int | None
    receive_drops: int | None

    @property
    def up(self) -> bool:
        """Whether it carries traffic."""
        return self.state == "up"


class EthernetSample(NamedTuple):
    """All interfaces."""

    interfaces: tuple[EthernetInterface, ...]


METRICS = (
    Family(
        rows="interfaces",
        labels=("name",),
        metrics=(
            Metric("healthd_ethernet_up", "1 if the interface carries traffic.", "up"),
            Metric("healthd_ethernet_speed_bits_per_second", "Speed of the link.", "speed_mbps", factor=1e6),
            Metric(
                "healthd_ethernet_carrier_changes_total",
                "How often the link went down or up.",
                "carrier_changes",
                "counter",
            ),
            Metric(
                "healthd_ethernet_errors_total",
                "Packets with errors.",
                "receive_errors",
                "counter",
                labels=(("kind", "receive"),),
            ),
            Metric("healthd_ethernet_errors_total", "", "transmit_errors", "counter", labels=(("kind", "transmit"),)),
            Metric("healthd_ethernet_errors_total", "", "crc_errors", "counter", labels=(("kind", "crc"),)),
            Metric("healthd_ethernet_drops_total", "Packets dropped for lack of room.", "receive_drops", "counter"),
        ),
    ),
)
