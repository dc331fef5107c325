"""Supervises the NVML child, and makes samples from its messages and its silence.

A driver that lost a GPU may block its caller forever. So each sweep has a deadline; an overdue one becomes a sample
(`NvmlHang`), with the GPU and the call it hangs in. The next child leaves that GPU out.
"""

from __future__ import annotations

import logging
import os
import signal
from typing import IO, NamedTuple

import msgspec

from healthd.gpu_monitoring.unresponsive_gpus import TrialResult, UnresponsiveGpus
from healthd.host import Host
from healthd.samples.nvml import GpusChanged, Inventory, NvmlHang, NvmlSample, NvmlUnavailable, Sweep, XidEvent
from healthd.supervision.child_supervisor import ABANDONED_MAX, END_S, ChildSupervisor, close_all_children

START_DEADLINE_S = 30.0  # initialising a driver without persistence mode takes seconds on eight GPUs
RESTART_DEADLINE_S = 10.0  # after a hang: the driver is loaded, so another hang is a GPU's
RENEW_S_MIN, RENEW_S_MAX = 60.0, 600.0  # between two attempts to reach a lost GPU by reinitialising NVML

_Message = Inventory | Sweep | XidEvent | GpusChanged | NvmlUnavailable
_log = logging.getLogger(__name__)


class SimulatedNvmlHang(NamedTuple):
    """A simulated hang of this GPU."""

    gpu: int | None


class NvmlReinitPolicy:
    """When to reinitialise NVML, because a GPU is lost or unidentified: it may have been reset or replaced since.

    A driver keeps calling a GPU lost in the process that saw it lost. The pause grows up to `RENEW_S_MAX`, and is short
    again once all GPUs answer.
    """

    def __init__(self, pause_s: float) -> None:
        self._pause_s_min = self._pause_s = pause_s
        self._since: float | None = None  # when one was first found lost, or NVML was last reinitialised

    def due(self, sweep: Sweep, now: float) -> bool:
        """Return whether to reinitialise after this sweep; `now` is in monotonic seconds."""
        if not any(reading.lost or "handle" in reading.errors for reading in sweep.readings):
            self._since, self._pause_s = None, self._pause_s_min
            return False
        if self._since is None:
            self._since = now
        if now - self._since < self._pause_s:
            return False
        self._since, self._pause_s = now, min(2 * self._pause_s, RENEW_S_MAX)
        return True


class NvmlCollector:
    """The parent's side of the child."""

    def __init__(
        self,
        host: Host,
        interval_s: float,
        deadline_s: float,
        start_deadline_s: float = START_DEADLINE_S,
        restart_deadline_s: float = RESTART_DEADLINE_S,
        renew_s: float = RENEW_S_MIN,
    ) -> None:
        self._host = host
        self._start_deadline_s, self._restart_deadline_s = start_deadline_s, restart_deadline_s
        self._interval_s = interval_s
        self._patience_s = interval_s + deadline_s
        self._supervisor = ChildSupervisor(host, "healthd.nvml.child", self._arguments)
        self._unresponsive = UnresponsiveGpus(host, restart_deadline_s)
        self._count: int | None = None  # of GPUs, when they were last enumerated
        self._renewals = NvmlReinitPolicy(renew_s)
        self._decoder = msgspec.json.Decoder(_Message)
        self._inventory_seen = False
        self._gave_up = False  # the child reported why it will end
        self._hung = False  # of the last child
        self._pretended: SimulatedNvmlHang | None = None
        self._swept_at = 0.0  # or since the child's start or inventory

    @property
    def starts(self) -> int:
        """Children started so far."""
        return self._supervisor.starts

    @property
    def abandoned(self) -> int:
        """The number of killed children that have not exited."""
        return self._supervisor.abandoned + self._unresponsive.abandoned

    @property
    def pipe(self) -> IO[bytes] | None:
        """The pipe to poll; another object with every child, None while there is none."""
        return self._supervisor.pipe

    def pids(self) -> list[int]:
        """The live child's pid, if any."""
        return self._supervisor.pids()

    def rest(self) -> bool:
        """Run no child, because a GPU is to be reset; return whether none is left."""
        self._supervisor.end()
        self._unresponsive.end_trial()
        self._unresponsive.try_now()
        return self.abandoned == 0

    def look_now(self) -> None:
        """Request a full sweep at once, because something happened to a GPU."""
        self._supervisor.tell(b"!")

    def retry_left_out(self) -> None:
        """Try the left-out GPUs at once, because they may have been repaired."""
        self._unresponsive.try_now()

    def enumerate_anew(self) -> None:
        """Start another child, because the GPUs on the bus no longer match the driver's enumeration."""
        self._supervisor.end()

    def poll(self) -> list[NvmlSample]:
        """Return new samples: call when the pipe is readable, and about once per interval."""
        trial = self._unresponsive.poll()
        samples = [] if trial is None else self._take_trial(trial)
        if self._supervisor.alive:
            return samples + self._hear()
        # Each GPU may block one unkillable child; the remaining GPUs still need one.
        self._supervisor.abandoned_max = ABANDONED_MAX + len(self._unresponsive.left_out)
        if self._supervisor.start_if_due():
            self._inventory_seen = self._gave_up = False
            self._pretended = None
            self._swept_at = self._host.clock.monotonic()
        return samples

    def _hear(self) -> list[NvmlSample]:
        lines, ended = self._supervisor.hear()
        samples: list[NvmlSample] = []
        for line in lines:
            if (sample := self._sample(line)) is not None:
                samples.append(sample)
            if not self._supervisor.alive:  # a message has ended it: later lines may refer to other GPUs by index
                return samples
        if ended:
            self._supervisor.replace()
            if not self._gave_up:
                reason = "the NVML child ended unexpectedly; it will be restarted"
                samples.append(NvmlUnavailable(self._host.clock.wall(), reason))
        elif self._overdue_s() > self._deadline_s():
            samples.append(self._hang())
        return samples

    def pretend_hang(self, gpu: int | None) -> None:
        """Stop the child, like a driver that never answers: what follows is real, and marked as injected."""
        for pid in self._supervisor.pids():
            os.kill(pid, signal.SIGSTOP)
            self._pretended = SimulatedNvmlHang(gpu)

    def close(self, within_s: float = END_S) -> None:
        """End the children; wait at most `within_s` for all of them together."""
        close_all_children([self._supervisor, *self._unresponsive.supervisors], self._host.clock, within_s)

    def _arguments(self) -> list[str]:
        left_out = ",".join(map(str, self._unresponsive.left_out))
        return [str(self._host.nvml_library or ""), str(self._interval_s), left_out]

    def _take_trial(self, trial: TrialResult) -> list[NvmlSample]:
        if trial.answered:
            _log.warning("GPU %d answers again; reinitialising NVML to read it with the others", trial.gpu)
            self._supervisor.end()
            return []
        wall = self._host.clock.wall()
        return [NvmlHang(wall, trial.gpu, trial.call or "no particular call", trial.seconds, trial=True)]

    def _sample(self, line: bytes) -> NvmlSample | None:
        try:
            sample: _Message = self._decoder.decode(line)
        # A library in the child's process wrote to its standard output; that may not be UTF-8.
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return NvmlUnavailable(self._host.clock.wall(), f"invalid message from the child: {error}")
        self._inventory_seen |= isinstance(sample, Inventory)
        self._gave_up |= isinstance(sample, (NvmlUnavailable, GpusChanged))
        if not isinstance(sample, XidEvent):  # these come from a separate thread, also while a sweep hangs
            self._swept_at = self._host.clock.monotonic()
        if isinstance(sample, Sweep):
            self._supervisor.worked()
            self._hung = False
            if self._renewals.due(sample, self._swept_at):
                _log.warning("reinitialising NVML: only this finds a reset or replaced GPU")
                self._supervisor.end()
        if isinstance(sample, Inventory) and self._renumbered(sample):
            return None
        if isinstance(sample, GpusChanged):
            _log.warning("%s; reinitialising NVML", sample.reason)
            return None
        return sample

    def _renumbered(self, inventory: Inventory) -> bool:
        """Return whether indices may refer to other GPUs than before: then a new child reads all of them."""
        before, self._count = self._count, inventory.count
        if not inventory.left_out or before in (None, inventory.count):
            return False
        _log.warning("the driver has %d GPUs, and had %s; all are read again", inventory.count, before)
        self._unresponsive.readmit_all()
        self._supervisor.end()
        return True

    def _deadline_s(self) -> float:
        if self._inventory_seen:
            return self._patience_s
        return self._restart_deadline_s if self._hung else self._start_deadline_s

    def _overdue_s(self) -> float:
        return self._host.clock.monotonic() - self._swept_at

    def _hang(self) -> NvmlHang:
        index, call = self._supervisor.read_call()
        seconds = self._overdue_s()
        self._hung = True
        pretended, self._pretended = self._pretended, None
        if pretended is not None or index is None:
            self._supervisor.replace()
        else:
            self._unresponsive.leave_out(index)
            self._supervisor.end()  # the other GPUs need not wait: this happens once per GPU
        if pretended is not None:
            return NvmlHang(self._host.clock.wall(), pretended.gpu, "a simulated call", seconds, injected=True)
        return NvmlHang(self._host.clock.wall(), index, call or "no particular call", seconds)
