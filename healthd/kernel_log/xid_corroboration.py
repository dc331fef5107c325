"""Corroborates GPU faults from two evidence sources: kernel lines, and the driver's events through NVML. Pure.

The same fault from both is one finding. NVML's event comes milliseconds after the line, carries only the code, and
cannot be read again after a crash. So it waits a little for the line, and counts only if none comes: because the log
cannot be read, or was overrun.

A line that is not conclusive needs the second source before it counts: one that names none of this node's devices, or
one that its transport does not attest. Until then it is recorded and counted as information. The state of the GPU
confirms it: lost, missing, or a driver that hangs or does not answer. NVML's event of the same Xid confirms an attested
line. An unattested line stays information, because the event proves its code and not its text: the event then becomes a
finding itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from healthd.findings.facts import Moment, Raise, make_gpu_component
from healthd.samples.kernel_record import KernelRecord
from healthd.samples.nvml import XidEvent
from vocabulary.driver_log.xid_line import format_xid
from vocabulary.finding import Severity
from vocabulary.messages.wire import Gpu

WAIT_S = 2.0  # the line comes first (18 ms on an H200), unless reading lags
MEMORY_S = 10.0  # an older line belongs to an earlier event
WAITING_MAX = 1000
CONFIRM_WITHIN_S = 120.0  # a hanging driver is detected after two deadlines and a pause
UNCONFIRMED_MAX = 256
DETAIL = "reported by the driver through NVML; the kernel log has no line of it"
SUMMARY_CHARS_MAX = 200

NOT_OURS = "the line names no GPU or NVSwitch of this node"
NOT_ATTESTED = "its source does not prove that the kernel wrote it"


class NodeDevices(NamedTuple):
    """What is known of this node's devices besides kernel lines.

    `known` are the PCI addresses of its GPUs and NVSwitches: on the bus, enumerated or expected. `troubled` are those
    of GPUs that NVML calls lost, or no longer enumerates; `driver_silent`: NVML hangs, or does not answer.
    """

    known: Collection[str] = ()
    troubled: Collection[str] = ()
    driver_silent: bool = False

    def confirms(self, pci: str) -> str:
        """Return why a fault at `pci` (of any GPU, if `pci` is not this node's) is credible; empty if it is not."""
        if not self.known:
            return ""
        if self.driver_silent:
            return "NVML does not answer"
        if pci in self.troubled or (pci not in self.known and self.troubled):
            return "NVML does not reach the GPU"
        return ""


class _UnconfirmedEvent(NamedTuple):
    fact: Raise
    attested: bool
    until: float  # monotonic


class XidCorroborator:
    """Remembers lines and events for some seconds. `heard` counts the events, `alone` those without a line."""

    def __init__(self, boot_id: str) -> None:
        self._source = f"{boot_id}:nvml"
        self._lines: dict[tuple[str, str], float] = {}
        self._events: dict[tuple[str, str], tuple[float, Gpu]] = {}
        self._waiting: deque[tuple[float, str, XidEvent]] = deque(maxlen=WAITING_MAX)
        self._unconfirmed: deque[_UnconfirmedEvent] = deque(maxlen=UNCONFIRMED_MAX)
        self.heard = self.alone = 0

    @property
    def wants_state(self) -> bool:
        """Whether a line waits for `confirm_by_state`."""
        return bool(self._unconfirmed)

    def corroborate_line(self, fact: Raise, devices: NodeDevices, now: Moment, *, attested: bool) -> Raise:
        """Return the fact as credible now: as it is, or as information until something confirms it."""
        ours = fact.component.pci in devices.known
        if fact.injected or (attested and (ours or fact.severity is Severity.INFO)):
            return self._acts(fact, now)
        if fact.severity is Severity.INFO:
            return fact
        if attested and (gpu := self._event_of(fact, now)) is not None:  # so the line names none of this node's devices
            return self._acts(_apply_event_gpu(fact, gpu, ours=False), now)
        if why := devices.confirms(fact.component.pci):
            return self._acts(replace(fact, evidence=fact.evidence | {"second_witness": why}), now)
        self._unconfirmed.append(_UnconfirmedEvent(fact, attested, now.monotonic + CONFIRM_WITHIN_S))
        return downgrade_to_info(fact, NOT_ATTESTED if ours else NOT_OURS)

    def apply_event(self, event: XidEvent, gpus: Mapping[int, Gpu], devices: NodeDevices, now: Moment) -> list[Raise]:
        """Process the driver's event for an Xid; return the lines that it confirms."""
        self.heard += 1
        gpu = None if event.index is None else gpus.get(event.index)
        self._waiting.append((now.monotonic, gpu.pci if gpu else "", event))
        if gpu is None:
            return []
        self._events.pop((gpu.pci, str(event.code)), None)
        self._events[gpu.pci, str(event.code)] = (now.monotonic, gpu)
        if len(self._events) > WAITING_MAX:
            del self._events[next(iter(self._events))]
        confirmed: list[Raise] = []
        for line in list(self._unconfirmed):
            ours = line.fact.component.pci in devices.known
            same_gpu = line.fact.component.pci == gpu.pci or not ours
            if line.attested and same_gpu and _find_xid_code(line.fact) == str(event.code):
                self._unconfirmed.remove(line)
                confirmed.append(_confirm_fact(self._acts(_apply_event_gpu(line.fact, gpu, ours=ours), now)))
        return confirmed

    def confirm_by_state(self, devices: NodeDevices, now: Moment) -> list[Raise]:
        """Return the waiting lines that the GPUs' state confirms now. Call about once a second."""
        confirmed: list[Raise] = []
        for line in list(self._unconfirmed):
            pci = line.fact.component.pci
            why = (
                "the device was found on this node" if line.attested and pci in devices.known else devices.confirms(pci)
            )
            if why:
                fact = replace(line.fact, evidence=line.fact.evidence | {"second_witness": why})
                confirmed.append(_confirm_fact(self._acts(fact, now)))
            if why or line.until <= now.monotonic:
                self._unconfirmed.remove(line)
        return confirmed

    def records_due(self, now: Moment) -> list[KernelRecord]:
        """Return, for each event that got no line in time, the line as it would have been."""
        records = []
        while self._waiting and self._waiting[0][0] + WAIT_S <= now.monotonic:
            heard_at, pci, event = self._waiting.popleft()
            line_at = self._lines.get((pci, str(event.code)))
            if pci and (line_at is None or line_at < heard_at - MEMORY_S):
                self.alone += 1
                text = format_xid(event.code, pci, detail=DETAIL)
                records.append(KernelRecord(self._source, int(event.at * 1e6), event.at, 0, text))
        return records

    def _acts(self, fact: Raise, now: Moment) -> Raise:
        """Return the fact, remembered so that its event adds nothing.

        A line that is only recorded suppresses no event.
        """
        if not fact.injected:
            self._lines[fact.component.pci, _find_xid_code(fact) or fact.code] = now.monotonic
            if len(self._lines) > WAITING_MAX:
                del self._lines[next(iter(self._lines))]
        return fact

    def _event_of(self, fact: Raise, now: Moment) -> Gpu | None:
        """Return the GPU for which NVML reported this Xid a moment ago."""
        for (_, code), (at, gpu) in self._events.items():
            if code == _find_xid_code(fact) and now.monotonic - at <= MEMORY_S:
                return gpu
        return None


def downgrade_to_info(fact: Raise, reason: str) -> Raise:
    """Return the fact as information, which triggers no action: it is recorded, counted and shown."""
    summary = f"{fact.summary[:SUMMARY_CHARS_MAX]} (recorded only: {reason})"
    return replace(fact, severity=Severity.INFO, summary=summary, evidence=fact.evidence | {"unconfirmed": reason})


def _find_xid_code(fact: Raise) -> str:
    """Return the code under which NVML reports this fault; empty if it has none."""
    if fact.check != "xid":
        return ""
    return "79" if fact.code == "fallen_off_bus" else fact.code


def _apply_event_gpu(fact: Raise, gpu: Gpu, *, ours: bool) -> Raise:
    """Return the fact, for the event's GPU if the line names none of this node's."""
    component = fact.component if ours else make_gpu_component(gpu)
    return replace(fact, component=component, evidence=fact.evidence | {"second_witness": "NVML reported the same Xid"})


def _confirm_fact(fact: Raise) -> Raise:
    """Return the confirmed fact: already counted as information, it now holds until a verification clears it."""
    return replace(fact, event=False, provable=True, origin=f"{fact.origin}:confirmed")
