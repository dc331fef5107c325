"""The recovery that a GPU driver requests: the numbers shared by NVML's field 230 and Xid 154 lines.

The only table of these numbers: findings, evidence, playbooks and preflight use its codes. The severity of each after
an Xid 154 is in the catalogue of Xids.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class RecoveryRequest(NamedTuple):
    """`code` names the action in findings and playbooks; `words` complete the sentence "the driver asks for …"."""

    code: str
    words: str


NONE = 0
RECOVERY_REQUESTS: Mapping[int, RecoveryRequest] = MappingProxyType(
    {  # nvml.h, nvmlDeviceGpuRecoveryAction_t; 6 and 7 since driver 615
        NONE: RecoveryRequest("none", "nothing"),
        1: RecoveryRequest("reset_gpu", "a reset of the GPU"),
        2: RecoveryRequest("reboot", "a reboot of the node"),
        3: RecoveryRequest("drain_p2p", "an end to the peer-to-peer work on it"),
        4: RecoveryRequest("drain_and_reset", "an end to the work on it and then a reset"),
        5: RecoveryRequest("recover_imex_domain", "a recovery of the IMEX domain"),
        6: RecoveryRequest("bus_reset", "a reset of the bus"),
        7: RecoveryRequest("system_reboot", "a reboot of the system"),
    }
)
