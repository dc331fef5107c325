"""GPUs on which the NVML child hung: the next child leaves them out, and a short-lived trial process tests each again.

The other GPUs stay visible meanwhile. A GPU is readmitted as soon as a trial reads it completely, whatever the driver
reports. Trials become rare, and a GPU whose last trial cannot be killed is not tried again, so nothing piles up.
"""

from __future__ import annotations

from typing import NamedTuple

from healthd.host import Host
from healthd.supervision.child_supervisor import ChildSupervisor

PAUSE_S_MIN, PAUSE_S_MAX = 15.0, 300.0  # between two trials of one GPU
SETTLED_S = 600.0  # a GPU that hangs again within this time after its return waits longer
_TRIAL = "healthd.nvml.trial"
_ANSWER = b"answered"  # its last line; other output comes from the driver's library


class TrialResult(NamedTuple):
    """An ended trial: the GPU answered, or `call` did not return for `seconds`."""

    gpu: int
    answered: bool
    call: str = ""
    seconds: float = 0.0


class UnresponsiveGpus:
    """Decides which GPUs are left out, and tries one of them at a time. `deadline_s` limits a trial."""

    def __init__(self, host: Host, deadline_s: float) -> None:
        self._host = host
        self._deadline_s = deadline_s
        self._gpus: dict[int, _LeftOutGpu] = {}
        self._tried: _LeftOutGpu | None = None
        self._tried_at = 0.0  # monotonic

    @property
    def left_out(self) -> tuple[int, ...]:
        """Their indices, sorted."""
        return tuple(sorted(gpu.index for gpu in self._gpus.values() if gpu.out))

    @property
    def supervisors(self) -> list[ChildSupervisor]:
        """The supervisors of all trials, to be waited for."""
        return [gpu.supervisor for gpu in self._gpus.values()]

    @property
    def abandoned(self) -> int:
        """The number of killed trials that have not exited."""
        return sum(gpu.supervisor.abandoned for gpu in self._gpus.values())

    def leave_out(self, index: int) -> None:
        """Leave out a GPU on which the NVML child hung."""
        now = self._host.clock.monotonic()
        gpu = self._gpus.setdefault(index, _LeftOutGpu(index, self._host))
        settled = now - gpu.returned_at > SETTLED_S
        gpu.pause_s = PAUSE_S_MIN if settled else min(2 * gpu.pause_s, PAUSE_S_MAX)
        gpu.out, gpu.due = True, now if settled else now + gpu.pause_s

    def try_now(self) -> None:
        """Start the next trial without a pause, because the GPUs may have been repaired."""
        for gpu in self._gpus.values():
            gpu.due = self._host.clock.monotonic()

    def readmit_all(self) -> None:
        """Readmit all: the driver has renumbered its GPUs, so the indices are invalid."""
        self.end_trial()
        for gpu in self._gpus.values():
            gpu.out = False
        self._host.start_failures.clear(_TRIAL)  # no trial is due

    def poll(self) -> TrialResult | None:
        """Start or check a trial; return its result, once there is one."""
        now = self._host.clock.monotonic()
        if self._tried is None:
            self._tried = next((gpu for gpu in self._due(now) if gpu.supervisor.start_if_due()), None)
            self._tried_at = now
            return None
        gpu = self._tried
        lines, ended = gpu.supervisor.hear()
        answered, seconds = _ANSWER in lines, now - self._tried_at
        if not answered and not ended and seconds <= self._deadline_s:
            return None
        _, call = gpu.supervisor.read_call()
        self.end_trial()
        if answered:
            gpu.out, gpu.returned_at = False, now
            return TrialResult(gpu.index, answered=True)
        gpu.due, gpu.pause_s = now + gpu.pause_s, min(2 * gpu.pause_s, PAUSE_S_MAX)
        return None if ended else TrialResult(gpu.index, answered=False, call=call, seconds=seconds)

    def end_trial(self) -> None:
        """End the current trial, if any."""
        gpu, self._tried = self._tried, None
        if gpu is not None:
            gpu.supervisor.end()

    def _due(self, now: float) -> list[_LeftOutGpu]:
        due = [gpu for gpu in self._gpus.values() if gpu.out and gpu.due <= now and not gpu.supervisor.abandoned]
        return sorted(due, key=lambda gpu: gpu.due)


class _LeftOutGpu:
    def __init__(self, index: int, host: Host) -> None:
        self.index = index
        library = str(host.nvml_library or "")
        self.supervisor = ChildSupervisor(host, _TRIAL, lambda: [library, str(index)])
        self.out = False
        self.pause_s = PAUSE_S_MIN
        self.due = 0.0
        self.returned_at = float("-inf")
