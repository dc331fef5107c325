"""Ethernet links that are down, flap, have become slower, or have errors."""

from __future__ import annotations

import msgspec

from healthd.findings.facts import Held, Moment, Raise, judge_level
from healthd.findings.hysteresis import Dwell, Growth
from healthd.samples.ethernet import EthernetInterface, EthernetSample
from vocabulary.finding import Evidence, Severity
from vocabulary.identity import Component, ComponentKind

CHECK = "ethernet"


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Section `ethernet` of the thresholds."""

    raise_after_s: float
    clear_after_s: float
    changes_in_window: float
    changes_window_s: float
    errors_in_window: float
    errors_window_s: float


class EthernetCheck:
    """Remembers each interface's highest speed and the growth of its counters."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._dwell = Dwell(limits.raise_after_s, limits.clear_after_s)
        self._changes = Growth(limits.changes_window_s)
        self._errors = Growth(limits.errors_window_s)
        self._fastest: dict[str, int] = {}  # of those that were up since the first sample

    def judge(self, sample: EthernetSample, now: Moment) -> list[Held]:
        """Return all facts of all interfaces."""
        return [fact for interface in sample.interfaces for fact in self._judge(interface, now)]

    def _judge(self, interface: EthernetInterface, now: Moment) -> list[Held]:
        name, limits = interface.name, self._limits
        if interface.up:
            self._fastest[name] = max(self._fastest.get(name, 0), interface.speed_mbps or 0)
        was_up = name in self._fastest
        fastest = self._fastest.get(name, 0)
        down = (not interface.up) if was_up and interface.state else None
        slower = interface.speed_mbps < fastest if interface.up and interface.speed_mbps else None
        changes = self._changes.add(name, interface.carrier_changes, now.monotonic)
        known = [
            n for n in (interface.receive_errors, interface.transmit_errors, interface.crc_errors) if n is not None
        ]
        errors = self._errors.add(name, sum(known) if known else None, now.monotonic)
        speeds: Evidence = {"speed_mbps": interface.speed_mbps or 0, "before_mbps": fastest}
        return [
            *judge_level(
                self._dwell.judge((name, "down"), down, now.monotonic),
                _raise_interface_fact(interface, "down", f"is {interface.state}, and was up", now),
            ),
            *judge_level(
                self._dwell.judge((name, "slower"), slower, now.monotonic),
                _raise_interface_fact(interface, "slower", "runs slower than before", now, speeds),
            ),
            *judge_level(
                None if changes is None else changes >= limits.changes_in_window,
                _raise_interface_fact(interface, "flapping", "its link flaps", now, {"changes": changes or 0}),
            ),
            *judge_level(
                None if errors is None else errors >= limits.errors_in_window,
                _raise_interface_fact(interface, "errors", "its link has errors", now, {"errors": errors or 0}),
            ),
        ]


def _raise_interface_fact(
    interface: EthernetInterface, code: str, text: str, now: Moment, evidence: Evidence | None = None
) -> Raise:
    return Raise(
        check=CHECK,
        code=code,
        component=Component(ComponentKind.NIC_PORT, name=interface.name, pci=interface.pci),
        severity=Severity.WARNING,
        summary=f"{interface.name} {text}",
        at=now.wall,
        evidence=evidence or {},
    )
