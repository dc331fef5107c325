"""Reads /sys/class/net: 8 small files for each interface with a device behind it, 0.1 ms. Virtual ones are left out."""

from __future__ import annotations

from typing import NamedTuple

from healthd.collectors.machine_access import MachineAccess, Options, SourceAbsent
from healthd.samples.metric_declaration import Family, Metric

_WHERE = "/sys/class/net"
_ETHERNET = 1  # ARPHRD_ETHER; InfiniBand's interfaces have 32


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


def read_ethernet(machine: MachineAccess, options: Options) -> EthernetSample:  # noqa: ARG001 - every collector takes options
    """Return every Ethernet interface (kernel Documentation/ABI/testing/sysfs-class-net).

    Raises:
        SourceAbsent: there is none.
    """
    names = [
        name
        for name in machine.names(_WHERE)
        if machine.exists(f"{_WHERE}/{name}/device") and machine.number(f"{_WHERE}/{name}/type") == _ETHERNET
    ]
    if not names:
        raise SourceAbsent(f"no interface with a device below {_WHERE}")
    return EthernetSample(tuple(_read_interface(machine, name) for name in names))


def _read_interface(machine: MachineAccess, name: str) -> EthernetInterface:
    where = f"{_WHERE}/{name}"
    speed = machine.number(f"{where}/speed")  # -1, or an error, while the link is down
    return EthernetInterface(
        name=name,
        pci=machine.target(f"{where}/device").rpartition("/")[2],
        state=machine.text(f"{where}/operstate") or "",
        speed_mbps=speed if speed is not None and speed > 0 else None,
        carrier_changes=machine.number(f"{where}/carrier_changes"),
        receive_errors=machine.number(f"{where}/statistics/rx_errors"),
        transmit_errors=machine.number(f"{where}/statistics/tx_errors"),
        crc_errors=machine.number(f"{where}/statistics/rx_crc_errors"),
        receive_drops=machine.number(f"{where}/statistics/rx_dropped"),
    )
