"""Reads /proc/pressure/{cpu,io,memory}: three small files, 60 µs. Absent before Linux 4.20 or without CONFIG_PSI."""

from __future__ import annotations

from healthd.machine import Absent, Machine, Options
from healthd.samples.pressure import PressureSample, Stall

RESOURCES = ("cpu", "io", "memory")
_WHERE = "/proc/pressure"


def read(machine: Machine, options: Options) -> PressureSample:  # noqa: ARG001 - every collector takes options
    """All resources.

    Raises:
        Absent: this kernel accounts for none.
    """
    texts = {resource: machine.text(f"{_WHERE}/{resource}") for resource in RESOURCES}
    stalls = tuple(parse(resource, text) for resource, text in texts.items() if text is not None)
    if not stalls:
        raise Absent(f"no {_WHERE}: the kernel lacks pressure stall information (psi=1)")
    return PressureSample(stalls)


def parse(resource: str, text: str) -> Stall:
    """One file: lines of `some|full avg10=… avg60=… avg300=… total=…` (kernel Documentation/accounting/psi.rst)."""
    found: dict[str, dict[str, str]] = {}
    for line in text.splitlines():
        kind, _, pairs = line.partition(" ")
        found[kind] = dict(pair.split("=", 1) for pair in pairs.split() if "=" in pair)
    some, full = found.get("some", {}), found.get("full", {})
    return Stall(
        resource=resource,
        some_percent=_number(some, "avg60"),
        full_percent=_number(full, "avg60"),
        some_us=_count(some, "total"),
        full_us=_count(full, "total"),
    )


def _number(pairs: dict[str, str], key: str) -> float | None:
    try:
        return float(pairs[key])
    except (KeyError, ValueError):
        return None


def _count(pairs: dict[str, str], key: str) -> int | None:
    text = pairs.get(key, "")
    return int(text) if text.isdecimal() else None
