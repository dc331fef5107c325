"""Reads /proc/pressure/{cpu,io,memory}: three small files, 60 µs. Absent before Linux 4.20 or without CONFIG_PSI."""

from __future__ import annotations

from typing import NamedTuple

from healthd.collectors.machine_access import MachineAccess, Options, SourceAbsent
from healthd.samples.metric_declaration import Family, Metric

RESOURCES = ("cpu", "io", "memory")
_WHERE = "/proc/pressure"


class PressureStall(NamedTuple):
    """One resource. `some_percent`, `full_percent`: of the last 60 s, some or all tasks waited; totals in µs since boot."""

    resource: str  # cpu, io, memory
    some_percent: float | None
    full_percent: float | None
    some_us: int | None
    full_us: int | None


class PressureSample(NamedTuple):
    """All resources the kernel accounts for."""

    stalls: tuple[PressureStall, ...]


METRICS = (
    Family(
        rows="stalls",
        labels=("resource",),
        metrics=(
            Metric(
                "healthd_host_pressure_some_seconds_total",
                "Time in which some task waited for the resource.",
                "some_us",
                "counter",
                1e-6,
            ),
            Metric(
                "healthd_host_pressure_full_seconds_total",
                "Time in which all tasks waited for the resource.",
                "full_us",
                "counter",
                1e-6,
            ),
        ),
    ),
)


def read_pressure(machine: MachineAccess, options: Options) -> PressureSample:  # noqa: ARG001 - every collector takes options
    """Return all resources.

    Raises:
        SourceAbsent: this kernel accounts for none.
    """
    texts = {resource: machine.text(f"{_WHERE}/{resource}") for resource in RESOURCES}
    stalls = tuple(parse_pressure_file(resource, text) for resource, text in texts.items() if text is not None)
    if not stalls:
        raise SourceAbsent(f"no {_WHERE}: the kernel lacks pressure stall information (psi=1)")
    return PressureSample(stalls)


def parse_pressure_file(resource: str, text: str) -> PressureStall:
    """Parse lines of `some|full avg10=… avg60=… avg300=… total=…` (kernel Documentation/accounting/psi.rst)."""
    found: dict[str, dict[str, str]] = {}
    for line in text.splitlines():
        kind, _, pairs = line.partition(" ")
        found[kind] = dict(pair.split("=", 1) for pair in pairs.split() if "=" in pair)
    some, full = found.get("some", {}), found.get("full", {})
    return PressureStall(
        resource=resource,
        some_percent=_parse_number(some, "avg60"),
        full_percent=_parse_number(full, "avg60"),
        some_us=_parse_count(some, "total"),
        full_us=_parse_count(full, "total"),
    )


def _parse_number(pairs: dict[str, str], key: str) -> float | None:
    try:
        return float(pairs[key])
    except (KeyError, ValueError):
        return None


def _parse_count(pairs: dict[str, str], key: str) -> int | None:
    text = pairs.get(key, "")
    return int(text) if text.isdecimal() else None
