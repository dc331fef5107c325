"""The source child's parent: requests every source's reading, and ends the child when one source hangs.

The next child skips a source that hung for a while (a minute, then longer), so that the others go on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, Any

import msgspec

from healthd.host import Host
from healthd.samples.source import SourceReading, SourceState
from healthd.supervision.child_supervisor import END_S, ChildSupervisor

START_DEADLINE_S = 30.0
HELD_OFF_S_MIN, HELD_OFF_S_MAX = 60.0, 3600.0
GPU_PIDS_MAX = 64  # beyond that, more processes are of the same jobs


class SourceSchedule(msgspec.Struct, frozen=True):
    """How one source is read: its period in seconds, its sample type, and its configuration options."""

    every_s: float
    sample: type
    options: Mapping[str, tuple[str, ...]] = {}


class _ChildMessage(msgspec.Struct):
    source: str
    state: SourceState
    at: float
    seconds: float
    reason: str = ""
    sample: msgspec.Raw = msgspec.Raw(b"null")


class SourceProber:
    """Keeps the child. `deadline_s` is the limit for one reading of one source."""

    def __init__(self, host: Host, plans: Mapping[str, SourceSchedule], deadline_s: float) -> None:
        self._host = host
        self._plans = dict(plans)
        self._deadline_s = deadline_s
        self._supervisor = ChildSupervisor(host, "healthd.source_child", self._arguments)
        self._message = msgspec.json.Decoder(_ChildMessage)
        self._samples: dict[str, msgspec.json.Decoder[Any]] = {
            name: msgspec.json.Decoder(plan.sample) for name, plan in plans.items()
        }
        self._pretended = ""
        self._gpu_pids = self._known_gpu_pids = ""  # as a message; known to the child
        self._held_until: dict[str, float] = {}
        self._held_s: dict[str, float] = {}

    @property
    def pipe(self) -> IO[bytes] | None:
        """The pipe to poll; another object with every child, None while there is none."""
        return self._supervisor.pipe

    @property
    def abandoned(self) -> int:
        """The number of killed children that have not exited."""
        return self._supervisor.abandoned

    def pids(self) -> list[int]:
        """The live child's pid, if any."""
        return self._supervisor.pids()

    def poll(self) -> list[SourceReading]:
        """Return new readings: call when the pipe is readable, and about once a second."""
        now = self._host.clock.monotonic()
        if not self._supervisor.alive:
            if self._due(now):
                self._supervisor.start_if_due()
            return []
        if self._gpu_pids != self._known_gpu_pids:
            self._known_gpu_pids = self._gpu_pids
            self._supervisor.tell(self._gpu_pids.encode())
        lines, ended = self._supervisor.hear()
        readings = [self._reading(line) for line in lines]
        if readings:
            self._supervisor.worked()
        if ended:
            self._supervisor.replace()
        elif hung := self._hung():
            readings.append(hung)
        elif self._due(now) - self._running:
            self._supervisor.end()  # a skipped source is due again: restart with all due sources
        return readings

    def pretend_hang(self, source: str) -> None:
        """Make the child really hang at this source; what follows is marked as injected."""
        self._pretended = source
        self._supervisor.tell(f"hang {source}\n".encode())

    def take_gpu_pids(self, pids: Mapping[int, bool]) -> None:
        """Take the processes that hold a GPU now, and whether it is busy, for sources that ask about them."""
        words = (f" {pid}{'+' if pids[pid] else ''}" for pid in sorted(pids)[:GPU_PIDS_MAX])
        self._gpu_pids = f"gpu_pids{''.join(words)}\n"

    def close(self, within_s: float = END_S) -> None:
        """End the child; wait at most `within_s` for it."""
        self._supervisor.close(within_s)

    def _due(self, now: float) -> set[str]:
        return {name for name in self._plans if self._held_until.get(name, 0.0) <= now}

    def _arguments(self) -> list[str]:
        self._running = self._due(self._host.clock.monotonic())
        self._pretended = self._known_gpu_pids = ""
        plan = {name: [self._plans[name].every_s, dict(self._plans[name].options)] for name in sorted(self._running)}
        return [str(self._host.root), msgspec.json.encode(plan).decode()]

    def _reading(self, line: bytes) -> SourceReading:
        """Parse a line of the child; an invalid line also counts as a failing source."""
        try:
            message = self._message.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return self._failing("child", f"invalid message from the child: {error}")
        sample = None
        if message.state is SourceState.PRESENT:
            self._held_s.pop(message.source, None)
            try:
                sample = self._samples[message.source].decode(message.sample)
            except (KeyError, msgspec.DecodeError, UnicodeDecodeError) as error:
                return self._failing(message.source, f"a sample of the wrong type: {error}")
        return SourceReading(
            source=message.source,
            state=message.state,
            at=message.at,
            reason=message.reason,
            seconds=message.seconds,
            sample=sample,
        )

    def _hung(self) -> SourceReading | None:
        """Judge the call page: "NAME SINCE", monotonic seconds; empty while the child waits."""
        _, words = self._supervisor.read_call()
        name, _, since = words.partition(" ")
        now = self._host.clock.monotonic()
        if not name:
            return None
        seconds = now - float(since) if since else self._supervisor.silent_s()
        if seconds <= (self._deadline_s if since else START_DEADLINE_S):
            return None
        pause_s = self._held_s[name] = min(2 * self._held_s.get(name, HELD_OFF_S_MIN / 2), HELD_OFF_S_MAX)
        self._held_until[name] = now + pause_s
        self._supervisor.end()
        reason = f"no answer for {seconds:.0f} s; tried again in {pause_s:.0f} s"
        wall = self._host.clock.wall()
        injected, self._pretended = name == self._pretended, ""
        return SourceReading(
            source=name, state=SourceState.HUNG, at=wall, reason=reason, seconds=seconds, injected=injected
        )

    def _failing(self, source: str, reason: str) -> SourceReading:
        return SourceReading(source=source, state=SourceState.FAILING, at=self._host.clock.wall(), reason=reason[:300])
