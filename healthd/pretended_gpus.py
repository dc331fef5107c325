"""The GPUs as somebody wants them to be seen: judged by checks of their own, and all that these say is marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from healthd.facts import Held, Moment, Raise, check_failed
from healthd.gpu_checks import GpuCheck
from healthd.gpus import GpuState
from healthd.ledger import Ledger
from healthd.pretence import Pretence, pretend


class PretendedGpus:
    """The real checks never see a pretended reading, nor do these see to it that a real fault is cleared."""

    def __init__(self, ledger: Ledger, checks: Mapping[str, GpuCheck]) -> None:
        self._ledger = ledger
        self._checks = dict(checks)
        self._taken_back = False  # whatever an earlier process was told to pretend

    def judge(self, states: Sequence[GpuState], pretences: Sequence[Pretence], now: Moment) -> None:
        """Say what holds of the GPUs that have a pretended fault; without any, take back what was said."""
        if not pretences and self._taken_back:
            return
        self._taken_back = not pretences
        wanted = {pretence.gpu for pretence in pretences}
        places = {state.gpu.pci for state in states if state.gpu.index in wanted}
        pretended = pretend(states, pretences)
        for name, check in self._checks.items():
            try:
                facts = check.judge(pretended, now) if pretences else []
            except Exception as error:  # noqa: BLE001 - one check's mistake must not blind the others
                self._ledger.apply([check_failed(name, error, now.wall)])
                continue
            own = [_marked(fact) for fact in facts if fact.component.pci in places]
            self._ledger.hold(name, own, now.wall, "no longer pretended", injected=True)


def _marked(fact: Held) -> Held:
    return replace(fact, injected=True) if isinstance(fact, Raise) else fact
