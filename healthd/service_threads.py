"""The threads beside the main loop: uplink, orders, hazards. Each is restarted if it fails, and the failure logged."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from healthd.config import Config
from healthd.controller.controller_client import ControllerClient
from healthd.daemon_status import Status
from healthd.host import Host
from healthd.orders.evidence_files import EvidenceFiles
from healthd.orders.evidence_order import EvidenceTask
from healthd.orders.order_executor import OrderExecutor
from healthd.orders.order_inbox import OrderInbox
from healthd.orders.order_store import OrderStore
from healthd.orders.order_task import HealthVerification, OrderTask
from healthd.preflight_reports.preflight_history import PreflightHistory
from healthd.reporting.hazard_publisher import HazardPublisher
from healthd.reporting.report_uplink import ReportUplink
from healthd.reporting.telemetry_subscription import TelemetrySubscription
from healthd.storage.pending_changes import PendingChanges
from healthd.swap_reports.swap_endpoint import SwapEndpoint
from vocabulary.messages.evidence_bundle import EvidenceBundle
from vocabulary.messages.telemetry_messages import TelemetryPart
from vocabulary.order import Order

if TYPE_CHECKING:
    from healthd.controller.nats_connection import NatsConnection

RESTART_S = 5.0
JOIN_S = 2.0

_log = logging.getLogger("healthd")


class MainLoopHandle(Protocol):
    """What the services may request from the main loop, which owns the samples. Callable from any thread."""

    preflights: PreflightHistory
    swaps: SwapEndpoint

    @property
    def status(self) -> Status:
        """Return this node's published state."""

    def wake(self) -> None:
        """Wake the main loop."""

    def evidence(self, order: Order | None = None) -> EvidenceBundle:
        """Return recent evidence, for `order` or for a person on this node."""

    def telemetry(self, back_s: float) -> TelemetryPart:
        """Return the telemetry of the last `back_s`, for a person viewing this node."""

    def take_proof(self, proof: HealthVerification) -> None:
        """End the order and clear what the verification disproves, in one write."""

    def rest_nvml(self, wanted: bool) -> bool:  # noqa: FBT001 - a switch
        """Keep NVML unused; return whether it is."""


class ServiceThreads:
    """The services of a node with a controller.

    Loads TLS and the HTTP client, so a standalone node does not import this.
    """

    def __init__(
        self, config: Config, host: Host, waiting: PendingChanges, orders: OrderStore, loop: MainLoopHandle
    ) -> None:
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._loop = loop
        self._uplink = ReportUplink(
            config=config.remediator,
            agent=uuid.uuid4().hex,
            waiting=waiting,
            orders=orders,
            status=lambda: loop.status,
            clock=host.clock,
            watched=TelemetrySubscription(loop.telemetry, host.clock),
        )
        self._uplink.swaps = loop.swaps.current
        self._performer = OrderExecutor(
            config,
            host,
            orders,
            on_proof=loop.take_proof,
            on_answer=self._uplink.wake,
            rest_nvml=loop.rest_nvml,
            evidence=self._evidence,
        )
        self._performer.on_preflight = loop.preflights.answered
        waiting.on_more = self._uplink.wake
        orders.on_late = self._written_late
        self._orders = orders
        self._config = config
        self._evidence_files = EvidenceFiles(config.state_dir / "evidence")
        connect = partial(ControllerClient, config.remediator, config.node)
        self._hazards = HazardPublisher(str(config.beacon_dir), connect, lambda: loop.status, host.clock)
        self._inbox = OrderInbox(
            config.remediator, config.node, orders, host.clock, self._ordered, self._uplink.request_telemetry
        )
        self._nats: NatsConnection | None = None
        if config.remediator.nats is not None:
            self._use_nats(config)

    def _use_nats(self, config: Config) -> None:
        from healthd.controller.nats_client import NatsControllerClient  # noqa: PLC0415 - an optional dependency
        from healthd.controller.nats_connection import NatsConnection  # noqa: PLC0415 - same

        self._nats = NatsConnection(config.remediator, config.node)
        self._uplink.connect = self._inbox.connect = self._hazards.connect = partial(
            NatsControllerClient, config.remediator, config.node, self._nats
        )

    @property
    def heard_at(self) -> float | None:
        """When the controller last accepted a report, in UTC seconds."""
        return self._uplink.heard_at

    def wake_uplink(self) -> None:
        """Report a change now."""
        self._uplink.wake()

    def look_after_urgent(self) -> None:
        """Cut the wait for a silent controller if a fatal finding is pending. Call about once a second."""
        self._uplink.look_after_urgent()

    def start(self) -> None:
        """Start the threads."""
        if self._nats is not None:
            self._nats.start()
        threads = {
            "uplink": self._uplink.run,
            "orders": self._performer.run,
            "inbox": self._inbox.run,
            "hazards": self._hazards.run,
        }
        for name, run in threads.items():
            thread = threading.Thread(target=self._keep_running, args=(name, run), name=name, daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        """Stop the threads, with a short wait: a long poll may outlast it, and loses nothing by it."""
        self._stop.set()
        self._inbox.stop()
        self._performer.stop()
        self._hazards.stop()
        self._uplink.stop()
        for thread in self._threads[:2]:
            thread.join(JOIN_S)
        if self._nats is not None:
            self._nats.stop()

    def _evidence(self, order: Order) -> OrderTask:
        config = self._config
        connect = partial(ControllerClient, config.remediator, config.node)
        return EvidenceTask(order, self._evidence_files, self._loop.evidence, connect)

    def _written_late(self) -> None:
        """Continue the order of a write that timed out and has now ended, and send its answer if it is durable."""
        self._performer.wake()
        if self._orders.unsent(self._loop.status.newest_change):
            self._uplink.wake()

    def _ordered(self) -> None:
        self._performer.wake()
        self._loop.wake()

    def _keep_running(self, name: str, run: Callable[[], None]) -> None:
        while not self._stop.is_set():
            try:
                run()
            except Exception:  # noqa: BLE001 - whatever it was, the thread must come back
                _log.exception("the %s thread failed; please report this. It restarts in %g s", name, RESTART_S)
                self._stop.wait(RESTART_S)
