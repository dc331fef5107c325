"""Everything that runs only while this process leads: the engine, the executor, the monitors, and the API's context."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from remediator.api.handler_context import HandlerContext, LongPollWakeups
from remediator.api.rate_limits import RateLimitGate
from remediator.config import Config, SchedulerConfig
from remediator.decisions.decision_settings import DecisionSettings
from remediator.engine.decision_engine import DecisionEngine, StateSnapshot
from remediator.engine.policy_reload import PolicyReloader
from remediator.execution.action_executor import ActionExecutor
from remediator.fleet.report_registry import ReportRegistry
from remediator.monitoring.fleet_observer import FleetObserver
from remediator.monitoring.job_watcher import JobWatcher
from remediator.monitoring.lemon_monitor import LemonMonitor
from remediator.notifications.action_dispatcher import ActionDispatcher
from remediator.notifications.message_outbox import MessageOutbox
from remediator.schedulers.kubernetes.kubernetes_scheduler import KubernetesScheduler
from remediator.schedulers.local_scheduler import LocalScheduler
from remediator.schedulers.scheduler_protocol import ReportsLocations, Scheduler
from remediator.schedulers.slurm.slurm_scheduler import SlurmScheduler
from remediator.store.delivery_store import DeliveryStore
from remediator.store.journal import Journal
from remediator.store.login_sessions import LoginSessions
from remediator.store.occurrence_queries import OccurrenceQueries
from remediator.store.retention import RetentionCleaner
from remediator.store.token_store import Tokens
from vocabulary.clock import Clock, SystemClock

log = logging.getLogger(__name__)
TOKEN_LOOK_S = 0.5


class LeaderTerm:
    """One term of this process as leader. A process has at most one; a new term needs a new process."""

    def __init__(
        self,
        config: Config,
        reload: PolicyReloader,
        journal: Journal,
        wakeups: LongPollWakeups,
        ended: Callable[[str], None],
    ) -> None:
        """Take leadership and load the state of earlier terms.

        Raises:
            StoreError: another remediator leads, or the database cannot be used.
        """
        clock, registry = SystemClock(), ReportRegistry()
        backend = build_scheduler(config.scheduler, clock, registry)
        performer = ActionExecutor(
            config.cluster,
            backend,
            ActionDispatcher(
                config.hooks, MessageOutbox(config.alerts, DeliveryStore(journal.engine), config.cluster, clock)
            ),
            clock,
            config.scheduler.poll_s,
            config.scheduler.poll_busy_s,
            config.alerts,
        )

        def published(snapshot: StateSnapshot) -> None:
            performer.start_due_actions(snapshot)
            wakeups.wake(snapshot.ordered)

        settings = _make_decision_settings(config, reload)
        journal.leadership.over = ended
        tidy = RetentionCleaner(journal.engine, config.retention, clock)
        engine = DecisionEngine(journal, settings, clock, published, ended, tidy)
        reload.lead(engine)
        tokens, gate = Tokens(journal.engine), RateLimitGate(config.limits, clock.monotonic)
        topology = Path(config.topology) if config.topology else None
        places = backend if isinstance(backend, ReportsLocations) else None
        self._fleet_observer = FleetObserver(engine, registry, clock, config.silence.after_s, topology, places)
        past = LemonMonitor(OccurrenceQueries(journal.engine), clock.wall())
        self._watcher = JobWatcher(engine, registry, clock, past, config.analysis_processes)
        self.service = HandlerContext(
            config,
            clock,
            engine,
            journal,
            performer,
            registry,
            tokens,
            wakeups,
            reload,
            gate,
            self._fleet_observer,
            self._watcher.faults,
            LoginSessions(journal.engine),
        )
        self._token_watch = TokenWatch(tokens, wakeups.wake)

    def start(self) -> None:
        """Start deciding and acting."""
        service = self.service
        self._token_watch.start()
        service.engine.start()
        service.performer.start(service.engine)
        self._fleet_observer.start()
        self._watcher.start()
        policy = service.engine.settings.policy
        log.info(
            "cluster %s: leads, epoch %d, mode %s, policy %s %s",
            service.config.cluster,
            service.engine.epoch,
            service.config.mode.value,
            policy.source,
            policy.digest,
        )

    def give_up(self) -> None:
        """End at once after leadership is lost: nothing that waits for it may keep the process alive."""
        self.service.performer.give_up()

    def stop(self) -> None:
        """Stop in order: running actions finish, and their outcomes are written."""
        self._token_watch.stop()
        self._fleet_observer.stop()
        self._watcher.stop()
        self.service.performer.stop()
        self.service.engine.stop()


def _make_decision_settings(config: Config, reload: PolicyReloader) -> DecisionSettings:
    return DecisionSettings(
        policy=reload.current(),  # the playbooks may have changed since this process became a standby
        mode=config.mode,
        budget=config.budget,
        probation_s=config.probation_s,
        silence=config.silence,
        again_after_s=config.again_after_s,
    )


def build_scheduler(config: SchedulerConfig, clock: Clock, registry: ReportRegistry) -> Scheduler:
    """Create the backend that the configuration names."""
    if config.kind == "slurm":
        return SlurmScheduler(config.slurm, clock)
    if config.kind == "kubernetes":
        return KubernetesScheduler(config.kubernetes, clock)
    return LocalScheduler(Path(config.state_file), clock, lambda nodes: registry.running(nodes, clock.wall()))


class TokenWatch:
    """Polls every `TOKEN_LOOK_S` for tokens issued or revoked by other processes; `changed` is called after any change.

    So a revocation applies at once, also to open long polls.
    """

    def __init__(self, tokens: Tokens, changed: Callable[[], None]) -> None:
        self._tokens = tokens
        self._changed = changed
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tokens", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop soon."""
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                if self._tokens.refresh():
                    self._changed()
            except SQLAlchemyError as error:  # known tokens stay valid: none can be revoked in the meantime
                log.debug("tokens cannot be read: %s", error)
            self._stop.wait(TOKEN_LOOK_S)
