"""Network ports that are down, too slow, flapping, or have errors: each rail of a job waits for its slowest port."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from healthd.collectors.infiniband import IbPort, InfinibandSample
from healthd.findings.facts import LevelFact, Moment, judge_level
from healthd.findings.hysteresis import Dwell, Growth
from vocabulary.finding import Severity
from vocabulary.identity import Component, ComponentKind

CHECK = "infiniband"
SIBLINGS_MIN = 4


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Section `infiniband` of the thresholds."""

    raise_after_s: float
    clear_after_s: float
    flaps_in_window: float
    flaps_window_s: float
    symbol_errors_in_window: float
    symbol_errors_window_s: float
    congestion_ticks_per_s: float
    congestion_window_s: float


class InfinibandCheck:
    """Remembers which ports were up, and the growth of their counters."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._dwell = Dwell(limits.raise_after_s, limits.clear_after_s)
        self._flaps = Growth(limits.flaps_window_s)
        self._symbols = Growth(limits.symbol_errors_window_s)
        self._waits = Growth(limits.congestion_window_s)
        self._were_up: set[tuple[str, str]] = set()

    def judge(self, sample: InfinibandSample, now: Moment) -> list[LevelFact]:
        """Return all facts of all ports."""
        facts: list[LevelFact] = []
        for port in sample.ports:
            usual = sample.expected.get(port.device) or _find_usual_rate(port, sample.ports)
            facts += self._down(port, expected=port.device in sample.expected, now=now)
            facts += self._slow(port, usual, now)
            facts += self._counters(port, now)
        return facts

    def _down(self, port: IbPort, *, expected: bool, now: Moment) -> list[LevelFact]:
        key = (port.device, port.port)
        up = port.state == "ACTIVE"
        if up:
            self._were_up.add(key)
        if not port.state or (not up and not expected and key not in self._were_up):
            holds = None  # its expected state is unknown; a finding from before a restart stays
        else:
            holds = self._dwell.judge(("down", *key), not up, now.monotonic)
        summary = _describe_port(port, f"is {port.state or 'unknown'} ({port.physical or 'unknown'})")
        component = _make_port_component(port)
        return judge_level(holds, now, (CHECK, "down"), component, summary, severity=Severity.ERROR)

    def _slow(self, port: IbPort, usual: float | None, now: Moment) -> list[LevelFact]:
        known = port.rate_gbps is not None and usual is not None and port.state == "ACTIVE"
        slow = (port.rate_gbps or 0.0) < (usual or 0.0) if known else None
        holds = self._dwell.judge(("slow", port.device, port.port), slow, now.monotonic)
        summary = _describe_port(port, "runs at a lower rate than expected")
        evidence = {"rate_gbps": port.rate_gbps, "expected_gbps": usual}
        return judge_level(holds, now, (CHECK, "slow"), _make_port_component(port), summary, evidence=evidence)

    def _counters(self, port: IbPort, now: Moment) -> list[LevelFact]:
        limits, key = self._limits, (port.device, port.port)
        flaps = self._flaps.add(key, port.link_downed, now.monotonic)
        symbols = self._symbols.add(key, port.symbol_errors, now.monotonic)
        waits = self._waits.add(key, port.transmit_wait_ticks, now.monotonic)
        ticks = limits.congestion_ticks_per_s * limits.congestion_window_s
        return [
            *_judge_counter_growth(
                port, "flapping", "its link went down and came back", flaps, limits.flaps_in_window, now
            ),
            *_judge_counter_growth(
                port, "symbol_errors", "its link has errors", symbols, limits.symbol_errors_in_window, now
            ),
            *_judge_counter_growth(port, "congested", "waits to send most of the time", waits, ticks, now),
        ]


def _find_usual_rate(port: IbPort, ports: Sequence[IbPort]) -> float | None:
    """Return the rate of most siblings; None if there are too few, or no majority."""
    rates = [p.rate_gbps for p in ports if p is not port and p.link_layer == port.link_layer and p.state == "ACTIVE"]
    known = [rate for rate in rates if rate is not None]
    if len(known) < SIBLINGS_MIN - 1:
        return None
    rate, count = Counter(known).most_common(1)[0]
    return rate if 2 * count > len(known) else None


def _judge_counter_growth(
    port: IbPort, code: str, text: str, growth: int | None, limit: float, now: Moment
) -> list[LevelFact]:
    holds, evidence = None if growth is None else growth >= limit, {"growth": growth}
    return judge_level(
        holds, now, (CHECK, code), _make_port_component(port), _describe_port(port, text), evidence=evidence
    )


def _make_port_component(port: IbPort) -> Component:
    return Component(ComponentKind.NIC_PORT, name=f"{port.device}/{port.port}", pci=port.pci)


def _describe_port(port: IbPort, text: str) -> str:
    return f"{port.device} port {port.port} {text}"
