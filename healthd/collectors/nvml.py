"""Keeps an NVML child at work, and makes samples of what it says, and of its silence.

A driver that lost a GPU may block its caller for ever. So the child has a deadline for each sweep; an overdue one is a
sample of its own (`NvmlHang`), with the GPU and the call it hangs in.
"""

from __future__ import annotations

import logging
import os
import signal
from typing import IO, NamedTuple

import msgspec

from healthd.host import Host
from healthd.keeper import Keeper
from healthd.samples.nvml import GpusChanged, Inventory, NvmlHang, NvmlSample, NvmlUnavailable, Sweep, XidEvent

START_DEADLINE_S = 30.0  # initialising a driver without persistence takes seconds on eight GPUs
RESTART_DEADLINE_S = 10.0  # after a hang: the driver is loaded, and what hangs once more is a GPU

_Message = Inventory | Sweep | XidEvent | GpusChanged | NvmlUnavailable
_log = logging.getLogger(__name__)


class PretendedHang(NamedTuple):
    """A hang that somebody wanted to see, of this GPU."""

    gpu: int | None


class NvmlCollector:
    """The parent's side of the child."""

    def __init__(self, host: Host, interval_s: float, deadline_s: float) -> None:
        self._host = host
        self._patience_s = interval_s + deadline_s
        library = str(host.nvml_library or "")
        self._keeper = Keeper(host, "healthd.nvml.child", lambda: [library, str(interval_s)])
        self._decoder = msgspec.json.Decoder(_Message)
        self._inventory_seen = False
        self._gave_up = False  # the child said why it will end
        self._hung = False  # the last child did
        self._pretended: PretendedHang | None = None
        self._swept_at = 0.0  # or the child was started, or said what there is

    @property
    def starts(self) -> int:
        """Children started so far."""
        return self._keeper.starts

    @property
    def abandoned(self) -> int:
        """Killed children that are still there."""
        return self._keeper.abandoned

    @property
    def pipe(self) -> IO[bytes] | None:
        """What to wait for; another object with every child, None while there is none."""
        return self._keeper.pipe

    def pids(self) -> list[int]:
        """The living child, if any."""
        return self._keeper.pids()

    def rest(self) -> bool:
        """Let no child run, because a GPU is to be reset; whether none is left."""
        self._keeper.end()
        return self._keeper.abandoned == 0

    def look_now(self) -> None:
        """Ask for a full sweep at once, because something happened to a GPU."""
        self._keeper.tell(b"!")

    def poll(self) -> list[NvmlSample]:
        """Whatever is new: call when the pipe is readable, and about once per interval."""
        if not self._keeper.alive:
            if self._keeper.start_if_due():
                self._inventory_seen = self._gave_up = False
                self._pretended = None
                self._swept_at = self._host.clock.monotonic()
            return []
        lines, ended = self._keeper.hear()
        samples = [sample for line in lines if (sample := self._sample(line)) is not None]
        if ended:
            self._keeper.replace()
            if not self._gave_up:
                reason = "the NVML child ended unexpectedly; it will be started again"
                samples.append(NvmlUnavailable(self._host.clock.wall(), reason))
        elif self._overdue_s() > self._deadline_s():
            samples.append(self._hang())
        return samples

    def pretend_hang(self, gpu: int | None) -> None:
        """Stop the child, as a driver would that never answers: what follows is real, and marked as injected."""
        for pid in self._keeper.pids():
            os.kill(pid, signal.SIGSTOP)
            self._pretended = PretendedHang(gpu)

    def close(self) -> None:
        """End the child."""
        self._keeper.close()

    def _sample(self, line: bytes) -> NvmlSample | None:
        try:
            sample: _Message = self._decoder.decode(line)
        except msgspec.DecodeError as error:  # something in the child's process wrote to its standard output
            return NvmlUnavailable(self._host.clock.wall(), f"unreadable message of the child: {error}")
        self._inventory_seen |= isinstance(sample, Inventory)
        self._gave_up |= isinstance(sample, (NvmlUnavailable, GpusChanged))
        if not isinstance(sample, XidEvent):  # these come from a thread of their own, also while a sweep hangs
            self._swept_at = self._host.clock.monotonic()
        if isinstance(sample, Sweep):
            self._keeper.worked()
            self._hung = False
        if isinstance(sample, GpusChanged):
            _log.warning("%s; NVML is initialised anew", sample.reason)
            return None
        return sample

    def _deadline_s(self) -> float:
        if self._inventory_seen:
            return self._patience_s
        return RESTART_DEADLINE_S if self._hung else START_DEADLINE_S

    def _overdue_s(self) -> float:
        return self._host.clock.monotonic() - self._swept_at

    def _hang(self) -> NvmlHang:
        index, call = self._keeper.slate()
        seconds = self._overdue_s()
        self._keeper.replace()
        self._hung = True
        pretended, self._pretended = self._pretended, None
        if pretended is not None:
            return NvmlHang(self._host.clock.wall(), pretended.gpu, "a pretended call", seconds, injected=True)
        return NvmlHang(self._host.clock.wall(), index, call or "no call of its own", seconds)
