"""PCIe links that lost lanes, and hops with errors: a bridge is named with the devices behind it.

Link speed is not judged: it falls when a device idles, and the GPU's own check knows when it does not.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from healthd.collectors.pcie import PcieHop, PcieSample
from healthd.findings.facts import LevelFact, Moment, judge_level
from healthd.findings.hysteresis import Dwell, Growth
from vocabulary.finding import Severity
from vocabulary.identity import Component, ComponentKind

CHECK = "pcie"


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Section `pcie` of the thresholds."""

    raise_after_s: float
    clear_after_s: float
    corrected_in_window: float
    uncorrected_in_window: float
    window_s: float


class PcieCheck:
    """Remembers the growth of each hop's counters."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._narrow = Dwell(limits.raise_after_s, limits.clear_after_s)
        self._errors = Growth(limits.window_s)

    def judge(self, sample: PcieSample, now: Moment) -> list[LevelFact]:
        """Return all facts of all hops."""
        below = _map_end_points(sample)
        return [fact for hop in sample.hops for fact in (*self._width(hop, below, now), *self._counts(hop, below, now))]

    def _width(self, hop: PcieHop, below: Mapping[str, str], now: Moment) -> list[LevelFact]:
        known = hop.width is not None and hop.width_max is not None
        narrow = (hop.width or 0) < (hop.width_max or 0) if known else None
        if hop.kind == "bridge":
            return []  # a switch's port may have more lanes than the device below it
        holds, reached = self._narrow.judge(hop.pci, narrow, now.monotonic), below.get(hop.pci, "")
        summary = _describe_hop(hop, "runs with fewer lanes than it supports", reached)
        evidence = {"width": hop.width, "width_max": hop.width_max, "above": reached or None}
        return judge_level(holds, now, (CHECK, "narrow"), _make_hop_component(hop), summary, evidence=evidence)

    def _counts(self, hop: PcieHop, below: Mapping[str, str], now: Moment) -> list[LevelFact]:
        limits = self._limits
        facts: list[LevelFact] = []
        for code, count, limit, severity in (
            ("corrected", hop.corrected, limits.corrected_in_window, Severity.WARNING),
            ("nonfatal", hop.nonfatal, limits.uncorrected_in_window, Severity.WARNING),
            ("fatal", hop.fatal, limits.uncorrected_in_window, Severity.ERROR),
        ):
            growth = self._errors.add((hop.pci, code), count, now.monotonic)
            bad = None if growth is None else growth >= limit
            text = f"met {code} errors" if code != "corrected" else "corrects errors at a high rate"
            reached = below.get(hop.pci, "")
            facts += judge_level(
                bad,
                now,
                (CHECK, code),
                _make_hop_component(hop),
                _describe_hop(hop, text, reached),
                severity=severity,
                evidence={"errors": growth, "above": reached or None},
            )
        return facts


def _map_end_points(sample: PcieSample) -> dict[str, str]:
    """Return, for each hop, the devices behind it."""
    below: dict[str, list[str]] = {}
    for path in sample.paths:
        for address in path[:-1]:
            below.setdefault(address, []).append(path[-1])
    return {address: ", ".join(devices) for address, devices in below.items()}


def _make_hop_component(hop: PcieHop) -> Component:
    return Component(ComponentKind.PCIE, name=hop.pci, pci=hop.pci)


def _describe_hop(hop: PcieHop, text: str, reached: str) -> str:
    return f"PCIe {hop.kind} {hop.pci} {text}" + (f" (above {reached})" if reached else "")
