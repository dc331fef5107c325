"""The recovery that the driver requests for a GPU (NVML field 230, the subject of Xid 154).

The driver may leave out the kernel line, so this reading is more reliable.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from healthd.findings.facts import LevelFact, Moment
from healthd.findings.gpu_state import GpuState, judge_gpu_level
from vocabulary.finding import Evidence, Severity
from vocabulary.hardware.recovery_requests import NONE, RECOVERY_REQUESTS

CHECK = "recovery_action"
_OTHER = "other"  # an action newer than this list: shown for a person to judge


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Section `recovery_action` of the thresholds: nothing to set, the driver decides."""


class RecoveryActionCheck:
    """Stateless."""

    def __init__(self, limits: Limits) -> None:
        del limits

    def judge(self, gpus: Sequence[GpuState], now: Moment) -> list[LevelFact]:
        """Return a fact named after the action while the driver requests it."""
        return [fact for state in gpus for fact in _judge_recovery_request(state, now)]


def _judge_recovery_request(state: GpuState, now: Moment) -> list[LevelFact]:
    action = state.latest.recovery_action
    if action is None:
        codes = (*(request.code for request in RECOVERY_REQUESTS.values()), _OTHER)
        return [fact for code in codes for fact in judge_gpu_level(None, state, now, (CHECK, code), "")]
    if action == NONE:
        return []
    request = RECOVERY_REQUESTS.get(action)
    code, words = request or (_OTHER, f"recovery action {action}, which this release does not know,")
    severity = Severity.ERROR if request else Severity.UNCLASSIFIED
    summary = f"the driver asks for {words} before GPU {state.gpu.index} takes new work"
    evidence: Evidence = {"recovery_action": action, "action": code}
    return judge_gpu_level(True, state, now, (CHECK, code), summary, severity=severity, evidence=evidence)
