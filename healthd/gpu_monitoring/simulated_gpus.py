"""Judges GPUs with simulated faults by separate checks, whose findings are all marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from healthd.findings.facts import LevelFact, Moment, Raise, make_check_failure
from healthd.findings.finding_ledger import FindingLedger
from healthd.findings.gpu_state import GpuState
from healthd.gpu_monitoring.gpu_check_registry import GpuCheck
from healthd.gpu_monitoring.simulated_faults import SimulatedFault, simulate_faults


class SimulatedGpus:
    """The real checks never see a simulated reading, and these never clear a real fault."""

    def __init__(self, ledger: FindingLedger, checks: Mapping[str, GpuCheck]) -> None:
        self._ledger = ledger
        self._checks = dict(checks)
        self._taken_back = False  # covers what an earlier process simulated

    def judge(self, states: Sequence[GpuState], pretences: Sequence[SimulatedFault], now: Moment) -> None:
        """Return facts for GPUs with simulated faults; without any, clear the earlier ones."""
        if not pretences and self._taken_back:
            return
        self._taken_back = not pretences
        wanted = {pretence.gpu for pretence in pretences}
        places = {state.gpu.pci for state in states if state.gpu.index in wanted}
        pretended = simulate_faults(states, pretences)
        for name, check in self._checks.items():
            try:
                facts = check.judge(pretended, now) if pretences else []
            except Exception as error:  # noqa: BLE001 - one check's mistake must not blind the others
                self._ledger.apply([make_check_failure(name, error, now.wall)])
                continue
            own = [_mark_injected(fact) for fact in facts if fact.component.pci in places]
            self._ledger.apply_levels(name, own, now.wall, "no longer simulated", injected=True)


def _mark_injected(fact: LevelFact) -> LevelFact:
    return replace(fact, injected=True) if isinstance(fact, Raise) else fact
