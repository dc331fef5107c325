"""Ethernet links that are down, flap, have become slower, or have errors."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from healthd.collectors.ethernet import EthernetInterface, EthernetSample
from healthd.findings.facts import LevelFact, Moment, judge_level
from healthd.findings.hysteresis import Dwell, Growth
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

    def judge(self, sample: EthernetSample, now: Moment) -> list[LevelFact]:
        """Return all facts of all interfaces."""
        return [fact for interface in sample.interfaces for fact in self._judge(interface, now)]

    def _judge(self, interface: EthernetInterface, now: Moment) -> list[LevelFact]:
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
        speeds = {"speed_mbps": interface.speed_mbps, "before_mbps": fastest}
        is_down = self._dwell.judge((name, "down"), down, now.monotonic)
        is_slower = self._dwell.judge((name, "slower"), slower, now.monotonic)
        flaps = None if changes is None else changes >= limits.changes_in_window
        errs = None if errors is None else errors >= limits.errors_in_window
        return [
            *_judge_interface(is_down, interface, "down", f"is {interface.state}, and was up", now),
            *_judge_interface(is_slower, interface, "slower", "runs slower than before", now, speeds),
            *_judge_interface(flaps, interface, "flapping", "its link flaps", now, {"changes": changes}),
            *_judge_interface(errs, interface, "errors", "its link has errors", now, {"errors": errors}),
        ]


def _judge_interface(
    holds: bool | None,  # noqa: FBT001 - the answer itself
    interface: EthernetInterface,
    code: str,
    text: str,
    now: Moment,
    evidence: Mapping[str, float | None] | None = None,
) -> list[LevelFact]:
    component = Component(ComponentKind.NIC_PORT, name=interface.name, pci=interface.pci)
    return judge_level(holds, now, (CHECK, code), component, f"{interface.name} {text}", evidence=evidence)
