"""What the driver's kernel lines during a test mean for a GPU, by the catalogue of Xids. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from preflight.expectations.counter_changes import CounterFinding
from preflight.results import Outcome
from vocabulary.driver_log.xid_line import KernelEvent, KernelEventKind, parse_live_record
from vocabulary.fault_catalogue.catalogue import FALLEN_OFF_BUS_XID, Catalogue
from vocabulary.fault_catalogue.catalogue_entry import Advice, Cause
from vocabulary.finding import Severity

# Causes in the hardware of the GPU, its links or its supply. Another blame (a driver, a program) accuses no device.
HARDWARE = frozenset(
    {Cause.GPU, Cause.GPU_MEMORY, Cause.NVLINK, Cause.NVSWITCH, Cause.PCIE, Cause.THERMAL, Cause.POWER}
)
LINE_CHARS_MAX = 240


def judge_gpu_lines(lines: Iterable[str], address: str, catalogue: Catalogue) -> tuple[CounterFinding, ...]:
    """The conclusions for the GPU at this PCI address; lines about other devices do not count."""
    parsed = [(line, event) for line in dict.fromkeys(lines) if (event := parse_live_record(line)) is not None]
    return tuple(
        _judge_event(line, event, catalogue)
        for line, event in parsed
        if event.kind is not KernelEventKind.SXID and address and event.pci == address
    )


def judge_node_lines(lines: Iterable[str], catalogue: Catalogue) -> tuple[CounterFinding, ...]:
    """The conclusions from lines that name no GPU: those of NVSwitches, and of a GPU without an address."""
    parsed = [(line, event) for line in dict.fromkeys(lines) if (event := parse_live_record(line)) is not None]
    return tuple(
        _judge_event(line, event, catalogue)
        for line, event in parsed
        if event.kind is KernelEventKind.SXID or not event.pci
    )


def _judge_event(line: str, event: KernelEvent, catalogue: Catalogue) -> CounterFinding:
    reading = catalogue.reading(event)
    outcome = Outcome.PASS
    if reading.severity in (Severity.ERROR, Severity.FATAL):
        outcome = Outcome.FAIL if _blames_hardware(event, catalogue) else Outcome.ERROR
    elif reading.severity is Severity.UNCLASSIFIED:
        outcome = Outcome.ERROR
    name = "sxid" if event.kind is KernelEventKind.SXID else "xid"
    advice = "" if reading.action in (Advice.NONE, Advice.WATCH) else f" (advice: {reading.action.value})"
    words = f"the kernel log reports: {line[:LINE_CHARS_MAX]}{advice}"
    return CounterFinding(outcome=outcome, words=words, name=f"{name}_{event.code or FALLEN_OFF_BUS_XID}")


def _blames_hardware(event: KernelEvent, catalogue: Catalogue) -> bool:
    """Whether a severe event accuses the device; a requested recovery does, whatever the driver saw before."""
    if event.kind is KernelEventKind.SXID:
        return catalogue.sxid_entry(event.code or 0).blame in HARDWARE
    if event.recovery_action is not None:
        return True
    code = FALLEN_OFF_BUS_XID if event.kind is KernelEventKind.FALLEN_OFF_BUS else event.code or 0
    return catalogue.entry(code).blame in HARDWARE
