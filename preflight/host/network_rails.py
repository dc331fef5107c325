"""The network ports for training traffic: their state, and its judgement. Reading and judging are separate functions."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence

import msgspec

from vocabulary.hardware.machine_files import Machine, parse_leading_number, parse_port_word

_RDMA = "/sys/class/infiniband"
_NET = "/sys/class/net"
_ADMINISTRATIVELY_UP = 1
COUNTERS = {  # of an RDMA port; allowed increase during a few seconds of traffic
    "link_downed": 0,
    "link_error_recovery": 0,
    "symbol_error": 100,
    "port_rcv_errors": 10,
}
NET_COUNTERS = {"rx_crc_errors": 10, "rx_errors": 100, "tx_errors": 100}
SIBLINGS_MIN = 3


class NetworkRail(msgspec.Struct, frozen=True, kw_only=True):
    """One port. `name` is ``DEVICE/PORT`` of an RDMA device, or the interface; None is unknown. Rates in Gb/s.

    `read_interface` is the network interface, if it has one; `board` groups ports of one product; `width` and `width_max` are
    PCIe lanes.
    """

    name: str
    kind: str
    up: bool | None
    switched_on: bool = True
    words: str = ""
    rate: float | None = None
    interface: str = ""
    board: str = ""
    width: int | None = None
    width_max: int | None = None
    counters: Mapping[str, int] = {}


class WantedRail(msgspec.Struct, frozen=True):
    """A rail that the operator expects; `rate` in Gb/s, None: any."""

    name: str
    rate: float | None = None


def parse_wanted_rails(text: str) -> tuple[WantedRail, ...]:
    """Parse ``mlx5_0:400,eth1``: names and rates in Gb/s. A name without a port means port 1.

    Raises:
        ValueError: a word of another form; the text names it.
    """
    found = []
    for word in filter(None, (word.strip() for word in text.split(","))):
        match = re.fullmatch(r"([^\s:]+)(?::(\d+(?:\.\d+)?))?", word)
        if match is None:
            raise ValueError(f"{word!r} is not a rail: write NAME or NAME:GBPS, e.g. mlx5_0:400")
        found.append(WantedRail(match[1], float(match[2]) if match[2] else None))
    return tuple(found)


def read_network_rails(machine: Machine) -> tuple[NetworkRail, ...]:
    """Every RDMA port, then every Ethernet interface of a real adapter without RDMA."""
    rdma = [
        _read_rdma_port(machine, device, port)
        for device in machine.names(_RDMA)
        for port in machine.names(f"{_RDMA}/{device}/ports")
    ]
    known = {name for device in machine.names(_RDMA) for name in machine.names(f"{_RDMA}/{device}/device/net")}
    plain = [
        _read_interface(machine, name)
        for name in machine.names(_NET)
        if name != "lo" and name not in known and _is_real_ethernet(machine, name)
    ]
    return (*rdma, *plain)


def read_interface(machine: Machine, name: str) -> NetworkRail | None:
    """One interface by name; None if there is none."""
    return _read_interface(machine, name) if machine.names(f"{_NET}/{name}") else None


def select_rails(rails: Sequence[NetworkRail], names: Sequence[WantedRail]) -> tuple[NetworkRail, ...]:
    """The rails to test: the requested ones; else the RDMA ports; else the Ethernet interfaces that are up."""
    if names:
        return tuple(rail for each in names if (rail := _match_wanted_rail(rails, each)))
    rdma = tuple(rail for rail in rails if rail.kind != "ethernet interface")
    return rdma or tuple(rail for rail in rails if rail.switched_on)


def find_missing_rails(rails: Sequence[NetworkRail], names: Sequence[WantedRail]) -> tuple[str, ...]:
    """Requested rails that do not exist."""
    return tuple(each.name for each in names if _match_wanted_rail(rails, each) is None)


def judge_rail(
    rail: NetworkRail, all_rails: Sequence[NetworkRail], names: Sequence[WantedRail]
) -> tuple[list[str], list[str]]:
    """Errors and remarks about a rail's state.

    A port that is down may be unused: only a requested one fails. Rate and PCIe width fail against the request, or against most
    of at least three others of the same board.
    """
    faults: list[str] = []
    remarks: list[str] = []
    want = next((each for each in names if _match_wanted_rail([rail], each)), None)
    if rail.up is False:
        said = f"is down ({rail.words})" if rail.words else "is down"
        (faults if want else remarks).append(
            said if want else f"{rail.name} {said}; list it as wanted if it should be up"
        )
        return faults, remarks
    others = [
        each for each in all_rails if each.board == rail.board and each.up and each.name != rail.name and rail.board
    ]
    usual_rate = _find_common_value([each.rate for each in others if each.rate])
    if want and want.rate and rail.rate is not None and rail.rate < want.rate:
        faults.append(f"runs at {rail.rate:g} Gb/s, {want.rate:g} wanted")
    elif rail.rate and usual_rate and rail.rate < usual_rate:
        faults.append(f"runs at {rail.rate:g} Gb/s, ports of the same kind at {usual_rate:g}")
    usual_width = _find_common_value([float(each.width) for each in others if each.width])
    if rail.width and usual_width and rail.width < usual_width:
        faults.append(f"has {rail.width} PCIe lanes, ports of the same kind {usual_width:g}")
    elif rail.width and rail.width_max and rail.width < rail.width_max:
        remarks.append(f"{rail.name} has {rail.width} of {rail.width_max} PCIe lanes")
    return faults, remarks


def describe_error_growth(before: NetworkRail, after: NetworkRail) -> list[str]:
    """Errors added by the traffic, beyond the allowed increase."""
    allowed = COUNTERS | NET_COUNTERS
    added = {name: count - before.counters[name] for name, count in after.counters.items() if name in before.counters}
    return [f"{name} grew by {count} during the test" for name, count in added.items() if count > allowed[name]]


def _find_common_value(values: Sequence[float]) -> float | None:
    """The value of most of at least three ports."""
    if len(values) < SIBLINGS_MIN:
        return None
    middle = statistics.mode(values)
    return middle if 2 * values.count(middle) > len(values) else None


def _match_wanted_rail(rails: Sequence[NetworkRail], want: WantedRail) -> NetworkRail | None:
    return next((r for r in rails if want.name in (r.name, r.name.partition("/")[0], r.interface)), None)


def _read_rdma_port(machine: Machine, device: str, port: str) -> NetworkRail:
    where = f"{_RDMA}/{device}/ports/{port}"
    state, physical = (parse_port_word(machine.text(f"{where}/{name}") or "") for name in ("state", "phys_state"))
    nets = machine.names(f"{_RDMA}/{device}/device/net")
    return NetworkRail(
        name=f"{device}/{port}",
        kind=machine.text(f"{where}/link_layer") or "RDMA",
        up=state == "ACTIVE" if state else None,
        words=", ".join(filter(None, (state, physical))),
        rate=parse_leading_number(machine.text(f"{where}/rate") or ""),
        interface=nets[0] if nets else "",
        board=machine.text(f"{_RDMA}/{device}/board_id") or "",
        width=machine.number(f"{_RDMA}/{device}/device/current_link_width"),
        width_max=machine.number(f"{_RDMA}/{device}/device/max_link_width"),
        counters=_read_counters(machine, f"{where}/counters", COUNTERS),
    )


def _read_interface(machine: Machine, name: str) -> NetworkRail:
    where = f"{_NET}/{name}"
    on = (machine.number(f"{where}/flags") or 0) & _ADMINISTRATIVELY_UP
    state = machine.text(f"{where}/operstate") or ""
    carrier = machine.number(f"{where}/carrier")
    speed = machine.number(f"{where}/speed")
    up = bool(on) and (state == "up" or (state == "unknown" and carrier == 1))
    return NetworkRail(
        name=name,
        kind="ethernet interface",
        up=up,
        switched_on=bool(on),
        words=state if on else "switched off",
        rate=speed / 1000 if speed and speed > 0 else None,
        interface=name,
        width=machine.number(f"{where}/device/current_link_width"),
        width_max=machine.number(f"{where}/device/max_link_width"),
        counters=_read_counters(machine, f"{where}/statistics", NET_COUNTERS),
    )


def _is_real_ethernet(machine: Machine, name: str) -> bool:
    """Whether hardware is behind it that uses Ethernet: type 1 of the kernel's ARPHRD numbers."""
    return bool(machine.target(f"{_NET}/{name}/device")) and machine.number(f"{_NET}/{name}/type") == 1


def _read_counters(machine: Machine, where: str, names: Mapping[str, int]) -> dict[str, int]:
    found = {name: machine.number(f"{where}/{name}") for name in names}
    return {name: value for name, value in found.items() if value is not None}
