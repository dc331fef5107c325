"""The main loop: owns every sample, judges it, and makes findings durable before anything else sees them.

One thread reads kernel log, NVML child and beacons, by readiness or once a second; no call here waits for the network,
a driver or a hanging disk. Beside it run the database writer, the only thread that writes to the disk, and three
services: uplink, orders (inbox and executor), and http.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import selectors
import socket
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from healthd.checks import gpu_count_checks, training_checks
from healthd.checks.kernel_message_checks import KernelMessageCheck
from healthd.checks.xid_checks import XidCheck
from healthd.collectors.beacons import BeaconCollector
from healthd.config import Config
from healthd.daemon_status import Counters, Status
from healthd.exporter.event_metrics import list_critical_xids
from healthd.exporter.metrics_page import Page, make_page_renderer
from healthd.finding_recorder import FindingRecorder
from healthd.findings.facts import Moment
from healthd.findings.finding_ledger import FindingLedger
from healthd.gpu_monitoring.gpu_check_registry import make_gpu_checks
from healthd.gpu_monitoring.gpu_monitor import GpuMonitor
from healthd.gpu_monitoring.nvml_collector import NvmlCollector
from healthd.gpu_monitoring.simulated_fault_files import SimulatedFaultFolder
from healthd.gpu_monitoring.simulated_faults import FOLDER, SimulatedHang
from healthd.gpu_monitoring.simulated_gpus import SimulatedGpus
from healthd.host import Host
from healthd.http_server.status_server import PostEndpoints, StatusServer
from healthd.kernel_log.log_file import POLL_S
from healthd.kernel_log.log_reader import KernelLogReader
from healthd.kernel_log.message_patterns.pattern_families import FAMILIES
from healthd.kernel_log.record_authenticity import RecordAuthenticator
from healthd.kernel_log.xid_corroboration import XidCorroborator
from healthd.node_monitor import NodeMonitor
from healthd.orders.order_store import OrderStore
from healthd.orders.order_task import HealthVerification
from healthd.preflight_reports.preflight_history import PreflightHistory
from healthd.preflight_reports.report_endpoint import PreflightEndpoint
from healthd.preflight_reports.report_queue import PreflightReportQueue
from healthd.reporting.software_inventory import collect_installed_versions
from healthd.source_monitoring import daemon_sources
from healthd.source_monitoring.source_prober import SourceProber
from healthd.source_monitoring.source_schedules import make_source_checks, make_source_schedules
from healthd.standalone_services import StandaloneServices
from healthd.storage.database_writer import DatabaseWriter
from healthd.storage.node_database import NodeDatabase
from healthd.storage.pending_changes import PendingChanges
from healthd.supervision.child_supervisor import close_all_children
from healthd.supervision.systemd_notifier import ServiceManager
from healthd.swap_reports.swap_endpoint import SwapEndpoint
from healthd.telemetry.evidence_bundle import collect_evidence
from healthd.thresholds import load_thresholds
from healthd.trainer.beacons.beacon_directory import prepare_directory
from healthd.trainer.beacons.beacon_page import BeaconError
from vocabulary.fault_catalogue.catalogue import Catalogue
from vocabulary.messages.evidence_bundle import EvidenceBundle
from vocabulary.messages.telemetry_messages import TelemetryPart
from vocabulary.order import Order
from vocabulary.text.plurals import format_count

if TYPE_CHECKING:
    from healthd.service_threads import ServiceThreads

TICK_S = 1.1  # at the latest; a sweep that comes shortly before triggers the tick: one wake-up a second, not two
TICK_EARLY_S = 0.3
RECORDS_PER_LOOK = 1000
LAST_WRITE_S = 2.0  # at the end; what is not written by then is read again from the kernel log

_log = logging.getLogger("healthd")


class HasFileno(Protocol):
    """What a selector can wait for."""

    def fileno(self) -> int:
        """Return its descriptor."""


class AlreadyRunning(Exception):
    """Another healthd uses this state directory."""


class Daemon:
    """One node's agent.

    Raises:
        AlreadyRunning: the state directory is in use.
        ConfigError, ThresholdsError: the configuration names what does not exist.
        OSError, DatabaseFull: the state directory, the socket or the port cannot be used.
    """

    def __init__(self, config: Config, host: Host, catalogue: Catalogue) -> None:
        self._config = config
        self._host = host
        self._boot_id = host.boot_id()
        thresholds = load_thresholds(config.thresholds)
        gpu_checks, source_checks = make_gpu_checks(thresholds), make_source_checks(config, thresholds)
        config.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        config.run_dir.mkdir(mode=0o755, parents=True, exist_ok=True)
        self._lock = _lock_state_directory(config)
        now = host.clock.wall()
        database = NodeDatabase(config.state_dir / "healthd.db", now)
        self._committer = DatabaseWriter(database, host.clock)
        self._waiting = PendingChanges(self._committer)
        orders = OrderStore(self._committer, config.node)
        ledger = FindingLedger(config.node, self._boot_id, database.active())
        ledger.begin_boot(now)
        witness = RecordAuthenticator(config.node, accept_injected=config.accept_injected)
        xids, messages = XidCheck(witness, catalogue), KernelMessageCheck(witness, FAMILIES)
        pretended = SimulatedGpus(ledger, make_gpu_checks(thresholds))
        counts = gpu_count_checks.GpuCountCheck(
            config.gpus.expected, partial(thresholds.section, gpu_count_checks.CHECK, gpu_count_checks.Limits)
        )
        gpus = GpuMonitor(ledger, database.gpus(), gpu_checks, pretended, counts)
        limits = thresholds.section(training_checks.CHECK, training_checks.Limits)
        trainings = training_checks.TrainingCheck(limits)
        self._watch = NodeMonitor(
            ledger, xids, messages, gpus, XidCorroborator(self._boot_id), source_checks, trainings
        )
        self._pretences = SimulatedFaultFolder(config.state_dir / FOLDER) if config.accept_injected else None
        self._recorder = FindingRecorder(ledger, self._committer, self._waiting, orders, now, wake=self.wake)
        self._kernel = _make_log_reader(config, self._boot_id, database, host)
        self._nvml = NvmlCollector(host, config.nvml.interval_s, config.nvml.deadline_s)
        self._prober = SourceProber(host, make_source_schedules(config), config.source_deadline_s)
        self._beacons = BeaconCollector(config.beacon_dir, limits.report_window_s)
        self._proofs: deque[HealthVerification] = deque()  # from the executor; at most one per order in progress
        self._told = PreflightReportQueue(self.wake)
        self.preflights = PreflightHistory()
        self.swaps = SwapEndpoint(lambda: self._beacons.claimants, host.clock)
        self._stopping = False
        self._nvml_to_rest = self._nvml_rests = False
        self._tick_due = 0.0
        self._stirred = True  # something other than time ended the last wait
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        self._registered: dict[str, HasFileno] = {}
        self._services = _make_services(config, host, self._waiting, orders, self)
        self._status = self._status_now()
        socket_path = config.run_dir / "healthd.sock"
        metrics = self._metrics(list_critical_xids(catalogue))
        _prepare_beacon_directory(config.beacon_dir)  # before the first answer: a client may then make a page
        door = PostEndpoints(PreflightEndpoint(self._told.tell, accept_injected=config.accept_injected), self.swaps)
        self._http = StatusServer(
            config.listen_address, socket_path, lambda: self.status, metrics, host.clock, self.evidence, door
        )
        self._service_manager = ServiceManager()

    @property
    def status(self) -> Status:
        """Return this node's published state. A stale one says so, and that the main loop is silent."""
        return self._status.aged(self._host.clock.monotonic())

    def run(self) -> bool:
        """Run until `stop`, then write what is left and end the children. Return False if the disk hangs."""
        self._committer.start()
        self._services.start()
        _log.info("node %s, boot %s, listening on %s port %s", self._config.node, self._boot_id, *self._http.address)
        self._service_manager.ready()
        try:
            while not self._stopping:
                self._wait()
                self._work()
        finally:
            self._service_manager.stopping()
            written = self._recorder.finish(self._host.clock.wall(), self._host.clock.monotonic(), LAST_WRITE_S)
            self._services.stop()
            self._http.close()
            close_all_children([self._nvml, self._prober, self._kernel], self._host.clock)
            ended = self._committer.close(LAST_WRITE_S)
        if not written:
            _log.error("not everything could be written; the kernel log is read again from the last stored position")
        return ended

    def stop(self) -> None:
        """Make `run` return soon. Callable from a signal handler."""
        self._stopping = True
        self.wake()

    def wake(self) -> None:
        """Wake the main loop. Callable from any thread."""
        with contextlib.suppress(BlockingIOError):  # already awake
            os.write(self._wake_write, b"!")

    def take_proof(self, proof: HealthVerification) -> None:
        """End the order and clear what the verification disproves, in one write. Callable from any thread."""
        self._proofs.append(proof)
        self.wake()

    def rest_nvml(self, wanted: bool) -> bool:  # noqa: FBT001 - a switch
        """Have the main loop keep NVML unused; return whether it is. Callable from any thread."""
        self._nvml_to_rest = wanted
        self._nvml_rests &= wanted
        self.wake()
        return self._nvml_rests

    def evidence(self, order: Order | None = None) -> EvidenceBundle:
        """Return recent evidence, for `order` or for a person on this node. Callable from any thread."""
        telemetry = self._watch.telemetry.snapshot(Moment(self._host.clock.wall(), self._host.clock.monotonic()))
        return collect_evidence(self.status, telemetry, self._config.beacon_dir, order, self._beacons.stacks)

    def telemetry(self, back_s: float) -> TelemetryPart:
        """Return the telemetry of the last `back_s`, for a person viewing this node. Callable from any thread."""
        return self._watch.telemetry.part(self._host.clock.monotonic(), back_s)

    def _metrics(self, xids: Sequence[str]) -> Page:
        with_dcgm_names = self._config.exporter.dcgm_names
        return make_page_renderer(
            lambda: self.status, self._waiting.count, with_dcgm_names=with_dcgm_names, critical_xids=xids
        )

    def _wait(self) -> None:
        self._keep_registered("kernel", self._kernel.source)
        self._keep_registered("nvml", self._nvml.pipe)
        timeout = max(0.0, self._tick_due - self._host.clock.monotonic())
        if self._kernel.source is None:
            timeout = min(timeout, POLL_S)
        ready = self._selector.select(timeout)
        self._stirred = bool(ready)
        for key, _ in ready:
            if key.fd == self._wake_read:
                os.read(self._wake_read, 4096)

    def _work(self) -> None:
        """Run one round: read what is there, write what is due, notify the services."""
        now = Moment(self._host.clock.wall(), self._host.clock.monotonic())
        read, evidence = self._take_kernel(now)
        if not read and not self._stirred and now.monotonic < self._tick_due:
            return  # a followed file that has not grown
        swept = self._take_nvml(now)
        due = now.monotonic >= self._tick_due - (TICK_EARLY_S if swept else 0.0)
        news = self._tick(now) if due else False
        if self._watch.gpus.take_renewal():
            self._nvml.enumerate_anew()
        while self._proofs:
            proof = self._proofs.popleft()
            if proof.whole_node:
                self._watch.gpus.accept_present(now.wall)
            self._recorder.prove(proof)
            self._nvml.retry_left_out()
            self._nvml.look_now()
        while (told := self._told.take()) is not None:
            sample, written = told
            self._watch.take_preflight(sample, now)
            self.preflights.told(sample, now.wall)
            self._recorder.when_written(written)
        self._recorder.expect(self._watch.gpus.expected)
        news |= self._recorder.commit_if_due(now.wall, now.monotonic)
        self._status = self._status_now()
        if news:
            self._services.wake_uplink()
        if evidence:
            self._nvml.look_now()

    def _tick(self, now: Moment) -> bool:
        """Do what is due about once a second; return whether ranks came or went."""
        self._tick_due = now.monotonic + TICK_S
        if (pids := self._watch.gpus.processes) is not None:  # while the driver hangs, the last known ones matter most
            self._prober.take_gpu_pids(pids)
        for reading in self._prober.poll():  # no wake-up for these: a second later is early enough
            self._watch.take_source(reading, now)
        self._watch.take_late_events(now)
        self._services.look_after_urgent()
        self._watch.take_start_failures(self._host.start_failures.current.values(), now)
        if self._pretences is not None:
            self._watch.gpus.pretences, hangs = self._pretences.read(now.wall)
            for hang in hangs:
                self._pretend(hang)
        self._service_manager.alive(
            f"{self._status.health.value}, {format_count(len(self._status.findings), 'finding')}"
        )
        return self._watch.take_beacons(self._beacons.read(now.wall), now)

    def _pretend(self, hang: SimulatedHang) -> None:
        if hang.source == daemon_sources.NVML:
            self._nvml.pretend_hang(hang.gpu)
        else:
            self._prober.pretend_hang(hang.source)

    def _take_nvml(self, now: Moment) -> bool:
        """Judge the NVML child's messages; return whether there were any."""
        if self._nvml_to_rest:
            self._nvml_rests = self._nvml.rest()
            return False
        samples = self._nvml.poll()
        for sample in samples:
            self._watch.take_nvml(sample, now)
        return bool(samples)

    def _take_kernel(self, now: Moment) -> tuple[bool, bool]:
        """Judge new kernel records; return whether there were any, and evidence about a GPU among them."""
        batch = self._kernel.read(RECORDS_PER_LOOK)
        evidence = self._watch.take_kernel(batch.records, batch.gaps, now)
        if batch.garbage:
            self._watch.report_unreadable_records(batch.garbage, now.wall)
        self._recorder.read_up_to(batch.cursor)
        if batch.more:
            self.wake()
        return bool(batch.records or batch.gaps or batch.garbage or batch.more), evidence

    def _status_now(self) -> Status:
        watch, gpus = self._watch, self._watch.gpus
        now = Moment(self._host.clock.wall(), self._host.clock.monotonic())
        kernel_log = daemon_sources.make_kernel_log_reading(self._kernel.trouble, self._kernel.using, now.wall)
        nvml = daemon_sources.make_nvml_reading(gpus, self._config.nvml.interval_s + self._config.nvml.deadline_s, now)
        counters = Counters(
            kernel_records=watch.kernel_records,
            sweeps=gpus.sweeps,
            sweep_errors=gpus.errors,
            nvml_starts=self._nvml.starts,
            nvml_hangs=gpus.hangs,
            changes_dropped=self._committer.database.dropped,
            changes_rejected=self._waiting.rejected,
            xid_events=watch.second.heard,
            xid_events_alone=watch.second.alone,
        )
        return Status(
            node=self._config.node,
            boot_id=self._boot_id,
            at=now.wall,
            monotonic=now.monotonic,
            findings=self._recorder.shown(),
            newest_change=self._recorder.newest,
            unwritten=self._recorder.unwritten,
            last_commit=self._committer.last,
            reported_at=self._services.heard_at,
            condemned=self._recorder.condemned,
            silent=daemon_sources.list_silent_sources(kernel_log, nvml),
            gpus=gpus.gpus,
            versions=collect_installed_versions(gpus.inventory, watch.sources.latest),
            ranks=watch.ranks,
            states=tuple(gpus.states.values()),
            inventory=gpus.inventory,
            sources={kernel_log.source: kernel_log, nvml.source: nvml, **watch.sources.latest},
            events=watch.ledger.events.rows,
            sweep_seconds=gpus.sweep_seconds,
            counters=counters,
            abandoned=self._nvml.abandoned + self._prober.abandoned,
            preflights=self.preflights.seen,
        )

    def _keep_registered(self, name: str, source: HasFileno | None) -> None:
        """Keep the selector in step with a source that may have been reopened (perhaps under its old descriptor)."""
        known = self._registered.get(name)
        if known is source:
            return
        if known is not None:
            self._selector.unregister(known)
            del self._registered[name]
        if source is not None:
            self._selector.register(source, selectors.EVENT_READ)
            self._registered[name] = source


def _make_services(
    config: Config, host: Host, waiting: PendingChanges, orders: OrderStore, loop: Daemon
) -> ServiceThreads | StandaloneServices:
    if not config.remediator.url:
        return StandaloneServices()
    from healthd.service_threads import ServiceThreads  # noqa: PLC0415 - TLS and HTTP: 5 MiB that a standalone node saves

    return ServiceThreads(config, host, waiting, orders, loop)


def _lock_state_directory(config: Config) -> int:
    path = config.state_dir / "healthd.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise AlreadyRunning(f"{path}: another healthd has this state_dir; give each node its own") from None
    return descriptor


def _make_log_reader(config: Config, boot_id: str, database: NodeDatabase, host: Host) -> KernelLogReader:
    log = config.kernel_log
    hosts = (config.node, socket.gethostname(), "localhost")
    cursor = database.cursor()
    return KernelLogReader(
        log.path, boot_id, cursor, host.clock, means=log.source, trust_file=log.trust_file, hosts=hosts
    )


def _prepare_beacon_directory(directory: os.PathLike[str]) -> None:
    try:
        prepare_directory(str(directory))
    except (BeaconError, OSError) as error:  # trainers then run without orders; faults are still found
        _log.error("no beacons on this node: %s", error)
