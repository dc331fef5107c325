"""One GPU of a node that runs nothing while its siblings wait in a collective: a hang that shows without the trainer.

GPUs that wait in NCCL run its kernel all the time and hardly touch their memory. If a single GPU with a process runs no
kernel for a minute meanwhile, the others probably wait for it. The node does not know which GPUs a job uses, nor what
its program waits for, so this is a suspicion.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from healthd.findings.facts import LevelFact, Moment
from healthd.findings.gpu_state import GpuState, judge_gpu_level
from healthd.findings.hysteresis import Dwell

CHECK = "gpu_activity"


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Section `gpu_activity` of the thresholds. Shares of time in which kernels ran, and memory was accessed."""

    idle_percent: float
    busy_percent: float
    memory_percent: float
    siblings: int
    raise_after_s: float
    clear_after_s: float


class GpuActivityCheck:
    """Remembers how long a GPU has been the only idle one."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._dwell = Dwell(limits.raise_after_s, limits.clear_after_s)

    def judge(self, gpus: Sequence[GpuState], now: Moment) -> list[LevelFact]:
        """Return a fact per GPU."""
        used = [state for state in gpus if state.latest.processes]
        waits = {state.gpu.uuid: self._waits(state) for state in used}
        facts: list[LevelFact] = []
        for state in gpus:
            others = [waits[other.gpu.uuid] for other in used if other is not state]
            facts += self._judge(state, others, now)
        return facts

    def _judge(self, state: GpuState, others: Sequence[bool | None], now: Moment) -> list[LevelFact]:
        used = state.latest.gpu_percent
        alone: bool | None = None if state.latest.processes is None else False
        if state.latest.processes and len(others) >= self._limits.siblings:
            alone = None if used is None or None in others else used <= self._limits.idle_percent and all(others)
        return judge_gpu_level(
            self._dwell.judge((state.gpu.uuid, "waited_for"), alone, now.monotonic),
            state,
            now,
            (CHECK, "waited_for"),
            f"GPU {state.gpu.index} runs nothing, while the other {len(others)} used GPUs of the node run kernels without"
            " pause and hardly use their memory, as in a collective: they may wait for it",
            evidence={"gpu_percent": used, "waiting": len(others)},
        )

    def _waits(self, state: GpuState) -> bool | None:
        """Return whether the GPU runs kernels that hardly access its memory."""
        busy, memory = state.latest.gpu_percent, state.latest.memory_percent
        if busy is None or memory is None:
            return None
        return busy >= self._limits.busy_percent and memory <= self._limits.memory_percent
