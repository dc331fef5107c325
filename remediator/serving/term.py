"""Everything that runs only while this process leads: the engine, the performer, and what the API hands requests to."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from remediator.act.deeds import Deeds
from remediator.act.kubernetes.scheduler import KubernetesScheduler
from remediator.act.local import LocalScheduler
from remediator.act.scheduler import KnowsPlaces, Scheduler
from remediator.act.slurm.scheduler import SlurmScheduler
from remediator.act.webhooks.outbox import Outbox
from remediator.api.limits import Gate
from remediator.api.service import Service, Wakeups
from remediator.config import Config, SchedulerConfig
from remediator.decide.settings import Settings
from remediator.engine import Engine, Snapshot
from remediator.lookout import Lookout
from remediator.performer import Performer
from remediator.policy_reload import PolicyReload
from remediator.roster import Roster
from remediator.serving.token_watch import TokenWatch
from remediator.store.deliveries import DeliveryStore
from remediator.store.journal import Journal
from remediator.store.past import PastStore
from remediator.store.retention import Housekeeper
from remediator.store.sessions import Sessions
from remediator.store.tokens import Tokens
from remediator.watch.past import PastWatch
from remediator.watch.watcher import Watcher
from vocabulary.clock import Clock, SystemClock

log = logging.getLogger(__name__)


class Term:
    """One term of this process as the leader. It has one at most; a new one takes a new process."""

    def __init__(
        self, config: Config, reload: PolicyReload, journal: Journal, wakeups: Wakeups, ended: Callable[[str], None]
    ) -> None:
        """Take the lead, and load what the terms before left.

        Raises:
            StoreError: another remediator leads, or the database cannot be used.
        """
        clock, roster = SystemClock(), Roster()
        backend = scheduler(config.scheduler, clock, roster)
        performer = Performer(
            config.cluster,
            backend,
            Deeds(config.hooks, Outbox(config.alerts, DeliveryStore(journal.engine), config.cluster, clock)),
            clock,
            config.scheduler.poll_s,
            config.scheduler.poll_busy_s,
            config.alerts,
        )

        def published(snapshot: Snapshot) -> None:
            performer.look(snapshot)
            wakeups.wake(snapshot.ordered)

        settings = Settings(
            policy=reload.current(),  # the playbooks may have changed since this process began to stand by
            mode=config.mode,
            budget=config.budget,
            probation_s=config.probation_s,
            silence=config.silence,
            again_after_s=config.again_after_s,
        )
        journal.leadership.over = ended
        tidy = Housekeeper(journal.engine, config.retention, clock)
        engine = Engine(journal, settings, clock, published, ended, tidy)
        reload.lead(engine)
        tokens, gate = Tokens(journal.engine), Gate(config.limits, clock.monotonic)
        topology = Path(config.topology) if config.topology else None
        places = backend if isinstance(backend, KnowsPlaces) else None
        self._lookout = Lookout(engine, roster, clock, config.silence.after_s, topology, places)
        self._watcher = Watcher(engine, roster, clock, PastWatch(PastStore(journal.engine), clock.wall()))
        self.service = Service(
            config,
            clock,
            engine,
            journal,
            performer,
            roster,
            tokens,
            wakeups,
            reload,
            gate,
            self._lookout,
            self._watcher.faults,
            Sessions(journal.engine),
        )
        self._token_watch = TokenWatch(tokens, wakeups.wake)

    def start(self) -> None:
        """Begin to decide and to act."""
        service = self.service
        self._token_watch.start()
        service.engine.start()
        service.performer.start(service.engine)
        self._lookout.start()
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
        """It is over; what waits for the lead must not keep the process."""
        self.service.performer.give_up()

    def stop(self) -> None:
        """End in good order: what is under way finishes, and its outcome is written down."""
        self._token_watch.stop()
        self._lookout.stop()
        self._watcher.stop()
        self.service.performer.stop()
        self.service.engine.stop()


def scheduler(config: SchedulerConfig, clock: Clock, roster: Roster) -> Scheduler:
    """The backend the configuration names."""
    if config.kind == "slurm":
        return SlurmScheduler(config.slurm, clock)
    if config.kind == "kubernetes":
        return KubernetesScheduler(config.kubernetes, clock)
    return LocalScheduler(Path(config.state_file), clock, lambda nodes: roster.running(nodes, clock.wall()))
