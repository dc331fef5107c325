"""What the driver itself asks for before a GPU may be trusted again (NVML field 230, the subject of Xid 154).

The driver may leave out the kernel line, so this reading is the surer witness.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from healthd.facts import Held, Moment, held
from healthd.gpus import GpuState, level
from vocabulary.finding import Severity

CHECK = "recovery_action"
_ACTIONS = {  # nvml.h, nvmlDeviceGpuRecoveryAction_t
    1: ("reset_gpu", Severity.ERROR, "a reset of the GPU"),
    2: ("reboot", Severity.ERROR, "a reboot of the node"),
    3: ("drain_p2p", Severity.ERROR, "that peer-to-peer work on it ends"),
    4: ("drain_and_reset", Severity.ERROR, "that its work ends, and then a reset"),
    5: ("recover_imex", Severity.ERROR, "that the IMEX domain is recovered"),
}
_OTHER = "other"  # an action newer than this list: shown, for a person to judge


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Section `recovery_action` of the thresholds: there is nothing to set, the driver decides."""


class RecoveryActionCheck:
    """Holds no state."""

    def __init__(self, limits: Limits) -> None:
        del limits

    def judge(self, gpus: Sequence[GpuState], now: Moment) -> list[Held]:
        """A level named after the action, as long as the driver asks for it."""
        return [fact for state in gpus for fact in _judge(state, now)]


def _judge(state: GpuState, now: Moment) -> list[Held]:
    action = state.latest.recovery_action
    codes = (*(code for code, _, _ in _ACTIONS.values()), _OTHER)
    if action is None:
        return [fact for code in codes for fact in held(None, level(state, now, (CHECK, code), ""))]
    if action == 0:
        return []
    code, severity, want = _ACTIONS.get(action, (_OTHER, Severity.UNCLASSIFIED, "an action this release does not know"))
    summary = f"the driver asks for {want} before GPU {state.gpu.index} takes new work"
    fact = level(
        state, now, (CHECK, code), summary, severity=severity, evidence={"recovery_action": action, "action": code}
    )
    return [fact]
