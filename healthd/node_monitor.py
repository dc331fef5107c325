"""Samples in, findings out: every check of this node, wired by kind of sample. Pure but for its own state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from healthd.checks import (
    beacon_checks,
    kernel_log_checks,
    preflight_result_checks,
    process_start_checks,
    training_checks,
)
from healthd.checks.beacon_checks import BeaconCheck
from healthd.checks.kernel_message_checks import KernelMessageCheck
from healthd.checks.training_checks import TrainingCheck
from healthd.checks.xid_checks import XidCheck
from healthd.collectors.pcie import PcieSample
from healthd.findings.facts import Clear, Fact, Moment, Raise, make_check_failure
from healthd.findings.finding_ledger import FindingLedger
from healthd.gpu_monitoring.gpu_monitor import GpuMonitor
from healthd.kernel_log.message_patterns.nvidia_driver import NVIDIA
from healthd.kernel_log.xid_corroboration import NOT_ATTESTED, NodeDevices, XidCorroborator, downgrade_to_info
from healthd.samples.kernel_record import KernelGap, KernelRecord
from healthd.samples.nvml import NvmlSample, Sweep, XidEvent
from healthd.samples.preflight import PreflightSample
from healthd.samples.rank_steps import Beacons
from healthd.samples.source import SourceReading
from healthd.samples.start_failure import StartFailure
from healthd.source_monitoring.source_monitor import SourceMonitor
from healthd.source_monitoring.source_registry import Check, Source
from healthd.telemetry.telemetry_history import TelemetryHistory
from vocabulary.finding import Severity
from vocabulary.identity import ComponentKind
from vocabulary.messages.wire import RankStatus

_NAME_A_GPU = ("xid", "sxid")  # checks whose lines count at once only if they name a device of this node


class NodeMonitor:
    """The state of this node from the samples so far."""

    def __init__(
        self,
        ledger: FindingLedger,
        xids: XidCheck,
        messages: KernelMessageCheck,
        gpus: GpuMonitor,
        second: XidCorroborator,
        sources: Mapping[str, tuple[Source, Check]],
        trainings: TrainingCheck,
    ) -> None:
        self.ledger = ledger
        self._xids = xids
        self._messages = messages
        self.gpus = gpus
        self.second = second
        self.sources = SourceMonitor(ledger, sources)
        self._beacons = BeaconCheck(
            *(_list_named_components(ledger, f"beacon/{code}") for code in ("corrupt", "owners"))
        )
        self._trainings = trainings
        self.ranks: tuple[RankStatus, ...] = ()
        self._on_bus: set[str] = set()
        self.kernel_records = 0
        self.telemetry = TelemetryHistory()

    def take_kernel(self, records: Iterable[KernelRecord], gaps: Iterable[KernelGap], now: Moment) -> bool:
        """Judge new kernel records. Return True if one of them was evidence about a GPU."""
        evidence = False
        for record in records:
            self.kernel_records += 1
            self.telemetry.take_kernel(record, now)
            fact = self._xids.judge(record, self.gpus.by_pci)
            if fact is not None:
                evidence = True
                self.ledger.apply(self._weighed(fact, record, now))
            elif (message := self._messages.judge(record, self.gpus.by_pci)) is not None:
                evidence = evidence or _concerns_gpu(message)
                self.ledger.apply(self._weighed(message, record, now))
        self.ledger.apply(kernel_log_checks.judge_gap(gap) for gap in gaps)
        return evidence

    def _weighed(self, fact: Fact, record: KernelRecord, now: Moment) -> list[Fact]:
        """Return a line's fact as far as it is credible without a second evidence source."""
        if isinstance(fact, Clear):
            return [fact] if record.attested else []
        if fact.check in _NAME_A_GPU or (fact.check == NVIDIA.check and not record.attested):
            return [self.second.corroborate_line(fact, self._devices(), now, attested=record.attested)]
        if record.attested or fact.injected or fact.severity is Severity.INFO:
            return [fact]
        return [downgrade_to_info(fact, NOT_ATTESTED)]

    def _devices(self) -> NodeDevices:
        gpus = self.gpus
        present = {gpu.pci for gpu in gpus.present}
        lost = {state.gpu.pci for state in gpus.states.values() if state.read.lost}
        vanished = {gpu.pci for gpu in gpus.expected if present and gpu.pci not in present}
        left_out = {gpu.pci for index in gpus.left_out if (gpu := gpus.by_index.get(index))}
        silent = bool(gpus.trouble or (gpus.left_out and not present))  # a sweep over no GPU is no answer of the driver
        return NodeDevices(gpus.by_pci.keys() | self._on_bus, lost | vanished | left_out, silent)

    def report_unreadable_records(self, problems: Iterable[str], at: float) -> None:
        """Report bytes from the kernel log that are no record."""
        self.ledger.apply(kernel_log_checks.judge_unreadable_record(problem, at) for problem in problems)

    def take_nvml(self, sample: NvmlSample, now: Moment) -> None:
        """Process a message of the NVML child, or its absence."""
        if isinstance(sample, XidEvent):
            self.ledger.apply(self.second.apply_event(sample, self.gpus.by_index, self._devices(), now))
        else:
            self.gpus.take(sample, now)
        if isinstance(sample, Sweep):
            self.telemetry.take_sweep(sample, self.gpus.by_index, now)

    def take_late_events(self, now: Moment) -> None:
        """Judge Xids that only NVML reported, and lines confirmed since. Call about once a second."""
        if self.second.wants_state:
            self.ledger.apply(self.second.confirm_by_state(self._devices(), now))
        for record in self.second.records_due(now):
            fact = self._xids.judge(record, self.gpus.by_pci)
            self.ledger.apply([fact] if fact is not None else [])

    def take_source(self, reading: SourceReading, now: Moment) -> None:
        """Process one reading of one source."""
        if isinstance(reading.sample, PcieSample):  # a device that fell off the bus still belongs to this node
            self._on_bus |= {hop.pci for hop in reading.sample.hops if hop.kind in ("gpu", "nvswitch")}
        self.telemetry.take_source(reading, now)
        self.sources.take(reading, now)
        if isinstance(reading.sample, PcieSample):
            self.gpus.take_bus(reading.sample, now)

    def take_start_failures(self, failures: Iterable[StartFailure], now: Moment) -> None:
        """Report healthd programs whose last start failed."""
        facts = process_start_checks.judge_start_failures(failures, now.wall)
        self.ledger.apply_levels(process_start_checks.CHECK, facts, now.wall, "it was started, or is no longer needed")

    def take_preflight(self, sample: PreflightSample, now: Moment) -> None:
        """Judge a preflight that root reported and no order started."""
        self.ledger.apply(
            preflight_result_checks.judge_preflight_sample(sample, self.gpus.gpus, self.ledger.active, now.wall)
        )

    def take_beacons(self, sample: Beacons, now: Moment) -> bool:
        """Process the trainer ranks. Return True if ranks came or went."""
        changed = {_identify_rank(rank) for rank in self.ranks} != {_identify_rank(rank) for rank in sample.ranks}
        self.ranks = sample.ranks
        try:
            self.ledger.apply(self._beacons.judge(sample))
        except Exception as error:  # noqa: BLE001 - any user may write a page, and the other checks must go on
            self.ledger.apply([make_check_failure(beacon_checks.CHECK, error, now.wall)])
        try:
            gpu_percent = {state.gpu.uuid: state.latest.gpu_percent for state in self.gpus.states.values()}
            held = self._trainings.judge(sample.steps, now, gpu_percent)
            self.ledger.apply_levels(training_checks.CHECK, held, now.wall, "training continues as usual, or has ended")
        except Exception as error:  # noqa: BLE001 - same
            self.ledger.apply([make_check_failure(training_checks.CHECK, error, now.wall)])
        return changed


def _concerns_gpu(fact: Fact) -> bool:
    """Return whether a line other than an Xid requires reading the GPUs: the driver's own lines often name none."""
    if not isinstance(fact, Raise) or fact.severity is Severity.INFO:
        return False
    return fact.check == NVIDIA.check or fact.component.kind is ComponentKind.GPU


def _list_named_components(ledger: FindingLedger, kind: str) -> set[str]:
    return {finding.component.name for finding in ledger.active if finding.kind == kind}


def _identify_rank(rank: RankStatus) -> tuple[str, int, int, bool]:
    return rank.job, rank.attempt, rank.rank, rank.alive
