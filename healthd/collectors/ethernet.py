"""Reads /sys/class/net: 8 small files for each interface with a device behind it, 0.1 ms. Virtual ones are left out."""

from __future__ import annotations

from healthd.collectors.machine_access import MachineAccess, Options, SourceAbsent
from healthd.samples.ethernet import EthernetInterface, EthernetSample

_WHERE = "/sys/class/net"
_ETHERNET = 1  # ARPHRD_ETHER; InfiniBand's interfaces have 32


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
