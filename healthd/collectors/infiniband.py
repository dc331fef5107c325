"""Reads /sys/class/infiniband: 18 small files a port, 0.3 ms. Absent without such adapters or their driver."""

from __future__ import annotations

from typing import NamedTuple

from healthd.collectors.machine_access import MachineAccess, Options, SourceAbsent
from healthd.samples.metric_declaration import Family, Metric
from vocabulary.hardware.machine_files import parse_leading_number, parse_port_word

_WHERE = "/sys/class/infiniband"


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


def read_infiniband(machine: MachineAccess, options: Options) -> InfinibandSample:
    """Return every port of every adapter (kernel Documentation/ABI/stable/sysfs-class-infiniband).

    Raises:
        SourceAbsent: there is none.
    """
    devices = machine.names(_WHERE)
    if not devices:
        raise SourceAbsent(f"no adapter below {_WHERE}")
    ports = tuple(
        _read_port(machine, device, port) for device in devices for port in machine.names(f"{_WHERE}/{device}/ports")
    )
    return InfinibandSample(ports, parse_expected_rates(options.get("expected", ())))


def parse_expected_rates(words: object) -> dict[str, float]:
    """Parse ``mlx5_0:400`` as 400 Gb/s on that device.

    Raises:
        ValueError: an option of another form.
    """
    found = {}
    for word in words if isinstance(words, (list, tuple)) else ():
        device, colon, rate = str(word).partition(":")
        if not colon or not rate.replace(".", "", 1).isdecimal():
            raise ValueError(f"option expected: {word!r} is not DEVICE:GBPS, e.g. mlx5_0:400")
        found[device] = float(rate)
    return found


def _read_port(machine: MachineAccess, device: str, port: str) -> IbPort:
    where = f"{_WHERE}/{device}/ports/{port}"

    def word(name: str) -> str:
        return parse_port_word(machine.text(f"{where}/{name}") or "")

    def count(name: str) -> int | None:
        return machine.number(f"{where}/{name}")

    return IbPort(
        device=device,
        port=port,
        link_layer=machine.text(f"{where}/link_layer") or "",
        state=word("state"),
        physical=word("phys_state"),
        rate_gbps=parse_leading_number(machine.text(f"{where}/rate") or ""),
        firmware=machine.text(f"{_WHERE}/{device}/fw_ver") or "",
        board=machine.text(f"{_WHERE}/{device}/board_id") or "",
        pci=machine.target(f"{_WHERE}/{device}/device").rpartition("/")[2],
        symbol_errors=count("counters/symbol_error"),
        link_downed=count("counters/link_downed"),
        link_recoveries=count("counters/link_error_recovery"),
        receive_errors=count("counters/port_rcv_errors"),
        transmit_discards=count("counters/port_xmit_discards"),
        transmit_wait_ticks=count("counters/port_xmit_wait"),
        out_of_sequence=count("hw_counters/out_of_sequence"),
        retransmits=count("hw_counters/roce_adp_retrans"),
        congestion_sent=count("hw_counters/np_cnp_sent"),
        congestion_handled=count("hw_counters/rp_cnp_handled"),
    )
